"""What a stock cluster makes of pods that ask: given these classes and limits, then these counts and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.errors import InputError
from kubeqos.stock.admission import Classes, NotAdmitted, admitted, class_demand
from kubeqos.stock.names import extended_resource, joined, node_label

GOLD, BRONZE = ("rdt", "gold"), ("rdt", "bronze")


def known(resource: str, name: str, level: str = "container", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{resource}.{name}"},
        "spec": {"resource": resource, "class": name, "level": level, **more},
    }


CLASSES = Classes(
    [
        known(*GOLD, counted=True),
        known(*BRONZE),
        known("blockio", "slow"),
        known("network", "fast", "pod", counted=True),
        known("network", "slow", "pod"),
        known("secret", "one", allowedNamespaces=["vault"]),
    ]
)


def pod(containers: tuple[str, ...] = ("main",), init: tuple[str, ...] = (), **annotations: str) -> dict[str, Any]:
    keys = {name.replace("__", "."): value for name, value in annotations.items()}
    spec: dict[str, Any] = {"containers": [{"name": name} for name in containers]}
    if init:
        spec["initContainers"] = [{"name": name} for name in init]
    marked = {f"qos.kubeqos.io/{key}": value for key, value in keys.items()}
    return {"kind": "Pod", "metadata": {"name": "p", **({"annotations": marked} if marked else {})}, "spec": spec}


def counted(stored: dict[str, Any]) -> dict[str, dict[str, str]]:
    spec = stored["spec"]
    everyone = [*spec.get("initContainers", ()), *spec["containers"]]
    return {
        each["name"]: each["resources"]["requests"] for each in everyone if each.get("resources", {}).get("requests")
    }


def needed_labels(stored: dict[str, Any]) -> list[list[str]]:
    affinity = stored["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    return [[each["key"] for each in term["matchExpressions"]] for term in required.get("nodeSelectorTerms", ())]


@pytest.mark.parametrize(
    ("key", "value"), [("kubernetes.io/pod-role", "web"), ("cci.resources.alpha.kubernetes.io/pod", "cci-exclusive")]
)
def test_who_asks_for_cores_does_not_start_without_the_agent(key: str, value: str) -> None:
    asking = pod()
    asking["metadata"]["annotations"] = {key: value}
    stored = admitted(asking, "team", CLASSES, [])
    assert stored["metadata"]["annotations"] == {key: value, "required-plugins.noderesource.dev/pod": '["kubeqos"]'}
    assert admitted(stored, "team", CLASSES, []) == stored


def test_who_asks_for_nothing_is_left_alone() -> None:
    assert admitted(pod(), "default", CLASSES, []) == pod()


def test_a_class_with_a_capacity_is_counted_and_one_without_is_looked_for() -> None:
    stored = admitted(pod(container__main="rdt=gold,blockio=slow"), "default", CLASSES, [])
    assert counted(stored) == {"main": {"qos.kubeqos.io/rdt.gold": "1"}}
    assert stored["spec"]["containers"][0]["resources"]["limits"] == {"qos.kubeqos.io/rdt.gold": "1"}
    assert needed_labels(stored) == [["class.qos.kubeqos.io/blockio.slow"]]


def test_a_class_of_the_pod_counts_once_and_a_default_of_containers_for_each() -> None:
    stored = admitted(pod(("a", "b"), ("i",), pod="network=fast,rdt=gold"), "default", CLASSES, [])
    gold, fast = extended_resource(*GOLD), extended_resource("network", "fast")
    assert counted(stored) == {"i": {gold: "1"}, "a": {gold: "1", fast: "1"}, "b": {gold: "1"}}


def test_other_wishes_about_the_node_stay_and_every_alternative_needs_the_labels() -> None:
    asking = pod(container__main="rdt=bronze")
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    asking["spec"]["affinity"] = {"nodeAffinity": required, "podAffinity": {}}
    stored = admitted(asking, "default", CLASSES, [])
    assert needed_labels(stored) == [["zone", node_label(*BRONZE)]] * 2
    assert "podAffinity" in stored["spec"]["affinity"]


def test_a_namespaces_defaults_are_given_and_counted() -> None:
    limits = {
        "apiVersion": "kubeqos.io/v1alpha1",
        "kind": "QOSClassLimits",
        "metadata": {"name": "defaults"},
        "spec": {
            "limits": [
                {"type": "Container", "qosResources": [{"name": "rdt", "default": "gold"}]},
                {"type": "Pod", "qosResources": [{"name": "network", "default": "slow"}]},
            ]
        },
    }
    stored = admitted(pod(("a", "b"), container__a="rdt=bronze"), "default", CLASSES, [limits])
    annotations = stored["metadata"]["annotations"]
    assert annotations["qos.kubeqos.io/pod"] == "network=slow"
    assert annotations["qos.kubeqos.io/container.a"] == "rdt=bronze"
    assert annotations["qos.kubeqos.io/container.b"] == "rdt=gold"
    assert counted(stored) == {"b": {extended_resource(*GOLD): "1"}}


def test_how_many_of_a_class_one_pod_may_use_holds() -> None:
    most = [{"name": "rdt", "max": [{"name": "gold", "capacity": 1}]}]
    limits = {"kind": "QOSClassLimits", "apiVersion": "kubeqos.io/v1alpha1", "metadata": {"name": "most"},
              "spec": {"limits": [{"type": "Pod", "qosResources": most}]}}  # fmt: skip
    assert admitted(pod(container__main="rdt=gold"), "default", CLASSES, [limits])
    with pytest.raises(NotAdmitted, match="gold"):
        admitted(pod(("a", "b"), pod="rdt=gold"), "default", CLASSES, [limits])


@pytest.mark.parametrize(
    ("asking", "what"),
    [
        (pod(container__main="rdt=purple"), "there is no class rdt=purple"),
        (pod(pod="unknown=gold"), "there is no class unknown=gold"),
        (pod(container__main="secret=one"), "secret=one is for namespaces vault"),
        (pod(container__main="network=fast"), "network is given to whole pods"),
        (pod(container__other="rdt=gold"), "does not have"),
    ],
)
def test_what_cannot_be_had_is_refused(asking: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        admitted(asking, "default", CLASSES, [])
    assert admitted(pod(container__main="secret=one"), "vault", CLASSES, [])


def test_nobody_takes_a_class_by_its_counter_alone() -> None:
    sly = pod()
    sly["spec"]["containers"][0]["resources"] = {"requests": {extended_resource(*GOLD): "1"}}
    with pytest.raises(NotAdmitted, match="cannot be asked for by themselves"):
        admitted(sly, "default", CLASSES, [])
    sly["metadata"]["annotations"] = {"qos.kubeqos.io/pod": "rdt=bronze"}
    assert counted(admitted(sly, "default", CLASSES, [])) == {}, "what is asked for is what is counted"


asks = st.lists(st.sampled_from(["rdt=gold", "rdt=bronze", "blockio=slow", ""]), min_size=1, max_size=3)


@given(asks, st.sampled_from(["", "network=fast", "rdt=gold", "network=slow,rdt=bronze"]))
def test_asked_again_the_answer_is_the_same_and_what_is_counted_is_what_is_demanded(own: list[str], wide: str) -> None:
    names = tuple(f"c{place}" for place in range(len(own)))
    wishes = {f"container__{name}": wish for name, wish in zip(names, own, strict=True) if wish}
    asking = pod(names, **wishes, **({"pod": wide} if wide else {}))
    stored = admitted(asking, "default", CLASSES, [])
    assert admitted(stored, "default", CLASSES, []) == stored
    totals: dict[str, int] = {}
    for requests in counted(stored).values():
        for name, amount in requests.items():
            totals[name] = totals.get(name, 0) + int(amount)
    wanted = class_demand(asking, CLASSES)
    assert totals == {
        extended_resource(resource, name): count
        for (_, resource, name), count in wanted.items()
        if (resource, name) in (GOLD, ("network", "fast"))
    }


names = st.from_regex(r"[ab]([ab._-]{0,40}[ab])?", fullmatch=True)
domains = st.from_regex(r"[ab](\.[ab]){0,3}", fullmatch=True)
parts = st.one_of(names, st.builds("{}/{}".format, domains, names))


@given(parts, parts, parts, parts)
def test_different_classes_have_different_names_of_a_length_that_is_allowed(a: str, b: str, c: str, d: str) -> None:
    assert len(joined(a, b)) <= 63
    if (a, b) != (c, d):
        assert joined(a, b) != joined(c, d)


# -- QOSResources --------------------------------------------------------------------------------------------------


def resource(name: str, level: str = "container", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"resource": name, "level": level, **more}}


MADE = {"labels": {"app.kubernetes.io/managed-by": "kubeqos-controller"}}


def test_the_object_of_a_resource_says_its_level_and_for_whom_it_is() -> None:
    classes = Classes([known("turbo", "high", counted=True)], [resource("turbo", "pod", allowedNamespaces=["team"])])
    stored = admitted(pod(("a", "b"), pod="turbo=high"), "team", classes, [])
    assert counted(stored) == {"a": {extended_resource("turbo", "high"): "1"}}, "one for the whole pod"
    with pytest.raises(NotAdmitted, match="given to whole pods"):
        admitted(pod(container__main="turbo=high"), "team", classes, [])
    with pytest.raises(NotAdmitted, match="QoS resource turbo is for namespaces team"):
        admitted(pod(pod="turbo=high"), "default", classes, [])


def test_what_a_resource_is_stands_beside_the_classes_that_it_has() -> None:
    classes = Classes([known(*GOLD)], [resource("rdt", description="shares of the cache")])
    with pytest.raises(NotAdmitted) as caught:
        admitted(pod(container__main="rdt=purple"), "default", classes, [])
    assert caught.value.remedy == "known: gold (shares of the cache)"


def test_with_strict_names_an_official_name_must_be_described_by_somebody() -> None:
    offered = [{**known("turbo", "high"), "metadata": MADE}, known("k8s.io/rdt", "gold"), known("x.example/y", "z")]
    asking = pod(container__main="turbo=high")
    assert admitted(asking, "default", Classes(offered), [])
    strict = Classes(offered, strict=True)
    with pytest.raises(NotAdmitted, match="turbo is no resource that this cluster knows") as caught:
        admitted(asking, "default", strict, [])
    assert "describe it by a QOSResource" in str(caught.value.remedy)
    for well in ("k8s.io/rdt=gold", "x.example/y=z"):
        assert admitted(pod(container__main=well), "default", strict, [])
    assert admitted(asking, "default", Classes(offered, [resource("turbo")], strict=True), [])
    assert admitted(asking, "default", Classes([known("turbo", "high")], strict=True), [])
