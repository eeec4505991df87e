"""What a cluster on one machine consists of: the file that `kubeqos up --config` reads, and what it starts by
default.

    apiVersion: kubeqos.io/v1alpha1
    kind: ClusterConfiguration
    nodes:
    - name: qrm                # node names are NAME, or NAME-1, NAME-2, … where count is more than one
      machine: kep80           # a known machine, or a machine file beside this one; or instead of it
                               # runtime: unix:///run/containerd/containerd.sock, which is this very machine
      profile: qrm             # default, qrm or cci, as in a NodeConfiguration
      count: 1
      reservedCPUs: 0-1        # a node of the default profile then has a static CPU manager
      labels: {tier: gold}
      classes:                 # as in classes.yaml
        rdt: {provider: named, default: silver, capacity: {gold: 2}, classes: [gold, silver]}
      plugins: [cpu, {name: gpu, command: [python, gpu.py]}]    # of a node of profile qrm; see `cluster.programs`
      drivers: [reference]     # of a node of profile cci
      settings:                # anything else of a NodeConfiguration
        cgroupDriver: systemd
    - name: burst              # a group that grows and shrinks with what pods wait for: burst-1, burst-2, …
      machine: laptop8
      autoscale: {min: 0, max: 5, cost: 2.5, after: 1m}    # cost of one node; idle for so long before it goes; and
                               # template: {allocatable: {…}, qosResources: {…}}, what plugins will add to a node
    settings:                  # of every node that does not say otherwise itself
      evictionHard: {memory.available: 10%}
    featureGates: {QOSResourcesStrictNames: true}
    scheduler:                 # as in a SchedulerConfiguration
      profiles: [{schedulerName: default-scheduler, weights: {mostAllocated: true}}]
    manifests: [quotas.yaml]   # applied once the cluster runs
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kubeqos.cluster.programs import KEYS, Program, of_profile, read_programs
from kubeqos.cri.enforcing.host import V2
from kubeqos.cri.providers.config import NodeClasses, RdtSpec, ResourceSpec, parse_classes, read_resources
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.simulated.classes import offered
from kubeqos.document import Doc, check_kind, read_document
from kubeqos.errors import ConfigurationError
from kubeqos.gates import GATES, MEMORY_QOS, QOS_RESOURCES, STRICT_NAMES, TRANSLATE_METADATA, FeatureGates
from kubeqos.model.annotations.wellknown import NODE_GROUP_LABEL, REAL_MACHINE_TAINT
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.hardware.named import MACHINES, hybrid20, kep80
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.model.machine import Machine
from kubeqos.model.reading import cpu_set, quantity, seconds
from kubeqos.node.config.configuration import API_VERSION as NODE_API_VERSION
from kubeqos.node.config.configuration import KIND as NODE_KIND
from kubeqos.node.config.configuration import PROFILES, SETTINGS
from kubeqos.scheduler.config import read_profiles
from kubeqos.scheduler.core import Profile
from kubeqos.scheduler.reading.nodegroups import TEMPLATE

API_VERSION, KIND = "kubeqos.io/v1alpha1", "ClusterConfiguration"
MOST_NODES = 10_000
SERVER_GATES = FeatureGates.parse("AllAlpha=true,QOSResourcesStrictNames=false")
"""What the API server of `kubeqos up` has on, unless its file says otherwise."""
REAL_MACHINE = {"key": REAL_MACHINE_TAINT, "value": "true", "effect": "NoSchedule"}

DEFAULT_CLASSES = """
resources:
  rdt:
    provider: rdt
    default: silver
    capacity: {exclusive: 1, gold: 2}
    config:
      partitions:
        apart:
          l3Allocation: "30%"
          mbAllocation: ["100%"]
          classes:
            exclusive: {}
        common:
          l3Allocation: "70%"
          mbAllocation: ["100%"]
          classes:
            gold: {}
            silver: {l3Allocation: "60%", mbAllocation: ["60%"]}
            bronze: {l3Allocation: "30%", mbAllocation: ["30%"]}
            limited: {l3Allocation: "20%", mbAllocation: ["10%"]}
  blockio:
    provider: named
    default: normal
    capacity: {high-prio: 4}
    classes: [high-prio, normal, throttled]
  network:
    provider: named
    level: pod
    default: normal
    capacity: {fast: 2, normal: 10}
    classes: [fast, normal, slow]
  vendor.example/xyz-qos:
    provider: named
    capacity: {high-prio: 1}
    classes: [high-prio, normal, low-prio]
