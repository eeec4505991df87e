"""A plan to bring a node's free CPUs together: who moves, what is gained, who stays and why. Pure.

For `kubeqos defrag` and the dashboard. From what the node publishes (its machine, who owns what, how plugins divide
CPUs) and the pods on it; the decision is `topology.defragment`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kubeqos.model.annotations.podmarks import marks_of_pod
from kubeqos.model.annotations.published import Assignments
from kubeqos.model.annotations.topologysummary import BIND, EXCLUSIVE, TopologySummary, decode_topology
from kubeqos.model.annotations.wellknown import (
    CONTAINER_POLICY_ANNOTATION,
    DRIVERS_ANNOTATION,
    POLICY_ANNOTATION,
    TOPOLOGY_ANNOTATION,
)
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import PodView
from kubeqos.topology.defragment import Defragmentation, Move, defragment
from kubeqos.topology.fragmentation import Fragmentation
from kubeqos.topology.pools import ISOLATED, SHARED
from kubeqos.views.machine import published

NO_PLUGIN = "no resource plugin hands out this node's CPUs, and nobody else moves containers that run"
PAGES_STAY = "pages stay where they were written; who is bound to NUMA nodes gets other CPUs only there"
IN_USE = "what a plugin has given of it is open in processes that run"
CORES_STAY = "KEP-3675 has no call that gives a container that runs other cores"
Measure = tuple[str, int | float, int | float]


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """The plan for one node. Owners are named namespace/pod/container."""

    node: str
    machine: Machine
    found: Defragmentation
    staying: Mapping[str, str]
    """Owners that may not move, and why."""
    uids: Mapping[str, str]
    """Owner → pod uid/container, as the CPU plugin names it."""
    cannot_apply: str
    """Why the node cannot carry it out while containers run; empty if it can."""
    then: Assignments
    """Who would have what after it."""
    fixed: Mapping[str, str]
    """What nobody moves on this node besides CPUs, and why."""

    def measures(self) -> list[Measure]:
        """What is gained, as (what, now, then)."""
        before, after = self.found.before, self.found.after
        return [(title, getattr(before, name), getattr(after, name)) for title, name in _MEASURES]

    def places(self, move: Move) -> tuple[str, str]:
        """The NUMA nodes that it leaves and that it comes to."""
        return str(self.machine.numa_of(move.before)), str(self.machine.numa_of(move.after))


_MEASURES = (
    ("free CPUs in one NUMA node", "largest_numa"),
    ("free CPUs in one socket", "largest_socket"),
    ("free CPUs in one cache", "largest_uncore"),
    ("free CPUs in whole cores", "in_whole_cores"),
    ("fragmentation", "score"),
)


def defrag_plan(node: Mapping[str, Any], pods: Iterable[PodView]) -> DefragPlan:
    """Plan for a Node object and the pods of its cluster, or those on it."""
    name = node["metadata"]["name"]
    machine, assignments = published(node)
    summary = decode_topology((node["metadata"].get("annotations") or {}).get(TOPOLOGY_ANNOTATION, ""))
    owners = {one: held.cpus for one, held in assignments.containers.items() if held.exclusive}
    known = _pods_by_name(pods, name)
    movable: dict[str, CpuSet] = {}
    staying: dict[str, str] = {}
    for owner, cpus in owners.items():
        inside = _inside(machine, summary, known.get(owner.rpartition("/")[0]), cpus)
        if isinstance(inside, str):
            staying[owner] = inside
        else:
            movable[owner] = inside
    uids = {owner: f"{known[pod].metadata.uid}/{container}" for owner in movable
            for pod, _, container in (owner.rpartition("/"),)}  # fmt: skip
    free = _free(assignments, summary, owners)
    found = defragment(machine, owners, free, movable)
    then = _after(machine, assignments, free, found.moves)
    return DefragPlan(
        name, machine, found, staying, uids, "" if "cpu" in summary.pools else NO_PLUGIN, then, _fixed(node, summary)
    )


def _fixed(node: Mapping[str, Any], summary: TopologySummary) -> dict[str, str]:
    """Kinds of resources that plugins and drivers of this node have given and cannot move."""
    names = sorted({*summary.pools, *summary.free} - {"cpu"})
    found = {name: PAGES_STAY if name == "memory" or name.startswith("hugepages-") else IN_USE for name in names}
    drivers = (node["metadata"].get("annotations") or {}).get(DRIVERS_ANNOTATION, "")
    return found | {f"cores of claims ({driver})": CORES_STAY for driver in filter(None, drivers.split(","))}


def _pods_by_name(pods: Iterable[PodView], node: str) -> dict[str, PodView]:
    return {f"{pod.metadata.namespace}/{pod.metadata.name}": pod for pod in pods if pod.spec.node_name == node}


def _free(assignments: Assignments, summary: TopologySummary, owners: Mapping[str, CpuSet]) -> CpuSet:
    """CPUs that can still become somebody's own: as the plugin says, or what the CPU manager shares out."""
    if "cpu" in summary.pools:
        free = CpuSet.parse(summary.pools["cpu"].free)
    else:
        free = assignments.pools.get(SHARED, NO_CPUS) | assignments.pools.get(ISOLATED, NO_CPUS)
    for cpus in owners.values():
        free -= cpus
    return free


