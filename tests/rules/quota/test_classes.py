"""Class quota and class limits: the administrator's story of KEP-3008, "Defaults and limits"."""

from __future__ import annotations

from copy import deepcopy

import pytest

from kubeqos.gates import FeatureGates
from kubeqos.model import schema
from kubeqos.rules.offline import Offline
from tests.rules.quota.objects import Raw, container, limit_range, pod, quota, why

DEFAULTS = limit_range(
    {"type": "Pod", "qosResources": [{"name": "network", "default": "slow"}]},
    {
        "type": "Container",
        "qosResources": [
            {"name": "qos-foo", "default": "low-prio"},
            {"name": "vendor.example/xyz-qos", "default": "normal"},
        ],
    },
    name="qos-defaults",
)
CONSTRAINTS = quota(
    "qos-constraints",
    qosResources={
        "pod": [{"name": "network", "classes": [{"name": "slow"}, {"name": "normal", "capacity": 2}]}],
        "container": [
            {"name": "qos-foo", "classes": [{"name": "low-prio"}, {"name": "normal-prio"}]},
            {
                "name": "vendor.example/xyz-qos",
                "classes": [{"name": "low-prio"}, {"name": "normal"}, {"name": "high-prio", "capacity": 1}],
            },
        ],
    },
)


@pytest.fixture
def cluster() -> Offline:
    return Offline(FeatureGates.parse("QOSResources=true"))


def with_classes(raw: Raw, **classes: str) -> Raw:
    """`raw` (a pod spec or a container's resources) asking for classes."""
    raw["qosResources"] = [{"name": name, "class": cls} for name, cls in classes.items()]
    return raw


def networked(name: str, cls: str) -> Raw:
    raw = pod(name)
    with_classes(raw["spec"], network=cls)
    return raw


def test_defaults_are_filled_in_and_told(cluster: Offline) -> None:
    assert cluster.apply(DEFAULTS).ok
    stored = cluster.apply(pod("web")).object
    assert stored is not None
    assert stored["spec"]["qosResources"] == [{"name": "network", "class": "slow"}]
    assert stored["spec"]["containers"][0]["resources"]["qosResources"] == [
        {"name": "qos-foo", "class": "low-prio"},
        {"name": "vendor.example/xyz-qos", "class": "normal"},
    ]
    assert stored["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: qos-foo, vendor.example/xyz-qos class for container main; network class for pod"
    )


def test_what_the_pod_asks_for_its_containers_stands_before_a_default(cluster: Offline) -> None:
    cluster.apply(DEFAULTS)
    raw = pod("web")
    with_classes(raw["spec"], **{"qos-foo": "normal-prio"})
    stored = cluster.apply(raw).object
    assert stored is not None
    names = [one["name"] for one in stored["spec"]["containers"][0]["resources"]["qosResources"]]
    assert names == ["vendor.example/xyz-qos"]


def test_a_class_with_capacity_counts_pods(cluster: Offline) -> None:
    cluster.apply(CONSTRAINTS)
    assert cluster.apply(networked("a", "normal")).ok
    assert cluster.apply(networked("b", "normal")).ok
    assert why(cluster.apply(networked("c", "normal"))) == (
        'pods "c" is forbidden: exceeded quota: qos-constraints, '
        "requested: pod.network/normal=1, used: pod.network/normal=2, limited: pod.network/normal=2"
    )
    assert cluster.apply(networked("c", "slow")).ok
    cluster.delete("pods", "default", "a")
    assert cluster.apply(networked("d", "normal")).ok


def test_scopes_say_whose_classes_a_quota_counts_and_all_that_match_must_agree(cluster: Offline) -> None:
    listed = {"pod": [{"name": "network", "classes": [{"name": "normal", "capacity": 1}]}]}
    cluster.apply(quota("idle", scopes=["BestEffort"], qosResources=listed))
    cluster.apply(quota("all", qosResources={"pod": [{"name": "network", "classes": [{"name": "normal"}]}]}))

    def asks(name: str, **resources: Raw) -> Raw:
        raw = pod(name, container("c", **resources))
        return {**raw, "spec": with_classes(raw["spec"], network="normal")}

    assert cluster.apply(asks("busy", requests={"cpu": "1"})).ok, "not in the scope"
    assert cluster.apply(asks("idle")).ok
    assert "exceeded quota: idle" in why(cluster.apply(asks("late")))
    assert cluster.apply(asks("busier", requests={"cpu": "1"})).ok
    raw = pod("other", container("c", requests={"cpu": "1"}))
    assert "failed quota: all" in why(cluster.apply({**raw, "spec": with_classes(raw["spec"], network="fast")}))


