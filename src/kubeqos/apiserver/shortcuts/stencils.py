"""Stencils: what new objects become, kept as text with holes for what is each object's own.

Decoding, defaulting, validating, every admission step but quota, and field ownership are functions of the body and of
what surrounds it. Objects that clients create by the hundred, pods and events, have most of that in common: the whole
ordinary way is rehearsed once, with marks in place of what differs, and the stored text is cut at these marks. The next
ones are stamped (`stamping`). Something that is seen for the first time goes the ordinary way itself: what is used once
is not worth a rehearsal.

Everything that an outcome depends on is part of the key that a stencil is found by, so it can never answer for another
body or another configuration. What is cut out of a pod is said in `podoutline`, of an event in `eventstencils`.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.objects import ordered
from kubeqos.apiserver.shortcuts.podoutline import MARK
from kubeqos.codec import JsonObject, encode_json
from kubeqos.model.timestamps import timestamp

_KEPT = 1024
_SEEN = 8192
NAME, UID, TIME, OWN = range(4)
"""The holes that every stencil has; what else is an object's own follows."""
NAME_MARK, UID_MARK = f"{MARK}name", f"{MARK}uid"
MOMENT_SECONDS = 4086543217.0
MOMENT = timestamp(MOMENT_SECONDS).encode()
"""When rehearsals take place."""
MARKS = {NAME_MARK.encode(): NAME, UID_MARK.encode(): UID, MOMENT: TIME}

Key = Hashable
Kept = TypeVar("Kept")


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
        """The text with these values in its holes, as they stand in JSON."""
        pieces = list(self.pieces)
        for place, hole in self.holes:
            pieces[place] = values[hole]
        return b"".join(pieces)

    def narrowed(self, values: Sequence[bytes]) -> Stencil:
        """The same with all holes filled but those of name, uid and time."""
        pieces = list(self.pieces)
        for place, hole in self.holes:
            if hole >= OWN:
                pieces[place] = values[hole]
        return Stencil(tuple(pieces), tuple((place, hole) for place, hole in self.holes if hole < OWN))


class Memo(Generic[Kept]):
    """The entries that were used last, up to a bound."""

    def __init__(self, bound: int = _KEPT) -> None:
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


class Seen:
    """What was met lately: hashes, so that nothing is held for what is met once. Each has one place to be in."""

    def __init__(self) -> None:
        self._hashes = [0] * _SEEN

    def before(self, key: Key) -> bool:
        number = hash(key)
        place = number % _SEEN
        if self._hashes[place] == number:
            return True
        self._hashes[place] = number
        return False


def text_of(kind: Kind, obj: JsonObject) -> bytes:
    """The stored form of an object behind its revision."""
    return encode_json(ordered(kind, obj, ""))[len(kind.head) :]
