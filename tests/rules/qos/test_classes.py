"""KEP-3008: who gets which class, how many are needed, what a node offers and whether they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model.objects import NodeQosResources, PodSpec, convert
from kubeqos.rules.qos.classes import (
    Catalog,
    Level,
    Source,
    catalog,
    changed_annotations,
    container_classes,
    demand,
    fit,
    pod_classes,
    request_errors,
    translate_annotations,
)


def spec(**fields: Any) -> PodSpec:
    return convert(fields, PodSpec)


def container(name: str, *classes: tuple[str, str], **more: Any) -> dict[str, Any]:
    requests = [{"name": resource, "class": cls} for resource, cls in classes]
    return {"name": name, "resources": {"qosResources": requests}, **more}


def node(**levels: Any) -> Catalog:
    return catalog(convert(levels, NodeQosResources))


def test_a_runtime_handler_decides_which_classes_a_node_offers() -> None:
    boxed = node(
        containerQoSResources=[
            {
                "name": "rdt",
                "classes": [{"name": "gold", "capacity": 1}, {"name": "silver"}],
                "runtimeHandlers": [{"name": "kata", "classes": ["silver"]}, {"name": "wasm", "classes": []}],
            }
        ]
    )

    def why(cls: str, handler: str | None, used: int = 0) -> list[str]:
        pod = spec(containers=[container("c", ("rdt", cls))])
        return [one.reason for one in fit(pod, boxed, {(Level.CONTAINER, "rdt", "gold"): used}, handler)]

    assert why("gold", "") == why("gold", "runc") == why("silver", "kata") == []
    assert why("gold", "kata") == ["QoS class rdt=gold not available to runtime handler kata"]
    assert why("gold", "kata", used=1) == why("gold", "kata"), "to free one would not help"
    assert why("silver", "wasm") == ["QoS class rdt=silver not available to runtime handler wasm"]
    assert why("silver", None) == [
        "QoS class rdt=silver not available to every runtime handler, and the pod's is not known"
    ]
    assert why("bronze", "kata") == ["QoS class rdt=bronze not available"]


# The node of the proposal's NodeStatus section.
KEP_NODE = node(
    containerQoSResources=[
        {"name": "blockio", "classes": [{"name": "high-prio", "capacity": 4}, {"name": "throttled"}]},
        {
            "name": "vendor.example/foo-qos",
            "classes": [
                {"name": "platinum", "capacity": 1},
                {"name": "gold", "capacity": 3},
                {"name": "silver", "capacity": 9},
                {"name": "bronze"},
            ],
        },
    ],
    podQoSResources=[
        {
            "name": "network",
            "classes": [{"name": "fast", "capacity": 2}, {"name": "normal", "capacity": 10}, {"name": "slow"}],
        }
    ],
)


class TestEffectiveClass:
    def test_the_container_decides_before_the_pod_and_the_pod_before_the_runtime(self) -> None:
        pod = spec(
            qosResources=[{"name": "rdt", "class": "silver"}],
            containers=[container("own", ("rdt", "gold")), container("inherits")],
        )
        own, inherits = pod.containers
        assert container_classes(pod, own, ["rdt"])["rdt"].class_name == "gold"
        assert container_classes(pod, inherits, ["rdt"])["rdt"].class_name == "silver"
        implicit = container_classes(pod, inherits, ["blockio"])["blockio"]
        assert (implicit.class_name, implicit.source) == (None, Source.RUNTIME)

    def test_a_pod_level_class_is_the_pods(self) -> None:
        pod = spec(qosResources=[{"name": "network", "class": "fast"}], containers=[container("c")])
        assert {name: one.class_name for name, one in pod_classes(pod, ["network", "bar"]).items()} == {
            "network": "fast",
            "bar": None,
        }

    @given(
        own=st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")),
        pod_wide=st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz")),
        offered=st.sets(st.sampled_from("abcdef")),
    )
    def test_every_offered_resource_has_exactly_one_answer(
        self, own: dict[str, str], pod_wide: dict[str, str], offered: set[str]
    ) -> None:
        pod = spec(
            qosResources=[{"name": name, "class": cls} for name, cls in pod_wide.items()],
            containers=[container("c", *own.items())],
        )
        effective = container_classes(pod, pod.containers[0], sorted(offered))
        assert set(effective) == offered
        for name, one in effective.items():
            assert one.class_name == own.get(name, pod_wide.get(name))


class TestDemand:
    def test_a_pod_level_class_counts_once_and_container_classes_count_containers(self) -> None:
        pod = spec(
            qosResources=[{"name": "network", "class": "fast"}],
            containers=[container("a", ("rdt", "gold")), container("b", ("rdt", "gold")), container("c")],
        )
        assert demand(pod) == {(Level.POD, "network", "fast"): 1, (Level.CONTAINER, "rdt", "gold"): 2}

    def test_init_containers_count_at_their_peak_beside_earlier_sidecars(self) -> None:
        pod = spec(
            initContainers=[
                container("first", ("rdt", "gold")),
                container("sidecar", ("rdt", "gold"), restartPolicy="Always"),
                container("second", ("rdt", "gold")),
            ],
            containers=[container("app", ("rdt", "silver"))],
        )
        assert demand(pod) == {(Level.CONTAINER, "rdt", "gold"): 2, (Level.CONTAINER, "rdt", "silver"): 1}

    def test_a_pod_wide_request_of_a_container_level_resource_counts_every_container(self) -> None:
        pod = spec(qosResources=[{"name": "rdt", "class": "gold"}], containers=[container("a"), container("b")])
        assert demand(pod, {"rdt"}) == {(Level.CONTAINER, "rdt", "gold"): 2}
        assert demand(pod, ()) == {(Level.POD, "rdt", "gold"): 1}

    def test_nothing_requested_is_nothing_counted(self) -> None:
        assert demand(spec(containers=[container("a")])) == {}


class TestCatalog:
    def test_a_name_on_both_levels_is_refused_on_both(self) -> None:
        both = node(
            podQoSResources=[{"name": "x", "classes": []}], containerQoSResources=[{"name": "x", "classes": []}]
        )
        assert not both.types
        assert "both as pod-level and as container-level" in both.refused[0]

    def test_pod_qos_is_never_advertised(self) -> None:
        assert not node(podQoSResources=[{"name": "pod-qos", "classes": []}]).types

    def test_strict_names_keep_unknown_official_names_out(self) -> None:
        advertised = convert(
            {"containerQoSResources": [{"name": n, "classes": []} for n in ("rdt", "k8s.io/rdt", "vendor.example/x")]},
            NodeQosResources,
        )
        assert set(catalog(advertised).types) == {"rdt", "k8s.io/rdt", "vendor.example/x"}
        assert set(catalog(advertised, strict_names=True).types) == {"k8s.io/rdt", "vendor.example/x"}


class TestFit:
    def test_a_class_with_room_fits_and_an_unlimited_one_always_does(self) -> None:
        pod = spec(
            qosResources=[{"name": "network", "class": "fast"}], containers=[container("c", ("blockio", "throttled"))]
        )
        assert fit(pod, KEP_NODE, {(Level.POD, "network", "fast"): 1}) == []

    def test_an_exhausted_class_says_how_much_is_used(self) -> None:
        pod = spec(containers=[container("c", ("vendor.example/foo-qos", "gold"))])
        (problem,) = fit(pod, KEP_NODE, {(Level.CONTAINER, "vendor.example/foo-qos", "gold"): 3})
        assert problem.reason == "QoS class vendor.example/foo-qos=gold exhausted (3/3 used)"
        assert problem.resolvable

    def test_more_than_the_whole_capacity_cannot_be_helped_by_eviction(self) -> None:
        pod = spec(containers=[container(n, ("vendor.example/foo-qos", "platinum")) for n in "ab"])
        (problem,) = fit(pod, KEP_NODE, {})
        assert problem.reason == "QoS class vendor.example/foo-qos=platinum too small (capacity 1, needs 2)"
        assert not problem.resolvable

    def test_unknown_resource_unknown_class_and_wrong_level_each_say_so(self) -> None:
        pod = spec(containers=[container("c", ("rdt", "gold"), ("blockio", "none"), ("network", "fast"))])
        assert sorted(problem.reason for problem in fit(pod, KEP_NODE, {})) == [
            "QoS class blockio=none not available",
            "QoS resource network is pod-level, requested at container level",
            "QoS resource rdt not available",
        ]


class TestRequestErrors:
    def test_good_requests_pass(self) -> None:
        requests = [{"name": "rdt", "class": "gold"}, {"name": "vendor.example/xyz-qos", "class": "normal"}]
        assert request_errors(requests, "spec.qosResources", level=Level.POD) == []

    def test_each_mistake_is_named_with_its_place(self) -> None:
        requests = [{"name": "", "class": "a"}, {"name": "x", "class": "-a"}, {"name": "x", "class": "b"}]
        fields = [(e.field, e.type.words) for e in request_errors(requests, "q", level=Level.POD)]
        assert fields == [
            ("q[0].name", "Required value"),
            ("q[1].class", "Invalid value"),
            ("q[2].name", "Duplicate value"),
        ]

    def test_pod_qos_cannot_be_requested(self) -> None:
        (error,) = request_errors([{"name": "pod-qos", "class": "Burstable"}], "q", level=Level.POD)
        assert "cannot be requested" in error.message

    def test_strict_names_want_known_official_names(self) -> None:
        requests = [{"name": "rdt", "class": "gold"}]
        (error,) = request_errors(requests, "q", level=Level.CONTAINER, strict_names=True)
        assert 'supported values: "k8s.io/blockio", "k8s.io/rdt"' in error.message


class TestAnnotations:
    def pod(self) -> dict[str, Any]:
        return {
            "metadata": {
                "annotations": {
                    "rdt.resources.kubernetes.io/default": "silver",
                    "blockio.resources.kubernetes.io/container.db": "slow",
                    "rdt.resources.kubernetes.io/container.gone": "gold",
                    "unrelated": "x",
                }
            },
            "spec": {"containers": [{"name": "db"}, {"name": "web"}]},
        }

    def test_annotations_become_requests_and_unknown_containers_are_warned_about(self) -> None:
        raw = self.pod()
        assert translate_annotations(raw) == [
            "metadata.annotations[rdt.resources.kubernetes.io/container.gone]: there is no such container"
        ]
        assert raw["spec"]["qosResources"] == [{"name": "rdt", "class": "silver"}]
        assert raw["spec"]["containers"][0]["resources"] == {"qosResources": [{"name": "blockio", "class": "slow"}]}
        assert "resources" not in raw["spec"]["containers"][1]

    def test_fields_win_over_annotations(self) -> None:
        raw = self.pod()
        raw["spec"]["qosResources"] = [{"name": "rdt", "class": "gold"}]
        translate_annotations(raw)
        assert raw["spec"]["qosResources"] == [{"name": "rdt", "class": "gold"}]

    def test_class_annotations_may_not_change(self) -> None:
        old = {"rdt.resources.kubernetes.io/default": "silver", "free": "1"}
        assert changed_annotations(old, {"rdt.resources.kubernetes.io/default": "gold"}) == [
            "rdt.resources.kubernetes.io/default"
        ]
        assert changed_annotations(old, old | {"free": "2"}) == []
