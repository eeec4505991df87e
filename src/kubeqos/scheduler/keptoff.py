"""Pods that are kept off nodes which refused their like: `refusals` says for how long, this says so to the cluster.

Pure; called by `core` when a node refuses a pod, when one goes to such a node, and when time has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import msgspec

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.fit import freed_by
from kubeqos.placement.shape import Shape
from kubeqos.scheduler.queue import QueuedPod, SchedulingQueue
from kubeqos.scheduler.reading.objects import Envelope, seen_by_plugins
from kubeqos.scheduler.reading.shapes import ShapeMemo
from kubeqos.scheduler.refusals import NodeBackoff, NodeBackoffs

Tell = Callable[[str, float, str], None]
"""Adds a line to the story of a pod: its uid, the time, what happened."""


class KeptOff:
    """Which pods may not go where, for the scheduler that owns this cluster and this queue."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, shapes: ShapeMemo, tell: Tell) -> None:
        self.backoffs = NodeBackoffs()
        self._cluster = cluster
        self._queue = queue
        self._shapes = shapes
        self._tell = tell

    def tick(self, now: float) -> None:
        """Time has passed: nodes whose pause is over may be tried again."""
        for over in self.backoffs.over(now):
            self._let_in(over, now)

    def refused(self, envelope: Envelope, now: float) -> None:
        """A node did not let a pod in: keep equal pods off it for a while."""
        uid, node, reason = envelope.metadata.uid, envelope.spec.node_name, envelope.status.reason
        row = self._cluster.where.get(uid)
        if row is None or self._cluster.node_name(row) != node:
            return  # known already, or from before this scheduler began
        shape = self._cluster.rows[row].pods[uid].shape
        asks = _asks(shape, envelope.metadata.annotations)
        known, forgotten = self.backoffs.refused(node, asks, reason, uid, now)
        for one in forgotten:
            self._let_in(one, now)
        self._cluster.keep_off(asks, node, reason)
        pause = max(0.0, known.due - now)
        self._tell(uid, now, f"refused by {node} ({reason}): equal pods are kept off it for {pause:.0f} s")
        self._cluster.remove_pod(uid)  # given back without a word: nothing was freed there
        self._queue.wake(freed_by(shape), now)

    def sent(self, pod: QueuedPod, node: str, now: float) -> None:
        """A pod goes to a node; where a pause is over it goes to see, and the others wait for what becomes of it."""
        trial = self.backoffs.sent(node, _asks(pod.shape, pod.annotations), pod.uid, now)
        if trial is not None:
            self._cluster.keep_off(trial.asks, node, trial.reason)
            self._tell(pod.uid, now, f"sent to see whether {node} lets such pods in again")

    def runs(self, row: int, envelope: Envelope, now: float) -> None:
        """A pod runs on the node of this row: if it went to see, its like may follow."""
        meta = envelope.metadata
        asks = _asks(self._cluster.rows[row].pods[meta.uid].shape, meta.annotations)
        known = self.backoffs.runs(envelope.spec.node_name, asks, meta.uid)
        if known is not None:
            self._let_in(known, now)

    def shape_of(self, pod: QueuedPod) -> Shape:
        """The pod's shape; one of its own while a node keeps off pods with its requests and annotations."""
        asks = _asks(pod.shape, pod.annotations)
        return self._shapes.with_asks(pod.shape, asks) if asks in self._cluster.kept_off else pod.shape

    def _let_in(self, refusal: NodeBackoff, now: float) -> None:
        self._cluster.let_in(refusal.asks, refusal.node)
        self._queue.wake([("refused", refusal.asks)], now)


def _asks(shape: Shape, annotations: bytes | msgspec.Raw) -> Hashable:
    """What a node is asked with a pod, as far as its plugins and drivers can see."""
    return shape.asks, seen_by_plugins(bytes(annotations))
