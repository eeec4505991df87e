"""Claims on nodes with compute drivers: what the scheduler sends, admission there lets in (KEP-3675, attributes).

The node is real: admission over the CCI manager and the reference driver, on random machines. What it publishes reaches
the scheduler late or not at all, as in a burst of pods.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cci.manager import CciManager, Settings
from kubeqos.model.annotations.published import encode_machine
from kubeqos.model.annotations.wellknown import MACHINE_ANNOTATION, TOPOLOGY_ANNOTATION
from kubeqos.model.hardware.named import kep80
from kubeqos.model.machine import Machine
from kubeqos.model.objects import NodeView
from kubeqos.node.admission.fit import NodeFit
from kubeqos.node.admission.ledger import LocalLedger
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.api.nodestatus import amounts, node_annotations, texts
from kubeqos.node.config.settings import NodeSettings
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.fit import Explanation, feasible
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.placer import Placed, Placer
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.scheduler.reading import node_facts
from kubeqos.topology.claims.asks import POLICIES, Wrong
from kubeqos.topology.claims.serving import need_of
from tests.cci.test_properties import Direct, claims
from tests.cci.world import DRIVER, admitted, container, cores, exclusive, pod
from tests.topology.strategies import machines

POLICY = "cci.resources.alpha.kubernetes.io/container.main"


class Node:
    """One node's admission and what it publishes."""

    def __init__(self, machine: Machine, folder: Path, reserved: int = 0, **more: Any) -> None:
        held = machine.online.lowest(reserved)
        self.machine = machine
        self.settings = NodeSettings("n", folder, log_dir=folder, reserved_cpus=held)
        self.manager = CciManager(machine, folder, Settings(reserved=held, **more))
        self.driver = Direct(self.manager, machine)
        self.admission = Admission(machine, (self.manager,), LocalLedger(), self._fit)

    def _fit(self) -> NodeFit:
        fit = amounts(self.machine, self.settings, self.manager.node_resources()).fit()
        return NodeFit("n", {}, {**fit, "pods": 110}, ())

    def raw(self, name: str = "n") -> dict[str, Any]:
        found = node_annotations(self.settings, self.admission.managers, [DRIVER])
        found[MACHINE_ANNOTATION] = encode_machine(self.machine)
        found_amounts = amounts(self.machine, self.settings, self.manager.node_resources())
        status = {"allocatable": {**texts(found_amounts.allocatable), "pods": "110"}}
        return {"kind": "Node", "metadata": {"name": name, "annotations": found}, "status": status}

    def facts(self, name: str = "n") -> NodeFacts:
        return node_facts(NodeView.of(self.raw(name)))


def shape_of(one: AdmittedPod) -> Shape:
    need = need_of(one.view, one.claims)
    assert not isinstance(need, Wrong), need
    return compile_shape(one.view, claim_drivers=[DRIVER] if need is not None else (), compute=need)


def plain(name: str, cpu: str) -> AdmittedPod:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return admitted(name, {"name": "main", "image": "x", "resources": resources})


def by_policy(name: str, policy: str, count: int) -> AdmittedPod:
    """The form without claims."""
    resources = {"requests": {"cpu": str(count)}, "limits": {"cpu": str(count)}}
    one = {"name": "main", "image": "x", "resources": resources}
    return admitted(name, one, annotations={POLICY: policy})


@st.composite
def pods(draw: st.DrawFn) -> Any:
    """A maker of a pod: claims in one or more containers, a policy, or neither."""
    form = draw(st.sampled_from(["claim", "claim", "claims", "policy", "plain"]))
    if form == "plain":
        cpu = draw(st.sampled_from(["100m", "1", "3", "6"]))
        return lambda name: plain(name, cpu)
    if form == "policy":
        policy, count = draw(st.sampled_from([*POLICIES, "of-its-own"])), draw(st.integers(1, 5))
        return lambda name: by_policy(name, policy, count)
    first = draw(claims())
    if form == "claim":
        return lambda name: pod(name, first)
    second, init = draw(claims()), draw(st.sampled_from(["", "init", "sidecar"]))

    def several(name: str) -> AdmittedPod:
        texts = {"one": first, "two": second}
        both = [container("a", "one", first), container("b", "two", second)]
        if not init:
            return admitted(name, *both, claims=texts)
        restart = {"restartPolicy": "Always"} if init == "sidecar" else {}
        return admitted(name, both[1], claims=texts, initContainers=[{**both[0], **restart}])

    return several


STEPS = st.lists(st.one_of(pods(), st.integers(0, 9), st.just("told")), min_size=1, max_size=14)


CASES = given(machines(), STEPS, st.integers(0, 2), st.booleans(), st.integers(1, 3))


@settings(max_examples=30, deadline=None)
@CASES
def test_the_scheduler_sends_exactly_what_the_driver_and_the_node_let_in(
    machine: Machine, plan: list[Any], reserved: int, threads: bool, minimum: int
) -> None:
    agree(machine, plan, reserved, threads, minimum)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@CASES
def test_the_scheduler_and_the_node_agree_on_1500_random_cases(
    machine: Machine, plan: list[Any], reserved: int, threads: bool, minimum: int
) -> None:
    agree(machine, plan, reserved, threads, minimum)


def agree(machine: Machine, plan: list[Any], reserved: int, threads: bool, minimum: int) -> None:
    if len(machine.online) > reserved + minimum - 1:
        with tempfile.TemporaryDirectory() as folder:
            node = Node(machine, Path(folder), reserved, thread_granularity=threads, standard_minimum=minimum)
            asyncio.run(_send(node, plan))


