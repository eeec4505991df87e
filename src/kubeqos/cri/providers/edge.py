"""What a provider's process says, checked before anybody believes it (ruling 18). Pure.

Called by `remote` for every answer, and by the conformance kit, which tells a vendor the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.protocol import Advertisement, Edit, Sample
from kubeqos.model.names import qualified_name
from kubeqos.rules.qos.classes import POD_QOS

MOST = 1000
"""Resources of a provider, and classes of a resource: no node has more."""
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_FIELDS = {field.name: field for field in cri.LinuxContainerResources.DESCRIPTOR.fields}


def offer_problems(offers: Sequence[Advertisement]) -> Iterator[str]:
    """Why what is offered cannot be advertised."""
    if len(offers) > MOST:
        yield f"{len(offers)} resources; the most is {MOST}"
    for name, times in Counter(offer.name for offer in offers).items():
        if times > 1:
            yield f"resource {name!r} is offered twice"
    for offer in offers[:MOST]:
        if offer.name == POD_QOS:
            yield f"resource {POD_QOS!r} belongs to Kubernetes"
        yield from (f"resource {offer.name[:80]!r}: {wrong}" for wrong in qualified_name(offer.name))
        names = [one.name for one in offer.classes]
        if not names:
            yield f"resource {offer.name!r} has no class"
        if len(names) > MOST:
            yield f"resource {offer.name!r} has {len(names)} classes; the most is {MOST}"
        for name, times in Counter(names).items():
            if times > 1:
                yield f"class {name!r} of {offer.name!r} is named twice"
            yield from (f"class {name[:80]!r} of {offer.name!r}: {wrong}" for wrong in qualified_name(name))
        if offer.default and offer.default not in names:
            yield f"default {offer.default!r} of {offer.name!r} is not one of its classes"


def edit_problems(edit: Edit) -> Iterator[str]:
    """Why an edit cannot be made in the runtime's request."""
    for name, value in edit.resources.items():
        field = _FIELDS.get(name)
        if field is None or field.message_type is not None:
            yield f"{name!r} is not a field of LinuxContainerResources that can be set"
        elif (field.cpp_type == field.CPPTYPE_STRING) != isinstance(value, str):
            yield f"{name!r} is {'a text' if field.cpp_type == field.CPPTYPE_STRING else 'a number'}"
    yield from (
        f"annotation {key[:80]!r}: {wrong}" for key in edit.annotations for wrong in qualified_name(key.lower())
    )
    for key in edit.unified:
        if "/" in key or not key.strip("."):
            yield f"{key!r} is not a file of a cgroup"


def sample_problems(samples: Sequence[Sample]) -> Iterator[str]:
    """Why measurements cannot be exported."""
    for sample in samples:
        for name in (sample.name, *sample.labels):
            if not _METRIC.fullmatch(name):
                yield f"{name[:80]!r} is not a name that Prometheus takes"
