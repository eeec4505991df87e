"""Score: which of the nodes that fit is the best, and with how many points."""

from __future__ import annotations

import pytest

from tests.placement.playbook import (
    PREFERRED,
    Raw,
    classes,
    container,
    given,
    matching,
    near,
    node,
    pod,
    spread,
)

MB = 1 << 20


class TestAllocation:
    def test_the_emptier_node_wins(self) -> None:
        world = given(node("a"), node("b")).weighing(resources=1).running(pod("old", cpu="1", memory="1Gi"), on="a")
        assert world.goes_to(pod(cpu="1")) == "b"

    def test_or_the_fuller_one_when_packing(self) -> None:
        world = given(node("a"), node("b")).weighing(resources=1, most_allocated=True)
        world.running(pod("old", cpu="1", memory="1Gi"), on="b")
        assert world.goes_to(pod(cpu="1")) == "b"

    def test_points_are_the_mean_of_what_is_left(self) -> None:
        """1 of 4 CPUs and 2 of 8 GiB: 75 % is free of both."""
        assert given(node("a")).weighing(resources=1).points(pod(cpu="1", memory="2Gi")) == 75
        assert given(node("a")).weighing(resources=1, most_allocated=True).points(pod(cpu="1", memory="2Gi")) == 25
        assert given(node("a")).weighing(resources=1).points(pod(cpu="4", memory="2Gi")) == (0 + 75) // 2

    def test_a_weight_multiplies(self) -> None:
        assert given(node("a")).weighing(resources=3).points(pod(cpu="1", memory="2Gi")) == 225

    def test_a_pod_that_asks_for_nothing_counts_with_a_little(self) -> None:
        """Else a node full of such pods would look empty: 100m of 1 CPU, 200 MiB of 2000 MiB."""
        world = given(node("a", cpu="1", memory="2000Mi")).weighing(resources=1)
        assert world.points(pod()) == 90

    def test_equal_nodes_are_taken_in_their_order(self) -> None:
        assert given(node("a"), node("b"), node("c")).weighing(resources=1).goes_to(pod()) == "a"

    def test_pods_spread_over_equal_nodes(self) -> None:
        went = given(node("a"), node("b")).fills(pod(cpu="1"), 4)
        assert sorted(went[:2]) == sorted(went[2:]) == ["a", "b"]

    def test_a_node_that_is_over_its_capacity_gets_nothing(self) -> None:
        """What runs there was placed before the node shrank; the little that a pod without requests counts for."""
        world = given(node("a", cpu="4")).weighing(resources=1).running(pod("old", cpu="3"), on="a")
        world.now(node("a", cpu="1", memory="4Gi"))
        assert world.points(pod()) == (0 + (4096 - 400) * 100 // 4096) // 2


class TestBalance:
    def test_evening_out_is_worth_more(self) -> None:
        """`b` is short of CPU: a pod that wants memory evens it out, and would make `a` uneven."""
        world = given(node("a"), node("b")).weighing(balance=1).running(pod("old", cpu="2", memory="0"), on="b")
        assert world.goes_to(pod(cpu="0", memory="4Gi")) == "b"
        assert world.goes_to(pod(cpu="1", memory="2Gi")) == "a"  # as even as before on both: the first

    def test_a_pod_that_changes_nothing_gets_three_quarters(self) -> None:
        assert given(node("a")).weighing(balance=1).points(pod(cpu="1", memory="2Gi")) == 75

    @pytest.mark.parametrize(("memory", "points"), [("4Gi", 87), ("8Gi", 75)])
    def test_what_is_gained_counts_a_quarter(self, memory: str, points: int) -> None:
        """Before: half of the CPUs and nothing else, 0.5 apart. With half of the memory: even. With all of it: 0.5."""
        world = given(node("a")).weighing(balance=1).running(pod("old", cpu="2", memory="0"), on="a")
        assert world.points(pod(cpu="0", memory=memory)) == points

    def test_best_effort_pods_are_not_weighed(self) -> None:
        assert given(node("a")).weighing(balance=1).points(pod()) == 0


class TestClasses:
    def test_who_asks_goes_where_most_is_free(self) -> None:
        world = given(
            node("a", container_classes=classes(rdt={"gold": 4})), node("b", container_classes=classes(rdt={"gold": 4}))
        ).weighing(classes=1)
        gold = pod(uses={"rdt": "gold"})
        assert world.fills(gold, 4) == ["a", "b", "a", "b"]

    @pytest.mark.parametrize(("capacity", "taken", "points"), [(4, 0, 100), (4, 1, 75), (3, 2, 33), (0, 5, 100)])
    def test_points_are_the_free_share(self, capacity: int, taken: int, points: int) -> None:
        world = given(node("a", container_classes=classes(rdt={"gold": capacity}))).weighing(classes=1)
        world.running(*(pod(f"old-{number}", uses={"rdt": "gold"}) for number in range(taken)), on="a")
        assert world.points(pod(uses={"rdt": "gold"})) == points

    def test_who_packs_fills_the_classes_of_one_node_first(self) -> None:
        world = given(
            node("a", container_classes=classes(rdt={"gold": 2})), node("b", container_classes=classes(rdt={"gold": 2}))
        ).weighing(classes=1, most_allocated=True)
        assert world.fills(pod(uses={"rdt": "gold"}), 4) in (["a", "a", "b", "b"], ["b", "b", "a", "a"])

    @pytest.mark.parametrize(("capacity", "taken", "points"), [(4, 0, 0), (4, 1, 25), (3, 2, 66), (0, 5, 100)])
    def test_then_points_are_the_taken_share(self, capacity: int, taken: int, points: int) -> None:
        world = given(node("a", container_classes=classes(rdt={"gold": capacity})))
        world = world.weighing(classes=1, most_allocated=True)
        world.running(*(pod(f"old-{number}", uses={"rdt": "gold"}) for number in range(taken)), on="a")
        assert world.points(pod(uses={"rdt": "gold"})) == points

    def test_several_classes_count_by_their_mean(self) -> None:
        offered = classes(rdt={"gold": 2}, blockio={"slow": 4})
        world = given(node("a", container_classes=offered)).weighing(classes=1)
        world.running(pod("old", uses={"rdt": "gold"}), on="a")
        assert world.points(pod(uses={"rdt": "gold", "blockio": "slow"})) == (50 + 100) // 2

    def test_who_does_not_ask_stays_away_from_what_is_scarce(self) -> None:
        world = given(node("scarce", container_classes=classes(rdt={"gold": 1})), node("plain")).weighing(
            keep_classes=1
        )
        assert world.goes_to(pod()) == "plain"
        assert world.points(pod()) == 100

    def test_and_does_not_when_all_of_it_is_taken(self) -> None:
        world = given(node("scarce", container_classes=classes(rdt={"gold": 1})), node("plain")).weighing(
            keep_classes=1
        )
        world.running(pod("old", uses={"rdt": "gold"}), on="scarce")
        assert world.goes_to(pod()) == "scarce"

    def test_classes_without_limit_are_not_scarce(self) -> None:
        world = given(node("a", container_classes=classes(rdt={"bronze": 0})), node("b")).weighing(keep_classes=1)
        assert world.goes_to(pod()) == "a"


class TestImages:
    def test_the_node_that_has_the_image_wins(self) -> None:
        world = given(node("a"), node("b", images={"app:1": 500 * MB})).weighing(images=1)
        assert world.goes_to(pod(image="app:1")) == "b"
        assert world.goes_to(pod(image="other:1")) == "a"

    def test_small_images_do_not_count(self) -> None:
        world = given(node("a", images={"app:1": 20 * MB})).weighing(images=1)
        assert world.points(pod(image="app:1")) == 0

    def test_the_largest_count_fully(self) -> None:
        world = given(node("a", images={"app:1": 2000 * MB})).weighing(images=1)
        assert world.points(pod(image="app:1")) == 100

    def test_an_image_that_few_nodes_have_counts_less(self) -> None:
        """So that not all pods of an image go to the one node that happens to have it."""
        alone = given(node("a", images={"app:1": 800 * MB}), node("b")).weighing(images=1)
        everywhere = given(*(node(name, images={"app:1": 800 * MB}) for name in "ab")).weighing(images=1)
        assert alone.points(pod(image="app:1")) < everywhere.points(pod(image="app:1"))

    def test_several_images_must_be_larger_together(self) -> None:
        world = given(node("a", images={"app:1": 1000 * MB})).weighing(images=1)
        two = pod("p", {**container("x"), "image": "app:1"}, {**container("y"), "image": "other"})
        assert world.points(pod(image="app:1")) == 100
        assert world.points(two) < 60

    def test_an_image_that_is_removed_is_not_there_any_more(self) -> None:
        world = given(node("a", images={"app:1": 2000 * MB})).weighing(images=1)
        assert world.points(pod(image="app:1")) == 100
        assert world.now(node("a")).points(pod(image="app:1")) == 0


def prefers(*weighted: tuple[int, str, str]) -> Raw:
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
        for weight, key, value in weighted
    ]
    return {"affinity": {"nodeAffinity": {PREFERRED: terms}}}


