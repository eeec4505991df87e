"""Which pods are on which node, kept beside the store: a node may read what its own pods refer to, and asks often.

The index follows the store a moment behind, and may name a pod too many, where a label is called `nodeName`: who asks
looks at the pods themselves. `access` asks for the node rule; the server keeps it in step.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.store import Compacted, Event, Store, Stored

NODE_NAME = re.compile(rb'"nodeName":"([^"\\]*)"')


class PodIndex:
    """The keys of the pods of every node."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._prefix = kind_named("Pod").range_prefix("")
        self._nodes: dict[str, tuple[str, ...]] = {}
        self._keys: dict[str, set[str]] = {}
        self._at = self._load()

    def pods(self, node: str, prefix: str) -> Iterator[Stored]:
        """The stored pods of a node whose keys begin so; all of them, as far as the index has come."""
        for key in [key for key in self._keys.get(node, ()) if key.startswith(prefix)]:
            stored = self._store.get(key)
            if stored is not None:
                yield stored

    async def follow(self) -> None:
        """Keep in step with the store, as long as the server runs."""
        while True:
            try:
                async for events in self._store.watch(self._prefix, self._at):
                    for event in events:
                        self._take(event)
                    self._at = events[-1].revision
                    await asyncio.sleep(0)
            except Compacted:
                self._at = self._load()  # fell behind

    def _load(self) -> int:
        self._nodes.clear()
        self._keys.clear()
        page = self._store.range(self._prefix)
        for stored in page.items:
            self._put(stored.key, stored.value)
        return page.revision

    def _take(self, event: Event) -> None:
        if event.type == "DELETED":
            for node in self._nodes.pop(event.key, ()):
                left = self._keys[node]
                left.discard(event.key)
                if not left:
                    del self._keys[node]
        elif event.key not in self._nodes:  # a pod that has a node keeps it
            self._put(event.key, event.value)

    def _put(self, key: str, value: bytes) -> None:
        nodes = tuple(name.decode() for name in NODE_NAME.findall(value))
        if nodes:
            self._nodes[key] = nodes
            for node in nodes:
                self._keys.setdefault(node, set()).add(key)
