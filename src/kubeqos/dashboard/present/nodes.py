"""A node as the dashboard shows it: its machine, who owns which CPU, classes, pods, conditions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from kubeqos.dashboard.present.data import (
    Cache,
    Core,
    CurveData,
    DefragData,
    DeviceData,
    Fragments,
    Happening,
    Layout,
    Measure,
    MoveRow,
    NodeData,
    Numa,
    Owner,
    Pages,
    Socket,
    Stays,
)
from kubeqos.dashboard.present.rows import condition_row, node_classes, pod_row
from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.published import SHARED_PART, Assignments
from kubeqos.model.annotations.topologysummary import TopologySummary
from kubeqos.model.annotations.wellknown import DRIVERS_ANNOTATION, PROFILE_LABEL, TOPOLOGY_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Cpu, Device, Machine
from kubeqos.model.objects import NodeView, PodView
from kubeqos.topology.fragmentation import fragmentation
from kubeqos.views.defrag import DefragPlan
from kubeqos.views.machine import owners, published
from kubeqos.views.usage import running_on

_NO_CPUS = -1
"""The socket of memory that has no CPUs."""
_FIXED = ("reserved", "isolated", "shared")
MOST_CURVES = 8


def node_data(
    raw: dict[str, Any],
    pods: Iterable[PodView],
    happenings: list[Happening],
    left_out: list[str],
    pinned: Mapping[str, str] = {},
) -> NodeData:
    """Everything about one node. `pinned` has the CPUs on which containers really run, by name."""
    node = NodeView.of(raw)
    name = node.metadata.name
    here = running_on(pods).get(name, [])
    layout, who, pools, scattered, problem = _machine(raw, node, pinned)
    drivers = [one for one in node.metadata.annotations.get(DRIVERS_ANNOTATION, "").split(",") if one]
    return NodeData(
        name=name,
        profile=node.metadata.labels.get(PROFILE_LABEL, ""),
        drivers=drivers,
        conditions=[condition_row(one) for one in node.status.conditions],
        layout=layout,
        owners=who,
        pools=pools,
        fragments=scattered,
        classes=node_classes(node, here),
        pods={f"{pod.metadata.namespace}/{pod.metadata.name}": pod_row(pod) for pod in here},
        happenings=happenings,
        left_out=[*left_out, *([problem] if problem else [])],
        commands={
            "map": f"kubeqos map {name}",
            "conditions": f"kubeqos describe node {name}",
            "classes": f"kubeqos describe node {name}",
            "pods": f"kubectl get pods -A --field-selector spec.nodeName={name} -o wide",
            "memory": f"kubectl get node {name} -o yaml",
            "defrag": f"kubeqos defrag {name}",
            "happenings": f"kubectl get events -A --field-selector involvedObject.name={name}",
        },
    )


def defrag_data(plan: DefragPlan) -> DefragData:
    """The plan as a before and after: who moves, what is gained, who would have which CPUs then."""
    moves = []
    for move in plan.found.moves:
        left, entered = plan.places(move)
        namespace, pod, container = move.owner.split("/")
        moves.append(
            MoveRow(
                container=container,
                namespace=namespace,
                pod=pod,
                cpus=len(move.after),
                from_cpus=str(move.before),
                to_cpus=str(move.after),
                from_numa=left,
                to_numa=entered,
            )
        )
    return DefragData(
        moves=moves,
        measures=[Measure(what=what, now=now, then=then) for what, now, then in plan.measures()],
        staying=[
            Stays(what=what, because=because) for what, because in (*sorted(plan.staying.items()), *plan.fixed.items())
        ],
        owners=node_owners(plan.machine, plan.then),
        cannot_apply=plan.cannot_apply,
        commands={"plan": f"kubeqos defrag {plan.node}", "apply": f"kubeqos defrag {plan.node} --apply"},
    )


def _machine(
    raw: dict[str, Any], node: NodeView, pinned: Mapping[str, str]
) -> tuple[Layout | None, list[Owner], dict[str, str], Fragments | None, str]:
    try:
        machine, assignments = published(raw)
    except KubeqosError as error:
        return None, [], {}, None, f"the map: {error}"
    who = compared(machine, node_owners(machine, assignments), pinned)
    pools = {pool: str(cpus) for pool, cpus in sorted(assignments.pools.items())}
    return layout_of(machine, _summary(node)), who, pools, _fragments(machine, who), ""


def _summary(node: NodeView) -> TopologySummary:
    """What the node tells the scheduler; a form that is not ours tells nothing."""
    try:
        return msgspec.json.decode(node.metadata.annotations.get(TOPOLOGY_ANNOTATION) or "{}", type=TopologySummary)
    except msgspec.DecodeError:
        return TopologySummary()


def layout_of(machine: Machine, summary: TopologySummary) -> Layout:
    """Sockets, their NUMA nodes, caches, cores and threads; memory without CPUs comes last."""
    sockets = [
        Socket(
            id=socket,
            numa=[
                _numa(machine, numa, summary, [cpu for cpu in machine.cpus if (cpu.socket, cpu.numa) == (socket, numa)])
                for numa in machine.numa
                if machine.numa_cpus[numa] & cpus
            ],
        )
        for socket, cpus in machine.sockets.items()
    ]
    bare = [numa for numa in machine.numa if numa not in machine.cpu_numa]
    if bare:
        sockets.append(Socket(id=_NO_CPUS, numa=[_numa(machine, numa, summary, []) for numa in bare]))
    return Layout(
        name=machine.name,
        cpus=len(machine.online),
        sockets=sockets,
        offline=str(machine.offline),
        isolated=str(machine.isolated),
        loose_devices=[_device(device) for device in machine.devices if device.numa is None],
    )


def _numa(machine: Machine, numa: int, summary: TopologySummary, cpus: list[Cpu]) -> Numa:
    node = machine.node(numa)
    ordered = sorted(cpus, key=lambda cpu: (cpu.uncore, cpu.core, cpu.id))
    caches = [
        Cache(
            id=cache,
            cores=[_core(core, list(threads)) for core, threads in groupby(inside, key=lambda cpu: cpu.core)],
        )
        for cache, inside in groupby(ordered, key=lambda cpu: cpu.uncore)
    ]
    return Numa(
        id=numa,
        memory_bytes=node.memory_bytes,
        free_bytes=summary.free.get("memory", {}).get(numa),
        hugepages=[Pages(size_bytes=size, count=count) for size, count in sorted(node.hugepages.items())],
        caches=caches,
        devices=[_device(device) for device in machine.devices if device.numa == numa],
        distances={other: machine.distance(numa, other) for other in machine.numa},
    )


def _core(core: int, threads: list[Cpu]) -> Core:
    return Core(id=core, cpus=[cpu.id for cpu in threads], kind=threads[0].kind.value)


def _device(device: Device) -> DeviceData:
    return DeviceData(name=device.name, kind=device.kind, numa=device.numa)


def node_owners(machine: Machine, assignments: Assignments) -> list[Owner]:
    """Who has which CPUs, no CPU twice, then the containers that share; as `kubeqos map` tells it."""
    found = []
    for name, cpus in owners(machine, assignments).items():
        held = assignments.containers.get(name)
        how = "exclusive" if held is not None and held.exclusive else name if name in _FIXED else "pool"
        found.append(_owner(name, how, cpus, str(held.mems) if held is not None else ""))
    named = {one.name for one in found}
    found += [
        _owner(name, "sharing", held.cpus, str(held.mems))
        for name, held in sorted(assignments.sharing().items())
        if name not in named
    ]
    for how, cpus in (("isolated", machine.isolated - _all(found)), ("offline", machine.offline)):
        if cpus:
            found.append(_owner(how, how, cpus, ""))
    return found


def compared(machine: Machine, who: list[Owner], pinned: Mapping[str, str]) -> list[Owner]:
    """Owners with where they really run. A container with CPUs of its own and shared ones runs on both.

    Who owns whole cores may run on one thread of each, and leave its sibling idle (ruling 15).
    """
    books: dict[str, CpuSet] = {}
    for one in who:
        if one.pod:
            key = f"{one.namespace}/{one.pod}/{one.container}"
            books[key] = books.get(key, CpuSet()) | CpuSet.parse(one.cpus)
    found = []
    for one in who:
        key = f"{one.namespace}/{one.pod}/{one.container}"
        if key in books and pinned.get(key):
            really = CpuSet.parse(pinned[key])
            drift = (really - books[key]) | (books[key] - machine.touched_cores(really))
            one = msgspec.structs.replace(one, really=str(really), drift=str(drift))
        found.append(one)
    return found


def owners_over_time(versions: Sequence[tuple[float, dict[str, Any] | None]], first: float, last: float) -> CurveData:
    """How many CPUs each owner had: `versions` are the node's, each with the time until which it was so."""
    series: dict[str, list[tuple[float, float]]] = {}
    since, before, top = first, dict[str, int](), 0
    for until, raw in versions:
        counts: dict[str, int] = {}
        if raw is not None:
            try:
                counts = {one: len(cpus) for one, cpus in owners(*published(raw)).items()}
            except KubeqosError:
                counts = {}
        for name in counts.keys() | before.keys():
            if counts.get(name) != before.get(name):
                series.setdefault(name, [] if since == first else [(0.0, 0.0)])
                series[name].append((since - first, float(counts.get(name, 0))))
        top = max([top, *counts.values()])
        since, before = until, counts
    most = sorted(series, key=lambda name: -max(count for _, count in series[name]))[:MOST_CURVES]
    kept = {name: series[name] for name in sorted(most)}
    return CurveData(title="CPUs", unit="", top=float(max(1, top)), duration=max(1.0, last - first), series=kept)


def _all(found: list[Owner]) -> CpuSet:
    taken = CpuSet()
    for one in found:
        taken |= CpuSet.parse(one.cpus) if one.how != "sharing" else CpuSet()
    return taken


def _owner(name: str, how: str, cpus: CpuSet, mems: str) -> Owner:
    """A container is called `namespace/pod/container`; those that share together have no name of their own."""
    parts = name.removesuffix(SHARED_PART).split("/")
    namespace, pod, container = parts if len(parts) == 3 and " and " not in name else ("", "", "")
    return Owner(
        name=name,
        how=how,
        cpus=str(cpus),
        count=len(cpus),
        mems=mems,
        namespace=namespace,
        pod=pod,
        container=container,
    )


def _fragments(machine: Machine, who: list[Owner]) -> Fragments:
    taken = machine.offline
    for one in who:
        if one.how in ("exclusive", "reserved", "isolated"):
            taken |= CpuSet.parse(one.cpus)
    measured = fragmentation(machine, machine.online - taken)
    return Fragments(
        free=measured.free,
        in_whole_cores=measured.in_whole_cores,
        largest_cache=measured.largest_uncore,
        largest_numa=measured.largest_numa,
        score=measured.score,
        text=str(measured),
    )
