"""Stencils: what new pods become, kept as text with holes for what differs from pod to pod.

Decoding, defaulting, validating, every admission step but quota, and field ownership are functions of the body and of
what surrounds it. A stencil is the outcome for one outline (`outlines`): the whole long way is rehearsed once, with
marks in place of the parts that were cut out, and the stored text is cut at these marks. Pods with this outline are
then made by filling in their own parts, which the outline has judged. An outline that is seen for the first time goes
the long way itself: one that is used once is not worth a rehearsal.

Pods that differ in nothing but their name, as a client makes them by the hundred, are not even decoded: the body
around the name leads to a stencil that is filled but for name, uid and time.

Everything that an outcome depends on is part of the key that it is found by, so it can never answer for another body or
another configuration. Bounds of LimitRanges and the quota ledger decide about every single pod.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import msgspec

from kubeqos.apiserver.bodies import object_body
from kubeqos.apiserver.core import Core, generated_name
from kubeqos.apiserver.objects import ordered
from kubeqos.apiserver.outlines import MARK, Outline, complete, outline
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.status import ApiError
from kubeqos.apiserver.writes import Write, rehearse
from kubeqos.codec import encode_json
from kubeqos.model import schema
from kubeqos.model.names import dns_label
from kubeqos.model.objects import ContainerView, PodStatus, PodView
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.decoding import escapes_quantity
from kubeqos.rules.podqos import spec_qos_class
from kubeqos.rules.quota import Charge, charge_pod

_KEPT = 1024
_SEEN = 8192
_LARGEST_BODY = 16 << 10
# The name of the pod itself: in the metadata, outside the maps that metadata may hold before it.
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_FLAT_MAP = rb'\{(?:[^{}"]|%b)*\}' % _TEXT
_NAME = re.compile(rb'"metadata"\s*:\s*\{(?:[^{}"]|%b|%b)*?"name"\s*:\s*"([^"\\]*)"' % (_TEXT, _FLAT_MAP))
_MOMENT = 4086543217.0
_MOMENT_TEXT = timestamp(_MOMENT).encode()
NAME, UID, TIME, QOS, FIRST_PART = range(5)
_MARKS = {f"{MARK}{word}".encode(): hole for hole, word in ((NAME, "name"), (UID, "uid"), (QOS, "qos"))}
_MARKS[_MOMENT_TEXT] = TIME
_POD = ("", "v1", "Pod")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A new object: its stored form behind the revision, and what it costs; None for what no quota counts."""

    name: str
    tail: bytes
    charge: Charge | None


@dataclass(frozen=True, slots=True)
class Stencil:
    """Text with holes. `pieces` has an empty place for each of them; `holes` says where and for which value."""

    pieces: tuple[bytes, ...]
    holes: tuple[tuple[int, int], ...]

    @staticmethod
    def of(text: bytes, marks: dict[bytes, int]) -> Stencil | None:
        """Cut a text at the marks; None unless every mark is there and nothing else is left of any."""
        pattern = re.compile(b"|".join(map(re.escape, sorted(marks, key=len, reverse=True))))
        pieces: list[bytes] = []
        holes: list[tuple[int, int]] = []
        last = 0
        for found in pattern.finditer(text):
            pieces += (text[last : found.start()], b"")
            holes.append((len(pieces) - 1, marks[found[0]]))
            last = found.end()
        pieces.append(text[last:])
        if {hole for _, hole in holes} != set(marks.values()) or any(MARK.encode() in piece for piece in pieces):
            return None
        return Stencil(tuple(pieces), tuple(holes))

    def fill(self, values: Sequence[bytes]) -> bytes:
        pieces = list(self.pieces)
        for place, hole in self.holes:
            pieces[place] = values[hole]
        return b"".join(pieces)

    def narrowed(self, values: Sequence[bytes]) -> Stencil:
        """The same with all holes filled but those of name, uid and time."""
        pieces = list(self.pieces)
        for place, hole in self.holes:
            if hole > TIME:
                pieces[place] = values[hole]
        return Stencil(tuple(pieces), tuple((place, hole) for place, hole in self.holes if hole <= TIME))


@dataclass(frozen=True, slots=True)
class Shape:
    """What every pod of one outline becomes."""

    stencil: Stencil
    pod: PodView
    keys: int


Key = Hashable
Kept = TypeVar("Kept")