async def _send(node: Node, plan: list[Any]) -> None:
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    running: list[str] = []
    for number, step in enumerate(plan):
        if step == "told":
            cluster.set_node(node.facts())
        elif isinstance(step, int):
            if running:
                gone = running.pop(step % len(running))
                cluster.remove_pod(gone)
                await node.admission.release(gone)
        else:
            wanted = step(f"p{number}")
            shape = shape_of(wanted)
            fits = bool(feasible(cluster, shape)[0])
            refusal = await node.admission.admit(wanted)
            by_driver = POLICY in wanted.view.metadata.annotations and _is_of_its_own(wanted)
            why = Explanation(cluster, shape).counts()
            assert fits == (refusal is None) or (by_driver and fits), (refusal, why, wanted.raw, wanted.claims)
            if refusal is None:
                cluster.add_pod("n", PlacedPod(wanted.uid, wanted.uid, shape))
                running.append(wanted.uid)
        assert node.admission.validate() == []


def _is_of_its_own(wanted: AdmittedPod) -> bool:
    """A policy that only a driver knows: this one does not, and says so when it is asked."""
    return wanted.view.metadata.annotations[POLICY] not in POLICIES


# -- The numbers of the proposals --------------------------------------------------------------------------------------

DENIED = cores("30", cpu=[["EXCLUSIVE", "CORE-SIBLING-DENIED"]])


async def test_thirty_cores_without_siblings_are_sixty_cpus(tmp_path: Path) -> None:
    """On 80 CPUs: a pod of 45 has no room beside it, whether the node has told of it or not."""
    node = Node(kep80(), tmp_path)
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    denied, large, small = pod("denied", DENIED), plain("large", "45"), plain("small", "20")
    assert feasible(cluster, shape_of(denied))[0] and feasible(cluster, shape_of(large))[0]
    assert await node.admission.admit(denied) is None
    cluster.add_pod("n", PlacedPod(denied.uid, "denied", shape_of(denied)))
    assert Explanation(cluster, shape_of(large)).counts() == {"Insufficient cpu beside the cores that claims keep": 1}
    assert feasible(cluster, shape_of(small))[0]
    cluster.set_node(node.facts())
    assert Explanation(cluster, shape_of(large)).counts() == {"Insufficient cpu": 1}
    refusal = await node.admission.admit(large)
    assert refusal is not None and refusal.reason == "OutOfcpu"
    assert await node.admission.admit(small) is None


async def test_a_claim_is_not_let_in_over_what_others_request(tmp_path: Path) -> None:
    """The other way round: 30 cores without siblings take 60 CPUs, and 45 are requested already."""
    node = Node(kep80(), tmp_path)
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    large, denied = plain("large", "45"), pod("denied", DENIED)
    assert await node.admission.admit(large) is None
    cluster.add_pod("n", PlacedPod(large.uid, "large", shape_of(large)))
    assert Explanation(cluster, shape_of(denied)).counts() == {"Insufficient cpu beside the cores that claims keep": 1}
    refusal = await node.admission.admit(denied)
    assert refusal is not None and refusal.reason == "OutOfcpu"
    assert node.manager.store.entries.keys() == {(large.uid, "main")}, "nothing of it is left"


async def test_attribute_by_attribute_with_the_reason(tmp_path: Path) -> None:
    """40 CPUs on each of two NUMA nodes: 41 are too many for one of them, not for the machine."""
    node = Node(kep80(), tmp_path)
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    bound = cores("42", cpu=[["EXCLUSIVE"]], mem=["NUMA-MEM-AFFINITY-BIND-REQUIRED"])
    (reason,) = Explanation(cluster, shape_of(pod("bound", bound))).counts()
    assert reason == (
        "node(s) cannot serve the pod's claims (not enough cpus on one NUMA node (NUMA-MEM-AFFINITY-BIND-REQUIRED): "
        "requested=42, available=40)"
    )
    assert feasible(cluster, shape_of(pod("wide", exclusive(42))))[0]


async def test_wishes_that_can_be_met_draw_a_claim(tmp_path: Path) -> None:
    """Both nodes have 24 free CPUs; only on one of them are they together."""
    wish = cores("20", cpu=[["EXCLUSIVE"]], mem=["NUMA-MEM-AFFINITY-BIND-PREFERRED"])
    cluster = Cluster(2)
    for name, takes in (("scattered", ["28", "28"]), ("together", ["40", "16"])):
        (tmp_path / name).mkdir()
        node = Node(kep80(), tmp_path / name)
        held = [cores(one, cpu=[["EXCLUSIVE"]], mem=["NUMA-MEM-AFFINITY-BIND-REQUIRED"]) for one in takes]
        running = [pod(name, one) for one in held]
        assert [await node.admission.admit(one) for one in running] == [None, None]
        cluster.set_node(node.facts(name))
        for one in running:
            cluster.add_pod(name, PlacedPod(one.uid, one.uid, shape_of(one)))
    answer = Placer(cluster).place(shape_of(pod("wish", wish)))
    assert isinstance(answer, Placed) and answer.node == "together"


def test_what_cannot_be_read_is_no_opinion() -> None:
    told = {TOPOLOGY_ANNOTATION: '{"compute": {"withheld": "9-"}}', MACHINE_ANNOTATION: encode_machine(kep80())}
    allocatable = {"cpu": "80", "pods": "110"}
    raw = {"metadata": {"name": "n", "annotations": told}, "status": {"allocatable": allocatable}}
    cluster = Cluster(1)
    cluster.set_node(node_facts(NodeView.of(raw)))
    one = pod("p", exclusive(2))
    assert feasible(cluster, compile_shape(one.view, compute=need_of(one.view, one.claims)))[0]  # type: ignore[arg-type]
