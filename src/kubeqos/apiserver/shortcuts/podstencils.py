"""Stencils of pods: what pods of one outline become, and pods of one template.

A pod is cut into its outline and its parts (`podoutline`). The outline is rehearsed once, with marks in place of the
parts; pods with this outline are then made by filling in their own parts, which the outline has judged.

Pods that differ in nothing but their name, as a client makes them by the hundred, are not even decoded: the body
around the name leads to a stencil that is filled but for name, uid and time. Bounds of LimitRanges and the quota ledger
decide about every single pod.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.registry.core import Core, generated_name
from kubeqos.apiserver.registry.writes import Write
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.shortcuts.podoutline import MARK, Outline, complete, outline, prepare
from kubeqos.apiserver.shortcuts.stamping import Stamp, defaulted, rehearsed
from kubeqos.apiserver.shortcuts.stencils import (
    MARKS,
    NAME_MARK,
    OWN,
    Key,
    Memo,
    Seen,
    Stencil,
    text_of,
)
from kubeqos.codec import decode_json, encode_json
from kubeqos.model import schema
from kubeqos.model.names import dns_label
from kubeqos.model.objects import ContainerView, PodStatus, PodView
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.decoding import escapes_quantity
from kubeqos.rules.qos.podqos import class_of_spec
from kubeqos.rules.quota import Charge, charge_pod

_LARGEST_BODY = 16 << 10
# The name of the pod itself: in the metadata, outside the maps that metadata may hold before it.
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_FLAT_MAP = rb'\{(?:[^{}"]|%b)*\}' % _TEXT
_NAME = re.compile(rb'"metadata"\s*:\s*\{(?:[^{}"]|%b|%b)*?"name"\s*:\s*"([^"\\]*)"' % (_TEXT, _FLAT_MAP))
_QOS, _FIRST_PART = OWN, OWN + 1
_QOS_MARK = f"{MARK}qos"


@dataclass(frozen=True, slots=True)
class Shape:
    """What every pod of one outline becomes."""

    stencil: Stencil
    pod: PodView
    keys: int


class PodStencils:
    """The stencils of new pods."""

    def __init__(self, core: Core, chain: Chain) -> None:
        prepare()
        self._core = core
        self._chain = chain
        self._templates: Memo[tuple[Stencil, Charge]] = Memo()
        self._shapes: Memo[Shape | bool] = Memo()  # False: an outline that always goes the ordinary way
        self._seen = Seen()

    def stamp(self, write: Write, request: Request) -> Stamp | None:
        """The pod that a request makes, unless it has to go the ordinary way."""
        if not request.content_type.startswith("application/json") or len(request.body) > _LARGEST_BODY:
            return None
        core, around = self._core, self._around(write, request)
        found = template(request.body)
        kept = self._templates.get((found.key, around)) if found is not None else None
        now = timestamp(core.clock()).encode()
        if found is not None and kept is not None:
            stencil, charge = kept
            tail = stencil.fill((found.name, core.new_uid().encode(), now))
            return Stamp(found.name.decode(), tail, charge)
        return self._shaped(write, request, around, found, now)

    def _around(self, write: Write, request: Request) -> Key:
        """Everything beside the body that the outcome depends on, quotas excepted."""
        query = tuple((key, tuple(values)) for key, values in request.query.items()) if request.query else ()
        return write.namespace, write.manager, query, self._chain.version

    def _shaped(self, write: Write, request: Request, around: Key, found: Template | None, now: bytes) -> Stamp | None:
        core = self._core
        cut = outline(
            request.body,
            lambda prefix: generated_name(prefix, core.new_suffix()),
            defaulted(self._chain, write.namespace),
            checked=bool(self._chain.checks),
        )
        if cut is None:
            return None
        shape = self._shape(write, request, cut, around)
        if shape is None or not _is_sound(request.body, cut, shape):
            return None
        qos, charge = _priced(cut, shape.pod)
        values = [cut.name.encode(), core.new_uid().encode(), now, qos.encode(), *cut.texts]
        if found is not None and self._seen.before((found.key, around)) and found.cuts_the_name():
            self._templates.put((found.key, around), (shape.stencil.narrowed(values), charge))
        return Stamp(cut.name, shape.stencil.fill(values), charge)

    def _shape(self, write: Write, request: Request, cut: Outline, around: Key) -> Shape | None:
        key = (*cut.key, around)
        shape = self._shapes.get(key)
        if shape is None and self._seen.before(key):
            shape = learn(self._core, self._chain, write, request, cut) or False
            self._shapes.put(key, shape)
        return shape if isinstance(shape, Shape) else None


class Template(NamedTuple):
    """A body with the pod's name cut out."""

    key: tuple[bytes, bytes]
    name: bytes

    def cuts_the_name(self) -> bool:
        """Whether what was cut out of the text is the pod's name, and not one that is deeper inside."""
        before, after = self.key
        probe = decode_json(b"%bprobe-%b%b" % (before, self.name, after))
        return bool(probe["metadata"]["name"] == f"probe-{self.name.decode()}")


def template(body: bytes) -> Template | None:
    """Cut the name out of a body; None where it has none that is good beyond doubt."""
    found = _NAME.search(body)
    if found is None or dns_label(found[1].decode("ascii", "replace")):
        return None
    return Template((body[: found.start(1)], body[found.end(1) :]), found[1])


def _is_sound(body: bytes, cut: Outline, shape: Shape) -> bool:
    """Whether the body has no field twice, and no escapes in its quantities: what a decoded tree cannot tell."""
    pod = schema.kind("", "v1", "Pod")
    if body.translate(None, b" \t\r\n").count(b'":') != shape.keys + cut.keys and schema.duplicate_fields(body, pod):
        return False
    return not (b"\\" in body and cut.has_amounts and escapes_quantity(body, pod))


def _priced(cut: Outline, pod: PodView) -> tuple[str, Charge]:
    """The QoS class of a pod and its charge: both follow from its containers."""
    spec = pod.spec
    views = [
        ContainerView(
            name=name, resources=one.resources if amounts is None else amounts, restart_policy=one.restart_policy
        )
        for one, (name, amounts) in zip([*spec.containers, *spec.init_containers], cut.containers, strict=True)
    ]
    count = len(spec.containers)
    spec = msgspec.structs.replace(spec, containers=views[:count], init_containers=views[count:])
    qos = class_of_spec(spec).value
    return qos, charge_pod(PodView(spec=spec, status=PodStatus(phase="Pending", qos_class=qos)))


def learn(core: Core, chain: Chain, write: Write, request: Request, cut: Outline) -> Shape | None:
    """Rehearse the ordinary way for an outline; None when that refuses it, or has something to say about it."""
    keys = _count_keys(decode_json(encode_json(cut.pod)))
    body, holes = complete(cut, NAME_MARK)
    obj = rehearsed(core, chain, write, request, body, limited=not cut.has_amounts)
    if obj is None:
        return None
    view = PodView.of(obj)
    obj["status"]["qosClass"] = _QOS_MARK
    marks = MARKS | {_QOS_MARK.encode(): _QOS} | {seen: _FIRST_PART + hole for seen, hole in holes.items()}
    stencil = Stencil.of(text_of(write.kind, obj), marks)
    return None if stencil is None else Shape(stencil, view, keys)


def _count_keys(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(map(_count_keys, value)) if isinstance(value, list) else 0
