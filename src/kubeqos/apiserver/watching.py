"""Watch: the store's events as the newline-separated JSON that informers read.

A watcher is a cursor into the store's shared log; nothing is queued for it here. What is expensive (decoding an event
for selectors, wrapping its bytes) is done once per batch of events and shared by every watcher that gets the batch.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from kubeqos.apiserver.core import Core
from kubeqos.apiserver.kinds import Kind
from kubeqos.apiserver.negotiate import Form
from kubeqos.apiserver.options import ListOptions, parse_version
from kubeqos.apiserver.places import NODE_NAME
from kubeqos.apiserver.reads import list_objects, matches
from kubeqos.apiserver.requests import Response
from kubeqos.apiserver.status import ApiError, expired, too_large_version
from kubeqos.apiserver.tables import partial_metadata, table
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.store import Compacted, Event, FutureRevision, Interest, Watch

BOOKMARK_SECONDS = 60.0
MIN_TIMEOUT_SECONDS = 1800.0
INITIAL_CHUNK = 200
FEW_WATCHERS = 50
PAUSE_PER_WATCHER = 0.0001
LONGEST_PAUSE = 0.2
_SHARED_BATCHES = 64
_PREFIX = {name: b'{"type":"%b","object":' % name.encode() for name in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")}


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

    def plain(self) -> bytes:
        """Every event as it goes to a watcher without selectors."""
        if self.wire is None:
            self.wire = b"".join([b"%b%b}\n" % (_PREFIX[e.type], e.value) for e in self.events])
        return self.wire

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


@dataclass
class Watching:
    """Everything about watches that is shared between them."""

    core: Core
    batches: SharedBatches = field(default_factory=SharedBatches)
    active: int = 0
    delivered: int = 0

    async def pause(self) -> None:
        """Between two deliveries of one watcher: nothing while they are few.

        A thousand watchers that wake for every single event cost more than the writes that woke them. All of them wait
        for the same next moment, so that they stand at the same place and share one encoding of what came meanwhile.
        """
        interval = min(LONGEST_PAUSE, self.active * PAUSE_PER_WATCHER)
        if self.active > FEW_WATCHERS:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(interval - now % interval)


@dataclass(slots=True)
class Watcher:
    """One client's watch."""

    shared: Watching
    kind: Kind
    namespace: str
    options: ListOptions
    form: Form
    include: str
    headers_sent: bool = False

    def open(self) -> Response:
        """Start; problems that are known before the first event are ordinary error answers."""
        core, options = self.shared.core, self.options
        initial = options.initial_events or (options.initial_events is None and options.version in ("", "0"))
        try:
            if initial:
                return Response(200, stream=self._from_now(send_state=True))
            if options.version in ("", "0"):
                return Response(200, stream=self._from_now(send_state=False))
            after = parse_version(options.version)
            watch = core.store.watch(self._prefix, after, self._interest)
        except FutureRevision as error:
            raise too_large_version(error.requested, error.current) from error
        except Compacted:
            return Response(200, stream=self._too_old(parse_version(options.version)))
        return Response(200, stream=self._events(watch))

    @property
    def _prefix(self) -> str:
        named = self.options.fields.exact("metadata.name")
        prefix = self.kind.range_prefix(self.namespace)
        # A watch of one object need not look at its neighbours (names have no "/" so the match below stays exact).
        return prefix + named if named and (self.namespace or not self.kind.namespaced) else prefix

    @property
    def _interest(self) -> Interest | None:
        """A node agent watches the pods of its node: it need not wake for the pods of a thousand others."""
        return Interest(nodes_of, self._node) if self._node else None

    @property
    def _node(self) -> str | None:
        """The node whose pods are watched, if it is one node's."""
        return self.options.fields.exact("spec.nodeName") or None if self.kind.kind == "Pod" else None

    async def _from_now(self, *, send_state: bool) -> AsyncIterator[bytes]:
        core = self.shared.core
        selection = ListOptions(self.options.labels, self.options.fields)
        listing = list_objects(core, self.kind, self.namespace, selection)
        watch = core.store.watch(self._prefix, listing.revision, self._interest)
        if send_state:
            for start in range(0, len(listing.items), INITIAL_CHUNK):
                yield b"".join(self._wrap("ADDED", s.value) for s in listing.items[start : start + INITIAL_CHUNK])
            if self.options.bookmarks:
                yield self._bookmark(listing.revision, {"k8s.io/initial-events-end": "true"})
        async for chunk in self._events(watch):
            yield chunk

    async def _events(self, watch: Watch) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        timeout = self.options.timeout
        end = loop.time() + (timeout if timeout else MIN_TIMEOUT_SECONDS * (1 + random.random()))
        bookmark_at = loop.time() + BOOKMARK_SECONDS
        self.shared.active += 1
        try:
            yield b""  # the answer's head goes out before the first event
            while True:
                if loop.time() >= min(end, bookmark_at):
                    if self.options.bookmarks:
                        yield self._bookmark(watch.revision)
                    if loop.time() >= end:
                        return
                    bookmark_at = loop.time() + BOOKMARK_SECONDS
                # Among a thousand watchers there is something to read after every pause: no timer is needed for that.
                events = watch.ready() or await _next(watch, min(end, bookmark_at))
                if events is None:
                    continue
                chunk = self._encode(events)
                if chunk:
                    self.shared.delivered += len(events)
                    yield chunk
                await self.shared.pause()
        except StopAsyncIteration:
            return
        except Compacted as error:
            yield self._error(expired(f"too old resource version: {watch.revision} ({error.oldest})"))
        finally:
            watch.close()
            self.shared.active -= 1

    async def _too_old(self, asked: int) -> AsyncIterator[bytes]:
        yield self._error(expired(f"too old resource version: {asked} ({self.shared.core.store.compacted})"))

    def _encode(self, events: list[Event]) -> bytes:
        batch = self.shared.batches.of(events)
        if self.form.plain and not self.options.selects:
            return batch.plain()
        return b"".join(self._selected(batch))

    def _selected(self, batch: Batch) -> Iterator[bytes]:
        """Selectors turn changes into arrivals and departures."""
        for place in batch.about(self._node):
            event, (obj, previous) = batch.events[place], batch.objects(place)
            now = event.type != "DELETED" and matches(self.kind, obj, self.options)
            before = previous is not None and matches(self.kind, previous, self.options)
            if now:
                yield self._wrap("MODIFIED" if before else "ADDED", event.value)
            elif before:
                yield self._wrap("DELETED", event.value if event.type == "DELETED" else _departed(self.kind, event))

    def _wrap(self, event_type: str, value: bytes) -> bytes:
        if self.form.plain:
            return b"%b%b}\n" % (_PREFIX[event_type], value)
        return b"%b%b}\n" % (_PREFIX[event_type], encode_json(self._transformed(decode_json(value))))

    def _transformed(self, obj: JsonObject) -> JsonObject:
        if self.form.transform != "Table":
            return partial_metadata(obj, self.form) if self.form.transform else obj
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        headers, self.headers_sent = not self.headers_sent, True
        rows = [obj] if "uid" in obj["metadata"] else []
        now = self.shared.core.clock()
        return table(self.kind, rows, self.form, self.include, now, version, headers=headers)

    def _bookmark(self, revision: int, annotations: JsonObject | None = None) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        return self._wrap("BOOKMARK", encode_json(obj))

    def _error(self, error: ApiError) -> bytes:
        return encode_json({"type": "ERROR", "object": error.body()}) + b"\n"


async def _next(watch: Watch, deadline: float) -> list[Event] | None:
    """The next events; None when there were none in time."""
    try:
        async with asyncio.timeout_at(deadline):
            return await anext(watch)
    except TimeoutError:
        return None


def _departed(kind: Kind, event: Event) -> bytes:
    """An object that a change took out of the selection: its last matching state, at the version of the change."""
    assert event.previous is not None
    head = kind.head
    end = event.previous.index(b'"', len(head))
    return b"%b%d%b" % (head, event.revision, event.previous[end:])
