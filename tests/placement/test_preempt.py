"""Preemption: whom to evict, where, and why not."""

from __future__ import annotations

import pytest

from kubeqos.placement.preempt import Preemptor, split_by_budget
from tests.placement.playbook import (
    Raw,
    World,
    anti_affinity,
    budget,
    classes,
    given,
    matching,
    near,
    node,
    pod,
    priority,
)

HOST = "kubernetes.io/hostname"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


def low(name: str, cpu: str = "1", level: int = 0, **more: object) -> Raw:
    return priority(pod(name, cpu=cpu, **more), level)  # type: ignore[arg-type]


def high(cpu: str = "1", **more: object) -> Raw:
    return low("high", cpu, 10, **more)


class TestWhether:
    def test_nobody_less_important_is_there(self) -> None:
        world = given(node("a", cpu="1")).running(low("equal", level=10), on="a")
        assert world.preempts(high()) == f"0/1 nodes are available: 1 {NO_VICTIMS}."

    def test_a_pod_that_never_preempts_asks_for_nothing(self) -> None:
        world = given(node("a", cpu="1")).running(low("web"), on="a")
        polite = high()
        polite["spec"]["preemptionPolicy"] = "Never"
        assert world.preempts(polite) == f"0/1 nodes are available: 1 {NOT_HELPFUL}."

    def test_what_an_empty_node_does_not_have_is_not_won_by_evicting(self) -> None:
        world = given(node("a", cpu="1"), node("b", cpu="4")).running(low("x", "1"), on="a")
        world.running(low("y", "4", 10), on="b")
        assert world.preempts(high("2")) == (f"0/2 nodes are available: 1 {NO_VICTIMS}, 1 {NOT_HELPFUL}.")

    @pytest.mark.parametrize(
        "spec", [{"nodeSelector": {"disk": "ssd"}}, {"nodeName": "ghost"}], ids=["selector", "name"]
    )
    def test_nor_what_the_node_itself_refuses(self, spec: Raw) -> None:
        world = given(node("a", cpu="1")).running(low("web"), on="a")
        assert world.preempts(high(spec=spec)) == f"0/1 nodes are available: 1 {NOT_HELPFUL}."

    def test_pods_that_may_not_be_preempted_stay(self) -> None:
        world = given(node("a", cpu="1")).running(low("static"), on="a", preemptible=False)
        assert world.preempts(high()) == f"0/1 nodes are available: 1 {NO_VICTIMS}."

    def test_a_node_that_frees_itself_changes_the_answer(self) -> None:
        world = given(node("a", cpu="1")).running(low("equal", level=10), on="a")
        preemptor, shape = Preemptor(world.cluster), world.shape(high())
        assert not hasattr(preemptor.preempt(shape, world.explain(high())), "victims")
        world.gone("equal").running(low("web"), on="a")
        plan = preemptor.preempt(shape, world.explain(high()))
        assert [victim.name for victim in getattr(plan, "victims", ())] == ["web"]


