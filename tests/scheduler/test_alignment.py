"""NUMA alignment on nodes with Kubernetes' own managers: what the scheduler sends, the topology manager lets in.

The node is real: admission over the static CPU and memory managers. Its summary reaches the scheduler late or not at
all, as in a burst of pods.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.annotations.topologysummary import TopologySummary, decode_topology
from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import MIB, regular
from kubeqos.model.objects import NodeView, PodView
from kubeqos.node.admission.fit import NodeFit
from kubeqos.node.admission.ledger import LocalLedger
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.node.admission.managers.memory import MemoryManager
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.api.nodestatus import allocatable, node_annotations, texts
from kubeqos.node.config.settings import NodeSettings
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.fit import Explanation, feasible
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.preempt import Preemption, Preemptor
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.topology.alignment.hints import Policy, Scope, TopologySettings

GIB = 1 << 30
MACHINE = regular(sockets=2, cores_per_uncore=4, threads=2, memory_bytes=8 * GIB, hugepages={2 * MIB: 512})


class Node:
    """One node's admission and what it publishes."""

    def __init__(self, policy: Policy, scope: Scope, folder: Any) -> None:
        self.settings = NodeSettings("n", folder, log_dir=folder, topology_policy=policy, topology_scope=scope)
        self.cpus = CpuManager(MACHINE, CpuSet.of(0))
        self.memory = MemoryManager(MACHINE)
        topology = TopologySettings(policy, scope)
        self.admission = Admission(MACHINE, (self.cpus, self.memory), LocalLedger(), self._fit, topology)

    def _fit(self) -> NodeFit:
        amounts = allocatable(MACHINE, self.settings)
        whole = {name: amount.milli() if name == "cpu" else amount.value() for name, amount in amounts.items()}
        return NodeFit("n", {}, whole, ())

    def is_narrow(self, shape: Shape) -> bool:
        """Whether nothing of it needs a group of NUMA nodes, whose choice is the node's own affair under restricted."""
        if self.settings.topology_policy is Policy.SINGLE_NUMA_NODE:
            return True
        units = (shape.aligned_pod,) if self.settings.topology_scope is Scope.POD else shape.aligned
        room = {"cpu": 7, "memory": 7 * GIB, "hugepages-2Mi": GIB}
        return not any(amount > room[name] for unit in units for name, amount in unit.amounts.items())

    def facts(self) -> NodeFacts:
        summary = node_annotations(self.settings, self.admission.managers)[TOPOLOGY_ANNOTATION]
        raw = {"metadata": {"name": "n"}, "status": {"allocatable": texts(allocatable(MACHINE, self.settings))}}
        return NodeFacts(NodeView.of(raw), topology=decode_topology(summary))


def container(name: str, cpu: str, memory: str, huge: str | None) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory} | ({"hugepages-2Mi": huge} if huge else {})
    return {"name": name, "image": "x", "resources": {"requests": amounts, "limits": dict(amounts)}}


@st.composite
def containers(draw: st.DrawFn, name: str) -> dict[str, Any]:
    return container(
        name,
        draw(st.sampled_from(["1", "2", "3", "5", "500m"])),
        draw(st.sampled_from(["512Mi", "2Gi", "5Gi"])),
        draw(st.sampled_from([None, None, "64Mi", "768Mi"])),
    )


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    apps = [draw(containers("a"))] + ([draw(containers("b"))] if draw(st.integers(0, 2)) == 0 else [])
    return {"metadata": {"namespace": "d"}, "spec": {"containers": apps}}


def admitted(raw: dict[str, Any], uid: str) -> AdmittedPod:
    raw = {**raw, "metadata": {**raw["metadata"], "uid": uid, "name": uid}}
    return AdmittedPod.of(raw)


SCOPES = st.sampled_from([Scope.CONTAINER, Scope.POD])


@settings(max_examples=80, deadline=None)
@given(st.lists(pods(), min_size=1, max_size=10), SCOPES, st.data())
def test_the_scheduler_sends_exactly_what_single_numa_node_lets_in(
    tmp_path_factory: Any, arriving: list[dict[str, Any]], scope: Scope, data: st.DataObject
) -> None:
    asyncio.run(_send(Node(Policy.SINGLE_NUMA_NODE, scope, tmp_path_factory.getbasetemp()), arriving, data))


