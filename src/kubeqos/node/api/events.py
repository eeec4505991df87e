"""Tells people what happens on a node: Kubernetes Events about pods, their containers and the node itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from kubeqos.client.api import Api
from kubeqos.client.decisions import DecisionRecorder
from kubeqos.client.events import EventRecorder
from kubeqos.codec import JsonObject
from kubeqos.logs import logger
from kubeqos.model.decisions import AnyDecision, PodRef
from kubeqos.node.pod.effects import Raw, Record

log = logger(__name__)
MOST_LEFT = 1024
_WORD = re.compile(r"[0-9A-Za-z]+(?:-[0-9A-Za-z]+)*")


class NodeEvents:
    """Events of one node. Without an API they are only passed to `listener`."""

    def __init__(
        self,
        api: Api | None,
        node_name: str,
        listener: Callable[[str, str], None] | None = None,
        component: str = "kubelet",
    ) -> None:
        self._node_name = node_name
        self._listener = listener
        self._recorder = EventRecorder(api, component, host=node_name) if api is not None else None
        self._decisions = DecisionRecorder(api, f"node {node_name}")
        self._names: dict[str, str] = {}
        """Of the pods here by uid, for messages of those who know nothing else of them."""
        self._left: dict[str, str] = {}
        """Of those that left last: what they held may be given back late, and then they are spoken of."""

    async def run(self) -> None:
        """Write what is told, until cancelled."""
        if self._recorder is not None:
            await asyncio.gather(self._recorder.run(), self._decisions.run())

    def met(self, uid: str, name: str) -> None:
        """A pod came; `name` is `namespace/name`."""
        self._names[uid] = name

    def parted(self, uid: str) -> None:
        """A pod is gone from this node."""
        if name := self._names.pop(uid, ""):
            self._left[uid] = name
        if len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]

    @property
    def listening(self) -> bool:
        """Whether somebody keeps records of decisions."""
        return self._decisions.listening

    def decided(self, pod: PodRef, decision: AnyDecision) -> None:
        """Something was decided about a pod."""
        self._decisions.record(pod, decision)

    def pod(self, raw: Raw, told: Record) -> None:
        """Something happened to a pod, or to one of its containers."""
        if self._listener is not None:
            self._listener(told.reason, told.message)
        if self._recorder is None:
            return
        metadata = raw["metadata"]
        reference: JsonObject = {"apiVersion": "v1", "kind": "Pod", "uid": metadata.get("uid", "")}
        reference |= {"namespace": metadata.get("namespace", ""), "name": metadata.get("name", "")}
        if told.container:
            reference["fieldPath"] = f"spec.{_list_of(raw, told.container)}{{{told.container}}}"
        self._recorder.record(reference, told.reason, told.message, told.type, annotations=told.annotations)

    def node(self, reason: str, message: str) -> None:
        """A warning about the node itself."""
        message = self.named(message)
        log.warning("%s: %s", reason, message)
        if self._listener is not None:
            self._listener(reason, message)
        if self._recorder is not None:
            node = {"apiVersion": "v1", "kind": "Node", "name": self._node_name, "uid": self._node_name}
            self._recorder.record(node, reason, message, "Warning")

    def named(self, message: str) -> str:
        """What plugins, drivers and books say of pods by uid, with the pods' names, which people know."""
        return _WORD.sub(lambda found: self._names.get(found[0]) or self._left.get(found[0], found[0]), message)


def _list_of(raw: Raw, container: str) -> str:
    """The field of a pod's spec in which a container stands."""
    spec = raw.get("spec") or {}
    for field in ("initContainers", "ephemeralContainers"):
        if any(one.get("name") == container for one in spec.get(field) or ()):
            return field
    return "containers"
