"""Watch: the store's events as the newline-separated JSON that informers read.

A watcher is a cursor into the store's shared log; nothing is queued for it here. What is expensive (decoding an event
for selectors, wrapping its bytes) is done once per batch of events (`batches`), and watchers over connections are
served together (`fanout`). Those in this process, with a Table, or of one node's pods are served one by one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from kubeqos.apiserver.present.negotiation import PROTOBUF, Form
from kubeqos.apiserver.present.options import ListOptions, parse_version
from kubeqos.apiserver.present.tables import partial_metadata, table
from kubeqos.apiserver.protobuf import encode_body, watch_frame
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.reads import list_objects, matches
from kubeqos.apiserver.watch.batches import Batch, SharedBatches, nodes_of, wrapped
from kubeqos.apiserver.watch.fanout import DELIVERING, FanOuts, Member, next_events
from kubeqos.codec import JsonObject, decode_json, encode_json
from kubeqos.store import Compacted, Event, FutureRevision, Interest, Watch
from kubeqos.web.messages import JSON, Outlet, Response
from kubeqos.web.status import ApiError, expired, too_large_version

BOOKMARK_SECONDS = 60.0
MIN_TIMEOUT_SECONDS = 1800.0
INITIAL_CHUNK = 200


@dataclass
class Watching:
    """Everything about watches that is shared between them."""

    core: Core
    batches: SharedBatches = field(default_factory=SharedBatches)
    fanouts: FanOuts = field(init=False)
    active: int = 0
    delivered_alone: int = 0

    def __post_init__(self) -> None:
        self.fanouts = FanOuts(self.core.store)

    @property
    def delivered(self) -> int:
        """How many events watchers got."""
        return self.delivered_alone + self.fanouts.delivered

    async def pause(self) -> None:
        """Between two deliveries of a watcher that is not served with others.

        All of them wait for the same next moment, so that they stand at the same place and share one encoding of what
        came meanwhile.
        """
        interval = DELIVERING.pause(self.active - self.fanouts.joined)
        if interval:
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
    outlet: Outlet | None = None

    def open(self) -> Response:
        """Start; problems that are known before the first event are ordinary error answers."""
        core, options = self.shared.core, self.options
        initial = options.initial_events or (options.initial_events is None and options.version in ("", "0"))
        try:
            if initial:
                return self._response(self._from_now(send_state=True))
            if options.version in ("", "0"):
                return self._response(self._from_now(send_state=False))
            after = parse_version(options.version)
            watch = core.store.watch(self._prefix, after, self._interest)
        except FutureRevision as error:
            raise too_large_version(error.requested, error.current) from error
        except Compacted:
            return self._response(self._too_old(parse_version(options.version)))
        return self._response(self._events(watch))

    def _response(self, stream: AsyncIterator[bytes]) -> Response:
        media = f"{PROTOBUF};stream=watch" if self._binary else JSON
        return Response(200, content_type=media, stream=stream, attach=self._attach)

    def _attach(self, outlet: Outlet) -> None:
        """Write events to the connection together with others, unless they are for this client alone."""
        if self._as_stored and self._interest is None:
            self.outlet = outlet

    @property
    def _binary(self) -> bool:
        return self.form.media == PROTOBUF

    @property
    def _as_stored(self) -> bool:
        """Whether events carry the stored bytes."""
        return self.form.plain and not self._binary and self.kind.view is None

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
        member = self._member(watch)
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
                if watch.ended:
                    return
                if member is not None:
                    await self.shared.fanouts.serve(member, min(end, bookmark_at))
                    continue
                # Among a thousand watchers there is something to read after every pause: no timer is needed for that.
                events = watch.ready() or await next_events(watch, min(end, bookmark_at))
                if not events:
                    continue
                chunk = self._encode(events)
                if chunk:
                    self.shared.delivered_alone += len(events)
                    yield chunk
                await self.shared.pause()
        except Compacted as error:
            yield self._error(expired(f"too old resource version: {watch.revision} ({error.oldest})"))
        finally:
            watch.close()
            self.shared.active -= 1

    def _member(self, watch: Watch) -> Member | None:
        if self.outlet is None:
            return None
        if not self.options.selects:
            return Member(self._prefix, watch, self.outlet, None, Batch.lines)
        return Member(self._prefix, watch, self.outlet, (self.options.labels, self.options.fields), self._selected)

    async def _too_old(self, asked: int) -> AsyncIterator[bytes]:
        yield self._error(expired(f"too old resource version: {asked} ({self.shared.core.store.compacted})"))

    def _encode(self, events: list[Event]) -> bytes:
        batch = self.shared.batches.of(events)
        if self._as_stored and not self.options.selects:
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
                yield self._wrap(
                    "DELETED", event.value if event.type == "DELETED" else _departed(self.kind.storage, event)
                )

    def _wrap(self, event_type: str, value: bytes) -> bytes:
        if self._as_stored:
            return wrapped(event_type, value)
        obj = self._transformed(decode_json(value))
        return watch_frame(event_type, encode_body(obj)) if self._binary else wrapped(event_type, encode_json(obj))

    def _transformed(self, obj: JsonObject) -> JsonObject:
        if self.form.transform != "Table":
            if self.form.transform:
                return partial_metadata(obj, self.form)
            return obj if self.kind.view is None or obj["apiVersion"] == self.kind.api_version else self._shown(obj)
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        headers, self.headers_sent = not self.headers_sent, True
        rows = [obj] if "uid" in obj["metadata"] else []
        now = self.shared.core.clock()
        return table(self.kind, rows, self.form, self.include, now, version, headers=headers)

    def _shown(self, obj: JsonObject) -> JsonObject:
        assert self.kind.view is not None
        return self.kind.view.shown(obj)

    def _bookmark(self, revision: int, annotations: JsonObject | None = None) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self.kind.kind, "apiVersion": self.kind.api_version, "metadata": metadata}
        return self._wrap("BOOKMARK", encode_json(obj))

    def _error(self, error: ApiError) -> bytes:
        if self._binary:
            return watch_frame("ERROR", encode_body(error.body()))
        return encode_json({"type": "ERROR", "object": error.body()}) + b"\n"


def _departed(kind: Kind, event: Event) -> bytes:
    """An object that a change took out of the selection: its last matching state, at the version of the change."""
    assert event.previous is not None
    head = kind.head
    end = event.previous.index(b'"', len(head))
    return b"%b%d%b" % (head, event.revision, event.previous[end:])
