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
      profile: qrm                         # or cci: with resource plugins or compute drivers beside it, as below
      plugins: [cpu, {name: gpu, command: [python, gpu.py]}]    # as in a cluster's file; or drivers: [reference]
      template: {labels: {tier: fast}, taints: [], allocatable: {}, qosResources: {}}
    workloads:
    - name: batch
      arrivals: {perHour: 60}              # or {every: 30s}, or {at: [0s, 10m]}; left out: one at the start
      running: [numa-1, numa-1]            # on these nodes when it begins; no more come unless `arrivals` says so
      runs: {between: [5m, 20m]}           # or 10m, or {mean: 10m}; left out: to the end
      template: {metadata: {labels: {}}, spec: {containers: []}}
    manifests: [claims.yaml]               # files beside this one: ConfigMaps, ResourceClasses, claims and templates

The random numbers of a workload follow from the seed and its name, so a second policy meets the very same pods.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubeqos.cluster.programs import Program, read_programs
from kubeqos.document import Doc, check_kind, read_document
from kubeqos.errors import InputError
from kubeqos.manifests import read as read_manifests
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.machinefile import machine_from_doc
from kubeqos.model.hardware.named import MACHINES
from kubeqos.model.machine import Machine
from kubeqos.model.objects import NodeView, PodView
from kubeqos.model.reading import cpu_set, seconds
from kubeqos.node.config.configuration import PROFILES
from kubeqos.rules.qos.podqos import default_pod_level, default_requests
from kubeqos.scheduler.reading.claims import CLAIM_KINDS, Claimed, claimed_in
from kubeqos.topology.alignment.hints import Policy, Scope

API_VERSION, KIND = "kubeqos.io/v1alpha1", "Scenario"
MOST = 200_000
"""Nodes or pods of one scenario."""
_POLICIES = tuple(policy.value for policy in Policy if policy is not Policy.NUMERIC)


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
    profile: str = "default"
    programs: tuple[Program, ...] = ()
    """Plugins or drivers that run beside it, each as a program of its own."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One pod: when it comes and for how many seconds it runs once it has a node (None: to the end).

    With `node`, it is on that node when the scenario begins.
    """

    at: float
    runs: float | None
    node: str = ""


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
    claimed: Claimed = field(default_factory=dict)
    """Claims, templates, classes and parameters that pods may name."""


def load(path: Path, seed: int | None = None) -> Scenario:
    """Read the file, or say what is wrong with it and where."""
    return parse(read_document(path, "scenario", InputError), seed, path.parent)


def parse(doc: Doc, seed: int | None = None, folder: Path | None = None) -> Scenario:
    """Read the document; `seed` stands in for the document's own, `folder` is where its files and programs are.

    Without one (it came over the network) it may name neither: nobody starts programs on this machine that way.
    """
    fields = doc.fields(("apiVersion", "kind", "seed", "duration", "nodes", "workloads", "manifests"))
    check_kind(doc, fields, API_VERSION, KIND)
    if seed is None:
        seed = fields["seed"].integer(0, 1 << 63) if "seed" in fields else 0
    duration = seconds(fields["duration"]) if "duration" in fields else 3600.0
    nodes: dict[str, SimulatedNode] = {}
    for each in doc.required(fields, "nodes").elements():
        for node in _nodes(each, folder):
            if node.name in nodes:
                each.fail(f"two nodes are named {node.name!r}", "name each once")
            nodes[node.name] = node
    workloads: dict[str, Workload] = {}
    for each in doc.required(fields, "workloads").elements():
        workload = _workload(each, duration, seed)
        if strangers := [one.node for one in workload.arrivals if one.node and one.node not in nodes]:
            each.fail(f"pods run on {strangers[0]!r}, which is no node of the scenario", "add it under `nodes:`")
        if workload.name in workloads:
            each.fail(f"two workloads are named {workload.name!r}", "name each once")
        workloads[workload.name] = workload
    if not nodes:
        doc.fail("no nodes", "list at least one under `nodes:`")
    claimed = _claimed(fields["manifests"], folder) if "manifests" in fields else {}
    return Scenario(duration, tuple(nodes.values()), tuple(workloads.values()), seed, claimed)


