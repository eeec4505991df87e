"""Fit: which nodes take a pod, and for the others the reason, filter by filter."""

from __future__ import annotations

import pytest

from kubeqos.model.annotations.topologysummary import Down, TopologySummary
from kubeqos.model.annotations.wellknown import RUNTIME_HANDLER_ANNOTATION
from kubeqos.model.objects import PodView
from kubeqos.placement.findings import DOWN
from kubeqos.placement.fit import FILTERS, STANDING, counted_message, freed_by
from kubeqos.rules.defaulting.runtimeclass import handler_of
from kubeqos.rules.qos.classes import catalog, fit
from tests.placement.playbook import PREFERRED, REQUIRED, Raw, classes, container, given, node, pod

UNSCHEDULABLE = "node(s) were unschedulable"
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
PORTS = "node(s) didn't have free ports for the requested pod ports"
GOLD = classes(rdt={"gold": 1, "bronze": 0})


class TestNodeUnschedulable:
    def test_a_cordoned_node_takes_nobody(self) -> None:
        world = given(node("a", unschedulable=True), node("b"))
        assert world.goes_to(pod()) == "b"
        assert world.reasons(pod()) == {"a": [UNSCHEDULABLE]}

    @pytest.mark.parametrize(
        ("toleration", "placed"),
        [
            ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, True),
            ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}, True),
            ({"operator": "Exists"}, True),
            ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"key": "other", "operator": "Exists"}, False),
        ],
    )
    def test_unless_the_pod_tolerates_it(self, toleration: Raw, placed: bool) -> None:
        world = given(node("a", unschedulable=True))
        assert world.goes_to(pod(spec={"tolerations": [toleration]})) == ("a" if placed else "")

    def test_a_node_that_is_let_in_again_is_seen(self) -> None:
        world = given(node("a", unschedulable=True))
        assert world.goes_to(pod()) == ""
        assert world.now(node("a")).goes_to(pod()) == "a"


class TestNodeName:
    def test_a_pod_that_names_a_node_fits_there_alone(self) -> None:
        world = given(node("a"), node("b"))
        assert world.goes_to(pod(spec={"nodeName": "b"})) == "b"
        text = "node(s) didn't match the requested node name"
        assert world.reasons(pod(spec={"nodeName": "b"})) == {"a": [text]}

    def test_a_node_that_does_not_exist_is_nobody(self) -> None:
        world = given(node("a"))
        assert world.message(pod(spec={"nodeName": "ghost"})) == (
            "0/1 nodes are available: 1 node(s) didn't match the requested node name."
        )


class TestTaints:
    def test_the_first_untolerated_taint_is_named(self) -> None:
        world = given(node("a", taints=["team=red:NoSchedule", "gpu=yes:NoExecute"]))
        only_gpu = pod(spec={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
        assert world.reasons(only_gpu) == {"a": ["node(s) had untolerated taint {team: red}"]}
        only_team = pod(spec={"tolerations": [{"key": "team", "operator": "Equal", "value": "red"}]})
        assert world.reasons(only_team) == {"a": ["node(s) had untolerated taint {gpu: yes}"]}

    @pytest.mark.parametrize(
        ("toleration", "placed"),
        [
            ({"key": "team", "operator": "Equal", "value": "red", "effect": "NoSchedule"}, True),
            ({"key": "team", "value": "red"}, True),
            ({"key": "team", "operator": "Exists"}, True),
            ({"operator": "Exists"}, True),
            ({"key": "team", "value": "blue"}, False),
            ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"value": "red"}, False),
        ],
        ids=str,
    )
    def test_what_a_toleration_covers(self, toleration: Raw, placed: bool) -> None:
        world = given(node("a", taints=["team=red:NoSchedule"]))
        assert (world.goes_to(pod(spec={"tolerations": [toleration]})) == "a") is placed

    def test_a_taint_that_only_asks_to_stay_away_refuses_nobody(self) -> None:
        assert given(node("a", taints=["team=red:PreferNoSchedule"])).goes_to(pod()) == "a"

    def test_nodes_with_different_taints_are_counted_apart(self) -> None:
        world = given(*(node(name, taints=[f"team={name}:NoSchedule"]) for name in ("x", "y")), node("z"))
        assert set(world.explain(pod()).counts()) == {
            "node(s) had untolerated taint {team: x}",
            "node(s) had untolerated taint {team: y}",
        }


