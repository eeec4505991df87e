"""The admission pipeline: what a write goes through before it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.gates import FeatureGates
from kubeqos.rules.offline import Offline
from kubeqos.rules.qos.classfields import class_fields
from kubeqos.rules.requests import RequestRefused
from tests.rules.quota.objects import Raw, container, pod, quota, why


def priority_class(name: str, value: int, **more: Any) -> Raw:
    metadata = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value, **more}


def namespace(name: str) -> Raw:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def within(name: str, raw: Raw) -> Raw:
    return {**raw, "metadata": {**raw["metadata"], "namespace": name}}


def stored(cluster: Offline, raw: Raw) -> Raw:
    answer = cluster.apply(raw)
    assert answer.object is not None, answer.line
    return answer.object


def test_a_pod_is_completed() -> None:
    spec = stored(Offline(), pod("p", container(limits={"cpu": "1", "memory": "1Gi"})))
    assert spec["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert (spec["spec"]["priority"], spec["spec"]["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(t["key"], t["tolerationSeconds"]) for t in spec["spec"]["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]


def test_a_pod_that_tolerates_everything_needs_no_more_tolerations() -> None:
    everything = [{"operator": "Exists"}]
    assert stored(Offline(), pod("p", tolerations=everything))["spec"]["tolerations"] == everything


def test_the_callers_object_is_left_alone() -> None:
    raw = pod("p", container(limits={"cpu": "1"}))
    Offline().apply(raw)
    assert raw == pod("p", container(limits={"cpu": "1"}))


@pytest.mark.parametrize(
    ("spec", "priority"),
    [({}, 0), ({"priorityClassName": "system-node-critical"}, 2000001000), ({"priorityClassName": "high"}, 1000)],
)
def test_the_class_decides_the_priority(spec: Raw, priority: int) -> None:
    cluster = Offline()
    cluster.apply(priority_class("high", 1000))
    assert stored(cluster, pod("p", **spec))["spec"]["priority"] == priority


def test_a_global_default_applies_to_pods_without_a_class() -> None:
    cluster = Offline()
    cluster.apply(priority_class("usual", 7, globalDefault=True, preemptionPolicy="Never"))
    spec = stored(cluster, pod("p"))["spec"]
    assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == ("usual", 7, "Never")
    assert why(cluster.apply(priority_class("other", 8, globalDefault=True))) == (
        'priorityclasses.scheduling.k8s.io "other" is forbidden: '
        "PriorityClass usual is already marked as default. Only one default can exist"
    )


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"priorityClassName": "absent"}, "no PriorityClass with name absent was found"),
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; "
            "priority admission controller computed 0 from the given PriorityClass name",
        ),
        (
            {"preemptionPolicy": "Never"},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given PriorityClass name",
        ),
    ],
)
def test_wrong_priorities(spec: Raw, complaint: str) -> None:
    assert why(Offline().apply(pod("p", **spec))) == f'pods "p" is forbidden: {complaint}'


def test_nothing_new_in_a_namespace_that_is_not_there() -> None:
    cluster = Offline(strict_namespaces=True)
    assert why(cluster.apply(within("absent", pod("p")))) == 'namespaces "absent" not found'
    cluster.apply(namespace("team"))
    assert cluster.apply(within("team", pod("p"))).ok


def test_nothing_new_in_a_namespace_that_is_going_away() -> None:
    cluster = Offline()
    cluster.apply(namespace("team"))
    cluster.objects["namespaces", "", "team"]["status"] = {"phase": "Terminating"}
    answer = cluster.apply(within("team", pod("p")))
    assert why(answer) == (
        'pods "p" is forbidden: unable to create new content in namespace team because it is being terminated'
    )
    assert isinstance(answer.outcome, RequestRefused)
    assert answer.outcome.details["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": "namespace team is being terminated",
            "field": "metadata.namespace",
        }
    ]


def test_namespaces_have_their_own_quotas() -> None:
    cluster = Offline()
    cluster.apply(within("one", quota("q", {"pods": "0"})))
    assert not cluster.apply(within("one", pod("p"))).ok
    assert cluster.apply(within("two", pod("p"))).ok


def test_annotated_classes_become_requests_where_the_gate_is_on() -> None:
    raw = pod("p", container("a"), container("b"))
    raw["metadata"]["annotations"] = {
        "rdt.resources.kubernetes.io/default": "silver",
        "rdt.resources.kubernetes.io/container.b": "gold",
        "blockio.resources.kubernetes.io/container.absent": "slow",
    }
    cluster = Offline(FeatureGates.parse("QOSResources=true,TranslateQoSPodMetadata=true"))
    answer = cluster.apply(raw)
    assert answer.object is not None
    assert answer.object["spec"]["qosResources"] == [{"name": "rdt", "class": "silver"}]
    assert answer.object["spec"]["containers"][1]["resources"]["qosResources"] == [{"name": "rdt", "class": "gold"}]
    assert len(answer.warnings) == 1
    changed = {**raw, "metadata": {**raw["metadata"], "annotations": {}}}
    assert "class annotations may not change" in why(cluster.apply(changed))
    assert "qosResources" not in stored(Offline(), raw)["spec"]


def test_strict_names_know_the_official_resources_only() -> None:
    strict = Offline(FeatureGates.parse("QOSResources=true,QOSResourcesStrictNames=true"))
    official = pod("a", qosResources=[{"name": "k8s.io/rdt", "class": "gold"}])
    vendor = pod("b", qosResources=[{"name": "vendor.example/qos", "class": "gold"}])
    unknown = pod("c", qosResources=[{"name": "rdt", "class": "gold"}])
    assert strict.apply(official).ok
    assert strict.apply(vendor).ok
    assert why(strict.apply(unknown)) == (
        'Pod "c" is invalid: spec.qosResources[0].name: Unsupported value: "rdt": '
        'supported values: "k8s.io/blockio", "k8s.io/rdt"'
    )
    assert Offline(FeatureGates.parse("QOSResources=true")).apply(unknown).ok


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"apiVersion": "v1", "kind": "Widget"}, 'no matches for kind "Widget" in version "v1"'),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"colour": "red"}},
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.colour"',
        ),
        (
            quota("q", {"pods": "many"}),
            'ResourceQuota in version "v1" cannot be handled as a ResourceQuota: quantities must match the regular '
            "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_what_is_no_object_is_refused_with_one_clear_line(raw: Raw, message: str) -> None:
    assert why(Offline().apply(raw)) == message


def test_applying_twice_changes_nothing_and_charges_once() -> None:
    cluster = Offline()
    cluster.apply(quota("q", {"pods": "1"}))
    first = stored(cluster, pod("p"))
    assert cluster.apply(first).line == "pod/p unchanged"
    assert [q.status()["used"] for q in cluster.ledger.quotas("default")] == [{"pods": "1"}]


def test_a_resize_changes_resources_and_nothing_else() -> None:
    cluster = Offline()
    before = stored(cluster, pod("p", container(requests={"cpu": "100m"})))
    wanted = {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    changed = container(requests={"cpu": "200m"}, image="registry.example/other:2")
    wanted["spec"] = {**before["spec"], "containers": [changed], "nodeName": "elsewhere"}
    after = cluster.update(wanted, "pods", subresource="resize").object
    assert after is not None
    [kept] = before["spec"]["containers"]
    resources = {"requests": {"cpu": "200m"}}
    assert after == {**before, "spec": {**before["spec"], "containers": [{**kept, "resources": resources}]}}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"cpu": "2", "memory": "1Gi"}, ""),
        ({"cpu": "2001m"}, "node didn't have enough allocatable resources: cpu, requested: 2001, allocatable: 2000"),
        (
            {"cpu": "3", "memory": "2Gi"},
            "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000; "
            "memory, requested: 2147483648, allocatable: 1073741824",
        ),
    ],
)
def test_a_resize_beyond_all_that_the_node_has_is_refused(asked: dict[str, str], said: str) -> None:
    cluster = Offline()
    room = {"allocatable": {"cpu": "2", "memory": "1Gi"}}
    node = stored(cluster, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    assert cluster.update({**node, "status": room}, "nodes", subresource="status").ok
    before = stored(cluster, pod("p", container(requests={"cpu": "1", "memory": "1Mi"}), nodeName="n1"))
    wanted = {**before, "spec": {**before["spec"], "containers": [container(requests={"memory": "1Mi", **asked})]}}
    answer = cluster.update(wanted, "pods", subresource="resize")
    assert answer.ok if not said else why(answer) == f'pods "p" is forbidden: {said}'


def test_a_service_that_changes_its_type_loses_what_only_the_old_type_needed() -> None:
    cluster = Offline()
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"a": "b"}}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec}
    assert stored(cluster, service)["spec"]["allocateLoadBalancerNodePorts"] is True
    after = stored(cluster, {**service, "spec": {**spec, "type": "ClusterIP"}})["spec"]
    assert "allocateLoadBalancerNodePorts" not in after
    assert "externalTrafficPolicy" not in after


def test_a_limit_range_without_a_name_is_called_by_its_uid() -> None:
    raw = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {}, "spec": {"limits": []}}
    metadata = stored(Offline(), raw)["metadata"]
    assert metadata["name"] == metadata["uid"]


def test_names_are_generated_where_asked_for() -> None:
    cluster = Offline()
    raw = pod("")
    raw["metadata"] = {"generateName": "job-"}
    names = [stored(cluster, raw)["metadata"]["name"] for _ in range(2)]
    assert names[0] != names[1]
    assert all(name.startswith("job-") and len(name) == 9 for name in names)


def test_applying_a_change_keeps_what_the_server_filled_in() -> None:
    cluster = Offline()
    before = stored(cluster, pod("p", container(limits={"cpu": "1"})))
    after = stored(cluster, pod("p", container(limits={"cpu": "1"}, image="registry.example/app:2")))
    assert after["spec"]["containers"][0]["image"] == "registry.example/app:2"
    assert after["spec"]["tolerations"] == before["spec"]["tolerations"]
    assert after["status"] == before["status"]


def test_class_fields_by_their_paths() -> None:
    spec = {"containers": [{"resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}]}
    place = "containers[0].resources.qosResources"
    assert list(class_fields({"spec": spec})) == [f"spec.{place}"]
    job = {"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}
    assert list(class_fields(job)) == [f"spec.jobTemplate.spec.template.spec.{place}"]
