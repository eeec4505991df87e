"""Alignment: pods that a node's topology manager would refuse are not sent there."""

from __future__ import annotations

import pytest

from kubeqos.model.annotations.topologysummary import TopologySummary
from kubeqos.placement.findings import NUMA
from kubeqos.placement.published.numa import can_align, capacities, free_now
from tests.placement.playbook import Raw, World, container, given, node, pod, priority

REFUSED = "node(s) cannot align the pod's resources on one NUMA node"
GIB = 1 << 30


def told(
    policy: str = "single-numa-node",
    scope: str = "container",
    held: dict[str, dict[str, dict[int, int]]] | None = None,
    **free: dict[int, int],
) -> TopologySummary:
    return TopologySummary(policy, scope, free, held or {})


def machine(*cpus: int, **more: str) -> World:
    """One node with so many free CPUs on each NUMA node."""
    return given(node("n", cpu="64", memory="64Gi", topology=told(cpu=dict(enumerate(cpus)), **more)))


def pinned(cpu: str = "2", name: str = "new", memory: str = "1Gi") -> Raw:
    """A Guaranteed pod."""
    return pod(name, cpu=cpu, memory=memory, limits=True)


class TestSingleNumaNode:
    @pytest.mark.parametrize(("cpu", "fits"), [("4", True), ("5", False), ("8", False)])
    def test_a_container_must_fit_on_one(self, cpu: str, fits: bool) -> None:
        assert (machine(4, 4).goes_to(pinned(cpu)) == "n") is fits

    def test_the_reason_is_told_and_a_change_of_the_node_waited_for(self) -> None:
        world = machine(1, 1)
        assert world.reasons(pinned("2")) == {"n": [REFUSED]}
        assert world.waits_for(pinned("2")) == {NUMA}

    def test_cpus_that_are_shared_need_no_alignment(self) -> None:
        world = machine(1, 1)
        assert world.goes_to(pinned("1500m")) == "n"  # not whole CPUs
        assert world.goes_to(pod(cpu="2", memory="1Gi")) == "n"  # not Guaranteed

    def test_each_container_takes_the_first_node_with_room(self) -> None:
        two = [container(name, cpu="3", memory="1Gi", limits=True) for name in "xy"]
        assert machine(4, 4).goes_to(pod("two", *two)) == "n"
        assert machine(6, 2).goes_to(pod("two", *two)) == "n"
        assert machine(5, 2).goes_to(pod("two", *two)) == ""

    def test_what_an_init_container_had_is_passed_on(self) -> None:
        first = container("init", cpu="4", memory="1Gi", limits=True)
        main = container("main", cpu="4", memory="1Gi", limits=True)
        assert machine(4).goes_to(pod("p", main, spec={"initContainers": [first]})) == "n"
        beside = {**first, "restartPolicy": "Always"}
        assert machine(4).goes_to(pod("p", main, spec={"initContainers": [beside]})) == ""

    def test_several_resources_must_be_on_the_same(self) -> None:
        apart = told(cpu={0: 4, 1: 0}, memory={0: 0, 1: 8 * GIB})
        assert given(node("n", topology=apart)).goes_to(pinned("2")) == ""
        together = told(cpu={0: 4, 1: 0}, memory={0: 8 * GIB, 1: 0})
        assert given(node("n", topology=together)).goes_to(pinned("2")) == "n"

    def test_a_whole_pod_is_aligned_where_the_scope_says_so(self) -> None:
        two = pod("two", *(container(name, cpu="3", memory="1Gi", limits=True) for name in "xy"))
        by_pod = told(scope="pod", cpu={0: 4, 1: 4})
        assert given(node("n", cpu="64", topology=by_pod)).goes_to(two) == ""
        assert given(node("n", cpu="64", topology=told(scope="pod", cpu={0: 6}))).goes_to(two) == "n"

    @pytest.mark.parametrize("policy", ["none", "best-effort"])
    def test_policies_that_never_refuse(self, policy: str) -> None:
        assert given(node("n", cpu="64", topology=told(policy, cpu={0: 1}))).goes_to(pinned("2")) == "n"

    def test_a_node_that_says_nothing_refuses_nobody(self) -> None:
        assert given(node("n")).goes_to(pinned("2")) == "n"
        assert given(node("n", topology=told())).goes_to(pinned("2")) == "n"

    def test_another_node_can_help(self) -> None:
        world = given(node("split", topology=told(cpu={0: 2, 1: 2})), node("whole", topology=told(cpu={0: 4})))
        assert world.goes_to(pinned("3")) == "whole"