class TestWhom:
    def test_only_as_many_as_it_takes(self) -> None:
        world = given(node("a", cpu="3")).running(low("x"), low("y"), low("z"), on="a")
        node_name, victims = world.preempts(high("2"))
        assert (node_name, len(victims)) == ("a", 2)

    def test_the_least_important_go(self) -> None:
        world = given(node("a", cpu="3")).running(low("x", level=3), low("y", level=1), low("z", level=2), on="a")
        assert world.preempts(high("1")) == ("a", ["y"])
        assert world.preempts(high("2")) == ("a", ["z", "y"])

    def test_among_equals_the_youngest_goes(self) -> None:
        world = given(node("a", cpu="2"))
        world.running(low("old"), on="a", started=1.0).running(low("young"), on="a", started=2.0)
        assert world.preempts(high("1")) == ("a", ["young"])

    def test_one_large_pod_is_kept_rather_than_evicted_with_small_ones(self) -> None:
        """The important are put back first, as long as the new one still fits."""
        world = given(node("a", cpu="4")).running(low("large", "3", 2), low("small", "1", 1), on="a")
        assert world.preempts(high("1")) == ("a", ["small"])
        assert world.preempts(high("2")) == ("a", ["large"])

    def test_bystanders_that_hold_nothing_it_wants_stay(self) -> None:
        gold = classes(rdt={"gold": 1})
        world = given(node("a", container_classes=gold)).running(
            low("greedy", "3"), low("gold", uses={"rdt": "gold"}), on="a"
        )
        assert world.preempts(low("high", "0", 10, uses={"rdt": "gold"})) == ("a", ["gold"])

    def test_a_place_among_the_pods_is_enough_of_a_reason(self) -> None:
        world = given(node("a", pods="1")).running(low("web", "0"), on="a")
        assert world.preempts(high("0")) == ("a", ["web"])

    def test_a_port_is_won_from_who_holds_it(self) -> None:
        world = given(node("a"))
        world.running(low("port", ports=[{"hostPort": 80}]), low("other", ports=[{"hostPort": 81}]), on="a")
        assert world.preempts(high(ports=[{"hostPort": 80}])) == ("a", ["port"])

    def test_and_company_that_it_does_not_bear(self) -> None:
        world = given(node("a"))
        world.running(low("web", labels={"app": "web"}), low("db", labels={"app": "db"}), on="a")
        assert world.preempts(high(spec=anti_affinity(near(HOST, matching(app="web"))))) == ("a", ["web"])

    def test_nobody_is_evicted_for_affinity_that_no_eviction_brings(self) -> None:
        world = given(node("a")).running(low("web"), on="a")
        lonely = high(spec={"affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [near(HOST, matching(app="db"))]}}})  # fmt: skip
        assert world.preempts(lonely) == f"0/1 nodes are available: 1 {NOT_HELPFUL}."


class TestWhere:
    """Kubernetes' order: fewest violated budgets, least important victim, smallest sum, fewest victims, youngest."""

    def test_where_the_most_important_victim_matters_least(self) -> None:
        world = given(node("a", cpu="1"), node("b", cpu="1")).running(low("x", level=5), on="a")
        world.running(low("y", level=3), on="b")
        assert world.preempts(high()) == ("b", ["y"])

    def test_then_where_all_victims_together_matter_least(self) -> None:
        world = given(node("a", cpu="2"), node("b", cpu="2"))
        world.running(low("a1", level=5), low("a2", level=4), on="a")
        world.running(low("b1", level=5), low("b2", level=1), on="b")
        assert world.preempts(high("2")) == ("b", ["b1", "b2"])

    def test_then_where_fewer_go(self) -> None:
        world = given(node("a", cpu="2"), node("b", cpu="2")).running(low("a1"), low("a2"), on="a")
        world.running(low("b1", "2"), on="b")
        assert world.preempts(high("2")) == ("b", ["b1"])

    def test_then_where_they_started_last(self) -> None:
        world = given(node("a", cpu="1"), node("b", cpu="1"))
        world.running(low("old"), on="a", started=1.0).running(low("young"), on="b", started=2.0)
        assert world.preempts(high()) == ("b", ["young"])

    def test_first_of_all_where_no_budget_is_violated(self) -> None:
        world = given(node("a", cpu="1"), node("b", cpu="1"))
        world.running(low("db", labels={"app": "db"}), on="a").running(low("web", level=9), on="b")
        assert world.preempts(high(), budget(0, app="db")) == ("b", ["web"])
        assert world.preempts(high(), budget(1, app="db")) == ("a", ["db"])


class TestBudgets:
    @staticmethod
    def full() -> World:
        world = given(node("a", cpu="2"))
        return world.running(low("db", level=1, labels={"app": "db"}), low("web", level=2), on="a")

    def test_the_protected_pod_is_kept_if_another_will_do(self) -> None:
        assert self.full().preempts(high()) == ("a", ["db"])
        assert self.full().preempts(high(), budget(0, app="db")) == ("a", ["web"])

    def test_but_a_budget_is_no_veto(self) -> None:
        assert self.full().preempts(high("2"), budget(0, app="db")) == ("a", ["web", "db"])

    def test_budgets_of_other_namespaces_protect_nobody_here(self) -> None:
        assert self.full().preempts(high(), budget(0, "other", app="db")) == ("a", ["db"])

    def test_a_budget_is_spent_by_the_important_first(self) -> None:
        world = given(node("a"))
        for number in range(3):
            world.running(low(f"db-{number}", level=number, labels={"app": "db"}), on="a")
        running = list(world.cluster.rows[world.cluster.row_of["a"]].pods.values())
        protected, free = split_by_budget(running, [budget(2, app="db")])
        assert ([each.name for each in protected], [each.name for each in free]) == (["db-0"], ["db-2", "db-1"])

    def test_pods_without_labels_are_in_no_budget(self) -> None:
        world = given(node("a")).running(low("bare"), on="a")
        running = list(world.cluster.rows[world.cluster.row_of["a"]].pods.values())
        assert split_by_budget(running, [budget(0)]) == ([], running)

    def test_every_budget_that_speaks_of_a_pod_counts(self) -> None:
        world = given(node("a")).running(low("both", labels={"app": "db", "tier": "a"}), on="a")
        running = list(world.cluster.rows[world.cluster.row_of["a"]].pods.values())
        protected, _ = split_by_budget(running, [budget(5, app="db"), budget(0, tier="a")])
        assert [each.name for each in protected] == ["both"]


def test_a_plan_leaves_everything_as_it_was() -> None:
    world = given(node("a", cpu="2")).running(low("x"), low("y"), on="a")
    before = (world.cluster.clock, world.cluster.cpu.used.tolist(), sorted(world.cluster.where))
    world.preempts(high("2"))
    assert (world.cluster.clock, world.cluster.cpu.used.tolist(), sorted(world.cluster.where)) == before


def test_after_the_eviction_there_is_room() -> None:
    world = given(node("a", cpu="2"), node("b", cpu="2")).running(low("x", "2"), on="a").running(low("y", "2"), on="b")
    where, victims = world.preempts(high("2"))
    assert world.goes_to(high("2")) == ""
    assert world.gone(*victims).goes_to(high("2")) == where
