"""Which pods make room for a critical pod that does not fit: the kubelet's choice. Pure.

As few Guaranteed pods as possible, supposing that every Burstable and BestEffort pod went; then as few Burstable ones;
then BestEffort. Inside a class the pod whose requests come nearest to what is missing goes first, so that few go.
Called by the machine when admission finds too little of a resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubeqos.node.pod.record import PodRecord
from kubeqos.placement.shape import pod_amounts
from kubeqos.rules.qos.eviction import CRITICAL_PRIORITY
from kubeqos.rules.qos.podqos import QosClass

REASON = "Preempting"
MESSAGE = "Preempted in order to admit critical pod"
CONDITION: Mapping[str, str] = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "message": "Pod was preempted by Kubelet to accommodate a critical pod.",
}
Missing = Mapping[str, int]
"""Resource → how much of it is missing: milli CPUs for cpu, whole units for all else."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A pod of this node as this choice sees it. `priority` None: it was never given one."""

    uid: str
    qos: QosClass
    amounts: Missing
    priority: int | None = None
    static: bool = False

    @property
    def is_critical(self) -> bool:
        return is_critical(self.priority, static=self.static)

    def gives(self, resource: str) -> int:
        """How much of a resource becomes free when this pod goes."""
        return 1 if resource == "pods" else self.amounts.get(resource, 0)

    def yields_to(self, other: Peer) -> bool:
        if other.is_critical and not self.is_critical:
            return True
        return self.priority is not None and other.priority is not None and other.priority > self.priority


@dataclass(frozen=True, slots=True)
class Room:
    """Who makes room for a critical pod: those who are chosen to go, and those who leave anyway."""

    chosen: tuple[str, ...]
    leaving: tuple[str, ...]


def peer(pod: PodRecord) -> Peer:
    """A pod as this choice sees it."""
    spec = pod.admitted.view.spec
    return Peer(pod.uid, pod.admitted.qos, pod_amounts(spec), spec.priority, pod.source == "file")


def room_for(pod: PodRecord, others: Iterable[PodRecord], missing: Missing) -> Room | str:
    """Whom a critical pod has to wait for; or why waiting would be in vain."""
    holders = [one for one in others if one.holds and one is not pod]
    leaving = [one for one in holders if one.ending is not None]
    staying = [peer(one) for one in holders if one.ending is None]
    chosen = victims(peer(pod), staying, without(missing, [peer(one) for one in leaving]))
    if isinstance(chosen, str) and leaving:
        chosen = ()  # perhaps they hold more than we know
    return chosen if isinstance(chosen, str) else Room(chosen, tuple(one.uid for one in leaving))


def is_critical(priority: int | None, *, static: bool) -> bool:
    """Static pods and those of the system's priority classes run before all others."""
    return static or (priority or 0) >= CRITICAL_PRIORITY


def victims(critical: Peer, peers: Iterable[Peer], missing: Missing) -> tuple[str, ...] | str:
    """The pods that have to go, by uid; or why no pods would be enough."""
    tiers: dict[QosClass, list[Peer]] = {qos: [] for qos in QosClass}
    for peer in peers:
        if peer.yields_to(critical):
            tiers[peer.qos].append(peer)
    best, burst, sure = tiers[QosClass.BEST_EFFORT], tiers[QosClass.BURSTABLE], tiers[QosClass.GUARANTEED]
    left = without(missing, [*best, *burst, *sure])
    if left:
        shown = "".join(f"(res: {name}, q: {amount}), " for name, amount in left.items())
        return f"no set of running pods found to reclaim resources: [{shown}]"
    guaranteed = _nearest(sure, without(missing, [*best, *burst]))
    burstable = _nearest(burst, without(missing, [*best, *guaranteed]))
    best_effort = _nearest(best, without(missing, [*burstable, *guaranteed]))
    return tuple(peer.uid for peer in (*best_effort, *burstable, *guaranteed))


def without(missing: Missing, gone: Sequence[Peer]) -> dict[str, int]:
    """What is still missing when these pods are gone."""
    left = {name: amount - sum(peer.gives(name) for peer in gone) for name, amount in missing.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _nearest(peers: Sequence[Peer], missing: Missing) -> list[Peer]:
    """Pods whose requests cover what is missing, each time the one that leaves the least of it."""
    waiting, chosen = list(peers), list[Peer]()
    while missing:
        best = min(waiting, key=lambda peer: (_distance(peer, missing), peer.gives("memory"), peer.gives("cpu")))
        waiting.remove(best)
        chosen.append(best)
        missing = without(missing, [best])
    return chosen


def _distance(peer: Peer, missing: Missing) -> float:
    """How far the pod is from covering everything; every resource counts alike."""
    left = without(missing, [peer])
    return sum((amount / missing[name]) ** 2 for name, amount in left.items())
