"""Whether a pod fits on this node: the kubelet's checks before admission, with its reasons and messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubeqos.model.objects import NodeSelectorTerm, PodSpec, PodView, Taint
from kubeqos.placement.fit import tolerates
from kubeqos.placement.selectors import value_predicate
from kubeqos.placement.shape import HostPort, pod_amounts
from kubeqos.plugins.managers import Refusal


@dataclass(frozen=True, slots=True)
class NodeFit:
    """The node as fit sees it: its name, labels and taints, and what pods may use of it."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    """Milli CPUs for cpu, whole units for all else; `pods` included."""
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that holds resources on this node."""

    amounts: Mapping[str, int]
    ports: tuple[HostPort, ...] = ()


@dataclass(slots=True)
class Occupancy:
    """Everything that pods hold."""

    pods: dict[str, Occupant] = field(default_factory=dict)

    def used(self, without: str = "") -> dict[str, int]:
        total: dict[str, int] = {}
        for uid, occupant in self.pods.items():
            if uid != without:
                for name, amount in occupant.amounts.items():
                    total[name] = total.get(name, 0) + amount
        return total


def occupant_of(spec: PodSpec) -> Occupant:
    return Occupant(pod_amounts(spec), host_ports(spec))


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Ports of the host that the pod's containers want; with the host's network every port is one."""
    return tuple(
        HostPort(port.host_ip or "0.0.0.0", port.protocol, port.host_port)
        for container in (*spec.init_containers, *spec.containers)
        for port in container.ports
        if port.host_port > 0
    )


def refuse(pod: PodView, node: NodeFit, held: Occupancy, *, static: bool = False) -> Refusal | None:
    """The first reason why the pod cannot run here, or None."""
    short = shortage(pod, node, held)
    if short is not None:
        return short
    if not _selected(pod.spec, node):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if pod.spec.node_name and pod.spec.node_name != node.name:
        return _predicate("NodeName", "node(s) didn't match the requested node name")
    wanted = host_ports(pod.spec)
    others = [port for uid, one in held.pods.items() if uid != pod.metadata.uid for port in one.ports]
    if any(mine.clashes(theirs) for mine in wanted for theirs in others):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    if not static and _untolerated(pod.spec, node.taints):
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def shortage(pod: PodView, node: NodeFit, held: Occupancy) -> Refusal | None:
    """The first resource of which the node has too little left."""
    uid = pod.metadata.uid
    count = len(held.pods) - (uid in held.pods)
    capacity = node.allocatable.get("pods", 0)
    if count + 1 > capacity:
        return _out_of("pods", 1, count, capacity)
    used = held.used(without=uid)
    for name, amount in pod_amounts(pod.spec).items():
        have = node.allocatable.get(name)
        if amount and (have is not None or "/" not in name) and used.get(name, 0) + amount > (have or 0):
            return _out_of(name, amount, used.get(name, 0), have or 0)
    return None


def _out_of(name: str, asked: int, used: int, capacity: int) -> Refusal:
    text = f"Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
    return Refusal(f"OutOf{name}", text)


def _predicate(name: str, why: str) -> Refusal:
    return Refusal(name, f"Predicate {name} failed: {why}")


def _selected(spec: PodSpec, node: NodeFit) -> bool:
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(_matches(term, node) for term in affinity.required.node_selector_terms)


def _matches(term: NodeSelectorTerm, node: NodeFit) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(value_predicate(one)(node.labels.get(one.key)) for one in term.match_expressions) and all(
        value_predicate(one)(node.name if one.key == "metadata.name" else None) for one in term.match_fields
    )


def _untolerated(spec: PodSpec, taints: Iterable[Taint]) -> bool:
    """Only NoExecute keeps a bound pod from running."""
    return any(
        taint.effect == "NoExecute" and not any(tolerates(one, taint) for one in spec.tolerations) for taint in taints
    )