class TestNodeAffinity:
    def test_the_selector_must_match_every_label(self) -> None:
        world = given(
            node("a", labels={"disk": "ssd"}),
            node("b", labels={"disk": "ssd", "zone": "z1"}),
            node("c", labels={"disk": "hdd", "zone": "z1"}),
        )
        chosen = pod(spec={"nodeSelector": {"disk": "ssd", "zone": "z1"}})
        assert world.goes_to(chosen) == "b"
        assert world.reasons(chosen) == {"a": [AFFINITY], "c": [AFFINITY]}

    def test_every_node_has_its_hostname_as_a_label(self) -> None:
        world = given(node("a"), node("b"))
        assert world.goes_to(pod(spec={"nodeSelector": {"kubernetes.io/hostname": "b"}})) == "b"

    @staticmethod
    def wants(*terms: Raw) -> Raw:
        return pod(spec={"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}})

    @pytest.mark.parametrize(
        ("expression", "fits"),
        [
            ({"key": "cores", "operator": "In", "values": ["4", "8"]}, {"a", "b"}),
            ({"key": "cores", "operator": "NotIn", "values": ["4"]}, {"b", "c"}),
            ({"key": "cores", "operator": "Exists"}, {"a", "b"}),
            ({"key": "cores", "operator": "DoesNotExist"}, {"c"}),
            ({"key": "cores", "operator": "Gt", "values": ["4"]}, {"b"}),
            ({"key": "cores", "operator": "Lt", "values": ["8"]}, {"a"}),
            ({"key": "cores", "operator": "Gt", "values": ["many"]}, set()),
            ({"key": "cores", "operator": "Gt", "values": []}, set()),
            ({"key": "cores", "operator": "Near", "values": ["4"]}, set()),
        ],
        ids=lambda value: value.get("operator", "") if isinstance(value, dict) else "",
    )
    def test_operators(self, expression: Raw, fits: set[str]) -> None:
        world = given(node("a", labels={"cores": "4"}), node("b", labels={"cores": "8"}), node("c"))
        refused = world.reasons(self.wants({"matchExpressions": [expression]}))
        assert set(refused) == {"a", "b", "c"} - fits

    def test_terms_are_alternatives_and_expressions_are_not(self) -> None:
        world = given(
            node("a", labels={"x": "1"}), node("b", labels={"y": "1"}), node("c", labels={"x": "1", "y": "1"})
        )
        x, y = ({"key": key, "operator": "Exists"} for key in "xy")
        both = world.reasons(self.wants({"matchExpressions": [x, y]}))
        either = world.reasons(self.wants({"matchExpressions": [x]}, {"matchExpressions": [y]}))
        assert (set(both), set(either)) == ({"a", "b"}, set())

    def test_a_term_without_expressions_matches_nothing(self) -> None:
        world = given(node("a"))
        assert world.reasons(self.wants({})) == {"a": [AFFINITY]}
        assert world.reasons(self.wants()) == {"a": [AFFINITY]}

    def test_fields_name_the_node_whatever_its_labels_say(self) -> None:
        world = given(node("a", labels={"kubernetes.io/hostname": "b"}), node("b"))
        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}
        assert world.goes_to(self.wants(named)) == "b"
        assert set(world.reasons(self.wants(named))) == {"a"}

    def test_what_is_only_preferred_refuses_nobody(self) -> None:
        term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
        wish = {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": term}]}}}
        assert given(node("a")).goes_to(pod(spec=wish)) == "a"


class TestHostPorts:
    @pytest.mark.parametrize(
        ("mine", "clash"),
        [
            ({"hostPort": 80}, True),
            ({"hostPort": 80, "protocol": "UDP"}, False),
            ({"hostPort": 81}, False),
            ({"hostPort": 80, "hostIP": "10.0.0.1"}, True),
            ({"containerPort": 80}, False),
        ],
        ids=str,
    )
    def test_a_port_of_all_addresses_is_taken_once(self, mine: Raw, clash: bool) -> None:
        world = given(node("a")).running(pod("old", ports=[{"hostPort": 80}]), on="a")
        assert world.reasons(pod(ports=[mine])) == ({"a": [PORTS]} if clash else {})

    def test_two_addresses_do_not_clash(self) -> None:
        world = given(node("a")).running(pod("old", ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}]), on="a")
        assert world.goes_to(pod(ports=[{"hostPort": 80, "hostIP": "10.0.0.2"}])) == "a"
        assert world.goes_to(pod(ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])) == ""

    def test_a_port_is_free_again_when_its_pod_is_gone(self) -> None:
        one = pod("one", ports=[{"hostPort": 80}])
        world = given(node("a"))
        assert world.fills(one, 2) == ["a", ""]
        assert world.waits_for(one) == {"ports"}
        assert world.gone("one-0").goes_to(one) == "a"


