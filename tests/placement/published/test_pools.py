"""Pools: where plugins divide a node among roles, a pod needs room in the pool of its role (KEP-3461)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.annotations.podmarks import MAIN_CONTAINER_KEY, QOS_LEVEL_KEY, SKIP_KEY
from kubeqos.model.annotations.topologysummary import BIND, EXCLUSIVE, Division, PoolRule, Rules, TopologySummary
from kubeqos.placement.published.pools import amount_of
from tests.placement.playbook import Raw, World, container, given, node, pod, priority

RULES = Rules(
    "shared",
    {
        "web": PoolRule("online"),
        "own": PoolRule("", True),
        "pairs": PoolRule("", True, multiple=2),
        "bound": PoolRule("", True, BIND),
        "hpc": PoolRule("", True, EXCLUSIVE),
    },
)
BOUND = "node(s) have yet to tell where bound pods went"
NOT_OPEN = "Insufficient exclusive cpu on NUMA nodes open to the pod's role"
LAST = "the last exclusive cpu has to be shared"


def divided(
    pools: dict[str, float] | None = None,
    whole: float = 4,
    *,
    carved: str = "shared",
    rules: Rules = RULES,
    policy: str = "best-effort",
    scope: str = "container",
    **more: Any,
) -> TopologySummary:
    """A node of which 4 CPUs are shared and 2 belong to the pool `online`, unless told otherwise."""
    parts = {"shared": 4.0, "online": 2.0} if pools is None else pools
    return TopologySummary(policy, scope, pools={"cpu": Division(rules, parts, whole, carved, **more)})


def world_of(*summaries: TopologySummary) -> World:
    return given(*(node(f"n{number}", cpu="64", topology=each) for number, each in enumerate(summaries)))


def as_role(role: str, cpu: str, name: str = "new") -> Raw:
    return pod(name, cpu=cpu, role=role)


class TestSharedPools:
    def test_a_role_draws_on_its_pool(self) -> None:
        world = world_of(divided())
        assert world.fills(as_role("web", "1"), 3) == ["n0", "n0", ""]
        assert world.reasons(as_role("web", "1")) == {"n0": ['Insufficient cpu in pool "online"']}
        assert world.waits_for(as_role("web", "1")) == {("cpu", "online")}

    def test_pods_without_a_role_share_the_default(self) -> None:
        assert world_of(divided()).fills(pod(cpu="2"), 3) == ["n0", "n0", ""]

    def test_one_pool_does_not_help_another(self) -> None:
        world = world_of(divided()).running(pod("full", cpu="4"), on="n0")
        assert world.goes_to(as_role("web", "2")) == "n0"
        assert world.goes_to(pod(cpu="1")) == ""

    def test_a_pool_that_the_node_does_not_have(self) -> None:
        world = world_of(divided({"shared": 4}), divided())
        assert world.goes_to(as_role("web", "1")) == "n1"
        assert world.reasons(as_role("web", "1")) == {"n0": ['no pool "online" for cpu']}

    def test_a_pod_that_asks_for_no_cpu_draws_on_nothing(self) -> None:
        world = world_of(divided({"shared": 0}))
        assert world.goes_to(pod(memory="1Gi")) == "n0"

    def test_nodes_that_nobody_divides_take_everybody(self) -> None:
        world = given(node("plain", cpu="64"))
        assert world.goes_to(as_role("own", "8")) == "plain"

    def test_pods_that_plugins_leave_alone_draw_on_nothing(self) -> None:
        skipped = pod(cpu="8", annotations={SKIP_KEY: "true"})
        daemon = pod(cpu="8")
        daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]
        world = world_of(divided())
        assert world.goes_to(pod(cpu="8")) == ""
        assert world.goes_to(skipped) == world.goes_to(daemon) == "n0"

    def test_a_pool_that_grows_is_seen(self) -> None:
        world = world_of(divided())
        assert world.fills(as_role("web", "1"), 3)[2] == ""
        world.now(node("n0", cpu="64", topology=divided({"shared": 4, "online": 3})))
        assert world.goes_to(as_role("web", "1")) == "n0"

    def test_rules_that_change_are_followed(self) -> None:
        world = world_of(divided())
        assert world.goes_to(as_role("web", "3")) == ""
        other = Rules("shared", {"web": PoolRule("shared")})
        world.now(node("n0", cpu="64", topology=divided(rules=other)))
        assert world.goes_to(as_role("web", "3")) == "n0"
        world.running(as_role("web", "3", "old"), on="n0")
        assert world.goes_to(as_role("web", "2")) == ""

    def test_init_containers_do_not_count_where_containers_are_asked_for_one_by_one(self) -> None:
        first = {"initContainers": [container("i", cpu="4")]}
        main = container("main", cpu="1")
        small = divided({"shared": 2})
        assert world_of(small).goes_to(pod("p", main, spec=first)) == "n0"
        whole_pods = divided({"shared": 2}, scope="pod")
        assert world_of(whole_pods).goes_to(pod("p", main, spec=first)) == ""


class TestUnitsOfTheirOwn:
    def test_they_are_counted_whole(self) -> None:
        """1.5 CPUs are two; and 4 are there."""
        world = world_of(divided())
        assert world.fills(as_role("own", "1500m"), 3) == ["n0", "n0", ""]
        assert world.goes_to(as_role("own", "500m")) == ""

    def test_none_left(self) -> None:
        world = world_of(divided()).running(as_role("own", "4", "old"), on="n0")
        assert world.reasons(as_role("own", "1")) == {"n0": ["Insufficient exclusive cpu"]}
        assert world.waits_for(as_role("own", "1")) == {("cpu", "")}

    def test_they_come_out_of_the_pool_that_they_are_carved_from(self) -> None:
        world = world_of(divided()).running(as_role("own", "3", "old"), on="n0")
        assert world.goes_to(pod(cpu="2")) == ""
        assert world.goes_to(pod(cpu="1")) == "n0"
        assert world.goes_to(as_role("web", "2")) == "n0"

    def test_the_last_is_not_taken_from_who_shares(self) -> None:
        world = world_of(divided()).running(pod("shares", cpu="100m"), on="n0")
        assert world.reasons(as_role("own", "4")) == {"n0": [LAST]}
        assert world.goes_to(as_role("own", "3")) == "n0"
        assert world.gone("shares").goes_to(as_role("own", "4")) == "n0"

    def test_nor_from_its_own_init_containers(self) -> None:
        main = container("main", cpu="4")
        first = {"initContainers": [container("i")]}
        assert world_of(divided()).goes_to(pod("p", main, role="own")) == "n0"
        assert world_of(divided()).reasons(pod("p", main, role="own", spec=first)) == {"n0": [LAST]}

    @pytest.mark.parametrize(("cpu", "fits"), [("2", True), ("4", True), ("1", False), ("3", False)])
    def test_they_come_in_multiples(self, cpu: str, fits: bool) -> None:
        world = world_of(divided())
        reasons = {} if fits else {"n0": ["exclusive cpu not a multiple of 2"]}
        assert world.reasons(as_role("pairs", cpu)) == reasons

    def test_only_the_main_container_has_them(self) -> None:
        two = [container("main", cpu="2"), container("beside", cpu="2")]
        world = world_of(divided())
        assert world.goes_to(pod("p", *two, role="own")) == "n0"
        swapped = {MAIN_CONTAINER_KEY: "beside"}
        three = [container("main", cpu="1"), container("beside", cpu="5")]
        assert world.goes_to(pod("p", *three, role="own")) == "n0"
        assert world.goes_to(pod("p", *three, role="own", annotations=swapped)) == ""

    def test_where_nothing_is_carved_the_others_share_the_default_pool(self) -> None:
        apart = divided({"shared": 1}, carved="")
        two = [container("main", cpu="2"), container("beside", cpu="2")]
        assert world_of(apart).reasons(pod("p", *two, role="own")) == {"n0": ['Insufficient cpu in pool "shared"']}
        assert world_of(apart).goes_to(pod("p", two[0], container("beside", cpu="1"), role="own")) == "n0"

    def test_katalyst_marks_mean_the_same(self) -> None:
        world = world_of(divided())
        dedicated = pod(cpu="5", annotations={QOS_LEVEL_KEY: "dedicated_cores"})
        assert world.reasons(dedicated) == {"n0": ["Insufficient exclusive cpu"]}
        reclaimed = pod(cpu="1", annotations={QOS_LEVEL_KEY: "reclaimed_cores"})
        assert world.reasons(reclaimed) == {"n0": ['no pool "reclaim" for cpu']}

    def test_what_the_node_says_that_a_pod_owns_counts_if_it_is_more(self) -> None:
        world = world_of(divided(owned={"old": 3.0})).running(as_role("own", "1", "old"), on="n0")
        assert world.goes_to(as_role("own", "2")) == ""
        assert world.goes_to(as_role("own", "1")) == "n0"


class TestBoundToNumaNodes:
    def test_what_is_open_to_the_role_must_be_enough(self) -> None:
        world = world_of(divided(open={"bound": {0: 1, 1: 1}}))
        assert world.reasons(as_role("bound", "3")) == {"n0": [NOT_OPEN]}
        assert world.goes_to(as_role("bound", "2")) == "n0"

    def test_on_one_of_them_where_the_policy_says_so(self) -> None:
        single = divided(open={"bound": {0: 1, 1: 1}}, policy="single-numa-node")
        assert world_of(single).reasons(as_role("bound", "2")) == {"n0": [NOT_OPEN]}
        assert world_of(single).goes_to(as_role("bound", "1")) == "n0"

    def test_where_nobody_says_what_is_open_everything_is(self) -> None:
        assert world_of(divided()).goes_to(as_role("bound", "3")) == "n0"

    def test_one_at_a_time_until_the_node_tells_where_it_went(self) -> None:
        world = world_of(divided(open={"bound": {0: 4}}))
        assert world.fills(as_role("bound", "1", "b"), 2) == ["n0", ""]
        assert world.reasons(as_role("bound", "1")) == {"n0": [BOUND]}
        world.now(node("n0", cpu="64", topology=divided(open={"bound": {0: 3}}, owned={"b-0": 1.0})))
        assert world.goes_to(as_role("bound", "1")) == "n0"

    def test_while_it_has_not_told_nobody_says_what_is_short(self) -> None:
        world = world_of(divided(open={"bound": {0: 1}})).running(as_role("bound", "1", "b"), on="n0")
        assert world.reasons(as_role("bound", "2")) == {"n0": [BOUND]}

    def test_others_do_not_wait_for_it(self) -> None:
        world = world_of(divided(open={"bound": {0: 4}})).running(as_role("bound", "1", "b"), on="n0")
        assert world.goes_to(as_role("web", "1")) == "n0"
        assert world.goes_to(as_role("own", "1")) == "n0"

    def test_whole_numa_nodes_are_not_all_taken_from_who_shares(self) -> None:
        """Two CPUs each: three units take both NUMA nodes, and nothing is left of the shared pool."""
        two = divided(open={"hpc": {0: 2, 1: 2}})
        assert world_of(two).goes_to(as_role("hpc", "3")) == "n0"
        world = world_of(two).running(pod("shares", cpu="100m"), on="n0")
        assert world.reasons(as_role("hpc", "3")) == {"n0": [NOT_OPEN]}
        assert world.goes_to(as_role("hpc", "2")) == "n0"

    def test_until_the_node_tells_a_whole_numa_pod_may_have_taken_all_that_was_open(self) -> None:
        world = world_of(divided(open={"hpc": {0: 2, 1: 2}})).running(as_role("hpc", "1", "h"), on="n0")
        assert world.goes_to(as_role("own", "1")) == ""
        told = divided(open={"hpc": {1: 2}}, owned={"h": 2.0})
        assert world.now(node("n0", cpu="64", topology=told)).goes_to(as_role("own", "1")) == "n0"


class TestMakingRoom:
    def test_a_pool_is_won_from_its_own_pods(self) -> None:
        world = world_of(divided()).running(as_role("web", "2", "web"), pod("other", cpu="2"), on="n0")
        assert world.preempts(priority(as_role("web", "1"), 5)) == ("n0", ["web"])

    def test_units_are_won_from_who_owns_some(self) -> None:
        world = world_of(divided()).running(as_role("own", "3", "own"), as_role("web", "1", "web"), on="n0")
        assert world.preempts(priority(as_role("own", "2"), 5)) == ("n0", ["own"])

    def test_more_than_the_pool_ever_has_is_not_won(self) -> None:
        world = world_of(divided()).running(as_role("web", "2", "web"), on="n0")
        said = world.preempts(priority(as_role("web", "3"), 5))
        assert said == "0/1 nodes are available: 1 Preemption is not helpful for scheduling."


@pytest.mark.parametrize(
    ("resource", "told", "amount"),
    [("cpu", 1.5, 1500), ("cpu", 0.9999999, 1000), ("cpu", 2.0004, 2000), ("memory", 3.0, 3), ("memory", 2.9999999, 3)],
)
def test_published_amounts_forgive_a_millionth(resource: str, told: float, amount: int) -> None:
    assert amount_of(resource, told) == amount


def test_two_divisions_side_by_side() -> None:
    """CPU and memory are divided by different plugins; both must have room."""
    memory = Division(Rules("pool"), {"pool": float(2 << 30)})
    both = TopologySummary("best-effort", pools={**divided().pools, "memory": memory})
    world = given(node("n", cpu="64", memory="64Gi", topology=both))
    assert world.reasons(pod(cpu="5", memory="3Gi")) == {
        "n": ['Insufficient cpu in pool "shared"', 'Insufficient memory in pool "pool"']
    }
    assert world.goes_to(pod(cpu="4", memory="2Gi")) == "n"