class TestPreferences:
    def test_weights_of_matching_terms_add_up(self) -> None:
        world = given(
            node("a", labels={"disk": "ssd"}), node("b", labels={"zone": "z1", "gen": "9"}), node("c")
        ).weighing(node_affinity=1)
        assert world.goes_to(pod(spec=prefers((10, "disk", "ssd"), (5, "zone", "z1")))) == "a"
        assert world.goes_to(pod(spec=prefers((10, "disk", "ssd"), (6, "zone", "z1"), (6, "gen", "9")))) == "b"

    def test_points_are_on_a_scale_among_the_nodes_that_fit(self) -> None:
        labels = [{"disk": "ssd"}, {"zone": "z1"}, {}]
        world = given(*(node(name, labels=each) for name, each in zip("abc", labels, strict=True)))
        world.weighing(node_affinity=1)
        assert world.points(pod(spec=prefers((10, "disk", "ssd"), (5, "zone", "z1")))) == 100
        world.now(node("a", labels={"disk": "ssd"}, unschedulable=True))
        assert world.points(pod(spec=prefers((10, "disk", "ssd"), (5, "zone", "z1")))) == 100

    def test_where_all_are_alike_nothing_is_gained(self) -> None:
        world = given(node("a", labels={"disk": "ssd"}), node("b", labels={"disk": "ssd"})).weighing(node_affinity=1)
        assert world.points(pod(spec=prefers((10, "disk", "ssd")))) == 0

    def test_soft_taints_are_avoided_unless_tolerated(self) -> None:
        world = given(node("a", taints=["x=y:PreferNoSchedule"]), node("b")).weighing(taints=1)
        assert world.goes_to(pod()) == "b"
        assert world.goes_to(pod(spec={"tolerations": [{"key": "x", "operator": "Exists"}]})) == "a"

    def test_fewer_soft_taints_are_better(self) -> None:
        world = given(
            node("two", taints=["x=y:PreferNoSchedule", "z=y:PreferNoSchedule"]),
            node("one", taints=["x=y:PreferNoSchedule"]),
        ).weighing(taints=1)
        assert world.goes_to(pod()) == "one"

    def test_a_soft_taint_that_comes_later_is_seen(self) -> None:
        world = given(node("a"), node("b")).weighing(taints=1)
        assert world.goes_to(pod()) == "a"
        assert world.now(node("a", taints=["x=y:PreferNoSchedule"])).goes_to(pod()) == "b"