class TestResources:
    def test_each_shortage_is_named_in_kubernetes_order(self) -> None:
        world = given(node("a", cpu="1", memory="1Gi", pods="0", gpu="0"))
        wanted = pod(gpu="1", memory="2Gi", cpu="2")
        assert world.reasons(wanted) == {
            "a": ["Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient example.com/gpu"]
        }

    def test_the_last_bit_fits_and_one_more_does_not(self) -> None:
        world = given(node("a", cpu="1")).running(pod("old", cpu="900m"), on="a")
        assert world.goes_to(pod(cpu="100m")) == "a"
        assert world.goes_to(pod(cpu="101m")) == ""

    def test_a_node_without_the_resource_has_none_of_it(self) -> None:
        world = given(node("a"), node("b", gpu="1"))
        assert world.goes_to(pod(gpu="1")) == "b"
        assert world.goes_to(pod(gpu="0")) == world.goes_to(pod())

    def test_the_number_of_pods_counts_those_that_ask_for_nothing(self) -> None:
        assert given(node("a", pods="2")).fills(pod(), 3) == ["a", "a", ""]

    def test_init_containers_count_at_their_peak_and_sidecars_for_good(self) -> None:
        world = given(node("a", cpu="2"))
        first = {**container("init", cpu="2")}
        beside = {**container("log", cpu="1"), "restartPolicy": "Always"}
        assert world.goes_to(pod("x", container(cpu="1"), spec={"initContainers": [first]})) == "a"
        assert world.goes_to(pod("y", container(cpu="1"), spec={"initContainers": [beside]})) == "a"
        assert world.goes_to(pod("z", container(cpu="2"), spec={"initContainers": [beside]})) == ""

    def test_overhead_counts(self) -> None:
        world = given(node("a", cpu="1"))
        assert world.goes_to(pod(cpu="1", spec={"overhead": {"cpu": "1m"}})) == ""

    def test_what_the_configuration_leaves_to_others_is_not_looked_at(self) -> None:
        world = given(node("a"))
        assert world.goes_to(pod(gpu="1"), ignored_resources=["example.com/gpu"]) == "a"
        assert world.goes_to(pod(gpu="1"), ignored_groups=["example.com"]) == "a"
        assert world.goes_to(pod(gpu="1"), ignored_groups=["example.org"]) == ""

    def test_evicting_helps_only_where_the_empty_node_is_large_enough(self) -> None:
        world = given(node("small", cpu="1"), node("full", cpu="2")).running(pod("old", cpu="2"), on="full")
        found = world.explain(pod(cpu="2")).by_node()
        assert {name: each.resolvable for name, each in found.items()} == {"small": False, "full": True}


