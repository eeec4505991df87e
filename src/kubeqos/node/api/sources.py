"""Where a node's pods come from and where their statuses go: the API server, or a table in this process.

`ApiPods` follows the API with an informer and writes through `PodWriter`. `SharedPods` does so once for all nodes of a
process. `LocalPods` is both ends of a node without an API server, for simulations and fleets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from kubeqos.client.api import Api
from kubeqos.client.informer import Change, Informer
from kubeqos.client.resources import PODS
from kubeqos.codec import JsonObject
from kubeqos.model.timestamps import timestamp
from kubeqos.node.pod.effects import PodGone, PodSet, Raw

Handler = Callable[[PodSet | PodGone], None]


class PodSource(Protocol):
    """Tells which pods this node is to run."""

    synced: asyncio.Event

    async def run(self) -> None:
        """Follow the pods until cancelled."""

    def known(self) -> Iterable[JsonObject]:
        """Every pod it knows now."""

    def on_change(self, handler: Handler) -> None:
        """Tell every change from now on, what is known first."""


class PodSink(Protocol):
    """Takes what the node has to say about its pods; never waits, never fails."""

    def write(self, raw: Raw, status: Raw) -> None: ...

    def delete(self, raw: Raw) -> None: ...

    def forget(self, uid: str) -> None: ...


class ApiPods:
    """The pods that the API server has bound to a node."""

    def __init__(self, api: Api, node_name: str) -> None:
        self._informer = Informer(api, PODS, fields=f"spec.nodeName={node_name}")
        self.synced = self._informer.synced

    async def run(self) -> None:
        await self._informer.run()

    def known(self) -> Iterable[JsonObject]:
        for key, raw in self._informer:
            yield Change(key, None, raw).object()

    def on_change(self, handler: Handler) -> None:
        def changed(change: Change) -> None:
            found = change.object()
            handler(PodGone(found["metadata"]["uid"]) if change.new is None else PodSet(found))

        self._informer.on_change(changed)


class SharedPods:
    """The bound pods of all nodes, followed and decoded once for a process that runs most of them.

    A thousand agents would otherwise have a thousand watches, each with a connection. The informer may show pods
    without a node, too, and others may look at it; who made it runs it.
    """

    def __init__(self, informer: Informer) -> None:
        self._synced = informer.synced
        self._nodes: dict[str, NodePods] = {}
        informer.on_change(self._changed)

    def of(self, node_name: str) -> NodePods:
        """The pods of one node."""
        if node_name not in self._nodes:
            self._nodes[node_name] = NodePods(self._synced)
        return self._nodes[node_name]

    def _changed(self, change: Change) -> None:
        raw = change.old if change.new is None else change.new
        if raw is None or b'"nodeName"' not in raw:  # nothing has to be decoded to see that it has none
            return
        found = change.object()
        if not (name := found["spec"].get("nodeName", "")):
            return
        node = self.of(name)
        node.tell(PodGone(found["metadata"]["uid"]) if change.new is None else PodSet(found))


class NodePods:
    """What `SharedPods` know of one node."""

    def __init__(self, synced: asyncio.Event) -> None:
        self.pods: dict[str, Raw] = {}
        self.synced = synced
        self._handler: Handler | None = None

    async def run(self) -> None:
        """Somebody else follows them."""
        await asyncio.Event().wait()

    def known(self) -> Iterable[JsonObject]:
        return [dict(raw) for raw in self.pods.values()]

    def on_change(self, handler: Handler) -> None:
        self._handler = handler
        for raw in self.known():
            handler(PodSet(raw))

    def tell(self, stimulus: PodSet | PodGone) -> None:
        if isinstance(stimulus, PodGone):
            self.pods.pop(stimulus.uid, None)
        else:
            self.pods[stimulus.raw["metadata"]["uid"]] = stimulus.raw
        if self._handler is not None:
            self._handler(stimulus)


class LocalPods:
    """Pods of one node in this process: a source and a sink in one."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.synced = asyncio.Event()
        self.synced.set()
        self._handler: Handler | None = None

    async def run(self) -> None:
        await asyncio.Event().wait()

    def known(self) -> Iterable[JsonObject]:
        return list(self.pods.values())

    def on_change(self, handler: Handler) -> None:
        self._handler = handler
        for raw in self.known():
            handler(PodSet(raw))

    # ---- What users do

    def set(self, raw: dict[str, Any]) -> str:
        """Create or change a pod; returns its uid."""
        uid: str = raw["metadata"]["uid"]
        status = (self.pods.get(uid) or {}).get("status")
        self.pods[uid] = {**raw, "status": status} if status else dict(raw)
        self._tell(PodSet(self.pods[uid]))
        return uid

    def end(self, uid: str, now: float, grace_seconds: int | None = None) -> None:
        """Ask a pod to end, as a delete through the API does."""
        raw = self.pods[uid]
        if grace_seconds is None:
            grace_seconds = raw["spec"].get("terminationGracePeriodSeconds", 30)
        marks = {
            "deletionTimestamp": timestamp(now + (grace_seconds or 0)),
            "deletionGracePeriodSeconds": grace_seconds,
        }
        self.set({**raw, "metadata": {**raw["metadata"], **marks}})

    def remove(self, uid: str) -> None:
        """Forget a pod at once, as a forced delete does."""
        if self.pods.pop(uid, None) is not None:
            self._tell(PodGone(uid))

    # ---- What the node says

    def write(self, raw: Raw, status: Raw) -> None:
        uid = raw["metadata"]["uid"]
        if uid in self.pods:
            self.pods[uid] = {**self.pods[uid], "status": status}

    def delete(self, raw: Raw) -> None:
        # The node is in the middle of a step when it says this.
        asyncio.get_running_loop().call_soon(self.remove, raw["metadata"]["uid"])

    def forget(self, uid: str) -> None:
        """Nothing is kept of pods that are gone."""

    def _tell(self, stimulus: PodSet | PodGone) -> None:
        if self._handler is not None:
            self._handler(stimulus)