"""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """One node."""

    name: str
    machine: Machine
    profile: str = "default"
    offers: tuple[Advertisement, ...] = ()
    reserved_cpus: CpuSet = NO_CPUS
    labels: dict[str, str] = field(default_factory=dict)
    endpoint: str = ""
    """CRI socket of a real container runtime; empty for a simulated one."""
    settings: Doc | None = None
    """What its owner says, of everything that a `NodeConfiguration` can say."""
    taints: tuple[Mapping[str, str], ...] = ()
    programs: tuple[Program, ...] | None = None
    """Plugins and drivers that run beside it; None: those of its profile."""
    rdt: ResourceSpec | None = None
    """How its classes share caches and memory bandwidth, where they say so: it then has a resctrl tree."""

    @property
    def beside(self) -> tuple[Program, ...]:
        """The plugins and drivers that run beside it."""
        return of_profile(self.profile) if self.programs is None else self.programs

    def with_classes(self, classes: NodeClasses) -> NodePlan:
        """The same node with classes."""
        rdt = next((one for one in classes.resources.values() if isinstance(one.spec, RdtSpec)), None)
        return replace(self, offers=offered(classes), rdt=rdt)


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """Simulated nodes that come and go with what pods wait for."""

    node: NodePlan
    """One of them, with the name of the group."""
    least: int
    most: int
    cost: float = 1.0
    idle_seconds: float = 60.0
    template: Mapping[str, object] = field(default_factory=dict)
    """What plugins, drivers and others add to a node of it: from an empty group nobody else can know that."""

    def member(self, name: str) -> NodePlan:
        """A node of the group; the label says whose it is."""
        return replace(self.node, name=name, labels={**self.node.labels, NODE_GROUP_LABEL: self.node.name})


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Everything `kubeqos up` starts."""

    nodes: tuple[NodePlan, ...]
    manifests: tuple[Path, ...] = ()
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Features that are on or off in every part of it, by name."""
    profiles: tuple[Profile, ...] = (Profile(),)
    """Of its scheduler."""
    groups: tuple[GroupPlan, ...] = ()


FIELDS: Mapping[str, str] = {
    "nodes": "The nodes, as below. Required.",
    "settings": "Settings of every node that does not say otherwise itself, as in a NodeConfiguration.",
    "featureGates": "Features that are on or off in every part: API server, scheduler and nodes. Whether a node has "
    "resource plugins or compute drivers says its profile.",
    "scheduler": "Profiles of the scheduler, as in a SchedulerConfiguration.",
    "manifests": "Files with objects that are made once the cluster runs, beside this one; what is there stays.",
}
"""Members of the file, for reading it and for its reference page."""
NODE_FIELDS: Mapping[str, str] = {
    "name": "The node's name; with `count`, NAME-1, NAME-2 and so on. Required.",
    "machine": "A simulated machine: a known one, or a machine file beside this one. Required without `runtime`.",
    "runtime": "In place of `machine`: the CRI socket of a container runtime, which makes this very machine the node.",
    "profile": "Which resource managers it has: `default`, `qrm` or `cci`.",
    "count": "So many of them.",
    "reservedCPUs": "CPUs that are nobody's; a node of the default profile then has a static CPU manager.",
    "labels": "Labels of the Node.",
    "classes": "The classes that a simulated runtime offers, as in a file of classes.",
    "plugins": "Resource plugins beside a node of profile `qrm`, as below; `cpu`, `memory` and `nic` if left out.",
    "drivers": "Compute drivers beside a node of profile `cci`, as below; `reference` if left out.",
    "settings": "Anything else of a NodeConfiguration: eviction, reservations, policies, scope, a port, gates of this "
    "node.",
    "autoscale": "A group that grows and shrinks with what pods wait for, in place of `count`: `min` (0), `max`, "
    "`cost` of one node (1), `after`, how long one is unneeded before it goes (1m), and `template`, what plugins and "
    "others will add to a node (`labels`, `annotations`, `allocatable`, `qosResources`), for as long as there is none "
    "to look at. Its nodes are NAME-1, NAME-2 and so on.",
}
"""Members of a node."""
NODE_GATES = (QOS_RESOURCES, STRICT_NAMES, TRANSLATE_METADATA, MEMORY_QOS)
"""Gates of the file that nodes have too; the others follow from a node's profile."""


