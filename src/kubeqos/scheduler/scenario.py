"""Scenarios for `kubeqos simulate`: nodes that need not exist, and pods that come and go on virtual time.

    apiVersion: kubeqos.io/v1alpha1
    kind: Scenario
    seed: 7
    duration: 2h
    nodes:
    - name: numa
      count: 2
      machine: kep80                       # a known machine or a description; or allocatable in the template
      reserved: "0,40"
      cpuManagerPolicy: static
      topologyManagerPolicy: single-numa-node
      template: {labels: {tier: fast}, taints: [], allocatable: {}, qosResources: {}}
    workloads:
    - name: batch
      arrivals: {perHour: 60}              # or {every: 30s}, or {at: [0s, 10m]}
      runs: {between: [5m, 20m]}           # or 10m, or {mean: 10m}; left out: to the end
      template: {metadata: {labels: {}}, spec: {containers: []}}

Strict: an unknown member is an error that names the nearest known one. The random numbers of a workload follow from the
seed and its name, so a second policy meets the very same pods.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.machinefile import machine_from_dict
from kubeqos.model.machines import MACHINES
from kubeqos.model.objects import NodeView, PodView
from kubeqos.model.timestamps import parse_duration
from kubeqos.rules.podqos import default_pod_level, default_requests
from kubeqos.topology.hints import Policy, Scope

API_VERSION, KIND = "kubeqos.io/v1alpha1", "Scenario"
MOST_PODS = 200_000
_NODE = ("name", "count", "machine", "reserved", "cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope",
         "template")  # fmt: skip
_WORKLOAD = ("name", "arrivals", "from", "until", "count", "runs", "replace", "template")


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One node: its API object, and the machine behind it where one is described."""

    name: str
    raw: dict[str, Any]
    machine: Machine | None = None
    reserved: CpuSet = field(default_factory=CpuSet)
    static_cpus: bool = False
    policy: Policy = Policy.NONE
    scope: Scope = Scope.CONTAINER


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod: when it comes and for how many seconds it runs once it has a node (None: to the end)."""

    at: float
    runs: float | None


@dataclass(frozen=True, slots=True)
class Workload:
    """Pods of one template. With `replace`, whatever is evicted or rejected comes again, as under a controller."""

    name: str
    template: dict[str, Any]
    arrivals: tuple[Arrival, ...]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything a simulation needs."""

    duration: float
    nodes: tuple[SimulatedNode, ...]
    workloads: tuple[Workload, ...]
    seed: int = 0


def parse(raw: Any, where: str, seed: int | None = None) -> Scenario:
    """Read the document; `seed` stands in for the document's own."""
    _only(raw, ("apiVersion", "kind", "seed", "duration", "nodes", "workloads"), where)
    if raw.get("apiVersion") != API_VERSION or raw.get("kind") != KIND:
        raise InputError("not a scenario", where=where, remedy=f"set apiVersion: {API_VERSION} and kind: {KIND}")
    chosen = _whole(raw.get("seed", 0), f"{where}: seed") if seed is None else seed
    duration = _seconds(raw.get("duration", "1h"), f"{where}: duration")
    nodes = [
        node
        for index, each in enumerate(_list(raw.get("nodes"), f"{where}: nodes"))
        for node in _nodes(each, f"{where}: nodes[{index}]")
    ]
    workloads = [
        _workload(each, duration, chosen, f"{where}: workloads[{index}]")
        for index, each in enumerate(_list(raw.get("workloads"), f"{where}: workloads"))
    ]
    for what, names in (("nodes", [n.name for n in nodes]), ("workloads", [w.name for w in workloads])):
        twice = next((name for name in names if names.count(name) > 1), None) if len(names) < 2000 else None
        if twice:
            raise InputError(f"two {what} are named {twice!r}", where=where, remedy="name each once")
    return Scenario(duration, tuple(nodes), tuple(workloads), chosen)


# -- nodes -------------------------------------------------------------------------------------------------------------


