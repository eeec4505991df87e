"""What a node decided about its pods, as it goes into their decision records (`model.decisions`).

Called by the agent after an admission and with every status, and by housekeeping when a pod has to go. Decides nothing:
it puts the words of those who did into the form of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kubeqos.errors import KubeqosError
from kubeqos.model.decisions import (
    MOST_NAMED,
    ContainerGrant,
    Eviction,
    NodeAdmission,
    PodRef,
    Preempted,
    Preemption,
    RankedPod,
    Resize,
    Restart,
)
from kubeqos.model.quantity import Quantity
from kubeqos.node.admission.hinted import because, given, merges
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.parts import NodeParts
from kubeqos.node.pod.preemption import MESSAGE as FOR_CRITICAL
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.pressure.thresholds import EvictPod
from kubeqos.plugins.managers import Refusal

Raw = Mapping[str, Any]
_COMPLETED = "Completed"


class NodeDecisions:
    """Tells the records of one node's pods."""

    def __init__(self, parts: NodeParts, admission: Admission, pod_of: Callable[[str], PodRecord | None]) -> None:
        self._node = parts.settings.node_name
        self._events = parts.events
        self._admission = admission
        self._pressure = parts.pressure
        self._pod_of = pod_of
        self._ends: dict[str, dict[str, int]] = {}
        """Of each pod how many ends of each container were told."""

    def forget(self, uid: str) -> None:
        """The pod is gone from this node."""
        self._ends.pop(uid, None)
        self._admission.aligned.pop(uid, None)

    def admission(self, pod: PodRecord, result: object) -> None:
        """The managers were asked; `pod` is as the answer left it."""
        if not self._events.listening:
            return
        if isinstance(result, Refusal) and pod.room_from:
            self._makes_room(pod)
        elif isinstance(result, Refusal):
            why, hints = result.reason, merges(self._admission.aligned.get(pod.uid, ()))
            told = NodeAdmission(node=self._node, admitted=False, reason=why, message=result.message, hints=hints)
            self._events.decided(reference(pod.raw), told)
        elif pod.allocated:
            aligned = self._admission.aligned.get(pod.uid, ())
            told = NodeAdmission(
                node=self._node,
                admitted=True,
                alignment=because(aligned),
                hints=merges(aligned),
                containers=tuple(self._granted(pod)),
            )
            self._events.decided(reference(pod.raw), told)

    def _granted(self, pod: PodRecord) -> Iterator[ContainerGrant]:
        for name, ref in pod.admitted.refs.items():
            try:
                grant = self._admission.grant(ref)
            except KubeqosError:  # managers contradict each other: the container says so itself
                continue
            cpus, mems = (str(grant.properties.get(key, "")) for key in ("cpuset_cpus", "cpuset_mems"))
            own = str(grant.exclusive) if grant.exclusive else ""
            if cpus or mems or grant.because:
                resources = tuple(given(self._admission.managers, ref))
                yield ContainerGrant(name, cpus, own, mems, grant.because, resources)

    def _makes_room(self, pod: PodRecord) -> None:
        """A critical pod waits for others to leave: both sides are told."""
        leaving = [one for uid in sorted(pod.room_from) if (one := self._pod_of(uid)) is not None]
        victims = tuple(reference(one.raw) for one in leaving)
        self._events.decided(reference(pod.raw), Preemption(node=self._node, victims=victims, because=FOR_CRITICAL))
        for one in leaving:
            told = Preempted(node=self._node, preemptor=reference(pod.raw), because=FOR_CRITICAL)
            self._events.decided(reference(one.raw), told)

    def resize(self, pod: PodRecord, result: object) -> None:
        """The managers were asked for other resources; `pod` is as the answer left it."""
        if isinstance(result, Refusal):
            told = Resize(node=self._node, outcome=result.reason, message=result.message)
        else:
            told = Resize(node=self._node, outcome="Given")
        self._events.decided(reference(pod.raw), told)

    def eviction(self, pod: PodRecord, effect: EvictPod, reason: str) -> None:
        """Housekeeping ends a pod: with everybody who was in line, and why the others stay."""
        ranking = tuple(self._ranked(effect))[:MOST_NAMED]
        told = Eviction(
            node=self._node,
            reason=reason,
            message=effect.message.strip(),
            because=effect.because,
            signal=effect.signal,
            threshold=effect.threshold,
            available=effect.available,
            ranking=ranking,
        )
        self._events.decided(reference(pod.raw), told)

    def _ranked(self, effect: EvictPod) -> Iterator[RankedPod]:
        for uid, place, why in effect.ranking:
            if (pod := self._pod_of(uid)) is not None:
                yield RankedPod(reference(pod.raw), why, place)

    def status(self, pod: Raw, status: Raw) -> None:
        """A status is written: containers that ended since the last one are told, with their limit and use."""
        for one in _statuses(status):
            ended = _last_end(one)
            if ended is None:
                continue
            known, count = self._ends.setdefault(pod["metadata"]["uid"], {}), _ends(one)
            if count <= known.get(one["name"], 0):
                continue
            known[one["name"]] = count
            if ended.get("reason") != _COMPLETED or one.get("restartCount"):
                self._events.decided(reference(pod), self._restart(pod, one, ended))

    def _restart(self, pod: Raw, status: Raw, ended: Raw) -> Restart:
        name = status["name"]
        used = self._pressure.memory.get(pod["metadata"]["uid"], {}).get(name)
        return Restart(
            node=self._node,
            container=name,
            reason=ended.get("reason", ""),
            exit_code=ended.get("exitCode", 0),
            restarts=status.get("restartCount", 0),
            message=ended.get("message", ""),
            memory_limit=_memory_limit(pod, name),
            memory_use="" if used is None else _shown(used),
        )


def reference(raw: Raw) -> PodRef:
    metadata = raw["metadata"]
    return PodRef(metadata.get("namespace", ""), metadata.get("name", ""), metadata.get("uid", ""))


def _shown(size: int) -> str:
    """Bytes as people read them: a measure is not worth more than its megabytes."""
    return str(Quantity.from_bytes(size >> 20 << 20 if size >= 1 << 20 else size))


def _statuses(status: Raw) -> Iterable[Raw]:
    for key in ("initContainerStatuses", "containerStatuses"):
        yield from status.get(key) or ()


def _memory_limit(pod: Raw, container: str) -> str:
    spec = pod.get("spec") or {}
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if one.get("name") == container:
            return str(((one.get("resources") or {}).get("limits") or {}).get("memory", ""))
    return ""


def _last_end(status: Raw) -> Raw | None:
    for key in ("state", "lastState"):
        found: Raw | None = (status.get(key) or {}).get("terminated")
        if found:
            return found
    return None


def _ends(status: Raw) -> int:
    """How often the container has ended: it has run once more than it was restarted, unless it runs now."""
    return int(status.get("restartCount", 0)) + bool((status.get("state") or {}).get("terminated"))
