"""Stencils: the outcome of creating an object, kept for the next one of the same template.

Clients create pods by the hundred that differ in nothing but their name, and events that differ in whom they are
about, when and what they say. Decoding, defaulting, validating, every admission step but quota, and field ownership
give the same outcome for all of them, since they are functions of the body and of what surrounds it. The first two of
them go the whole way, and the result of the second is kept as bytes with holes for what is each object's own (name,
uid and time); a template that is used once is not worth that. The next ones are stamped. A stencil is found by
everything its outcome depends on, so that it can never answer for another body or another configuration; the quota
ledger decides for every single object. What is cut out of an event is said in `eventoutline`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from kubeqos.apiserver.kinds import Kind
from kubeqos.apiserver.objects import ordered
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.names import dns_label
from kubeqos.rules.quota import Charge

_KEPT = 1024
_SEEN = 8192
_LARGEST_BODY = 16 << 10
# The name of the pod itself: in the metadata, outside the maps that metadata may hold before it.
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_FLAT_MAP = rb'\{(?:[^{}"]|%b)*\}' % _TEXT
_NAME = re.compile(rb'"metadata"\s*:\s*\{(?:[^{}"]|%b|%b)*?"name"\s*:\s*"([^"\\]*)"' % (_TEXT, _FLAT_MAP))
_NAME_HOLE, _UID_HOLE, _TIME_HOLE, *_OWN_HOLES = (f"\ufdd0{number}" for number in range(16))
"""Texts that no valid pod contains: noncharacters of Unicode."""
_HOLE = re.compile('"\ufdd0([0-9]+)"'.encode())

Key = tuple[object, ...]
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """A request to create an object with its name cut out, and what else is its own: JSON values by their paths."""

    key: Key
    name: str
    paths: tuple[Path, ...] = ()
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Stencil:
    """What every object of a template becomes."""

    template: bytes  # with %b for every hole
    holes: tuple[int, ...]
    charge: Charge | None  # None: what no quota counts

    def fill(self, outline: Outline, uid: str, time: str) -> bytes:
        """The stored form behind the revision; names, uids and times need no escaping."""
        values = (f'"{outline.name}"'.encode(), f'"{uid}"'.encode(), f'"{time}"'.encode(), *outline.values)
        return self.template % tuple([values[hole] for hole in self.holes])


class Stencils:
    """The stencils of one server."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Stencil] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()  # hashes, so that no body is held for a template used once

    def get(self, outline: Outline) -> Stencil | None:
        found = self._kept.get(outline.key)
        if found is not None:
            self._kept.move_to_end(outline.key)
        return found

    def is_repeated(self, outline: Outline) -> bool:
        """Whether a pod of this template was asked for before."""
        template = hash(outline.key)
        if template in self._seen:
            return True
        self._seen[template] = None
        if len(self._seen) > _SEEN:
            self._seen.popitem(last=False)
        return False

    def learn(self, outline: Outline, kind: Kind, obj: JsonObject, charge: Charge | None) -> None:
        """Keep the outcome of the long way. Does nothing when something was cut out at the wrong place."""
        metadata = obj["metadata"]
        if metadata.get("name") != outline.name:
            return
        owners = [{**owner, "time": _TIME_HOLE} for owner in metadata.get("managedFields") or ()]
        holed = {**metadata, "name": _NAME_HOLE, "uid": _UID_HOLE, "creationTimestamp": _TIME_HOLE}
        if owners:
            holed["managedFields"] = owners
        template = {**obj, "metadata": holed}
        for path, hole in zip(outline.paths, _OWN_HOLES, strict=False):
            _put(template, path, hole)
        stencil = Stencil(*_cut(encode_json(ordered(kind, template, ""))[len(kind.head) :]), charge)
        if outline.values and not _reproduces(stencil, outline, kind, obj):
            return
        self._kept[outline.key] = stencil
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


def pod_outline(request: Request, namespace: str, version: object) -> Outline | None:
    """Cut the name out of a body; None where stencils do not apply.

    `version` stands for everything beside the request that admission looks at, quotas excepted.
    """
    body = request.body
    if len(body) > _LARGEST_BODY or not request.content_type.startswith("application/json"):
        return None
    found = _NAME.search(body)
    if found is None:
        return None
    name = found[1].decode("ascii", "replace")
    if dns_label(name):
        return None  # refused, or accepted with a warning: the long way says which
    query = tuple((key, tuple(values)) for key, values in request.query.items())
    agent = request.user_agent.partition("/")[0]
    return Outline((body[: found.start(1)], body[found.end(1) :], namespace, query, agent, version), name)


def _put(template: JsonObject, path: Path, hole: str) -> None:
    """Set a field of a copy; the maps on the way are copied too."""
    for step in path[:-1]:
        template[step] = template = {**template[step]}
    template[path[-1]] = hole


def _cut(text: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The text as a format, and which value goes where."""
    holes = tuple(int(number) for number in _HOLE.findall(text))
    return _HOLE.sub(b"%b", text.replace(b"%", b"%%")), holes


def _reproduces(stencil: Stencil, outline: Outline, kind: Kind, obj: JsonObject) -> bool:
    """Whether the stencil makes the object that it was made from: an event may say anything, even what marks a hole."""
    metadata = obj["metadata"]
    if any(owner["time"] != metadata["creationTimestamp"] for owner in metadata.get("managedFields") or ()):
        return False  # a second began between the two; the next one will do
    made = stencil.fill(outline, metadata["uid"], metadata["creationTimestamp"])
    return made == encode_json(ordered(kind, obj, ""))[len(kind.head) :]