def _after(machine: Machine, now: Assignments, free: CpuSet, moves: Iterable[Move]) -> Assignments:
    """Owners where they have moved to; whoever shares what is free shares what they left, without what they took."""
    left, taken, moved = NO_CPUS, NO_CPUS, dict[str, CpuSet]()
    for move in moves:
        left, taken, moved[move.owner] = left | move.before, taken | move.after, move.after

    def shared(cpus: CpuSet, pool: str = SHARED) -> CpuSet:
        back = left & machine.isolated if pool == ISOLATED else left - machine.isolated
        return (cpus | back) - taken if cpus & free else cpus

    pools = {name: shared(cpus, name) for name, cpus in now.pools.items()}
    containers = {
        name: replace(held, cpus=moved.get(name, held.cpus) if held.exclusive else shared(held.cpus))
        for name, held in now.containers.items()
    }
    return replace(now, pools=pools, containers=containers)


def _inside(machine: Machine, summary: TopologySummary, pod: PodView | None, held: CpuSet) -> CpuSet | str:
    """The CPUs among which an owner may move; or why it may not."""
    if pod is None:
        return "its pod is not known"
    annotations = pod.metadata.annotations
    if pod.spec.resource_claims or any(
        key.startswith((POLICY_ANNOTATION, CONTAINER_POLICY_ANNOTATION)) for key in annotations
    ):
        return "a compute driver gave it its cores, and takes none back while it runs"
    numa = machine.cpus_in(machine.numa_of(held))
    division = summary.pools.get("cpu")
    if division is not None:
        rule = division.rules.rule_for(marks_of_pod(pod.metadata))
        if rule.numa == EXCLUSIVE:
            return "it has whole NUMA nodes to itself"
        return numa if rule.numa == BIND else machine.online
    # Without plugins: memory that a manager has tied to NUMA nodes stays there, and so do the CPUs beside it.
    tied = set(summary.held.get(pod.metadata.uid, {})) - {"cpu"}
    return numa if tied else machine.online


def as_data(plan: DefragPlan) -> dict[str, Any]:
    """As `-o json` and the dashboard have it."""
    return {
        "node": plan.node,
        "moves": [
            {"container": move.owner, "from": str(move.before), "to": str(move.after), "cpus": len(move.after),
             **dict(zip(("fromNuma", "toNuma"), plan.places(move), strict=True))}
            for move in plan.found.moves
        ],
        "before": _fragments(plan.found.before),
        "after": _fragments(plan.found.after),
        "staying": [{"container": owner, "because": why} for owner, why in sorted(plan.staying.items())],
        "fixed": [{"resource": name, "because": why} for name, why in plan.fixed.items()],
        "applicable": not plan.cannot_apply,
        **({"because": plan.cannot_apply} if plan.cannot_apply else {}),
    }  # fmt: skip


def _fragments(found: Fragmentation) -> dict[str, int | float]:
    return {
        "free": found.free,
        "inWholeCores": found.in_whole_cores,
        "largestCache": found.largest_uncore,
        "largestNuma": found.largest_numa,
        "largestSocket": found.largest_socket,
        "score": round(found.score, 4),
    }