def _nodes(raw: Any, where: str) -> list[SimulatedNode]:
    _only(raw, _NODE, where)
    name, count = _name(raw, where), _whole(raw.get("count", 1), f"{where}.count")
    machine = _machine(raw["machine"], f"{where}.machine") if "machine" in raw else None
    reserved = CpuSet.parse(str(raw.get("reserved", "")))
    if machine is None and (reserved or {"cpuManagerPolicy", "topologyManagerPolicy"} & set(raw)):
        raise InputError("reserved CPUs and policies need a machine", where=where, remedy="add `machine:`")
    if machine is not None and not reserved <= machine.online:
        raise InputError(f"reserved CPUs {reserved - machine.online} are not on the machine", where=f"{where}.reserved")
    static = _choice(raw, "cpuManagerPolicy", ("none", "static"), where) == "static"
    policies = [one.value for one in Policy if one is not Policy.NUMERIC]
    policy = Policy(_choice(raw, "topologyManagerPolicy", policies, where))
    scope = Scope(_choice(raw, "topologyManagerScope", [one.value for one in Scope], where))
    template = _template(raw.get("template") or {}, machine, reserved, f"{where}.template")
    return [
        SimulatedNode(each, _named(template, each), machine, reserved, static, policy, scope)
        for each in ([name] if "count" not in raw else [f"{name}-{number}" for number in range(1, count + 1)])
    ]


def _machine(raw: Any, where: str) -> Machine:
    if isinstance(raw, str):
        if raw not in MACHINES:
            raise InputError(f"no machine is called {raw!r}", where=where, remedy=f"known: {', '.join(MACHINES)}")
        return MACHINES[raw]()
    try:
        return machine_from_dict(raw)
    except InputError as error:
        raise InputError(error.what, where=f"{where}: {error.where}", remedy=error.remedy) from error


def _template(raw: Any, machine: Machine | None, reserved: CpuSet, where: str) -> dict[str, Any]:
    _only(raw, ("labels", "annotations", "taints", "allocatable", "qosResources"), where)
    amounts = {"pods": "110"}
    if machine is not None:
        amounts["cpu"] = str(len(machine.online - reserved))
        amounts["memory"] = str(sum(node.memory_bytes - node.hugepage_bytes() for node in machine.nodes))
    amounts |= raw.get("allocatable") or {}
    if "cpu" not in amounts:
        raise InputError("how much CPU has the node?", where=where, remedy="add `machine:` or `allocatable: {cpu: …}`")
    node = {
        "metadata": {"labels": raw.get("labels") or {}, "annotations": raw.get("annotations") or {}},
        "spec": {"taints": raw.get("taints") or []},
        "status": {"allocatable": amounts, "qosResources": raw.get("qosResources") or {}},
    }
    try:
        NodeView.of(node)
    except InputError as error:
        raise InputError(error.what, where=f"{where}: {error.where}") from error
    return node


def _named(template: dict[str, Any], name: str) -> dict[str, Any]:
    return {**template, "metadata": {**template["metadata"], "name": name}}


# -- workloads ---------------------------------------------------------------------------------------------------------


def _workload(raw: Any, duration: float, seed: int, where: str) -> Workload:
    _only(raw, _WORKLOAD, where)
    name = _name(raw, where)
    chance = random.Random(f"{seed}/{name}")
    first = _seconds(raw.get("from", 0), f"{where}.from")
    last = min(duration, _seconds(raw["until"], f"{where}.until")) if "until" in raw else duration
    most = _whole(raw.get("count", MOST_PODS), f"{where}.count")
    times = _times(raw.get("arrivals", {"at": [first]}), chance, first, last, most, f"{where}.arrivals")
    arrivals = tuple(Arrival(at, _runtime(raw.get("runs"), chance, f"{where}.runs")) for at in times)
    replace = raw.get("replace", False)
    if not isinstance(replace, bool):
        raise InputError("replace must be true or false", where=f"{where}.replace")
    return Workload(name, _pod_template(raw.get("template"), f"{where}.template"), arrivals, replace)