class Memo(Generic[Kept]):
    """The entries that were used last, up to a bound."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._entries: OrderedDict[Key, Kept] = OrderedDict()

    def get(self, key: Key) -> Kept | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: Key, value: Kept) -> None:
        self._entries[key] = value
        if len(self._entries) > self._bound:
            self._entries.popitem(last=False)


class Stencils:
    """The stencils of one server."""

    def __init__(self) -> None:
        self._templates: Memo[tuple[Stencil, Charge]] = Memo(_KEPT)
        self._shapes: Memo[Shape | bool] = Memo(_KEPT)  # False: an outline that always goes the long way
        self._seen: Memo[bool] = Memo(_SEEN)  # hashes, so that nothing is held for what is seen once

    def stamp(self, core: Core, write: Write, request: Request) -> Stamp | None:
        """The pod that a request makes, unless it has to go the long way."""
        if not request.content_type.startswith("application/json") or len(request.body) > _LARGEST_BODY:
            return None
        around = _around(core, write, request)
        found = template(request.body)
        key = (found, around) if found is not None else None
        kept = self._templates.get(key) if key is not None else None
        now = timestamp(core.clock()).encode()
        if found is not None and kept is not None:
            stencil, charge = kept
            tail = stencil.fill((found.name, core.new_uid().encode(), now))
            return Stamp(found.name.decode(), tail, charge)
        return self._shaped(core, write, request, around, key, now)

    def _shaped(
        self, core: Core, write: Write, request: Request, around: Key, key: Key | None, now: bytes
    ) -> Stamp | None:
        cut = outline(
            request.body,
            lambda prefix: generated_name(prefix, core.new_suffix()),
            core.admission.defaulted(write.namespace),
            checked=core.admission.is_checked,
        )
        if cut is None:
            return None
        shape = self._shape(core, write, request, cut, around)
        if shape is None or not _is_sound(request.body, cut, shape):
            return None
        qos, charge = _priced(cut, shape.pod)
        values = [cut.name.encode(), core.new_uid().encode(), now, qos.encode(), *cut.texts]
        if key is not None and self._is_repeated(key):
            self._templates.put(key, (shape.stencil.narrowed(values), charge))
        return Stamp(cut.name, shape.stencil.fill(values), charge)

    def _shape(self, core: Core, write: Write, request: Request, cut: Outline, around: Key) -> Shape | None:
        key = (*cut.key, around)
        shape = self._shapes.get(key)
        if shape is None and self._is_repeated(key):
            shape = learn(core, write, request, cut) or False
            self._shapes.put(key, shape)
        return shape if isinstance(shape, Shape) else None

    def _is_repeated(self, key: Key) -> bool:
        number = hash(key)
        if self._seen.get(number):
            return True
        self._seen.put(number, True)
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A body with the pod's name cut out."""

    before: bytes
    name: bytes
    after: bytes

    def __hash__(self) -> int:
        return hash((self.before, self.after))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and (self.before, self.after) == (other.before, other.after)


def template(body: bytes) -> Template | None:
    """Cut the name out of a body; None where it has none that is good beyond doubt."""
    found = _NAME.search(body)
    if found is None or dns_label(found[1].decode("ascii", "replace")):
        return None
    return Template(body[: found.start(1)], found[1], body[found.end(1) :])


def _around(core: Core, write: Write, request: Request) -> Key:
    """Everything beside the body that the outcome depends on, quotas excepted."""
    query = tuple((key, tuple(values)) for key, values in request.query.items())
    return write.namespace, write.manager, query, core.admission.version


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
    qos = str(spec_qos_class(spec).qos_class)
    return qos, charge_pod(PodView(spec=spec, status=PodStatus(phase="Pending", qos_class=qos)))


def learn(core: Core, write: Write, request: Request, cut: Outline) -> Shape | None:
    """Rehearse the long way for an outline; None when that refuses it, or has something to say about it."""
    keys = _count_keys(cut.pod)
    pod, holes = complete(cut)
    pod["metadata"]["name"] = f"{MARK}name"
    if _MOMENT_TEXT in (body := encode_json(pod)):
        return None
    stage = replace(core, clock=lambda: _MOMENT, new_uid=lambda: f"{MARK}uid")
    asked = replace(request, body=body, content_type="application/json", warnings=[])
    attempt = replace(write, warnings=asked.warnings)
    try:
        obj = rehearse(stage, attempt, object_body(asked, write.kind), limited=not cut.has_amounts)
    except ApiError:
        return None
    if asked.warnings:
        return None
    view = PodView.of(obj)
    obj["status"]["qosClass"] = f"{MARK}qos"
    text = encode_json(ordered(write.kind, obj, ""))[len(write.kind.head) :]
    stencil = Stencil.of(text, _MARKS | {seen: FIRST_PART + hole for seen, hole in holes.items()})
    return None if stencil is None else Shape(stencil, view, keys)


def _count_keys(value: object) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(map(_count_keys, value)) if isinstance(value, list) else 0