def _claimed(doc: Doc, folder: Path | None) -> Claimed:
    """What claims refer to, from the files beside the scenario."""
    if folder is None:
        doc.fail(*_NO_FOLDER)
    found = []
    for each in doc.elements():
        for one in read_manifests([str(folder / each.text())]):
            if one.kind not in CLAIM_KINDS:
                each.fail(f"a scenario has no use for a {one.kind}", f"keep to {', '.join(CLAIM_KINDS)}")
            found.append((one.kind, one.raw))
    return claimed_in(found)


# -- nodes -------------------------------------------------------------------------------------------------------------

_NODE = ("name", "count", "machine", "reserved", "cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope",
         "profile", "plugins", "drivers", "template")  # fmt: skip


_NO_FOLDER = "this scenario is not in a file", "run it with kubeqos simulate run, which reads files and starts programs"


def _nodes(doc: Doc, folder: Path | None) -> list[SimulatedNode]:
    fields = doc.fields(_NODE)
    name = doc.required(fields, "name").text()
    names = [name]
    if "count" in fields:
        names = [f"{name}-{number}" for number in range(1, fields["count"].integer(1, MOST) + 1)]
    machine = _machine(fields["machine"]) if "machine" in fields else None
    for key in ("reserved", "cpuManagerPolicy", "topologyManagerPolicy", "topologyManagerScope", "profile"):
        if machine is None and key in fields:
            fields[key].fail("needs a machine", "add `machine:` to the node")
    reserved = cpu_set(fields["reserved"]) if "reserved" in fields else CpuSet()
    if machine is not None and not reserved <= machine.online:
        fields["reserved"].fail(f"CPUs {reserved - machine.online} are not on the machine")
    static = "cpuManagerPolicy" in fields and fields["cpuManagerPolicy"].one_of(("none", "static")) == "static"
    policy, scope = Policy.NONE, Scope.CONTAINER
    if "topologyManagerPolicy" in fields:
        policy = Policy(fields["topologyManagerPolicy"].one_of(_POLICIES))
    if "topologyManagerScope" in fields:
        scope = Scope(fields["topologyManagerScope"].one_of([one.value for one in Scope]))
    profile = fields["profile"].one_of(PROFILES) if "profile" in fields else "default"
    if profile != "default" and folder is None:
        fields["profile"].fail(*_NO_FOLDER)
    if static and profile != "default":
        fields["cpuManagerPolicy"].fail(f"profile {profile} hands out CPUs by itself", "remove cpuManagerPolicy")
    if policy is Policy.NONE and profile == "qrm":
        policy = Policy.BEST_EFFORT  # resource plugins need the topology manager (KEP-3461)
    if policy is not Policy.NONE and profile == "cci":
        fields["topologyManagerPolicy"].fail("compute drivers forbid the topology manager", "remove it")
    programs = read_programs(fields, profile, (folder or Path()).absolute())
    template = _template(doc, fields.get("template"), machine, reserved)
    return [
        SimulatedNode(each, _named(template, each), machine, reserved, static, policy, scope, profile, programs)
        for each in names
    ]


def _machine(doc: Doc) -> Machine:
    if not doc.is_mapping:
        return MACHINES[doc.one_of(tuple(MACHINES))]()
    return machine_from_doc(doc)


def _template(node: Doc, doc: Doc | None, machine: Machine | None, reserved: CpuSet) -> dict[str, Any]:
    fields = doc.fields(("labels", "annotations", "taints", "allocatable", "qosResources")) if doc else {}
    given = {key: child.plain() for key, child in fields.items()}
    amounts = {"pods": "110"}
    if machine is not None:
        amounts["cpu"] = str(len(machine.online - reserved))
        amounts["memory"] = str(sum(numa.memory_bytes - numa.hugepage_bytes() for numa in machine.nodes))
    amounts |= given.get("allocatable") or {}
    if "cpu" not in amounts:
        (doc or node).fail("how much CPU has the node?", "add `machine:` or `template: {allocatable: {cpu: …}}`")
    made = {
        "metadata": {"labels": given.get("labels") or {}, "annotations": given.get("annotations") or {}},
        "spec": {"taints": given.get("taints") or []},
        "status": {"allocatable": amounts, "qosResources": given.get("qosResources") or {}},
    }
    try:
        NodeView.of(made)
    except InputError as error:
        raise InputError(error.what, where=f"{(doc or node).where}: {error.where}") from error
    return made


