"""What becomes of QoS classes when a client that does not know the fields writes a whole template.

kubectl and every other program with compiled types drops `qosResources` when it sends back a whole object that it has
read (`kubectl rollout undo`, `kubectl create job --from`). Admission asks here from which earlier form of the template
they are to be restored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from kubeqos.model.annotations.wellknown import TEMPLATE_HASH_LABEL
from kubeqos.rules.qos.classes import raw_class_requests

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """A template that a written one may be a copy of: the ReplicaSet of a revision, the CronJob of a Job."""

    name: str
    template: Raw


@dataclass(frozen=True, slots=True)
class Restored:
    """A template with its classes again, and where they come from."""

    template: Raw
    origin: str
    others: tuple[str, ...] = ()
    """Origins that differ in nothing but their classes: it could have been one of these."""

    @property
    def because(self) -> str:
        """What the client is told."""
        also = f"; {', '.join(self.others)} differs in its classes alone" if self.others else ""
        return (
            f"spec.template: your client left out every QoS class; restored {shown(self.template)} from {self.origin}"
            f"{also}. To remove classes on purpose, apply a manifest without them"
        )


def shown(template: Mapping[str, Any]) -> str:
    """The classes that a template asks for, each once, as `network=fast, rdt=gold`."""
    asked = raw_class_requests(template.get("spec") or {})
    return ", ".join(dict.fromkeys(f"{one.get('name')}={one.get('class')}" for one in asked))


def restored(old: Raw | None, new: Raw, origins: Iterable[Origin]) -> Restored | None:
    """The template `new` with the classes of the origin that it is a copy of, when it has lost them on the way.

    Where nothing but the classes of the old template is gone, somebody took them away: kubectl sends no such rollback,
    since to it both templates are the same. Of several origins that agree the first is meant, also one without classes.
    """
    bare = _compared(new)
    if shown(new) or (old is not None and _compared(old) == bare):
        return None
    found = [each for each in origins if _compared(each.template) == bare]
    if not found or not shown(found[0].template):
        return None
    first, *rest = found
    others = tuple(each.name for each in rest if shown(each.template) != shown(first.template))
    return Restored({**new, "spec": deepcopy(first.template["spec"])}, first.name, others)


def _compared(template: Mapping[str, Any]) -> Raw:
    """A template as a client without the fields sees it."""
    metadata = template.get("metadata") or {}
    marks = {
        kind: {key: value for key, value in (metadata.get(kind) or {}).items() if key != TEMPLATE_HASH_LABEL}
        for kind in ("labels", "annotations")
    }
    return {**marks, "spec": _without_classes(template.get("spec") or {})}


def _without_classes(spec: Mapping[str, Any]) -> Raw:
    bare = {key: value for key, value in spec.items() if key != "qosResources"}
    for key in ("initContainers", "containers"):
        if spec.get(key):
            bare[key] = list(_bare(spec[key]))
    return bare


def _bare(containers: Iterable[Mapping[str, Any]]) -> Iterator[Raw]:
    for container in containers:
        resources = {key: value for key, value in (container.get("resources") or {}).items() if key != "qosResources"}
        yield {**container, "resources": resources}
