"""A local copy of a collection that follows the server: list, watch, bookmarks, and a new list when history is gone.

The copy keeps bytes; handlers get a `Change` and decode what they look at. Whatever happens to the connection, a
handler sees every difference between two states it was told of, and nothing twice: a new list is compared with the
copy, and only what differs is announced. A kind that the server does not serve is an empty collection, asked for again
now and then: servers learn kinds while they run. One that we may not read is asked for again too, and `forbidden`
until a role allows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import aclosing
from typing import cast

import msgspec

from kubeqos.client.api import Followed, Listing, Metadata, WatchEvent, metadata_of
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.resources import Resource
from kubeqos.codec import JsonObject, decode_json

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
WATCH_SECONDS = 300


class Change(msgspec.Struct, frozen=True):
    """One object appeared (old is None), changed, or went away (new is None)."""

    key: str
    old: bytes | None
    new: bytes | None

    def object(self) -> JsonObject:
        """The object as it is now, or as it was when it went away."""
        return cast(JsonObject, decode_json(self.new if self.new is not None else self.old or b"{}"))

    def previous(self) -> JsonObject | None:
        """The object before, if there was one."""
        return None if self.old is None else cast(JsonObject, decode_json(self.old))


class _Cached(msgspec.Struct, frozen=True, gc=False):
    raw: bytes
    revision: str
    uid: str


Handler = Callable[[Change], None]


class Informer:
    """Follows one collection; `run` it in a task and read it anywhere on the same loop."""

    def __init__(
        self,
        api: Followed,
        resource: Resource,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        page: int = 0,
    ) -> None:
        self.resource = resource
        self.synced = asyncio.Event()
        self.settled = asyncio.Event()  # synced, or told that it may not be read
        self.served = True  # whether the server knows the kind at all
        self.forbidden = False  # whether we may not read it, as of the last attempt
        self.failures = 0  # in a row
        self.problem = ""  # why the last attempt failed, until one does not
        self._api = api
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page
        self._cache: dict[str, _Cached] = {}
        self._revision = ""  # to watch from; empty: list first
        self._handlers: list[Handler] = []

    @property
    def revision(self) -> int:
        """Up to which revision the copy is complete; 0 before the first list."""
        return int(self._revision) if self._revision.isdigit() else 0

    def on_change(self, handler: Handler) -> None:
        """Call back for every change; what is already known is announced at once."""
        self._handlers.append(handler)
        for key, cached in self._cache.items():
            handler(Change(key, None, cached.raw))

    def get(self, key: str) -> bytes | None:
        """An object's bytes by `namespace/name`, or name."""
        cached = self._cache.get(key)
        return cached.raw if cached else None

    def object(self, key: str) -> JsonObject | None:
        """The same, decoded."""
        raw = self.get(key)
        return None if raw is None else cast(JsonObject, decode_json(raw))

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        """Key and bytes of every object; the copy may change while it is walked."""
        for key, cached in list(self._cache.items()):
            yield key, cached.raw

    def __len__(self) -> int:
        return len(self._cache)

    async def run(self) -> None:
        """Follow the server until cancelled. What a handler raises ends it: that is a bug, not weather."""
        while True:
            try:
                if not self._revision:
                    await self._list()
                await self._watch()
                self.failures = 0
            except ApiError as error:
                self.problem = str(error)
                self.forbidden = error.forbidden
                if error.not_served or (error.forbidden and await self._is_unknown()):
                    self._unserved()
                elif error.forbidden:
                    self.settled.set()
                if error.expired or error.ahead:
                    self._revision = ""
                if not error.expired:
                    await self._pause(error.retry_after)
            except Unreachable as error:
                self.problem = str(error)
                await self._pause(None)

    async def _list(self) -> None:
        listing = await self._api.list(
            self.resource, self._namespace, labels=self._labels, fields=self._fields, page=self._page
        )
        self._replace(listing)
        self._revision = listing.resource_version
        self.failures, self.problem = 0, ""
        self.served, self.forbidden = True, False
        self._sync()

    def _unserved(self) -> None:
        self._replace(Listing([], ""))
        self._revision = ""
        self.served, self.forbidden, self.problem = False, False, ""
        self._sync()

    async def _is_unknown(self) -> bool:
        """Whether the server does not have the kind at all: who has no rights to it is told that first."""
        with contextlib.suppress(Unreachable):
            try:
                await self._api.read(self.resource.path().rpartition("/")[0])
            except ApiError as error:
                return error.not_found
        return False

    def _sync(self) -> None:
        self.synced.set()
        self.settled.set()

    async def _watch(self) -> None:
        """One watch; its end is no failure, the next one goes on where it stopped."""
        events = self._api.watch(
            self.resource,
            self._namespace,
            since=self._revision,
            labels=self._labels,
            fields=self._fields,
            seconds=int(WATCH_SECONDS * random.uniform(1, 2)),  # so that many informers do not return together
        )
        started = self._revision
        async with aclosing(events) as stream:
            async for event in stream:
                self._apply(event)
                self.failures, self.problem, self.forbidden = 0, "", False
        if self._revision == started:
            await self._pause(None, longest=1.0)  # a server that ends watches at once is not asked in a tight loop

    async def _pause(self, told: float | None, longest: float = LONGEST_PAUSE) -> None:
        pause = min(FIRST_PAUSE * 2**self.failures, longest)
        self.failures = min(self.failures + 1, 16)
        await asyncio.sleep(told if told is not None else pause * random.uniform(0.8, 1.2))

    def _apply(self, event: WatchEvent) -> None:
        metadata = event.metadata()
        self._revision = metadata.resource_version or self._revision
        if event.type == "DELETED":
            self._forget(metadata.key, event.object)
        elif event.type in ("ADDED", "MODIFIED"):
            self._remember(metadata, event.object)

    def _replace(self, listing: Listing) -> None:
        found = [(metadata_of(raw), raw) for raw in listing.items]
        for key in self._cache.keys() - {metadata.key for metadata, _ in found}:
            self._forget(key, self._cache[key].raw)
        for metadata, raw in found:
            self._remember(metadata, raw)

    def _remember(self, metadata: Metadata, raw: bytes) -> None:
        known = self._cache.get(metadata.key)
        if known is not None and known.revision == metadata.resource_version:
            return
        if known is not None and known.uid != metadata.uid:  # a namesake: the old one went away unseen
            self._forget(metadata.key, known.raw)
            known = None
        self._cache[metadata.key] = _Cached(raw, metadata.resource_version, metadata.uid)
        self._announce(Change(metadata.key, known.raw if known else None, raw))

    def _forget(self, key: str, last: bytes) -> None:
        if self._cache.pop(key, None) is not None:
            self._announce(Change(key, last, None))

    def _announce(self, change: Change) -> None:
        for handler in self._handlers:
            handler(change)
