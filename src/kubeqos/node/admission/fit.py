"""Whether a pod fits on this node: the kubelet's checks before admission, with its reasons and messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.objects import PodSpec, PodView, Taint
from kubeqos.node.pod.effects import Shortage
from kubeqos.placement.expressions import selects
from kubeqos.placement.shape import HostPort, host_ports, pod_amounts
from kubeqos.plugins.managers import Refusal
from kubeqos.rules.taints import untolerated

_KEEPS_FROM_RUNNING = ("NoExecute",)  # NoSchedule is over once a pod is bound


@dataclass(frozen=True, slots=True)
class NodeFit:
    """The node as fit sees it: its name, labels and taints, and what pods may use of it."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    """Milli CPUs for cpu, whole units for all else; `pods` included."""
    taints: tuple[Taint, ...] = ()

    @classmethod
    def of(
        cls, name: str, labels: Mapping[str, str], amounts: Mapping[str, int], taints: Iterable[Mapping[str, Any]]
    ) -> NodeFit:
        found = tuple(Taint(key=t["key"], value=t.get("value") or "", effect=t.get("effect") or "") for t in taints)
        return cls(name, labels, amounts, found)


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that holds resources on this node."""

    amounts: Mapping[str, int]
    ports: tuple[HostPort, ...] = ()

    def at_most(self, other: Occupant) -> Occupant:
        """Enough for either of the two, while it is open which one it will be."""
        names = self.amounts.keys() | other.amounts.keys()
        most = {name: max(self.amounts.get(name, 0), other.amounts.get(name, 0)) for name in names}
        return Occupant(most, tuple({*self.ports, *other.ports}))


@dataclass(slots=True)
class Occupancy:
    """Everything that pods hold, what is promised to critical pods for which others are leaving, and what is reserved
    for pods that are still being admitted."""

    pods: dict[str, Occupant] = field(default_factory=dict)
    promised: dict[str, Occupant] = field(default_factory=dict)
    reserved: dict[str, Occupant] = field(default_factory=dict)

    def others(self, uid: str) -> list[Occupant]:
        """What everybody but this pod holds, was promised or has reserved."""
        return [one for other, one in (self.pods | self.promised | self.reserved).items() if other != uid]

    def decided(self) -> Occupancy:
        """Without what may yet be given back."""
        return Occupancy(self.pods, self.promised)


def occupant_of(spec: PodSpec) -> Occupant:
    return Occupant(pod_amounts(spec), host_ports(spec))


def refuse(
    pod: PodView, takes: Occupant, node: NodeFit | None, held: Occupancy, *, static: bool, critical: bool
) -> Refusal | None:
    """The first reason why the pod cannot run here, or None. For a critical pod others can go: shortage comes last.

    `takes` is what it would hold. Without `node` somebody else has judged that: a kubelet, beside which only cores are
    handed out.
    """
    if node is None:
        return None
    short, other = shortage(pod.metadata.uid, takes, node, held), _mismatch(pod, takes, node, held, static=static)
    return other or short if critical else short or other


def _mismatch(pod: PodView, takes: Occupant, node: NodeFit, held: Occupancy, *, static: bool) -> Refusal | None:
    if not selects(pod.spec, node.name, node.labels):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if pod.spec.node_name and pod.spec.node_name != node.name:
        return _predicate("NodeName", "node(s) didn't match the requested node name")
    others = [port for one in held.others(pod.metadata.uid) for port in one.ports] if takes.ports else ()
    if any(mine.clashes(theirs) for mine in takes.ports for theirs in others):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    if not static and untolerated(node.taints, pod.spec.tolerations, _KEEPS_FROM_RUNNING):
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def shortage(uid: str, takes: Occupant, node: NodeFit | None, held: Occupancy) -> Shortage | None:
    """The resources of which the node has too little left for what a pod takes, in the words of the first."""
    if node is None:
        return None
    others = held.others(uid)
    wanted = {"pods": 1, **{name: amount for name, amount in takes.amounts.items() if amount}}
    used = dict.fromkeys(wanted, 0) | {"pods": len(others)}
    for occupant in others:
        for name, amount in occupant.amounts.items():
            if name in used:
                used[name] += amount
    # An extended resource that this node does not have at all is none of its business.
    have = {name: node.allocatable.get(name, 0) for name in wanted if name in node.allocatable or "/" not in name}
    missing = {
        name: used[name] + wanted[name] - most for name, most in have.items() if used[name] + wanted[name] > most
    }
    for name in missing:
        asked, most = wanted[name], have[name]
        text = f"Node didn't have enough resource: {name}, requested: {asked}, used: {used[name]}, capacity: {most}"
        return Shortage(f"OutOf{name}", text, missing=missing)
    return None


def _predicate(name: str, why: str) -> Refusal:
    return Refusal(name, f"Predicate {name} failed: {why}")