def _times(raw: Any, chance: random.Random, first: float, last: float, most: int, where: str) -> list[float]:
    _only(raw, ("every", "perHour", "at"), where)
    if len(raw) != 1:
        raise InputError("arrivals need exactly one of every, perHour and at", where=where)
    if "at" in raw:
        given = sorted(_seconds(one, f"{where}.at") for one in _list(raw["at"], f"{where}.at"))
        return [at for at in given if at < last][:most]
    if "every" in raw:
        gap = _seconds(raw["every"], f"{where}.every")
        rate = None
    else:
        rate = raw["perHour"]
        gap = 3600 / rate if isinstance(rate, int | float) and rate > 0 else 0.0
    if gap <= 0:
        raise InputError("arrivals must be some time apart", where=where, remedy="write {every: 30s} or {perHour: 60}")
    found: list[float] = []
    at = first if rate is None else first + chance.expovariate(1 / gap)
    while at < last and len(found) < most:
        if len(found) >= MOST_PODS:
            raise InputError(f"more than {MOST_PODS} pods", where=where, remedy="arrive less often or set count")
        found.append(at)
        at += gap if rate is None else chance.expovariate(1 / gap)
    return found


def _runtime(raw: Any, chance: random.Random, where: str) -> float | None:
    if raw is None:
        return None
    if not isinstance(raw, Mapping):
        return _seconds(raw, where)
    _only(raw, ("mean", "between"), where)
    if len(raw) != 1:
        raise InputError("runs needs exactly one of mean and between", where=where)
    if "mean" in raw:
        return chance.expovariate(1 / max(_seconds(raw["mean"], f"{where}.mean"), 1e-9))
    ends = [_seconds(one, f"{where}.between") for one in _list(raw["between"], f"{where}.between")]
    if len(ends) != 2 or ends[0] > ends[1]:
        raise InputError("between needs a shortest and a longest time", where=f"{where}.between")
    return chance.uniform(*ends)


def _pod_template(raw: Any, where: str) -> dict[str, Any]:
    _only(raw, ("metadata", "spec"), where)
    spec = raw.get("spec")
    pod = {"metadata": dict(raw.get("metadata") or {}), "spec": spec}
    try:
        if not isinstance(spec, dict) or not spec.get("containers"):
            raise InputError("a pod needs containers", where="spec.containers")
        default_requests(spec)
        default_pod_level(spec)
        PodView.of(pod)
    except InputError as error:
        raise InputError(error.what, where=f"{where}: {error.where}" if error.where else where) from error
    except (AttributeError, TypeError) as error:
        raise InputError("the pod is not well-formed", where=where) from error
    return pod


# -- reading -----------------------------------------------------------------------------------------------------------


def _only(raw: Any, known: Collection[str], where: str) -> None:
    if not isinstance(raw, Mapping):
        raise InputError("expected a map of settings", where=where)
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(known)
            raise InputError(f"unknown setting {key!r}", where=where, remedy=remedy)


def _list(raw: Any, where: str) -> list[Any]:
    if not isinstance(raw, list) or not raw:
        raise InputError("expected a list with at least one entry", where=where)
    return raw


def _name(raw: Mapping[str, Any], where: str) -> str:
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise InputError("a name is missing", where=where, remedy="add `name:`")
    return name


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or value < 0:
        raise InputError(f"expected a whole number, not {value!r}", where=where)
    return value


def _choice(raw: Mapping[str, Any], key: str, known: Collection[str], where: str) -> str:
    value = raw.get(key, next(iter(known)))
    if value not in known:
        raise InputError(f"{key} cannot be {value!r}", where=where, remedy=f"use one of: {', '.join(known)}")
    return str(value)


def _seconds(value: Any, where: str) -> float:
    """A duration as people write it, or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    try:
        return parse_duration(str(value)) / 1e9
    except InputError as error:
        raise InputError(error.what, where=where, remedy=error.remedy) from error
