"""Spreading and affinity between pods: what the pods of other nodes decide."""

from __future__ import annotations

import pytest

from kubeqos.placement.findings import COMPANY
from tests.placement.playbook import (
    Raw,
    World,
    affinity,
    anti_affinity,
    given,
    matching,
    near,
    node,
    pod,
    priority,
    spread,
)

HOST = "kubernetes.io/hostname"
WEB, DB = matching(app="web"), matching(app="db")
SPREAD = "node(s) didn't match pod topology spread constraints"
UNLABELLED = f"{SPREAD} (missing required label)"
AFFINITY = "node(s) didn't match pod affinity rules"
ANTI = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"


def web(name: str = "new", **more: object) -> Raw:
    return pod(name, labels={"app": "web"}, **more)  # type: ignore[arg-type]


def db(name: str = "db", **more: object) -> Raw:
    return pod(name, labels={"app": "db"}, **more)  # type: ignore[arg-type]


def zones(*names: str, **more: str) -> World:
    """`zones("a1", "a2", "b1")`: nodes whose first letter is their zone."""
    return given(*(node(name, labels={"zone": name[0]}, **more) for name in names))  # type: ignore[arg-type]


class TestSpread:
    def test_pods_go_round_the_zones(self) -> None:
        evenly = web(spec={"topologySpreadConstraints": [spread("zone", WEB)]})
        went = zones("a1", "b1", "c1").fills(evenly, 6)
        assert sorted(went[:3]) == sorted(went[3:]) == ["a1", "b1", "c1"]

    def test_one_more_than_the_emptiest_zone_may_have_is_too_many(self) -> None:
        evenly = web(spec={"topologySpreadConstraints": [spread("zone", WEB)]})
        world = zones("a1", "b1").running(web("one"), on="a1")
        assert world.reasons(evenly) == {"a1": [SPREAD]}
        assert world.waits_for(evenly) == {COMPANY}

    @pytest.mark.parametrize(("skew", "refused"), [(1, {"a1"}), (2, {"a1"}), (3, set())])
    def test_skew_is_counted_with_the_pod_itself(self, skew: int, refused: set[str]) -> None:
        world = zones("a1", "b1").running(web("one"), web("two"), on="a1")
        loose = web(spec={"topologySpreadConstraints": [spread("zone", WEB, skew=skew)]})
        assert set(world.reasons(loose)) == refused

    def test_a_pod_that_its_own_constraint_does_not_speak_of_adds_nothing(self) -> None:
        world = zones("a1", "b1").running(web("one"), on="a1")
        other = pod("other", spec={"topologySpreadConstraints": [spread("zone", WEB)]})
        assert world.reasons(other) == {}

    def test_a_node_without_the_label_is_no_place_for_it(self) -> None:
        world = given(node("a", labels={"zone": "a"}), node("nowhere"))
        assert world.reasons(web(spec={"topologySpreadConstraints": [spread("zone", WEB)]})) == {
            "nowhere": [UNLABELLED]
        }

    def test_nodes_that_the_pod_cannot_use_do_not_count_as_empty(self) -> None:
        """Zone b would be the emptiest, but the pod's own selector leaves it out."""
        world = given(
            node("a1", labels={"zone": "a", "disk": "ssd"}),
            node("b1", labels={"zone": "b"}),
        ).running(web("one"), on="a1")
        picky = web(spec={"nodeSelector": {"disk": "ssd"}, "topologySpreadConstraints": [spread("zone", WEB)]})
        assert world.goes_to(picky) == "a1"

    def test_too_few_domains_count_as_an_empty_one_more(self) -> None:
        world = zones("a1", "b1").running(web("one"), on="a1").running(web("two"), on="b1")
        assert world.goes_to(web(spec={"topologySpreadConstraints": [spread("zone", WEB)]})) != ""
        three = web(spec={"topologySpreadConstraints": [spread("zone", WEB, minDomains=3)]})
        assert world.reasons(three) == {"a1": [SPREAD], "b1": [SPREAD]}

    def test_other_namespaces_do_not_count(self) -> None:
        world = zones("a1", "b1").running(web("one", namespace="other"), on="a1")
        assert world.reasons(web(spec={"topologySpreadConstraints": [spread("zone", WEB)]})) == {}

    def test_every_constraint_must_hold(self) -> None:
        world = zones("a1", "a2", "b1").running(web("one"), on="a1").running(web("two"), on="b1")
        both = web(spec={"topologySpreadConstraints": [spread("zone", WEB), spread(HOST, WEB)]})
        assert world.reasons(both) == {"a1": [SPREAD], "b1": [SPREAD]}
        assert world.goes_to(both) == "a2"

    def test_a_soft_constraint_refuses_nobody_and_decides_all_the_same(self) -> None:
        world = zones("a1", "b1").weighing(spread=1).running(web("one"), on="a1")
        softly = web(spec={"topologySpreadConstraints": [spread("zone", WEB, soft=True)]})
        assert world.reasons(softly) == {}
        assert world.goes_to(softly) == "b1"

    def test_no_selector_speaks_of_nobody(self) -> None:
        world = zones("a1", "b1").running(web("one"), web("two"), on="a1")
        constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        assert world.reasons(web(spec={"topologySpreadConstraints": [constraint]})) == {}


