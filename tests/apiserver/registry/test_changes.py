"""What a change may touch and who owns it afterwards, as a real kube-apiserver has it (tests/stock compares both)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.apiserver.live import LiveServer

POD = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "app:1"}]}}
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


@pytest.fixture
def pod(live: LiveServer, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    live.call("POST", "/api/v1/namespaces/default/pods", {**POD, "metadata": {"name": name}})
    return f"/api/v1/namespaces/default/pods/{name}"


def causes(answer: Any) -> list[str]:
    return [one["field"] for one in answer.body["details"]["causes"]]


def test_what_admission_adds_is_nobodys(live: LiveServer, pod: str) -> None:
    made = live.call("GET", pod).body
    assert made["spec"]["tolerations"] and made["spec"]["priority"] == 0
    (entry,) = made["metadata"]["managedFields"]
    assert "f:restartPolicy" in entry["fieldsV1"]["f:spec"]  # a default is the writer's
    assert not {"f:tolerations", "f:priority", "f:preemptionPolicy"} & set(entry["fieldsV1"]["f:spec"])


def test_an_empty_list_forgets_the_owners(live: LiveServer, pod: str) -> None:
    answer = live.call("PATCH", pod, {"metadata": {"managedFields": []}}, MERGE)
    assert "managedFields" not in answer.body["metadata"]


def test_a_configuration_may_not_name_owners(live: LiveServer, pod: str) -> None:
    body = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"managedFields": []}}'
    answer = live.call("PATCH", f"{pod}?fieldManager=m", body, APPLY)
    assert (answer.code, answer.body["message"]) == (400, "metadata.managedFields must be nil")


def test_an_apply_that_changes_nothing_has_no_time(live: LiveServer, pod: str) -> None:
    body = '{"apiVersion": "v1", "kind": "Pod", "spec": {"restartPolicy": "Always"}}'
    answer = live.call("PATCH", f"{pod}?fieldManager=m", body, APPLY)
    applied = next(one for one in answer.body["metadata"]["managedFields"] if one["operation"] == "Apply")
    assert "time" not in applied


def test_an_empty_value_that_is_applied_is_a_change(live: LiveServer, pod: str) -> None:
    body = '{"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": ""}]}}'
    answer = live.call("PATCH", f"{pod}?fieldManager=m", body, APPLY)
    assert (answer.code, causes(answer)) == (409, ['.spec.containers[name="c"].image'])


def test_only_the_server_marks_an_object_as_deleted(live: LiveServer, pod: str) -> None:
    patch = {"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1, "uid": "x"}}
    answer = live.call("PATCH", pod, patch, MERGE)
    named = {"metadata.uid", "metadata.deletionTimestamp", "metadata.deletionGracePeriodSeconds"}
    assert (answer.code, set(causes(answer))) == (422, named)


def test_a_patch_may_leave_the_kind_out_but_not_change_it(live: LiveServer, pod: str) -> None:
    assert live.call("PATCH", pod, {"kind": None, "metadata": {"labels": {"a": "b"}}}, MERGE).code == 200
    assert live.call("PATCH", pod, {"kind": "Service"}, MERGE).code == 422


def test_a_binding_must_name_its_pod_and_ends_the_nomination(live: LiveServer, pod: str) -> None:
    live.call("PATCH", f"{pod}/status", {"status": {"nominatedNodeName": "n1"}}, MERGE)
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"}}
    refused = live.call("POST", f"{pod}/binding", binding)
    assert (refused.code, refused.body["message"]) == (400, "name in URL does not match name in Binding object")
    live.call("POST", f"{pod}/binding", {**binding, "metadata": {"name": pod.rpartition("/")[2]}})
    bound = live.call("GET", pod).body
    assert bound["spec"]["nodeName"] == "n1" and "nominatedNodeName" not in bound["status"]
    again = live.call("PATCH", f"{pod}/status", {"status": {"nominatedNodeName": "n2"}}, MERGE)
    assert (again.code, causes(again)) == (422, ["status.nominatedNodeName"])


def test_an_eviction_of_another_pod_leaves_no_trace(live: LiveServer, pod: str) -> None:
    name = pod.rpartition("/")[2]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = live.call("POST", f"{pod}/eviction", {**body, "deleteOptions": {"preconditions": {"uid": "other"}}})
    assert answer.code == 409
    assert "conditions" not in live.call("GET", pod).body["status"]
    answer = live.call("POST", f"{pod}/eviction", {**body, "deleteOptions": {"propagationPolicy": "Bogus"}})
    assert (answer.code, causes(answer)) == (422, ["propagationPolicy"])


def test_annotations_of_a_deployment_are_a_new_generation(live: LiveServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    root = "/apis/apps/v1/namespaces/default/deployments"
    live.call("POST", root, {**deployment, "spec": spec})
    answer = live.call("PATCH", f"{root}/d", {"metadata": {"annotations": {"x": "y"}}}, MERGE)
    assert answer.body["metadata"]["generation"] == 2


def test_labels_of_a_slice_are_a_new_generation(live: LiveServer) -> None:
    """Who keeps slices looks again by that, as it would not otherwise when somebody takes its label away."""
    root = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    live.call("POST", root, {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": [], "ports": []})

    def generation(**metadata: dict[str, str]) -> int:
        answer = live.call("PATCH", f"{root}/s", {"metadata": metadata}, MERGE)
        return int(answer.body["metadata"]["generation"])

    assert generation(annotations={"x": "y"}) == 1
    assert generation(labels={"x": "y"}) == 2


def test_an_apply_finds_conflicts_before_it_looks_at_the_name(live: LiveServer, pod: str) -> None:
    said = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {"restartPolicy": "%s"}}'
    conflict = live.call("PATCH", f"{pod}?fieldManager=m", said % "Never", APPLY)
    assert (conflict.code, causes(conflict)) == (409, [".spec.restartPolicy"])
    named = live.call("PATCH", f"{pod}?fieldManager=m", said % "Always", APPLY)
    assert named.code == 400 and "does not match the name on the URL" in named.body["message"]
    absent = live.call("PATCH", f"{pod}-x?fieldManager=m", said % "Always", APPLY)
    assert absent.code == 400 and "does not match the name on the URL" in absent.body["message"]


def test_a_terminating_pod_that_has_ended_is_given_the_grace_that_is_asked_for(live: LiveServer, pod: str) -> None:
    target = {"metadata": {"name": pod.rpartition("/")[2]}, "target": {"kind": "Node", "name": "n1"}}
    live.call("POST", f"{pod}/binding", target)
    live.call("DELETE", pod, {"gracePeriodSeconds": 1000})
    live.call("PATCH", f"{pod}/status", {"status": {"phase": "Succeeded"}}, MERGE)
    answer = live.call("DELETE", pod, {"gracePeriodSeconds": 500})
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 500
    live.call("DELETE", pod, {"gracePeriodSeconds": 0})


def test_an_init_container_is_resized_like_any_other(live: LiveServer) -> None:
    path = "/api/v1/namespaces/default/pods"
    init = {"name": "i", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {**POD["spec"], "initContainers": [init]}  # type: ignore[dict-item]
    live.call("POST", path, {**POD, "metadata": {"name": "begins"}, "spec": spec})
    less = {"initContainers": [{**init, "resources": {"requests": {"cpu": "500m"}}}]}
    answer = live.call("PATCH", f"{path}/begins/resize", {"spec": less}, MERGE)
    assert answer.body["spec"]["initContainers"][0]["resources"] == {"requests": {"cpu": "500m"}}
    without = {"initContainers": [{"name": "i", "image": "app:1"}]}
    gone = live.call("PATCH", f"{path}/begins/resize", {"spec": without}, MERGE)
    assert causes(gone) == ["spec", "spec.initContainers[0].resources.requests"], "the QoS class would change, too"


def test_a_map_that_an_apply_leaves_empty_stays_its_owners(live: LiveServer) -> None:
    path = "/api/v1/namespaces/default/resourcequotas"
    live.call("POST", f"{path}?fieldManager=maker", {"metadata": {"name": "hollow"}, "spec": {"hard": {}}})
    said = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "1"}}}
    live.call("PATCH", f"{path}/hollow?fieldManager=m", json.dumps(said), APPLY)
    hollow, pods = {"f:spec": {"f:hard": {}}}, {"f:spec": {"f:hard": {"f:pods": {}}}}
    owners = [entry("maker", "Update", hollow), entry("m", "Apply", pods)]
    live.call("PATCH", f"{path}/hollow", {"metadata": {"managedFields": owners}}, MERGE)
    empty = {"apiVersion": "v1", "kind": "ResourceQuota"}
    answer = live.call("PATCH", f"{path}/hollow?fieldManager=m", json.dumps(empty), APPLY)
    assert "hard" not in answer.body.get("spec", {})
    (left,) = answer.body["metadata"]["managedFields"]
    assert (left["manager"], left["fieldsV1"]) == ("maker", hollow)


def entry(manager: str, operation: str, fields: Any) -> Any:
    return {
        "manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
        "time": "2026-01-01T00:00:00Z",
    }  # fmt: skip


def test_a_namespace_without_a_phase_is_active(live: LiveServer) -> None:
    live.call("POST", "/api/v1/namespaces", {"metadata": {"name": "phaseless"}})
    patch = [{"op": "remove", "path": "/status"}]
    headers = {"Content-Type": "application/json-patch+json"}
    answer = live.call("PATCH", "/api/v1/namespaces/phaseless/status", patch, headers)
    assert (answer.code, answer.body["status"]) == (200, {"phase": "Active"})