def _named(template: dict[str, Any], name: str) -> dict[str, Any]:
    return {**template, "metadata": {**template["metadata"], "name": name}}


# -- workloads ---------------------------------------------------------------------------------------------------------


def _workload(doc: Doc, duration: float, seed: int) -> Workload:
    fields = doc.fields(("name", "running", "arrivals", "from", "until", "count", "runs", "replace", "template"))
    name = doc.required(fields, "name").text()
    chance = random.Random(f"{seed}/{name}")
    first = seconds(fields["from"]) if "from" in fields else 0.0
    last = min(duration, seconds(fields["until"])) if "until" in fields else duration
    most = fields["count"].integer(0, MOST) if "count" in fields else MOST
    running = [each.text() for each in fields["running"].elements()] if "running" in fields else []
    times = [] if running else [first]
    if "arrivals" in fields:
        times = _times(fields["arrivals"], chance, first, last, most)
    placed = [(0.0, node) for node in running] + [(at, "") for at in times]
    return Workload(
        name,
        _pod_template(doc.required(fields, "template")),
        tuple(Arrival(at, _runtime(fields["runs"], chance) if "runs" in fields else None, node) for at, node in placed),
        "replace" in fields and fields["replace"].boolean(),
    )


def _times(doc: Doc, chance: random.Random, first: float, last: float, most: int) -> list[float]:
    fields = doc.fields(("every", "perHour", "at"))
    if len(fields) != 1:
        doc.fail("needs exactly one of every, perHour and at")
    if "at" in fields:
        given = sorted(seconds(each) for each in fields["at"].elements())
        return [at for at in given if at < last][:most]
    if "every" in fields:
        gap, random_gap = seconds(fields["every"]), False
    else:
        gap, random_gap = 3600 / fields["perHour"].integer(1, 1_000_000_000), True
    if gap <= 0:
        doc.fail("pods must come some time apart", "write {every: 30s} or {perHour: 60}")
    found: list[float] = []
    at = first + (chance.expovariate(1 / gap) if random_gap else 0.0)
    while at < last and len(found) < most:
        found.append(at)
        at += chance.expovariate(1 / gap) if random_gap else gap
    if len(found) == MOST:
        doc.fail(f"{MOST} pods or more", "let them come less often, or set count")
    return found


def _runtime(doc: Doc, chance: random.Random) -> float:
    if not doc.is_mapping:
        return seconds(doc)
    fields = doc.fields(("mean", "between"))
    if len(fields) != 1:
        doc.fail("needs exactly one of mean and between")
    if "mean" in fields:
        mean = seconds(fields["mean"])
        return chance.expovariate(1 / mean) if mean else 0.0
    ends = [seconds(each) for each in fields["between"].elements()]
    if len(ends) != 2 or ends[0] > ends[1]:
        fields["between"].fail("needs a shortest and a longest time")
    return chance.uniform(*ends)


def _pod_template(doc: Doc) -> dict[str, Any]:
    fields = doc.fields(("metadata", "spec"))
    spec = doc.required(fields, "spec").plain()
    if not isinstance(spec, dict) or not spec.get("containers"):
        fields["spec"].fail("a pod needs containers")
    pod = {"metadata": dict(fields["metadata"].plain() or {}) if "metadata" in fields else {}, "spec": spec}
    try:
        default_requests(spec)
        default_pod_level(spec)
        PodView.of(pod)
    except InputError as error:
        raise InputError(error.what, where=f"{doc.where}: {error.where}" if error.where else doc.where) from error
    except (AttributeError, TypeError) as error:
        raise InputError("the pod is not well-formed", where=doc.where) from error
    return pod
