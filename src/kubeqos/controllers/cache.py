"""Local copies of collections that also know what this process has written since: controllers read their own writes.

An informer is a moment behind the server. A controller that created a pod and looks again before its informer has
heard of it would create a second one. Kubernetes counts expected events to avoid that; here the answer to a write goes
into the copy at once, and stands until the informer has caught up with its revision. Nothing is kept that the informer
would not come to know by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import cast

import msgspec

from kubeqos.client import Change, Informer, Resource
from kubeqos.codec import JsonObject, decode_json, encode_json, typed_decoder
from kubeqos.controllers.podstate import controller_of

Listener = Callable[[Change], None]


class Owner(msgspec.Struct, frozen=True, rename="camel"):
    """An owner reference."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that decides whom a change concerns, read without building the rest."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[Owner] | None = None

    @property
    def owners(self) -> list[Owner]:
        return self.owner_references or []

    @property
    def manager(self) -> Owner | None:
        """The owner that manages the object."""
        return next((owner for owner in self.owners if owner.controller), None)


class _Head(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()


_decode_head = typed_decoder(_Head)


@lru_cache(maxsize=16)
def meta_of(raw: bytes | None) -> Meta:
    """The metadata in an object's bytes. Every controller asks it of the same change: they share one decode."""
    return _decode_head(raw or b"{}").metadata


class CachedObject(msgspec.Struct, gc=False):
    """One object as we know it."""

    raw: bytes
    revision: int
    uid: str
    namespace: str
    owners: tuple[str, ...]
    own: bool  # our write; the informer has not confirmed it yet

    def object(self, resource: Resource) -> JsonObject:
        """Decoded, with the kind that items of a list do not carry."""
        found = cast(JsonObject, decode_json(self.raw))
        found.setdefault("kind", resource.kind)
        found.setdefault("apiVersion", resource.api_version)
        return found


class Cache:
    """One collection. Decoded objects belong to the caller, who may change them."""

    def __init__(self, informer: Informer) -> None:
        self.resource = informer.resource
        self.informer = informer
        self._entries: dict[str, CachedObject] = {}
        self._namespaces: defaultdict[str, set[str]] = defaultdict(set)
        self._owned: defaultdict[str, set[str]] = defaultdict(set)
        self._listeners: list[Listener] = []
        informer.on_change(self._followed)

    def on_change(self, listener: Listener) -> None:
        """Call back for every change that the informer sees; what is known is announced at once."""
        self._listeners.append(listener)
        for key, entry in self._entries.items():
            listener(Change(key, None, entry.raw))

    # reading

    def get(self, key: str, uid: str = "") -> JsonObject | None:
        """One object by `namespace/name`, or name; with a uid only that one."""
        entry = self._live(key)
        return entry.object(self.resource) if entry and uid in ("", entry.uid) else None

    def raw(self, key: str) -> bytes | None:
        """The same as bytes."""
        entry = self._live(key)
        return entry.raw if entry else None

    def uid(self, key: str) -> str | None:
        """The uid of the object of this name, without decoding it."""
        entry = self._live(key)
        return entry.uid if entry else None

    def all(self) -> Iterator[JsonObject]:
        return self._objects(list(self._entries))

    def raws(self) -> list[bytes]:
        """Every object's bytes, for those who look at a part of each."""
        return [entry.raw for key in list(self._entries) if (entry := self._live(key)) is not None]

    def in_namespace(self, namespace: str) -> Iterator[JsonObject]:
        return self._objects(self.keys_in(namespace))

    def keys_in(self, namespace: str) -> list[str]:
        return sorted(self._namespaces.get(namespace, ()))

    def owned_by(self, uid: str) -> list[JsonObject]:
        """Everything that names this uid as an owner."""
        return list(self._objects(sorted(self._owned.get(uid, ()))))

    def managed_by(self, uid: str) -> list[JsonObject]:
        """What this uid manages: of all its owners one alone does."""
        return [obj for obj in self.owned_by(uid) if (controller_of(obj) or {}).get("uid") == uid]

    def unmanaged(self, namespace: str) -> Iterator[JsonObject]:
        """What no controller manages yet."""
        return self._objects(sorted(self._owned.get(_unmanaged(namespace), ())))

    def keys_owned_by(self, uid: str) -> list[str]:
        return sorted(self._owned.get(uid, ()))

    def __len__(self) -> int:
        return len(self._entries)

    def _objects(self, keys: Iterable[str]) -> Iterator[JsonObject]:
        for key in keys:
            if (entry := self._live(key)) is not None:
                yield entry.object(self.resource)

    def _live(self, key: str) -> CachedObject | None:
        entry = self._entries.get(key)
        if entry is not None and entry.own and self.informer.revision >= entry.revision:
            if self.informer.get(key) is None:  # gone before the informer could see it
                self._drop(key)
                return None
            entry.own = False
        return entry

    # following

    def learn(self, obj: JsonObject) -> None:
        """An object as the server answered it to our own write."""
        self._keep(encode_json(obj), own=True)

    def _followed(self, change: Change) -> None:
        if change.new is not None:
            self._keep(change.new, own=False)
        else:
            gone = meta_of(change.old)
            known = self._entries.get(change.key)
            if known is not None and (known.uid == gone.uid or not known.own):
                self._drop(change.key)
        for listener in self._listeners:
            listener(change)

    def _keep(self, raw: bytes, *, own: bool) -> None:
        metadata = meta_of(raw)
        key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        revision = revision_of(metadata.resource_version)
        known = self._entries.get(key)
        if known is not None:
            if known.revision > revision or (own and known.revision == revision):
                return
            self._drop(key)
        owners = tuple(owner.uid for owner in metadata.owners)
        if metadata.manager is None:
            owners += (_unmanaged(metadata.namespace),)
        self._entries[key] = CachedObject(raw, revision, metadata.uid, metadata.namespace, owners, own)
        self._namespaces[metadata.namespace].add(key)
        for owner in owners:
            self._owned[owner].add(key)

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key)
        _discard(self._namespaces, entry.namespace, key)
        for owner in entry.owners:
            _discard(self._owned, owner, key)


def revision_of(version: str) -> int:
    return int(version) if version.isdigit() else 0


def _unmanaged(namespace: str) -> str:
    return f"unmanaged in {namespace}"  # no uid contains a blank


def _discard(index: defaultdict[str, set[str]], name: str, key: str) -> None:
    index[name].discard(key)
    if not index[name]:
        del index[name]
