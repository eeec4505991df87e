"""What plugins tell the scheduler about their pools is what they do: no pod is sent that they would refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.codec import encode_json
from kubeqos.model.annotations.topologysummary import TopologySummary, decode_topology, encode_topology
from kubeqos.model.hardware.named import regular
from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.fit import Explanation, feasible
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.shape import compile_shape
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.qrm.asking import Catalogue, Served, request_for
from kubeqos.qrm.edge.messages import read_capacity
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.dividing import division
from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.memory import MemoryConfig, MemoryState
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk.servicer import Servicer
from kubeqos.qrm.sdk.values import request_from_wire
from kubeqos.topology.alignment.hints import ANYWHERE, Offer, Policy
from kubeqos.topology.alignment.merge import merge
from kubeqos.topology.answers import Unsatisfiable

MACHINE = regular(sockets=2, cores_per_uncore=4, threads=2, memory_bytes=8 << 30)
CONFIG = """
reserved: "0"
pools:
  online: {size: 4}
  offline: {size: 2, oversell: 1.5}
roles:
  web: {pool: online}
  etl: {pool: offline}
  own: {dedicated: true}
  cores: {dedicated: true, fullCores: true}
  storage: {dedicated: true, numa: bind}
  index: {dedicated: true, numa: bind, beside: [storage]}
  hpc: {dedicated: true, numa: exclusive}
