"""Events on their way to watchers: what is worked out about a list of them, once for everybody who gets it.

Decoding an event for selectors, wrapping its bytes and framing them as chunks of HTTP costs the same for one watcher as
for a thousand that stand at the same place. Called by `watcher` and `fanout`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kubeqos.apiserver.nodes.podindex import NODE_NAME
from kubeqos.codec import JsonObject, decode_json
from kubeqos.store import Event

FRAME_BYTES = 128 << 10
_SHARED_BATCHES = 64
_PREFIX = {name: b'{"type":"%b","object":' % name.encode() for name in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")}


def wrapped(event_type: str, value: bytes) -> bytes:
    """An event as a line of a watch."""
    return b"%b%b}\n" % (_PREFIX[event_type], value)


def frames(lines: Iterable[bytes], most: int = FRAME_BYTES) -> Iterator[bytes]:
    """Lines as chunks of HTTP/1.1 (RFC 9112, 7.1), each of at most so many bytes or of one line.

    Few and large ones: what TLS, the kernel and the reader take for each write is what a thousand watchers cost. But
    TLS keeps a buffer as large as the largest write of each connection.
    """
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        if gathered and size + len(line) > most:
            yield _frame(size, gathered)
            gathered, size = [], 0
        gathered.append(line)
        size += len(line)
    if size:
        yield _frame(size, gathered)


def _frame(size: int, lines: list[bytes]) -> bytes:
    return b"".join((b"%x\r\n" % size, *lines, b"\r\n"))


def nodes_of(event: Event) -> set[str]:
    """The nodes a pod's event is about: where it is, and where it was. A label of that name only adds to them."""
    return {name.decode() for value in (event.value, event.previous or b"") for name in NODE_NAME.findall(value)}


@dataclass(slots=True)
class Batch:
    """One list of events as the store handed it out, with what was worked out about it so far."""

    events: list[Event]
    wire: bytes | None = None
    decoded: dict[int, tuple[JsonObject, JsonObject | None]] = field(default_factory=dict)
    places: dict[str, list[int]] | None = None
    framed: dict[Hashable, list[bytes]] = field(default_factory=dict)

    def lines(self) -> Iterator[bytes]:
        """Every event as it goes to a watcher without selectors."""
        return (wrapped(event.type, event.value) for event in self.events)

    def plain(self) -> bytes:
        """All lines as one."""
        if self.wire is None:
            self.wire = b"".join(self.lines())
        return self.wire

    def frames(self, selection: Hashable, lines: Callable[[Batch], Iterable[bytes]]) -> list[bytes]:
        """What a connection gets of this batch: made once for all who watch the same selection."""
        found = self.framed.get(selection)
        if found is None:
            found = self.framed[selection] = list(frames(lines(self)))
        return found

    def objects(self, place: int) -> tuple[JsonObject, JsonObject | None]:
        """One event's object and what it was before."""
        found = self.decoded.get(place)
        if found is None:
            event = self.events[place]
            before = decode_json(event.previous) if event.previous is not None else None
            found = self.decoded[place] = (decode_json(event.value), before)
        return found

    def about(self, node: str | None) -> Sequence[int]:
        """The places of the events that may concern a node; of all events without one.

        When a thousand pods start on a thousand nodes, each of their agents would look at the pods of all others.
        """
        if node is None:
            return range(len(self.events))
        if self.places is None:
            self.places = {}
            for place, event in enumerate(self.events):
                for name in nodes_of(event):
                    self.places.setdefault(name, []).append(place)
        return self.places.get(node, ())


@dataclass
class SharedBatches:
    """The batches that watchers are reading now; the store hands the same list to all who stand at the same place."""

    recent: OrderedDict[int, Batch] = field(default_factory=OrderedDict)

    def of(self, events: list[Event]) -> Batch:
        found = self.recent.get(id(events))
        if found is None or found.events is not events:
            found = self.recent[id(events)] = Batch(events)
            if len(self.recent) > _SHARED_BATCHES:
                self.recent.popitem(last=False)
        return found
