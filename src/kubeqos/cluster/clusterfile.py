"""What a cluster on one machine consists of: the file that `kubeqos up --config` reads, and what it starts by
default.

    apiVersion: kubeqos.io/v1alpha1
    kind: ClusterConfiguration
    nodes:
    - name: qrm                # node names are NAME, or NAME-1, NAME-2, … where count is more than one
      machine: kep80           # a known machine, or a machine file beside this one
      profile: qrm             # default, qrm or cci, as in a NodeConfiguration
      count: 1
      reservedCPUs: 0-1        # a node of the default profile then has a static CPU manager
      labels: {tier: gold}
      classes:                 # as in classes.yaml
        rdt: {provider: named, default: silver, capacity: {gold: 2}, classes: [gold, silver]}
    manifests: [quotas.yaml]   # applied once the cluster runs
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path

from kubeqos.cri.providers.config import read_resources
from kubeqos.cri.providers.host import V2
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.simulated.classes import offered, read_classes
from kubeqos.document import Doc, check_kind, read_document
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.hardware.named import MACHINES, hybrid20, kep80
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.model.machine import Machine
from kubeqos.model.reading import cpu_set
from kubeqos.node.config.configuration import PROFILES

API_VERSION, KIND = "kubeqos.io/v1alpha1", "ClusterConfiguration"
_MOST_NODES = 10_000

DEFAULT_CLASSES = """
resources:
  rdt:
    provider: named
    mutable: true
    default: silver
    capacity: {exclusive: 1, gold: 2}
    classes: [exclusive, gold, silver, bronze, limited]
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


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """Everything `kubeqos up` starts."""

    nodes: tuple[NodePlan, ...]
    manifests: tuple[Path, ...] = ()


def default_plan() -> ClusterPlan:
    """One node of each profile: the KEPs' machine twice, and a small hybrid one."""
    offers = read_classes(DEFAULT_CLASSES, "default classes")
    return ClusterPlan(
        (
            NodePlan("qrm", kep80(), "qrm", offers),
            NodePlan("cci", kep80(), "cci", offers, reserved_cpus=CpuSet.parse("0-1")),
            NodePlan("hybrid", hybrid20(), "default", offers, reserved_cpus=CpuSet.parse("0")),
        )
    )


def fleet_plan(count: int) -> ClusterPlan:
    """Many small nodes with classes and exclusive CPUs."""
    offers = read_classes(DEFAULT_CLASSES, "default classes")
    one = NodePlan("node", MACHINES["laptop8"](), "default", offers, reserved_cpus=CpuSet.parse("0"))
    return ClusterPlan(tuple(replace(one, name=f"node-{number}") for number in range(1, count + 1)))


def local_node(endpoint: str) -> NodePlan:
    """This machine, with the containers of a real runtime."""
    name = socket.gethostname().lower()
    return NodePlan(name, read_machine(Path("/sys"), name=name), endpoint=endpoint)


def load_plan(path: Path) -> ClusterPlan:
    """Read a cluster configuration, strictly."""
    top = read_document(path, "cluster configuration")
    fields = top.fields(("apiVersion", "kind", "nodes", "manifests"))
    check_kind(top, fields, API_VERSION, KIND)
    nodes = [plan for item in top.required(fields, "nodes").elements() for plan in _read_nodes(item, path.parent)]
    names = [plan.name for plan in nodes]
    for name in names:
        if names.count(name) > 1:
            top.fail(f"two nodes are called {name!r}", "give every node its own name")
    manifests = (
        tuple(path.parent / item.text() for item in fields["manifests"].elements()) if "manifests" in fields else ()
    )
    return ClusterPlan(tuple(nodes), manifests)


def _read_nodes(item: Doc, folder: Path) -> list[NodePlan]:
    known = ("name", "machine", "profile", "count", "reservedCPUs", "labels", "classes")
    fields = item.fields(known)
    count = fields["count"].integer(1, _MOST_NODES) if "count" in fields else 1
    plan = NodePlan(
        item.required(fields, "name").text(),
        _read_machine(item.required(fields, "machine"), folder),
        fields["profile"].one_of(PROFILES) if "profile" in fields else "default",
        offered(read_resources(fields["classes"], V2)) if "classes" in fields else (),
        cpu_set(fields["reservedCPUs"]) if "reservedCPUs" in fields else NO_CPUS,
        {key: value.text() for key, value in fields["labels"].items().items()} if "labels" in fields else {},
    )
    if count == 1:
        return [plan]
    return [replace(plan, name=f"{plan.name}-{number}") for number in range(1, count + 1)]


def _read_machine(item: Doc, folder: Path) -> Machine:
    name = item.text()
    if name not in MACHINES and not (folder / name).is_file():
        item.fail(f"no machine {name!r}", f"name a machine file, or one of {', '.join(MACHINES)}")
    return load_machine(name, folder)