@settings(max_examples=60, deadline=None)
@given(st.lists(pods(), min_size=1, max_size=10), SCOPES, st.data())
def test_the_scheduler_sends_no_pod_that_restricted_refuses(
    tmp_path_factory: Any, arriving: list[dict[str, Any]], scope: Scope, data: st.DataObject
) -> None:
    asyncio.run(_send(Node(Policy.RESTRICTED, scope, tmp_path_factory.getbasetemp()), arriving, data))


async def _send(node: Node, arriving: list[dict[str, Any]], data: st.DataObject) -> None:
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    running: list[str] = []
    for number, raw in enumerate(arriving):
        if running and data.draw(st.integers(0, 4)) == 0:
            gone = running.pop(data.draw(st.integers(0, len(running) - 1)))
            cluster.remove_pod(gone)
            await node.admission.release(gone)
            cluster.set_node(node.facts())
        if data.draw(st.booleans()):
            cluster.set_node(node.facts())
        shape = compile_shape(PodView.of(raw))
        uid = str(number)
        fits = bool(feasible(cluster, shape)[0])
        refusal = await node.admission.admit(admitted(raw, uid))
        if node.is_narrow(shape):
            assert fits == (refusal is None), (refusal, Explanation(cluster, shape).counts(), raw)
        if refusal is None:
            cluster.add_pod("n", PlacedPod(uid, uid, shape))
            running.append(uid)


def shape(cpu: str, memory: str = "1Gi", priority: int = 0) -> Shape:
    spec = {"containers": [container("a", cpu, memory, None)], "priority": priority}
    return compile_shape(PodView.of({"metadata": {"namespace": "d"}, "spec": spec}))


def one_node(free: dict[str, dict[int, int]], held: dict[str, dict[str, dict[int, int]]] | None = None) -> Cluster:
    cluster = Cluster(1)
    amounts = {"cpu": "16", "memory": "16Gi", "pods": "10"}
    raw = {"metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    summary = TopologySummary("single-numa-node", "container", free, held or {})
    cluster.set_node(NodeFacts(NodeView.of(raw), topology=summary))
    return cluster


def test_a_burst_is_not_sent_where_only_its_first_pods_fit() -> None:
    """Two NUMA nodes of 8 CPUs hold two pods of 5; the 6 that are left over lie apart."""
    cluster = one_node({"cpu": {0: 8, 1: 8}})
    for uid in ("1", "2"):
        assert feasible(cluster, shape("5"))[0]
        cluster.add_pod("n", PlacedPod(uid, uid, shape("5")))
    text = "node(s) cannot align the pod's resources on one NUMA node"
    assert Explanation(cluster, shape("5")).counts() == {text: 1}
    assert feasible(cluster, shape("3"))[0]


def test_cpus_and_memory_must_be_free_on_the_same_numa_node() -> None:
    cluster = one_node({"cpu": {0: 8, 1: 2}, "memory": {0: 1 << 30, 1: 8 << 30}})
    assert not feasible(cluster, shape("4", "2Gi"))[0]
    assert feasible(cluster, shape("4", "1Gi"))[0]
    assert feasible(cluster, shape("2", "2Gi"))[0]


def test_preemption_frees_a_numa_node() -> None:
    """The victim is the one whose CPUs lie together, as the node has told."""
    held = {"low": {"cpu": {0: 6, 1: 0}}, "wide": {"cpu": {0: 0, 1: 2}}}
    cluster = one_node({"cpu": {0: 2, 1: 6}}, held)
    cluster.add_pod("n", PlacedPod("low", "low", shape("6")))
    cluster.add_pod("n", PlacedPod("wide", "wide", shape("2")))
    wanted = shape("8", priority=10)
    plan = Preemptor(cluster).preempt(wanted, Explanation(cluster, wanted))
    assert isinstance(plan, Preemption)
    assert len(plan.victims) == 1