def default_plan() -> ClusterPlan:
    """One node of each profile: the KEPs' machine twice, and a small hybrid one."""
    nodes = (
        NodePlan("qrm", kep80(), "qrm"),
        NodePlan("cci", kep80(), "cci", reserved_cpus=CpuSet.parse("0-1")),
        NodePlan("hybrid", hybrid20(), "default", reserved_cpus=CpuSet.parse("0")),
    )
    classes = default_classes()
    return ClusterPlan(tuple(node.with_classes(classes) for node in nodes))


def default_classes() -> NodeClasses:
    """The classes of nodes that nobody has described."""
    return parse_classes(DEFAULT_CLASSES, "default classes", V2)


def fleet_plan(count: int) -> ClusterPlan:
    """Many small nodes with classes and exclusive CPUs."""
    one = NodePlan("node", MACHINES["laptop8"](), "default", reserved_cpus=CpuSet.parse("0"))
    one = one.with_classes(default_classes())
    return ClusterPlan(tuple(replace(one, name=f"node-{number}") for number in range(1, count + 1)))


def local_node(endpoint: str, config: Path | None = None) -> NodePlan:
    """This machine, with the containers of a real runtime, as a `NodeConfiguration` file says."""
    name = socket.gethostname().lower()
    plan = NodePlan(name, read_machine(Path("/sys"), name=name), endpoint=endpoint)
    if config is None:
        return plan
    doc = read_document(config, "node configuration")
    said = doc.fields(("apiVersion", "kind", *SETTINGS))
    check_kind(doc, said, NODE_API_VERSION, NODE_KIND)
    _check_settings(said, may_say=("profile", "reservedSystemCPUs", "nodeLabels"))
    return replace(
        plan,
        settings=doc,
        profile=said["profile"].one_of(PROFILES) if "profile" in said else plan.profile,
        reserved_cpus=cpu_set(said["reservedSystemCPUs"]) if "reservedSystemCPUs" in said else NO_CPUS,
    )


def beside_simulated(plan: ClusterPlan) -> ClusterPlan:
    """Keep pods that do not ask for it off a real machine, where there are simulated nodes that may run them.

    What its owner says about taints stands.
    """
    if all(node.endpoint for node in plan.nodes):
        return plan
    nodes = (replace(node, taints=(REAL_MACHINE,)) if node.endpoint else node for node in plan.nodes)
    return replace(plan, nodes=tuple(nodes))


def with_programs(plan: ClusterPlan, programs: Sequence[Program]) -> ClusterPlan:
    """These plugins and drivers beside every node of the profile that uses them, with those that are there already."""
    profiles = dict(KEYS.values())
    for program in programs:
        profile = profiles[program.kind]
        if not any(node.profile == profile for node in plan.nodes):
            raise ConfigurationError(
                f"no node of this cluster has the profile {profile}, which takes a {program.kind}",
                where=f"--{program.kind}",
                remedy=f"give a node profile: {profile} in the file of --config, or leave --nodes out",
            )
        nodes = [
            replace(node, programs=(*(one for one in node.beside if one.name != program.name), program))
            if node.profile == profile
            else node
            for node in plan.nodes
        ]
        plan = replace(plan, nodes=tuple(nodes))
    return plan


