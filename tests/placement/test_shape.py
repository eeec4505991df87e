"""Shapes: what placement knows of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.objects import LabelExpression, LabelSelectorView, PodAffinityTerm, PodView
from kubeqos.placement.expressions import value_predicate
from kubeqos.placement.selectors import affinity_predicate, labels_predicate
from kubeqos.placement.shape import ClassNeed, Draw, HostPort, Shape, Unit, compile_shape
from kubeqos.rules.qos.classes import Level
from tests.placement.playbook import Raw, container, pod

MIB = 1 << 20


def shape(raw: Raw, **more: Any) -> Shape:
    return compile_shape(PodView.of(raw), **more)


def guaranteed(*containers: Raw, **more: Any) -> Shape:
    return shape(pod("p", *containers, **more))


class TestAmounts:
    def test_milli_cpus_and_whole_units_rounded_up(self) -> None:
        assert shape(pod(cpu="1500m", memory="1Ki", gpu="2")).requests == {
            "cpu": 1500,
            "memory": 1024,
            "example.com/gpu": 2,
        }
        assert shape(pod(cpu="1u", memory="1m")).requests == {"cpu": 1, "memory": 1}

    def test_scoring_stands_in_for_what_is_not_asked(self) -> None:
        bare = shape(pod())
        assert (bare.scoring_cpu_milli, bare.scoring_memory) == (100, 200 * MIB)
        half = shape(pod(cpu="1"))
        assert (half.scoring_cpu_milli, half.scoring_memory) == (1000, 200 * MIB)
        two = shape(pod("p", container("x"), container("y", cpu="1")))
        assert two.scoring_cpu_milli == 1100

    def test_pod_level_requests_stand_in_first(self) -> None:
        raw = pod("p", container("x"), spec={"resources": {"requests": {"cpu": "2"}}})
        found = shape(raw)
        assert (found.scoring_cpu_milli, found.scoring_memory) == (2000, 200 * MIB)

    def test_who_asks_for_nothing_is_best_effort(self) -> None:
        assert shape(pod()).best_effort
        assert not shape(pod(cpu="1")).best_effort

    def test_extended_resources_can_be_left_to_others(self) -> None:
        wanted = pod(cpu="1", gpu="1")
        assert shape(wanted, ignored_groups=["example.com"]).ignored == {"example.com/gpu"}
        assert shape(wanted, ignored_resources=["example.com/gpu", "cpu"]).ignored == {"example.com/gpu"}
        assert shape(wanted).ignored == frozenset()


class TestClasses:
    def test_what_containers_ask(self) -> None:
        found = shape(pod("p", container("x", uses={"rdt": "gold"}), container("y", uses={"rdt": "gold"})))
        assert found.class_needs == (ClassNeed("rdt", (), {"gold": 2}, True),)
        assert found.class_keys == ((Level.CONTAINER, "rdt", "gold"),)

    def test_what_the_pod_asks_means_either(self) -> None:
        found = shape(pod("p", container("x"), container("y"), pod_uses={"rdt": "gold"}))
        assert found.class_needs == (ClassNeed("rdt", ("gold",), {"gold": 2}, False),)
        assert set(found.class_keys) == {(Level.CONTAINER, "rdt", "gold"), (Level.POD, "rdt", "gold")}

    def test_the_gate_is_off(self) -> None:
        found = shape(pod(uses={"rdt": "gold"}), classes=False)
        assert (found.class_needs, found.class_keys) == ((), ())


class TestAlignment:
    def test_whole_cpus_and_memory_of_guaranteed_containers(self) -> None:
        found = guaranteed(container("x", cpu="2", memory="1Mi", limits=True))
        assert found.aligned == (Unit({"cpu": 2, "memory": MIB}),)
        assert found.aligned_pod == Unit({"cpu": 2, "memory": MIB})
        assert found.exclusive_cpus == (2,)

    def test_shared_cpus_are_not_aligned_and_memory_is(self) -> None:
        found = guaranteed(container("x", cpu="1500m", memory="1Mi", limits=True))
        assert found.aligned == (Unit({"memory": MIB}),)
        assert found.exclusive_cpus == ()

    def test_burstable_pods_have_nothing_to_align(self) -> None:
        found = shape(pod(cpu="2", memory="1Mi"))
        assert (found.aligned, found.aligned_pod, found.exclusive_cpus) == ((), Unit({}), ())

    def test_init_containers_come_first_and_do_not_stay(self) -> None:
        first = container("i", cpu="4", memory="1Mi", limits=True)
        found = guaranteed(container("x", cpu="2", memory="1Mi", limits=True), spec={"initContainers": [first]})
        assert [(unit.amounts["cpu"], unit.stays) for unit in found.aligned] == [(4, False), (2, True)]
        beside = {**first, "restartPolicy": "Always"}
        found = guaranteed(container("x", cpu="2", memory="1Mi", limits=True), spec={"initContainers": [beside]})
        assert [(unit.amounts["cpu"], unit.stays) for unit in found.aligned] == [(4, True), (2, True)]

    def test_the_largest_wish_first(self) -> None:
        parts = [container(str(cpu), cpu=str(cpu), memory="1Mi", limits=True) for cpu in (1, 4, 2)]
        assert guaranteed(*parts).exclusive_cpus == (4, 2, 1)


class TestDraws:
    def test_what_plugins_are_asked_for(self) -> None:
        first = {"initContainers": [container("i", cpu="4")]}
        found = shape(pod("p", container("main", cpu="1"), container("beside", cpu="500m"), spec=first))
        assert found.draws == {"cpu": Draw(together=1500, pod=4000, main=1000)}
        assert found.has_init

    def test_sidecars_run_together_with_the_others(self) -> None:
        beside = {**container("s", cpu="1"), "restartPolicy": "Always"}
        found = shape(pod("p", container("main", cpu="1"), spec={"initContainers": [beside]}))
        assert found.draws["cpu"].together == 2000
        assert not found.has_init

    def test_the_main_container_may_be_named(self) -> None:
        parts = [container("x", cpu="1"), container("y", cpu="3")]
        named = pod("p", *parts, annotations={"kubernetes.io/main-container-name": "y"})
        assert shape(named).draws["cpu"].main == 3000
        ghost = pod("p", *parts, annotations={"kubernetes.io/main-container-name": "z"})
        assert shape(ghost).draws["cpu"].main == 1000


class TestAsks:
    def test_equal_for_pods_that_a_node_treats_alike(self) -> None:
        one = shape(pod("a", cpu="1", labels={"app": "a"}, spec={"nodeSelector": {"x": "y"}}))
        two = shape(pod("b", cpu="1", labels={"app": "b"}))
        assert one.asks == two.asks

    @pytest.mark.parametrize(
        "other",
        [
            pod(cpu="2"),
            pod(cpu="1", uses={"rdt": "gold"}),
            pod(cpu="1", pod_uses={"rdt": "gold"}),
            pod(cpu="1", role="web"),
            pod(cpu="1", memory="1Gi", limits=True),
        ],
        ids=["cpu", "class", "pod class", "role", "guaranteed"],
    )
    def test_different_for_those_that_ask_for_something_else(self, other: Raw) -> None:
        assert shape(pod(cpu="1")).asks != shape(other).asks

    def test_and_for_other_drivers(self) -> None:
        assert shape(pod(), claim_drivers=["x"]).asks != shape(pod()).asks


class TestHostPorts:
    def test_init_containers_hold_theirs_too(self) -> None:
        raw = pod(ports=[{"hostPort": 80}], spec={"initContainers": [{"name": "i", "ports": [{"hostPort": 81}]}]})
        assert shape(raw).host_ports == (HostPort("0.0.0.0", "TCP", 81), HostPort("0.0.0.0", "TCP", 80))

    def test_two_shapes_are_never_equal(self) -> None:
        assert shape(pod()) != shape(pod())


class TestSelectors:
    @pytest.mark.parametrize(
        ("operator", "values", "accepted"),
        [
            ("In", ["a"], {"a"}),
            ("NotIn", ["a"], {"b", "7", None}),
            ("Exists", [], {"a", "b", "7"}),
            ("DoesNotExist", [], {None}),
            ("Gt", ["6"], {"7"}),
            ("Lt", ["8"], {"7"}),
            ("Gt", ["7"], set()),
            ("Gt", ["1", "2"], set()),
            ("Like", ["a"], set()),
        ],
    )
    def test_what_an_expression_accepts(self, operator: str, values: list[str], accepted: set[str | None]) -> None:
        says = value_predicate(LabelExpression(key="k", operator=operator, values=values))
        assert {value for value in ("a", "b", "7", None) if says(value)} == accepted

    def test_no_selector_selects_nothing_and_an_empty_one_everything(self) -> None:
        assert not labels_predicate(None)({"a": "b"})
        assert labels_predicate(LabelSelectorView())({})

    def test_labels_and_expressions_must_all_hold(self) -> None:
        exists = LabelExpression(key="tier", operator="Exists")
        both = labels_predicate(LabelSelectorView(match_labels={"app": "w"}, match_expressions=[exists]))
        assert both({"app": "w", "tier": "x"})
        assert not both({"app": "w"})
        assert not both({"tier": "x"})

    @pytest.mark.parametrize(
        ("term", "spoken_of"),
        [
            ({}, {"mine"}),
            ({"namespaces": ["other"]}, {"other"}),
            ({"namespace_selector": LabelSelectorView()}, {"mine", "other", "third"}),
            ({"namespace_selector": LabelSelectorView(match_labels={"team": "red"})}, {"third"}),
            (
                {"namespaces": ["mine"], "namespace_selector": LabelSelectorView(match_labels={"team": "red"})},
                {"mine", "third"},
            ),
        ],
        ids=["own", "listed", "all", "selected", "listed and selected"],
    )
    def test_which_namespaces_a_term_means(self, term: dict[str, Any], spoken_of: set[str]) -> None:
        says = affinity_predicate(
            PodAffinityTerm(label_selector=LabelSelectorView(), **term), "mine", {"third": {"team": "red"}}
        )
        assert {name for name in ("mine", "other", "third") if says(name, {})} == spoken_of