class TestClasses:
    def test_a_class_is_taken_until_it_is_exhausted(self) -> None:
        world = given(node("a", container_classes=GOLD))
        assert world.fills(pod(uses={"rdt": "gold"}), 2) == ["a", ""]
        assert world.reasons(pod(uses={"rdt": "gold"})) == {"a": ["QoS class rdt=gold exhausted (1/1 used)"]}
        assert world.waits_for(pod(uses={"rdt": "gold"})) == {("container", "rdt", "gold")}

    def test_capacity_zero_is_no_limit(self) -> None:
        assert given(node("a", container_classes=GOLD)).fills(pod(uses={"rdt": "bronze"}), 4) == ["a"] * 4

    @pytest.mark.parametrize(
        ("wanted", "text"),
        [
            ({"net": "fast"}, "QoS resource net not available"),
            ({"rdt": "silver"}, "QoS class rdt=silver not available"),
        ],
        ids=str,
    )
    def test_what_the_node_does_not_have(self, wanted: dict[str, str], text: str) -> None:
        world = given(node("a", container_classes=GOLD))
        assert world.reasons(pod(uses=wanted)) == {"a": [text]}
        assert not world.explain(pod(uses=wanted)).resolvable.any()

    def test_more_containers_than_the_class_holds(self) -> None:
        world = given(node("a", container_classes=GOLD))
        two = pod("two", container("x", uses={"rdt": "gold"}), container("y", uses={"rdt": "gold"}))
        assert world.reasons(two) == {"a": ["QoS class rdt=gold too small (capacity 1, needs 2)"]}

    def test_init_containers_and_containers_do_not_run_at_once(self) -> None:
        world = given(node("a", container_classes=GOLD))
        first = {"initContainers": [container("i", uses={"rdt": "gold"})]}
        assert world.goes_to(pod("x", container("c", uses={"rdt": "gold"}), spec=first)) == "a"

    def test_a_pod_level_class_counts_pods(self) -> None:
        world = given(node("a", pod_classes=classes(net={"fast": 1})))
        two = pod("two", container("x"), container("y"), pod_uses={"net": "fast"})
        assert world.fills(two, 2) == ["a", ""]

    def test_a_container_cannot_ask_for_what_only_pods_get(self) -> None:
        world = given(node("a", pod_classes=classes(net={"fast": 1})))
        assert world.reasons(pod(uses={"net": "fast"})) == {
            "a": ["QoS resource net is pod-level, requested at container level"]
        }

    def test_a_pod_wide_wish_is_the_default_of_containers_where_the_node_offers_it_to_them(self) -> None:
        wide = classes(rdt={"gold": 2, "bronze": 0})
        world = given(node("a", container_classes=wide))
        three = pod("p", *(container(name) for name in "xyz"), pod_uses={"rdt": "gold"})
        assert world.reasons(three) == {"a": ["QoS class rdt=gold too small (capacity 2, needs 3)"]}
        mixed = pod("q", container("x"), container("y", uses={"rdt": "bronze"}), pod_uses={"rdt": "gold"})
        assert world.goes_to(mixed) == "a"

    def test_without_the_gate_classes_are_not_looked_at(self) -> None:
        assert given(node("a")).goes_to(pod(uses={"rdt": "gold"}), classes=False) == "a"

    @pytest.mark.parametrize("handler", ["", "kata", "wasm", None])
    @pytest.mark.parametrize("cls", ["gold", "bronze"])
    def test_a_runtime_handler_is_offered_what_the_rule_says(self, handler: str | None, cls: str) -> None:
        """The scheduler and the node agree: the same words, or the same yes (rules.qos.classes.fit)."""
        offered = [{**GOLD[0], "runtimeHandlers": [{"name": "kata", "classes": ["bronze"]}]}]
        marks = {RUNTIME_HANDLER_ANNOTATION: handler} if handler else {}
        raw = pod(uses={"rdt": cls}, annotations=marks, spec={} if handler == "" else {"runtimeClassName": "boxed"})
        facts, view = node("a", container_classes=offered), PodView.of(raw)
        expected = fit(view.spec, catalog(facts.view.status.qos_resources), {}, handler_of(view))
        world = given(facts)
        assert world.reasons(raw) == ({"a": [one.reason for one in expected]} if expected else {})
        assert world.now(node("a", container_classes=GOLD)).goes_to(raw) == "a", "a node that no longer says so is seen"

    def test_a_class_that_grows_is_seen(self) -> None:
        world = given(node("a", container_classes=GOLD))
        assert world.fills(pod(uses={"rdt": "gold"}), 2) == ["a", ""]
        world.now(node("a", container_classes=classes(rdt={"gold": 2})))
        assert world.goes_to(pod(uses={"rdt": "gold"})) == "a"