def load_plan(path: Path) -> ClusterPlan:
    """Read a cluster configuration, strictly."""
    top = read_document(path, "cluster configuration")
    fields = top.fields(("apiVersion", "kind", *FIELDS))
    check_kind(top, fields, API_VERSION, KIND)
    common = fields.get("settings")
    if common is not None:
        _check_settings(common.fields(SETTINGS))
    nodes: list[NodePlan] = []
    groups: list[GroupPlan] = []
    for item in top.required(fields, "nodes").elements():
        if "autoscale" in item.items():
            groups.append(_read_group(item, path.parent, common))
            nodes += [groups[-1].member(f"{groups[-1].node.name}-{n}") for n in range(1, groups[-1].least + 1)]
        else:
            nodes += _read_nodes(item, path.parent, common)
    names = [plan.name for plan in nodes]
    for name in names:
        if names.count(name) > 1:
            top.fail(f"two nodes are called {name!r}", "give every node its own name")
    _refuse_common_cgroups(top, nodes)
    manifests = (
        tuple(path.parent / item.text() for item in fields["manifests"].elements()) if "manifests" in fields else ()
    )
    gates = _read_gates(fields["featureGates"]) if "featureGates" in fields else {}
    profiles = read_profiles(fields["scheduler"].fields(("profiles",))) if "scheduler" in fields else (Profile(),)
    return ClusterPlan(tuple(nodes), manifests, gates, profiles, tuple(groups))


def _read_gates(doc: Doc) -> dict[str, bool]:
    """What is said, and that whatever cannot do without a feature that is off is off too."""
    said = {name: child.boolean() for name, child in doc.items().items()}
    off = {name for name, on in said.items() if not on}
    found = {gate.name: False for gate in GATES.values() if off.intersection(gate.needs)} | said
    try:
        SERVER_GATES.set(found)
    except ConfigurationError as error:
        doc.fail(error.what, error.remedy or "")
    return found


def _read_group(item: Doc, folder: Path, common: Doc | None) -> GroupPlan:
    """A group that grows and shrinks."""
    fields = item.fields(NODE_FIELDS)
    for key in ("count", "runtime"):
        if key in fields:
            fields[key].fail(f"{key} of a group that grows and shrinks", f"remove {key}: autoscale says how many")
    said = fields["autoscale"].fields(("min", "max", "cost", "after", "template"))
    least = said["min"].integer(0, MOST_NODES) if "min" in said else 0
    most = fields["autoscale"].required(said, "max").integer(1, MOST_NODES)
    if least > most:
        said["min"].fail(f"{least} is more than max, {most}", "raise max, or lower min")
    cost = quantity(said["cost"]).milli() / 1000 if "cost" in said else 1.0
    after = seconds(said["after"]) if "after" in said else 60.0
    adds = {key: one.plain() for key, one in said["template"].fields(TEMPLATE).items()} if "template" in said else {}
    return GroupPlan(_node_plan(item, fields, folder, common), least, most, cost, after, adds)


def _read_nodes(item: Doc, folder: Path, common: Doc | None) -> list[NodePlan]:
    fields = item.fields(NODE_FIELDS)
    count = fields["count"].integer(1, MOST_NODES) if "count" in fields else 1
    plan = _node_plan(item, fields, folder, common)
    if count == 1:
        return [plan]
    return [replace(plan, name=f"{plan.name}-{number}") for number in range(1, count + 1)]


