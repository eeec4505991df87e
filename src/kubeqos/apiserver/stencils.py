"""Stencils: the outcome of creating a pod, kept for the next pod of the same template.

Clients create pods by the hundred that differ in nothing but their name. Decoding, defaulting, validating,
every admission step but quota, and field ownership give the same outcome for all of them, since they are
functions of the body and of what surrounds it. The first two of them go the whole way, and the result of the
second is kept as bytes with holes for name, uid and time; a template that is used once is not worth that. The
next ones are stamped. A stencil is found by everything its
outcome depends on, so that it can never answer for another body or another configuration; the quota ledger
decides for every single pod.
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
_HOLES = ("\ufdd0name", "\ufdd0uid", "\ufdd0time")
"""Texts that no valid object contains: noncharacters of Unicode."""

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Outline:
    """A request to create a pod with its name cut out."""

    key: Key
    name: str


@dataclass(frozen=True, slots=True)
class Stencil:
    """What every pod of a template becomes."""

    pieces: tuple[bytes, ...]
    holes: tuple[int, ...]
    charge: Charge

    def fill(self, name: str, uid: str, time: str) -> bytes:
        """The stored form behind the revision; names, uids and times need no escaping."""
        values = (name.encode(), uid.encode(), time.encode())
        parts = [self.pieces[0]]
        for hole, piece in zip(self.holes, self.pieces[1:], strict=True):
            parts.append(values[hole])
            parts.append(piece)
        return b"".join(parts)


class Stencils:
    """The stencils of one server."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Stencil] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()  # hashes, so that no body is held for a template used once

    def outline(self, request: Request, namespace: str, version: object) -> Outline | None:
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
        key = (body[: found.start(1)], body[found.end(1) :], namespace, query, agent, version)
        return Outline(key, name)

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

    def learn(self, outline: Outline, kind: Kind, obj: JsonObject, charge: Charge) -> None:
        """Keep the outcome of the long way. Does nothing when the name was cut out at the wrong place."""
        metadata = obj["metadata"]
        if metadata.get("name") != outline.name:
            return
        name, uid, time = _HOLES
        owners = [{**owner, "time": time} for owner in metadata.get("managedFields") or ()]
        holed = {**metadata, "name": name, "uid": uid, "creationTimestamp": time}
        if owners:
            holed["managedFields"] = owners
        text = encode_json(ordered(kind, {**obj, "metadata": holed}, ""))[len(kind.head) :]
        pieces: list[bytes] = []
        holes: list[int] = []
        last = 0
        for match in _HOLE.finditer(text):
            pieces.append(text[last : match.start()])
            holes.append(_HOLES.index(match[0].decode()))
            last = match.end()
        pieces.append(text[last:])
        self._kept[outline.key] = Stencil(tuple(pieces), tuple(holes), charge)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)


_HOLE = re.compile(b"|".join(re.escape(hole.encode()) for hole in _HOLES))