def test_what_is_not_listed_is_forbidden(cluster: Offline) -> None:
    cluster.apply(CONSTRAINTS)
    assert why(cluster.apply(networked("a", "high"))) == (
        'pods "a" is forbidden: failed quota: qos-constraints: '
        'class "high" of pod-level resource network is not allowed (allowed: slow, normal)'
    )
    raw = pod("b")
    with_classes(raw["spec"]["containers"][0]["resources"], rdt="gold")
    assert why(cluster.apply(raw)) == (
        'pods "b" is forbidden: failed quota: qos-constraints: '
        'class "gold" of container-level resource rdt is not allowed (no class of rdt is)'
    )


def test_container_classes_count_containers_that_run_together(cluster: Offline) -> None:
    cluster.apply(CONSTRAINTS)

    def high(name: str, **more: str) -> Raw:
        one = container(name, **more)
        with_classes(one["resources"], **{"vendor.example/xyz-qos": "high-prio"})
        return one

    # An init container is gone before the app container starts: never more than one at a time.
    assert cluster.apply(pod("a", high("app"), initContainers=[high("init")])).ok
    cluster.delete("pods", "default", "a")
    sidecar = high("side", restartPolicy="Always")
    assert why(cluster.apply(pod("b", high("app"), initContainers=[sidecar]))).endswith(
        "requested: container.vendor.example/xyz-qos/high-prio=2, used: container.vendor.example/xyz-qos/high-prio=0, "
        "limited: container.vendor.example/xyz-qos/high-prio=1"
    )


def test_a_pod_wide_request_of_a_listed_container_resource_counts_every_container(cluster: Offline) -> None:
    cluster.apply(CONSTRAINTS)
    raw = pod("a", container("one"), container("two"))
    with_classes(raw["spec"], **{"vendor.example/xyz-qos": "high-prio"})
    assert "requested: container.vendor.example/xyz-qos/high-prio=2" in why(cluster.apply(raw))


def test_status_shows_what_is_allowed_and_what_is_used(cluster: Offline) -> None:
    cluster.apply(CONSTRAINTS)
    cluster.apply(networked("a", "normal"))
    stored = cluster.get("resourcequotas", "default", "qos-constraints")
    assert stored is not None
    assert stored["status"]["qosResources"] == CONSTRAINTS["spec"]["qosResources"]
    assert stored["status"]["qosResourcesUsage"]["pod"] == [
        {"name": "network", "classes": [{"name": "slow", "capacity": 0}, {"name": "normal", "capacity": 1}]}
    ]


def test_pods_that_have_ended_use_no_class(cluster: Offline) -> None:
    cluster.apply(CONSTRAINTS)
    stored = cluster.apply(networked("a", "normal")).object
    assert stored is not None
    ended = {**stored, "status": {**stored["status"], "phase": "Succeeded"}}
    assert cluster.update(ended, "pods", subresource="status").ok
    [governed] = cluster.ledger.quotas("default")
    assert set(governed.classes_used.values()) == {0}


def test_one_pod_may_not_use_a_class_too_often(cluster: Offline) -> None:
    cluster.apply(
        limit_range({"type": "Container", "qosResources": [{"name": "rdt", "max": [{"name": "gold", "capacity": 1}]}]})
    )
    containers = [container("one"), container("two")]
    for one in containers:
        with_classes(one["resources"], rdt="gold")
    assert why(cluster.apply(pod("a", *containers))) == (
        'pods "a" is forbidden: maximum usage of class "gold" of rdt per Pod is 1, but 2 is requested'
    )
    assert cluster.apply(pod("b", containers[0])).ok