class TestCompany:
    @staticmethod
    def wish(kind: str, weight: int, key: str, **labels: str) -> Raw:
        term = {"weight": weight, "podAffinityTerm": near(key, matching(**labels))}
        return {"affinity": {kind: {PREFERRED: [term]}}}

    def test_preferred_company_attracts(self) -> None:
        world = given(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"})).weighing(pod_affinity=1)
        world.running(pod("db", labels={"app": "db"}), on="b")
        assert world.goes_to(pod(spec=self.wish("podAffinity", 1, "zone", app="db"))) == "b"

    def test_and_unwanted_company_repels(self) -> None:
        world = given(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"})).weighing(pod_affinity=1)
        world.running(pod("db", labels={"app": "db"}), on="a")
        assert world.goes_to(pod(spec=self.wish("podAntiAffinity", 1, "zone", app="db"))) == "b"

    def test_more_company_attracts_more(self) -> None:
        world = given(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"})).weighing(pod_affinity=1)
        world.running(pod("db-0", labels={"app": "db"}), on="a")
        world.running(pod("db-1", labels={"app": "db"}), pod("db-2", labels={"app": "db"}), on="b")
        assert world.goes_to(pod(spec=self.wish("podAffinity", 1, "zone", app="db"))) == "b"

    def test_company_outside_of_every_domain_attracts_nobody(self) -> None:
        world = given(node("nowhere"), node("b", labels={"zone": "b"})).weighing(pod_affinity=1)
        world.running(pod("db-0", labels={"app": "db"}), pod("db-1", labels={"app": "db"}), on="nowhere")
        world.running(pod("db-2", labels={"app": "db"}), on="b")
        assert world.goes_to(pod(spec=self.wish("podAffinity", 1, "zone", app="db"))) == "b"

    def test_soft_spreading_prefers_the_emptier_zone(self) -> None:
        world = given(*(node(name, labels={"zone": name}) for name in "abc")).weighing(spread=1)
        world.running(*(pod(f"a{n}", labels={"app": "w"}) for n in range(2)), on="a")
        world.running(pod("c0", labels={"app": "w"}), on="c")
        constraint = spread("zone", matching(app="w"), soft=True)
        assert world.goes_to(pod(labels={"app": "w"}, spec={"topologySpreadConstraints": [constraint]})) == "b"


def test_scores_add_up() -> None:
    """75 for what is left, 75 for balance, and twice 100 for a class that is free."""
    assert given(node("a")).points(pod(cpu="1", memory="2Gi")) == 75 + 75
    gold = given(node("a", container_classes=classes(rdt={"gold": 4})))
    assert gold.points(pod(cpu="1", memory="2Gi")) == 75 + 75
    assert gold.points(pod(cpu="1", memory="2Gi", uses={"rdt": "gold"})) == 75 + 75 + 2 * 100


def test_without_weights_the_first_node_wins() -> None:
    world = given(node("a", cpu="1"), node("b", cpu="64")).weighing()
    assert world.goes_to(pod(cpu="1")) == "a"
    assert world.points(pod(cpu="1")) == 0