class TestClaims:
    def test_every_driver_must_run_there(self) -> None:
        world = given(node("one", drivers=["x"]), node("both", drivers=["x", "y"]))
        assert world.goes_to(pod(), claim_drivers=["x", "y"]) == "both"
        assert world.reasons(pod(), claim_drivers=["x", "y"]) == {"one": ["node(s) don't run compute driver y"]}

    def test_a_driver_that_comes_is_seen(self) -> None:
        world = given(node("a"))
        assert world.goes_to(pod(), claim_drivers=["x"]) == ""
        assert world.now(node("a", drivers=["x"])).goes_to(pod(), claim_drivers=["x"]) == "a"


class TestPeersThatAreDown:
    """Pods that would have to wait for a plugin or driver on a node go elsewhere, and are told why."""

    def test_a_sick_driver_keeps_its_claims_away(self) -> None:
        sick = TopologySummary(down=(Down("x", "it says: no access", driver=True),))
        world = given(node("a", drivers=["x"], topology=sick), node("b", drivers=["x"]))
        assert world.goes_to(pod(), claim_drivers=["x"]) == "b"
        reason = "node(s) whose compute driver x is down: it says: no access"
        assert world.reasons(pod(), claim_drivers=["x"]) == {"a": [reason]}
        assert world.reasons(pod(), claim_drivers=["*"]) == {"a": [reason]}
        assert world.reasons(pod()) == {}

    def test_until_it_is_back(self) -> None:
        sick = TopologySummary(down=(Down("x", "hangs", driver=True),))
        world = given(node("a", drivers=["x"], topology=sick))
        assert world.goes_to(pod(), claim_drivers=["x"]) == ""
        assert DOWN in world.waits_for(pod(), claim_drivers=["x"])
        assert world.now(node("a", drivers=["x"])).goes_to(pod(), claim_drivers=["x"]) == "a"

    def test_a_plugin_keeps_away_who_asks_for_its_resources(self) -> None:
        away = TopologySummary(down=(Down("cpu", "is not connected", resources=("cpu", "example.com/gpu")),))
        world = given(node("a", gpu="4", topology=away))
        reason = "node(s) whose resource plugin cpu is down: is not connected"
        assert world.reasons(pod(cpu="1")) == {"a": [reason]}
        assert world.reasons(pod(gpu="1")) == {"a": [reason]}
        assert world.reasons(pod(memory="1Gi")) == {}

    def test_or_everybody_or_a_role(self) -> None:
        for down, plain in ((Down("nic", "hangs", everybody=True), 1), (Down("nic", "hangs", roles=("ai",)), 0)):
            world = given(node("a", topology=TopologySummary(down=(down,))))
            marked = pod(memory="1Gi", role="ai")
            assert len(world.reasons(pod(memory="1Gi"))) == plain
            assert len(world.reasons(marked)) == 1