class TestAffinity:
    def test_a_pod_goes_where_its_company_is(self) -> None:
        world = zones("a1", "b1", "b2").running(db(), on="b1")
        beside = web(spec=affinity(near("zone", DB)))
        assert set(world.reasons(beside)) == {"a1"}
        assert world.goes_to(web(spec=affinity(near(HOST, DB)))) == "b1"

    def test_nobody_there_is_what_it_waits_for(self) -> None:
        world = zones("a1")
        alone = web(spec=affinity(near("zone", DB)))
        assert world.reasons(alone) == {"a1": [AFFINITY]}
        assert world.waits_for(alone) == {COMPANY}
        assert not world.explain(alone).resolvable.any()

    def test_the_first_of_a_set_may_start_it(self) -> None:
        together = web(spec=affinity(near("zone", WEB)))
        world = zones("a1", "b1")
        first, second, third = world.fills(together, 3)
        assert first != ""
        assert second == third == first

    def test_but_not_on_a_node_without_the_label(self) -> None:
        world = given(node("nowhere"))
        assert world.reasons(web(spec=affinity(near("zone", WEB)))) == {"nowhere": [AFFINITY]}

    def test_company_on_a_node_without_the_label_is_in_no_domain(self) -> None:
        world = given(node("a1", labels={"zone": "a"}), node("nowhere")).running(web("one"), on="nowhere")
        assert world.goes_to(web(spec=affinity(near("zone", WEB)))) == "a1"

    def test_nor_when_there_is_company_somewhere_else(self) -> None:
        world = given(node("a1", labels={"zone": "a"}), node("nowhere")).running(web("one"), on="a1")
        assert set(world.reasons(web(spec=affinity(near("zone", WEB))))) == {"nowhere"}

    def test_every_term_needs_its_own_company(self) -> None:
        world = zones("a1", "b1").running(db(), on="a1").running(pod("cache", labels={"app": "cache"}), on="b1")
        both = web(spec=affinity(near("zone", DB), near("zone", matching(app="cache"))))
        assert set(world.reasons(both)) == {"a1", "b1"}
        world.running(pod("cache-2", labels={"app": "cache"}), on="a1")
        assert world.goes_to(both) == "a1"

    def test_company_is_in_the_pods_own_namespace_unless_the_term_says_otherwise(self) -> None:
        world = zones("a1").running(db(namespace="data"), on="a1")
        assert world.goes_to(web(spec=affinity(near("zone", DB)))) == ""
        assert world.goes_to(web(spec=affinity(near("zone", DB, namespaces=["data"])))) == "a1"

    def test_namespaces_are_selected_by_their_labels(self) -> None:
        world = given(node("a1", labels={"zone": "a"}), namespaces={"data": {"team": "red"}})
        world.running(db(namespace="data"), on="a1")
        for selector, placed in (({"matchLabels": {"team": "red"}}, True), ({"matchLabels": {"team": "blue"}}, False)):
            term = near("zone", DB, namespaceSelector=selector)
            assert (world.goes_to(web(spec=affinity(term))) == "a1") is placed
        assert world.goes_to(web(spec=affinity(near("zone", DB, namespaceSelector={})))) == "a1"

    def test_company_that_goes_is_missed(self) -> None:
        world = zones("a1").running(db(), on="a1")
        beside = web(spec=affinity(near("zone", DB)))
        assert world.goes_to(beside) == "a1"
        assert world.gone("db").goes_to(beside) == ""


class TestAntiAffinity:
    def test_one_of_a_kind_per_node(self) -> None:
        alone = web(spec=anti_affinity(near(HOST, WEB)))
        went = given(node("a"), node("b")).fills(alone, 3)
        assert (sorted(went[:2]), went[2]) == (["a", "b"], "")

    def test_the_reason_names_whose_wish_it_is(self) -> None:
        world = zones("a1").running(web("one"), on="a1")
        shy = web(spec=anti_affinity(near("zone", WEB)))
        assert world.reasons(shy) == {"a1": [ANTI]}
        other = zones("a1").running(web("one", spec=anti_affinity(near("zone", DB))), on="a1")
        assert other.reasons(db()) == {"a1": [REPELLED]}

    def test_those_already_there_repel_in_their_whole_domain(self) -> None:
        world = zones("a1", "a2", "b1").running(web("one", spec=anti_affinity(near("zone", DB))), on="a1")
        assert world.reasons(db()) == {"a1": [REPELLED], "a2": [REPELLED]}
        assert world.goes_to(db()) == "b1"
        assert world.goes_to(web()) != ""

    def test_only_in_the_namespace_that_they_mean(self) -> None:
        world = zones("a1").running(web("one", spec=anti_affinity(near("zone", DB))), on="a1")
        assert world.goes_to(db(namespace="other")) == "a1"

    def test_a_node_without_the_label_is_in_no_domain(self) -> None:
        world = given(node("nowhere")).running(web("one"), on="nowhere")
        assert world.goes_to(web(spec=anti_affinity(near("zone", WEB)))) == "nowhere"

    def test_when_the_repelling_pod_goes_the_node_is_open(self) -> None:
        world = zones("a1").running(web("one", spec=anti_affinity(near("zone", DB))), on="a1")
        assert world.goes_to(db()) == ""
        assert world.gone("one").goes_to(db()) == "a1"

    def test_evicting_the_one_that_repels_makes_room(self) -> None:
        world = zones("a1").running(web("one", spec=anti_affinity(near("zone", DB))), on="a1")
        assert world.preempts(priority(db(), 5)) == ("a1", ["one"])

    def test_a_pod_that_comes_back_to_another_zone_is_counted_there(self) -> None:
        world = zones("a1", "b1").running(web("one"), on="a1")
        shy = web(spec=anti_affinity(near("zone", WEB)))
        assert world.goes_to(shy) == "b1"
        assert world.gone("one").running(web("one"), on="b1").goes_to(shy) == "a1"

    def test_a_node_that_moves_to_another_zone_is_counted_there(self) -> None:
        world = zones("a1", "a2").running(web("one"), on="a1")
        shy = web(spec=anti_affinity(near("zone", WEB)))
        assert world.goes_to(shy) == ""
        assert world.now(node("a2", labels={"zone": "b"})).goes_to(shy) == "a2"
