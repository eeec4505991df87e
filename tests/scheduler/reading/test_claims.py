"""Claims on nodes with compute drivers: what the scheduler sends, admission there lets in (KEP-3675, attributes).

The node is real: admission over the CCI manager and the built-in drivers, one or several, on random machines. What it
publishes reaches the scheduler late or not at all, as in a burst of pods.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cci.builtin.hpc import Hpc
from kubeqos.cci.builtin.power import Power
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.model.annotations.computepolicies import ANY_DRIVER
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
from kubeqos.placement.preempt import Preemption, Preemptor
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.scheduler.reading.objects import node_facts
from kubeqos.topology.claims.asks import POLICIES, Wrong
from kubeqos.topology.claims.serving import need_of
from tests.cci.test_properties import Direct, claims
from tests.cci.world import admitted, bounds, container, cores, exclusive, pod
from tests.topology.strategies import machines

POLICY = "cci.resources.alpha.kubernetes.io/container.main"


class Node:
    """One node's admission and what it publishes."""

    def __init__(
        self, machine: Machine, folder: Path, reserved: int = 0, drivers: Sequence[Reference] = (), **more: Any
    ) -> None:
        held = machine.online.lowest(reserved)
        self.machine = machine
        self.settings = NodeSettings("n", folder, log_dir=folder, reserved_cpus=held)
        self.manager = CciManager(machine, folder, CciSettings(reserved=held, several_drivers=len(drivers) > 1, **more))
        Direct(self.manager, machine, *drivers)
        self.admission = Admission(machine, (self.manager,), LocalLedger(), self._fit)

    def _fit(self) -> NodeFit:
        fit = amounts(self.machine, self.settings, self.manager.node_resources()).fit()
        return NodeFit("n", {}, {**fit, "pods": 110}, ())

    def raw(self, name: str = "n") -> dict[str, Any]:
        found = node_annotations(self.settings, self.admission.managers, sorted(self.manager.drivers.table))
        found[MACHINE_ANNOTATION] = encode_machine(self.machine)
        found_amounts = amounts(self.machine, self.settings, self.manager.node_resources())
        status = {"allocatable": {**texts(found_amounts.allocatable), "pods": "110"}}
        return {"kind": "Node", "metadata": {"name": name, "annotations": found}, "status": status}

    def facts(self, name: str = "n") -> NodeFacts:
        return node_facts(NodeView.of(self.raw(name)))


def shape_of(one: AdmittedPod) -> Shape:
    need = need_of(one.view, one.claims)
    assert not isinstance(need, Wrong), need
    asked = {claim.driver or ANY_DRIVER for each in need.containers for claim in each.claims} if need else ()
    return compile_shape(one.view, claim_drivers=asked, compute=need)


def plain(name: str, cpu: str) -> AdmittedPod:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    return admitted(name, {"name": "main", "image": "x", "resources": resources})


def by_policy(name: str, policy: str, count: int) -> AdmittedPod:
    """The form without claims."""
    resources = {"requests": {"cpu": str(count)}, "limits": {"cpu": str(count)}}
    one = {"name": "main", "image": "x", "resources": resources}
    return admitted(name, one, annotations={POLICY: policy})


def two_claims(name: str, first: str, second: str, driver: str) -> AdmittedPod:
    """One container with two claims, whose cores add up."""
    ends = [bounds(text) for text in (first, second)]
    least, most = (str(sum(each)) for each in zip(*ends, strict=True))
    resources = {"requests": {"cpu": least}, "limits": {"cpu": most}, "claims": [{"name": "one"}, {"name": "two"}]}
    one = {"name": "main", "image": "x", "resources": resources}
    return admitted(name, one, claims={"one": first, "two": second}, driver=driver)


@st.composite
def pods(draw: st.DrawFn) -> Any:
    """A maker of a pod: claims in one or more containers, a policy, or neither; of one of the node's drivers."""
    form = draw(st.sampled_from(["claim", "claim", "claims", "policy", "plain"]))
    if form == "plain":
        cpu = draw(st.sampled_from(["100m", "1", "3", "6"]))
        return lambda name, _drivers: plain(name, cpu)
    if form == "policy":
        policy, count = draw(st.sampled_from([*POLICIES, "of-its-own"])), draw(st.integers(1, 5))
        return lambda name, _drivers: by_policy(name, policy, count)
    first, which = draw(claims()), draw(st.integers(0, 2))
    if form == "claim":
        return lambda name, drivers: pod(name, first, drivers[which % len(drivers)])
    second, init = draw(claims()), draw(st.sampled_from(["", "init", "sidecar", "both"]))

    def several(name: str, drivers: Sequence[str]) -> AdmittedPod:
        driver = drivers[which % len(drivers)]
        if init == "both":
            return two_claims(name, first, second, driver)
        texts = {"one": first, "two": second}
        both = [container("a", "one", first), container("b", "two", second)]
        if not init:
            return admitted(name, *both, claims=texts, driver=driver)
        restart = {"restartPolicy": "Always"} if init == "sidecar" else {}
        return admitted(name, both[1], claims=texts, driver=driver, initContainers=[{**both[0], **restart}])

    return several


STEPS = st.lists(st.one_of(pods(), st.integers(0, 9), st.just("told")), min_size=1, max_size=14)


DRIVERS = st.lists(st.sampled_from([Reference, Power, Hpc]), min_size=1, max_size=3, unique=True)
CASES = given(machines(), STEPS, st.integers(0, 2), st.booleans(), st.integers(1, 3), DRIVERS)