def test_without_the_gate_classes_are_refused() -> None:
    cluster = Offline()
    answer = cluster.apply(networked("a", "slow"))
    assert answer.outcome.code == 422
    assert why(answer) == (
        'Pod "a" is invalid: spec.qosResources: Forbidden: may not be set while feature gate QOSResources is off'
    )
    assert not cluster.apply(CONSTRAINTS).ok
    assert not cluster.apply(DEFAULTS).ok


# -- no setting fails open -----------------------------------------------------------------------------------------


def of_rdt(**resources: object) -> Raw:
    return quota("zero", qosResources=resources)


def gilded(name: str, cls: str = "gold") -> Raw:
    one = container()
    with_classes(one["resources"], rdt=cls)
    return pod(name, one)


def test_capacity_0_is_none_and_no_capacity_is_no_limit(cluster: Offline) -> None:
    listed = [{"name": "rdt", "classes": [{"name": "gold", "capacity": 0}, {"name": "silver"}]}]
    stored = cluster.apply(of_rdt(container=listed)).object
    assert stored is not None
    assert stored["spec"]["qosResources"]["container"] == listed
    assert why(cluster.apply(gilded("a"))) == (
        'pods "a" is forbidden: exceeded quota: zero, '
        "requested: container.rdt/gold=1, used: container.rdt/gold=0, limited: container.rdt/gold=0"
    )
    assert cluster.apply(gilded("b", "silver")).ok
    assert stored["status"]["qosResources"]["container"] == listed


def test_a_limit_of_0_is_none_and_a_limit_without_number_is_none_at_all(cluster: Offline) -> None:
    most = [{"name": "gold", "capacity": 0}, {"name": "silver"}]
    limits = limit_range({"type": "Container", "qosResources": [{"name": "rdt", "max": most}]})
    stored = cluster.apply(limits).object
    assert stored is not None
    assert stored["spec"]["limits"][0]["qosResources"][0]["max"] == most
    assert why(cluster.apply(gilded("a"))).endswith(
        'maximum usage of class "gold" of rdt per Pod is 0, but 1 is requested'
    )
    assert cluster.apply(gilded("b", "silver")).ok


def test_empty_lists_forbid_everything_at_their_level_and_are_kept(cluster: Offline) -> None:
    stored = cluster.apply(of_rdt(pod=[], container=[])).object
    assert stored is not None
    assert stored["spec"]["qosResources"] == {"pod": [], "container": []}
    assert "is not allowed (no class of rdt is)" in why(cluster.apply(gilded("a")))
    assert "is not allowed (no class of network is)" in why(cluster.apply(networked("b", "slow")))
    assert cluster.apply(pod("c")).ok
    changed = cluster.apply(of_rdt(container=[])).object
    assert changed is not None
    assert changed["spec"]["qosResources"] == {"container": []}
    assert cluster.apply(networked("b", "slow")).ok


@pytest.mark.parametrize("entry", [{"default": "Guaranteed"}, {"max": [{"name": "Guaranteed", "capacity": 1}]}])
def test_pod_qos_has_neither_default_nor_limit(cluster: Offline, entry: Raw) -> None:
    answer = cluster.apply(limit_range({"type": "Pod", "qosResources": [{"name": "pod-qos", **entry}]}))
    assert why(answer) == (
        'LimitRange "limits" is invalid: spec.limits[0].qosResources[0].name: Forbidden: '
        "pod-qos follows from the pod's resources: it has no default and no limit"
    )


def test_a_claim_has_no_classes(cluster: Offline) -> None:
    item = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}, "qosResources": [{"name": "rdt"}]}
    assert why(cluster.apply(limit_range(item))) == (
        'LimitRange "limits" is invalid: spec.limits[0].qosResources: Forbidden: '
        "may only be specified when `type` is 'Pod' or 'Container'"
    )


def deployment(cls: str) -> Raw:
    one = container()
    with_classes(one["resources"], rdt=cls)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [one]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }


def test_without_the_gate_a_template_with_classes_is_refused_and_a_stored_one_kept(cluster: Offline) -> None:
    off, path = FeatureGates.default(), "spec.template.spec.containers[0].resources.qosResources"
    refused = (
        f'Deployment.apps "web" is invalid: {path}: Forbidden: may not be set while feature gate QOSResources is off'
    )
    assert why(Offline().apply(deployment("gold"))) == refused
    assert cluster.apply(deployment("gold")).ok
    cluster.gates = off
    assert cluster.apply(deployment("gold") | {"metadata": {"name": "web", "labels": {"a": "b"}}}).ok
    assert why(cluster.apply(deployment("silver"))) == refused