class TestPodsOnTheirWay:
    """The node has not told of them yet: they are put where it would put them."""

    def test_a_burst_is_not_sent_where_only_its_first_pods_fit(self) -> None:
        assert machine(4, 4).fills(pinned("3"), 3) == ["n", "n", ""]

    def test_small_ones_fill_the_gaps(self) -> None:
        world = machine(4, 4)
        assert world.fills(pinned("3", "large"), 2) == ["n", "n"]
        assert world.fills(pinned("1", "small"), 3) == ["n", "n", ""]

    def test_once_the_node_has_told_they_are_not_counted_twice(self) -> None:
        world = machine(4, 4).running(pinned("3", "old"), on="n")
        assert world.goes_to(pinned("4")) == "n"
        world.now(node("n", cpu="64", memory="64Gi", topology=told(cpu={0: 1, 1: 4}, held={"old": {"cpu": {0: 3}}})))
        assert world.goes_to(pinned("4")) == "n"
        assert world.goes_to(pinned("5")) == ""

    def test_what_a_pod_held_is_free_when_it_has_gone(self) -> None:
        holds = told(cpu={0: 0}, held={"old": {"cpu": {0: 4}}})
        world = given(node("n", cpu="64", topology=holds)).running(pinned("4", "old"), on="n")
        assert world.goes_to(pinned("4")) == ""
        assert world.gone("old").goes_to(pinned("4")) == "n"

    def test_a_pod_that_the_node_would_refuse_leaves_nothing_sure(self) -> None:
        """It was sent all the same (another scheduler did): nothing is free until the node tells."""
        world = machine(4, 4).running(pinned("6", "wide"), on="n")
        assert world.goes_to(pinned("1")) == ""

    def test_pods_that_need_no_alignment_take_nothing(self) -> None:
        world = machine(4).running(pod("shared", cpu="3"), on="n")
        assert world.goes_to(pinned("4")) == "n"


class TestRestricted:
    def test_what_fits_on_one_must_be_on_one(self) -> None:
        world = given(
            node("n", cpu="64", topology=told("restricted", cpu={0: 1, 1: 1}, held={"x": {"cpu": {0: 3, 1: 3}}}))
        )
        world.running(pinned("6", "x"), on="n")
        assert world.goes_to(pinned("2")) == ""

    def test_what_is_too_wide_for_one_may_have_several(self) -> None:
        world = given(node("n", cpu="64", topology=told("restricted", cpu={0: 4, 1: 4})))
        assert world.goes_to(pinned("6")) == "n"

    def test_but_not_when_another_resource_prefers_fewer(self) -> None:
        both = told("restricted", cpu={0: 4, 1: 4}, memory={0: 8 * GIB, 1: 8 * GIB})
        world = given(node("n", cpu="64", memory="64Gi", topology=both))
        assert world.goes_to(pinned("6", memory="1Gi")) == ""
        assert world.goes_to(pinned("6", memory="9Gi")) == "n"

    def test_after_a_wide_one_nobody_knows_what_is_left(self) -> None:
        world = given(node("n", cpu="64", topology=told("restricted", cpu={0: 4, 1: 4})))
        world.running(pinned("6", "wide"), on="n")
        assert world.goes_to(pinned("1")) == ""


def test_evicting_frees_a_numa_node() -> None:
    holds = told(cpu={0: 1}, held={"old": {"cpu": {0: 3}}})
    world = given(node("n", cpu="64", topology=holds)).running(pinned("3", "old"), on="n")
    assert world.preempts(priority(pinned("4"), 5)) == ("n", ["old"])


def test_only_as_many_as_alignment_takes() -> None:
    """CPUs are left over, but not on one NUMA node."""
    holds = told(cpu={0: 1, 1: 1}, held={"a": {"cpu": {0: 3}}, "b": {"cpu": {1: 3}}})
    world = given(node("n", cpu="64", memory="64Gi", topology=holds))
    world.running(priority(pinned("3", "a"), 1), priority(pinned("3", "b"), 2), on="n")
    assert world.preempts(priority(pinned("4"), 5)) == ("n", ["a"])


class TestFree:
    def test_capacities_are_what_is_free_and_what_is_held(self) -> None:
        summary = told(cpu={0: 1, 1: 4}, held={"x": {"cpu": {0: 5}}, "y": {"memory": {1: GIB}}})
        assert capacities(summary) == {"cpu": [6, 4], "memory": [GIB]}

    def test_looking_takes_nothing(self) -> None:
        world, summary = machine(4), told(cpu={0: 4})
        free = free_now(summary, {})
        assert can_align(summary, free, world.shape(pinned("4")))
        assert free == {"cpu": {0: 4}}
        assert summary.free == {"cpu": {0: 4}}

    def test_what_nobody_hands_out_by_node_is_not_looked_at(self) -> None:
        summary = told(hugepages={0: 0})
        assert can_align(summary, free_now(summary, {}), machine(4).shape(pinned("4")))