"""
BOUND = ("storage", "index", "hpc")
LEVELS = {"katalyst.kubewharf.io/qos_level": "reclaimed_cores"}
POOL = {"katalyst.kubewharf.io/cpu_enhancement": '{"cpuset_pool": "online"}'}
DEDICATED = {"katalyst.kubewharf.io/qos_level": "dedicated_cores"}
CATALOGUE = Catalogue({"cpu": Served("cpu", implicit=True, aligned=True)})
POLICIES = st.sampled_from([Policy.BEST_EFFORT, Policy.SINGLE_NUMA_NODE])
CPUS = st.sampled_from(["250m", "1", "1500m", "2", "3"])


def container(name: str, cpu: str | None, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"requests": {"cpu": cpu} if cpu else {}}, **more}


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(st.sampled_from(["", "", "web", "etl", "own", "cores", "nobody", *BOUND]))
    marks = {"kubernetes.io/pod-role": role} if role else draw(st.sampled_from([{}, {}, LEVELS, POOL, DEDICATED]))
    inits = [container("i", draw(CPUS))] if draw(st.integers(0, 3)) == 0 else []
    if draw(st.integers(0, 4)) == 0:
        inits.append(container("s", draw(CPUS), restartPolicy="Always"))
    apps = [container("a", draw(CPUS))] + ([container("b", draw(CPUS))] if draw(st.booleans()) else [])
    return {"metadata": {"annotations": marks, "namespace": "d"}, "spec": {"initContainers": inits, "containers": apps}}


def admitted(raw: dict[str, Any], uid: str) -> AdmittedPod:
    raw = {**raw, "metadata": {**raw["metadata"], "uid": uid, "name": uid}}
    return AdmittedPod.of(raw)


def role_of(raw: dict[str, Any]) -> str:
    return str(raw["metadata"]["annotations"].get("kubernetes.io/pod-role", ""))


def let_in(state: CpuState, pod: AdmittedPod, policy: Policy) -> CpuState | None:
    """What the manager and the plugin make of a pod together, container by container."""
    for ref, _ in pod.containers():
        for question in CATALOGUE.questions(pod, ref):
            asked = request_from_wire(request_for(pod, ref, question, None))
            merged = merge([Offer("qrm", "cpu", state.hints(asked))], MACHINE.numa, policy)
            if not merged.admitted:
                return None
            after = state.allocate(replace(asked, hint=merged.hint or ANYWHERE))
            if isinstance(after, Unsatisfiable):
                return None
            state = after
    return state


def told(state: CpuState, policy: Policy) -> TopologySummary:
    """The summary as it comes out of the Node object."""
    return decode_topology(encode_topology(TopologySummary(policy.value, pools={"cpu": division(state)})))


def node(summary: TopologySummary) -> NodeFacts:
    amounts = {"cpu": "1000", "memory": "1Ti", "pods": "1000"}
    raw = {"metadata": {"name": "n"}, "status": {"allocatable": amounts}}
    return NodeFacts(NodeView.of(raw), topology=summary)


@settings(max_examples=150, deadline=None)
@given(st.lists(pods(), min_size=1, max_size=14), POLICIES, st.data())
def test_the_scheduler_sends_exactly_what_the_cpu_plugin_lets_in(
    arriving: list[dict[str, Any]], policy: Policy, data: st.DataObject
) -> None:
    state = CpuState.of(MACHINE, read_config(CONFIG, CpuConfig, "cpu.yaml"))
    cluster = Cluster(1)
    cluster.set_node(node(told(state, policy)))
    running: list[str] = []
    seen: set[str] = set()
    for number, raw in enumerate(arriving):
        if running and data.draw(st.integers(0, 4)) == 0:
            gone = running.pop(data.draw(st.integers(0, len(running) - 1)))
            cluster.remove_pod(gone)
            state = state.release(gone)
        if data.draw(st.booleans()):  # pods also come while the node has not told of the last ones
            cluster.set_node(node(told(state, policy)))
            seen = set(running)
        shape = compile_shape(PodView.of(raw))
        fits = bool(feasible(cluster, shape)[0])
        after = let_in(state, admitted(raw, str(number)), policy)
        bound = role_of(raw) in BOUND
        unsure = any(role_of(arriving[int(uid)]) == "hpc" for uid in running if uid not in seen)
        if fits or not (bound or unsure):
            because = (Explanation(cluster, shape).counts(), raw, state.pools.partition, state.pools.members)
            assert fits == (after is not None), because
        if fits and after is not None:
            state = after
            cluster.add_pod("n", PlacedPod(str(number), str(number), shape))
            running.append(str(number))


def test_a_bound_pod_is_sent_once_the_node_has_told_where_the_last_one_went() -> None:
    state = CpuState.of(MACHINE, read_config(CONFIG, CpuConfig, "cpu.yaml"))
    cluster = Cluster(1)
    cluster.set_node(node(told(state, Policy.BEST_EFFORT)))
    raw = {
        "metadata": {"annotations": {"kubernetes.io/pod-role": "storage"}, "namespace": "d"},
        "spec": {"containers": [container("a", "3")]},
    }
    shape = compile_shape(PodView.of(raw))
    cluster.add_pod("n", PlacedPod("1", "1", shape))
    assert Explanation(cluster, shape).counts() == {"node(s) have yet to tell where bound pods went": 1}
    after = let_in(state, admitted(raw, "1"), Policy.BEST_EFFORT)
    assert after is not None
    cluster.set_node(node(told(after, Policy.BEST_EFFORT)))
    assert feasible(cluster, shape)[0]


def test_memory_that_others_are_bound_to_is_not_for_everybody() -> None:
    ledger = MemoryState(MACHINE, read_config("roles: {storage: {numa: bind}}", MemoryConfig, "memory.yaml"))
    assert ledger.division().pools == {"shared": float(16 << 30)}
    pod = admitted(
        {
            "metadata": {"annotations": {"kubernetes.io/pod-role": "storage"}},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"memory": "1Gi"}}}]},
        },
        "1",
    )
    ((ref, _),) = pod.containers()
    (question,) = Catalogue({"memory": Served("memory", aligned=True)}).questions(pod, ref)
    after = ledger.allocate(request_from_wire(request_for(pod, ref, question, ANYWHERE)))
    assert isinstance(after, MemoryState)
    assert after.division().pools == {"shared": float(8 << 30)}
    assert after.division().open["storage"] == {0: 7 << 30, 1: 8 << 30}
    assert after.division().owned == {"1": float(1 << 30)}


async def test_a_division_survives_the_wire() -> None:
    plugin = CpuPlugin(MACHINE, read_config(CONFIG, CpuConfig, "cpu.yaml"))
    servicer: Any = Servicer(plugin)
    answer = await servicer._get_topology_aware_allocatable_resources(None)
    sent = pb.GetTopologyAwareAllocatableResourcesResponse.FromString(answer.SerializeToString())
    read = read_capacity(sent, MACHINE)["cpu"]  # type: ignore[index]
    assert read.division == division(plugin.state)
    assert read.requested == {"offline": 0.0, "online": 0.0, "shared": 0.0}


def test_a_summary_of_a_newer_or_foreign_form_says_nothing() -> None:
    assert decode_topology('{"policy": 7}') == TopologySummary()
    assert decode_topology(encode_json({"policy": "restricted", "new": [1]}).decode()).policy == "restricted"