def test_without_the_gate_a_class_is_not_changed_in_place(cluster: Offline) -> None:
    stored = cluster.apply(gilded("a")).object
    assert stored is not None
    cluster.gates = FeatureGates.default()
    wanted = deepcopy(stored)
    wanted["spec"]["containers"][0]["resources"]["qosResources"][0]["class"] = "silver"
    assert why(cluster.update(wanted, "pods", subresource="resize")) == (
        'Pod "a" is invalid: spec.containers[0].resources.qosResources: Forbidden: '
        "may not be set while feature gate QOSResources is off"
    )


# -- one door per request ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["rdt.resources.kubernetes.io/default", "rdt.resources.beta.kubernetes.io/pod"])
def test_a_class_that_is_asked_for_by_annotation_is_counted(key: str) -> None:
    cluster = Offline(FeatureGates.parse("QOSResources=true,TranslateQoSPodMetadata=true"))
    cluster.apply(of_rdt(container=[{"name": "rdt", "classes": [{"name": "bronze"}]}]))
    raw = pod("a")
    raw["metadata"]["annotations"] = {key: "gold"}
    assert 'class "gold" of' in why(cluster.apply(raw))
    raw["metadata"]["annotations"] = {key: "bronze"}
    stored = cluster.apply(raw).object
    assert stored is not None
    assert stored["spec"]["qosResources"] == [{"name": "rdt", "class": "bronze"}]


def test_with_strict_names_annotations_mean_the_official_resources() -> None:
    gates = "QOSResources=true,TranslateQoSPodMetadata=true,QOSResourcesStrictNames=true"
    raw = pod("a")
    raw["metadata"]["annotations"] = {
        "rdt.resources.beta.kubernetes.io/pod": "gold",
        "rdt.resources.kubernetes.io/default": "silver",
        "blockio.resources.beta.kubernetes.io/container.main": "slow",
    }
    stored = Offline(FeatureGates.parse(gates)).apply(raw).object
    assert stored is not None
    assert stored["spec"]["qosResources"] == [{"name": "k8s.io/rdt", "class": "silver"}]
    [main] = stored["spec"]["containers"]
    assert main["resources"]["qosResources"] == [{"name": "k8s.io/blockio", "class": "slow"}]


def test_a_pod_asks_in_one_place(cluster: Offline) -> None:
    raw = pod("a", resources=with_classes({}, network="fast"))
    assert why(cluster.apply(raw)) == (
        'Pod "a" is invalid: spec.resources.qosResources: Forbidden: a pod requests classes in spec.qosResources'
    )
    wrong = deployment("gold")
    with_classes(wrong["spec"]["template"]["spec"].setdefault("resources", {}), network="fast")
    assert "a pod requests classes in spec.template.spec.qosResources" in why(cluster.apply(wrong))
    said = schema.description("core/v1.ResourceRequirements", "qosResources")
    assert said.endswith("A pod requests them in spec.qosResources.")


def test_classes_of_a_whole_pod_are_changed_and_never_taken_away(cluster: Offline) -> None:
    raw = networked("a", "slow")
    with_classes(raw["spec"], network="slow", storage="fast")
    stored = cluster.apply(raw).object
    assert stored is not None
    less = deepcopy(stored)
    del less["spec"]["qosResources"][0]
    assert why(cluster.update(less, "pods", subresource="resize")) == (
        'Pod "a" is invalid: spec.qosResources: Forbidden: classes may be changed, not removed'
    )
    wanted = deepcopy(stored)
    wanted["spec"]["qosResources"][0]["class"] = "normal"
    changed = cluster.update(wanted, "pods", subresource="resize").object
    assert changed is not None and changed["spec"]["qosResources"][0] == {"name": "network", "class": "normal"}
    unknowing = {**deepcopy(changed), "spec": {**changed["spec"]}}
    del unknowing["spec"]["qosResources"]
    kept = cluster.update(unknowing, "pods", subresource="resize").object
    assert kept is not None and kept["spec"]["qosResources"] == changed["spec"]["qosResources"]