@settings(max_examples=30, deadline=None)
@CASES
def test_the_scheduler_sends_exactly_what_the_driver_and_the_node_let_in(
    machine: Machine, plan: list[Any], reserved: int, threads: bool, minimum: int, kinds: list[Any]
) -> None:
    agree(machine, plan, reserved, threads, minimum, kinds)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@CASES
def test_the_scheduler_and_the_node_agree_on_1500_random_cases(
    machine: Machine, plan: list[Any], reserved: int, threads: bool, minimum: int, kinds: list[Any]
) -> None:
    agree(machine, plan, reserved, threads, minimum, kinds)


def agree(
    machine: Machine, plan: list[Any], reserved: int, threads: bool, minimum: int, kinds: list[type[Any]]
) -> None:
    if len(machine.online) > reserved + minimum - 1:
        with tempfile.TemporaryDirectory() as folder:
            drivers = [kind(machine, **{"sysfs": Path(folder)} if kind is Power else {}) for kind in kinds]
            settings = {"thread_granularity": threads, "standard_minimum": minimum}
            node = Node(machine, Path(folder), reserved, drivers, **settings)
            asyncio.run(_send(node, plan))


async def _send(node: Node, plan: list[Any]) -> None:
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    drivers = sorted(node.manager.drivers.table)
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
            wanted = step(f"p{number}", drivers)
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


async def test_a_driver_of_whole_numa_nodes_is_sent_no_third_pod(tmp_path: Path) -> None:
    """Two NUMA nodes, of which two pods have four cores each: a third is told why before it is sent anywhere."""
    node = Node(kep80(), tmp_path, drivers=[Hpc(kep80(), "mine.example.com")])
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    first, second, third = (pod(name, exclusive(4), "mine.example.com") for name in ("first", "second", "third"))
    reason = "node(s) cannot serve the pod's claims (whole NUMA nodes: nodes none are free, 4 cores wanted)"
    for one in (first, second):
        assert feasible(cluster, shape_of(one))[0] and await node.admission.admit(one) is None
        cluster.add_pod("n", PlacedPod(one.uid, one.uid, shape_of(one)))
    assert Explanation(cluster, shape_of(third)).counts() == {reason: 1}, "the node has not told of them yet"
    cluster.set_node(node.facts())
    assert Explanation(cluster, shape_of(third)).counts() == {reason: 1}
    refusal = await node.admission.admit(third)
    assert refusal is not None and "whole NUMA nodes: nodes none are free" in refusal.message
    policy = by_policy("by-policy", "cci-exclusive", 4)
    assert Explanation(cluster, shape_of(policy)).counts() == {reason: 1}, "who names no driver means the only one"
    cluster.remove_pod(first.uid)
    assert feasible(cluster, shape_of(third))[0]


@pytest.mark.parametrize("kind", [Reference, Hpc])
@pytest.mark.parametrize("told", [True, False])
async def test_cores_of_less_important_pods_are_freed_and_no_others(
    tmp_path: Path, kind: type[Reference], told: bool
) -> None:
    """Two claims are on a NUMA node each, beside a pod that shares: one of the owners goes, although CPUs are left."""
    node = Node(kep80(), tmp_path, drivers=[kind(kep80())])
    bound = cores("24", cpu=[["EXCLUSIVE"]], mem=["NUMA-MEM-AFFINITY-BIND-REQUIRED"])
    driver = next(iter(node.manager.drivers.table))
    running = [pod("first", bound, driver), plain("web", "1"), pod("second", bound, driver)]
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    for started, one in enumerate(running):
        assert await node.admission.admit(one) is None
        cluster.add_pod("n", PlacedPod(one.uid, one.uid, shape_of(one), started))
    if told:
        cluster.set_node(node.facts())
    urgent = replace(shape_of(pod("urgent", bound, driver)), priority=1000)
    answer = Preemptor(cluster).preempt(urgent, Explanation(cluster, urgent))
    assert isinstance(answer, Preemption)
    [victim] = answer.victims
    assert victim.uid == running[2].uid, "the younger of the two"
    cluster.remove_pod(victim.uid)
    await node.admission.release(victim.uid)
    assert feasible(cluster, urgent)[0] and await node.admission.admit(pod("urgent", bound, driver)) is None


async def test_nobody_goes_for_cores_that_claims_keep_idle_but_those_who_keep_them(tmp_path: Path) -> None:
    node = Node(kep80(), tmp_path)
    denied, web, large = pod("denied", DENIED), plain("web", "10"), plain("large", "45")
    cluster = Cluster(1)
    cluster.set_node(node.facts())
    for one in (web, denied):
        assert await node.admission.admit(one) is None
        cluster.add_pod("n", PlacedPod(one.uid, one.uid, shape_of(one)))
    cluster.set_node(node.facts())
    urgent = replace(shape_of(large), priority=1000)
    answer = Preemptor(cluster).preempt(urgent, Explanation(cluster, urgent))
    assert isinstance(answer, Preemption) and [one.uid for one in answer.victims] == [denied.uid]


def test_what_cannot_be_read_is_no_opinion() -> None:
    told = {TOPOLOGY_ANNOTATION: '{"compute": {"withheld": "9-"}}', MACHINE_ANNOTATION: encode_machine(kep80())}
    allocatable = {"cpu": "80", "pods": "110"}
    raw = {"metadata": {"name": "n", "annotations": told}, "status": {"allocatable": allocatable}}
    cluster = Cluster(1)
    cluster.set_node(node_facts(NodeView.of(raw)))
    one = pod("p", exclusive(2))
    assert feasible(cluster, compile_shape(one.view, compute=need_of(one.view, one.claims)))[0]  # type: ignore[arg-type]