class TestRefusals:
    def test_equal_pods_are_kept_off_a_node_that_refused_one(self) -> None:
        world = given(node("a"), node("b"))
        asks = world.shape(pod(cpu="1")).asks
        world.cluster.keep_off(asks, "a", "TopologyAffinityError")
        assert world.goes_to(pod(cpu="1")) == "b"
        assert world.goes_to(pod(cpu="2")) == "a"
        assert world.reasons(pod(cpu="1")) == {"a": ["node(s) refused equal pods lately (TopologyAffinityError)"]}

    def test_until_they_are_let_in_again(self) -> None:
        world = given(node("a"))
        asks = world.shape(pod(cpu="1")).asks
        world.cluster.keep_off(asks, "a", "x")
        assert world.goes_to(pod(cpu="1")) == ""
        assert world.waits_for(pod(cpu="1")) == {("refused", asks)}
        world.cluster.let_in(asks, "a")
        assert world.goes_to(pod(cpu="1")) == "a"

    def test_a_node_that_goes_takes_its_refusals_along(self) -> None:
        world = given(node("a"))
        world.cluster.keep_off(world.shape(pod(cpu="1")).asks, "a", "x")
        world.cluster.remove_node("a")
        assert world.now(node("b")).goes_to(pod(cpu="1")) == "b"
        assert world.cluster.kept_off == {}


class TestExplanations:
    def test_the_first_filter_that_refuses_speaks(self) -> None:
        world = given(node("a", cpu="1", unschedulable=True, taints=["x=y:NoSchedule"]))
        assert world.reasons(pod(cpu="8")) == {"a": [UNSCHEDULABLE]}
        assert world.filters(pod(cpu="8")) == {"a": "NodeUnschedulable"}

    def test_reasons_are_counted_over_all_nodes(self) -> None:
        world = given(*(node(f"n{number}", cpu="1") for number in range(3)), node("n3", unschedulable=True))
        assert world.message(pod(cpu="2")) == (f"0/4 nodes are available: 1 {UNSCHEDULABLE}, 3 Insufficient cpu.")

    def test_a_node_may_give_several_reasons_of_one_filter(self) -> None:
        world = given(node("a", cpu="1", memory="1Gi"))
        assert world.message(pod(cpu="2", memory="2Gi")) == (
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
        )

    def test_nobody_to_ask(self) -> None:
        assert given().message(pod()) == "no nodes available to schedule pods"
        assert counted_message({"x": 2}, 3) == "0/3 nodes are available: 2 x."

    def test_what_could_be_freed_is_what_is_waited_for(self) -> None:
        world = given(node("a", cpu="2")).running(pod("old", cpu="2"), on="a")
        assert world.waits_for(pod(cpu="1")) == {"cpu"}
        assert world.waits_for(pod(cpu="3")) == set()  # more than the empty node has

    def test_what_a_pod_frees_when_it_goes(self) -> None:
        world = given(node("a"))
        plain = freed_by(world.shape(pod(cpu="1", gpu="0")))
        assert plain == {"cpu", "pods", "company"}
        with_port = freed_by(world.shape(pod(ports=[{"hostPort": 1}])), [("container", "rdt", "gold")])
        assert with_port == {"pods", "company", "ports", ("container", "rdt", "gold")}
        assert "numa" in freed_by(world.shape(pod(cpu="1", memory="1Gi", limits=True)))

    def test_every_filter_says_when_it_looks_at_pods(self) -> None:
        by_pods = set(FILTERS) - set(STANDING)
        assert by_pods == {
            *("NodePorts", "NodeResourcesFit", "QOSResources", "ResourcePools", "NUMATopology", "ComputeFit"),
            *("VolumeRestrictions", "NodeVolumeLimits", "PodTopologySpread", "InterPodAffinity"),
        }