def _node_plan(item: Doc, fields: dict[str, Doc], folder: Path, common: Doc | None) -> NodePlan:
    name = item.required(fields, "name").text()
    if "settings" in fields:
        _check_settings(fields["settings"].fields(SETTINGS))
    profile = fields["profile"].one_of(PROFILES) if "profile" in fields else "default"
    plan = NodePlan(
        name,
        _machine_of(item, fields, name, folder),
        profile,
        reserved_cpus=cpu_set(fields["reservedCPUs"]) if "reservedCPUs" in fields else NO_CPUS,
        labels={key: value.text() for key, value in fields["labels"].items().items()} if "labels" in fields else {},
        endpoint=fields["runtime"].text() if "runtime" in fields else "",
        settings=_settings(fields.get("settings"), common),
        programs=read_programs(fields, profile, folder.absolute()),
    )
    return plan.with_classes(read_resources(fields["classes"], V2)) if "classes" in fields else plan


def _settings(own: Doc | None, common: Doc | None) -> Doc | None:
    """A node's own settings before those of all nodes; gates are put together, as they are named one by one."""
    if own is None or common is None:
        return own if common is None else common
    gates = [doc.items()["featureGates"] for doc in (own, common) if "featureGates" in doc.items()]
    return own.over(common) if len(gates) < 2 else own.over(common).with_member("featureGates", gates[0].over(gates[1]))


def _machine_of(item: Doc, fields: dict[str, Doc], name: str, folder: Path) -> Machine:
    """The machine of a simulated node, or this one."""
    if "runtime" not in fields:
        return _read_machine(item.required(fields, "machine"), folder)
    for key, why in (
        ("machine", "is what the runtime runs on"),
        ("count", "must be 1: a runtime is one node's"),
        ("classes", "are the relay's to offer, whose socket is then the runtime"),
    ):
        if key in fields:
            fields[key].fail(f"{key} of a node with a runtime {why}", f"remove {key}, or the runtime")
    return read_machine(Path("/sys"), name=name)


_SAID_ELSEWHERE = {
    "nodeName": "name",
    "profile": "profile",
    "reservedSystemCPUs": "reservedCPUs",
    "nodeLabels": "labels",
    "simulatedMachine": "machine",
    "containerRuntimeEndpoint": "runtime",
    "classesFile": "classes",
}
"""Settings of a node, and the key that says the same of a node of a cluster."""
_OURS = ("stateDir", "pluginRegistrationDir", "qosResourcePluginDir", "podResourcesSocket")


def _check_settings(said: dict[str, Doc], may_say: Collection[str] = ()) -> None:
    """Refuse what a cluster's own keys say, and where the cluster keeps its files."""
    for key, doc in said.items():
        if key in _OURS:
            doc.fail("nodes of `kubeqos up` keep this in its data directory", f"remove {key}, or pass --data-dir")
        elif key in _SAID_ELSEWHERE and key not in may_say:
            where = f"say it with the key {_SAID_ELSEWHERE[key]} of a node in the file of `kubeqos up --config`"
            doc.fail("`kubeqos up` is told this elsewhere", where)


def _refuse_common_cgroups(top: Doc, nodes: Sequence[NodePlan]) -> None:
    """Two agents that keep the same cgroups would remove each other's pods."""
    roots: dict[str, str] = {}
    for node in nodes:
        if not node.endpoint:
            continue
        said = node.settings.items() if node.settings is not None else {}
        root = said["cgroupRoot"].text() if "cgroupRoot" in said else ""
        if root in roots:
            what = f"nodes {roots[root]!r} and {node.name!r} are this machine, and would keep the same cgroups"
            top.fail(what, "give each its own cgroupRoot in its settings")
        roots[root] = node.name


def _read_machine(item: Doc, folder: Path) -> Machine:
    name = item.text()
    if name not in MACHINES and not (folder / name).is_file():
        item.fail(f"no machine {name!r}", f"name a machine file, or one of {', '.join(MACHINES)}")
    return load_machine(name, folder)
