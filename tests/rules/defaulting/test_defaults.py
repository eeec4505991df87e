"""What the API fills in, and that it never touches what is there."""

import copy

import pytest

from kubeqos.model import schema
from kubeqos.rules.defaulting.defaults import add_default_tolerations, apply_defaults, prepare_create, pull_policy
from tests.conformance.recorded import cases

NOW = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("registry.example:5000/team/app", "Always"),
        ("registry.example:5000/team/app:1", "IfNotPresent"),
        ("app@sha256:" + "a" * 64, "IfNotPresent"),
        ("app:latest@sha256:" + "a" * 64, "Always"),
        ("UPPER", "IfNotPresent"),
        ("a b", "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_the_tag_decides_when_an_image_is_pulled(image, policy):
    assert pull_policy(image) == policy


def test_a_small_pod_becomes_the_pod_that_kubernetes_stores():
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "img:2", "resources": {}}]}}
    apply_defaults("Pod", pod)
    add_default_tolerations(pod["spec"])
    prepare_create("Pod", pod, NOW)
    assert pod == {
        "metadata": {"name": "p", "generation": 1},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "img:2",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{trouble}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for trouble in ("not-ready", "unreachable")
            ],
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


@pytest.mark.parametrize(
    ("own", "added"),
    [
        ({"operator": "Exists"}, []),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, ["unreachable"]),
        (
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"},
            ["not-ready", "unreachable"],
        ),
        ({"key": "t1", "operator": "Exists"}, ["not-ready", "unreachable"]),
    ],
)
def test_a_pod_that_speaks_for_itself_keeps_its_tolerations(own, added):
    spec = {"tolerations": [own]}
    add_default_tolerations(spec)
    assert spec["tolerations"][0] == own
    assert [one["key"].rpartition("/")[2] for one in spec["tolerations"][1:]] == added


def test_a_gated_pod_says_that_it_is_not_scheduled():
    pod = {"spec": {"containers": [], "schedulingGates": [{"name": "g"}]}}
    apply_defaults("Pod", pod)
    prepare_create("Pod", pod, NOW)
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    assert condition["lastTransitionTime"] == NOW


def test_a_negative_grace_period_becomes_one_second():
    pod = {"spec": {"containers": [], "terminationGracePeriodSeconds": -5}}
    apply_defaults("Pod", pod)
    prepare_create("Pod", pod, NOW)
    assert pod["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("kind", "status"),
    [("ReplicaSet", {"replicas": 0}), ("ReplicationController", {"replicas": 0}), ("Deployment", {})],
)
def test_a_new_workload_has_run_nothing_whatever_it_says(kind, status):
    made = {"metadata": {"name": "w"}, "status": {"replicas": 5, "readyReplicas": 5}}
    prepare_create(kind, made, NOW)
    assert made["status"] == status


def test_volumes_that_are_made_for_a_pod_are_completed_like_those_that_last():
    claim = {"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
    pod = {
        "spec": {"containers": [], "volumes": [{"name": "v", **claim}, {"name": "w", "image": {"reference": "i:1"}}]}
    }
    apply_defaults("Pod", pod)
    made, image = pod["spec"]["volumes"]
    assert made["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] == "Filesystem"
    assert image["image"]["pullPolicy"] == "IfNotPresent"


def test_volumes_probes_and_references_are_completed():
    spec = {
        "containers": [
            {
                "name": "c",
                "image": "x",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "lifecycle": {"preStop": {"httpGet": {"port": 80}}, "stopSignal": "SIGUSR1"},
            }
        ],
        "volumes": [{"name": "v"}, {"name": "w", "configMap": {"name": "m"}}, {"name": "h", "hostPath": {"path": "/"}}],
    }
    apply_defaults("Pod", pod := {"spec": spec})
    (container,) = pod["spec"]["containers"]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert container["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert container["lifecycle"]["preStop"]["httpGet"]["scheme"] == "HTTP"
    assert [volume.keys() - {"name"} for volume in spec["volumes"]] == [{"emptyDir"}, {"configMap"}, {"hostPath"}]
    assert spec["volumes"][1]["configMap"]["defaultMode"] == 420
    assert spec["volumes"][2]["hostPath"]["type"] == ""


def test_a_namespace_knows_its_own_name_and_is_finalized():
    raw = {"metadata": {"name": "team"}}
    apply_defaults("Namespace", raw)
    prepare_create("Namespace", raw, NOW)
    assert raw["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert (raw["spec"], raw["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


def test_text_in_a_secret_is_encoded_over_its_data():
    raw = {"stringData": {"a": "x"}, "data": {"a": "b2xk", "b": "eQ=="}}
    apply_defaults("Secret", raw)
    assert raw == {"type": "Opaque", "data": {"a": "eA==", "b": "eQ=="}}


def test_a_service_port_targets_itself():
    raw = {"spec": {"ports": [{"port": 80}], "type": "NodePort"}}
    apply_defaults("Service", raw)
    assert raw["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert raw["spec"]["externalTrafficPolicy"] == raw["spec"]["internalTrafficPolicy"] == "Cluster"


def test_objects_as_kubernetes_stored_them_have_nothing_left_to_fill_in():
    stored = [case[key] for case in cases("patch") for key in ("base", "result") if case.get(key)]
    assert len(stored) > 100
    for raw in stored:
        text = {**raw, "status": _without_times(raw.get("status"))} if "status" in raw else raw
        again = schema.normalise(copy.deepcopy(text), schema.kind("", "v1", raw["kind"]))
        apply_defaults(raw["kind"], again)
        assert again == text


def _without_times(status):
    """Times made by the recorded run are written `<time>`."""
    if isinstance(status, dict):
        return {key: _without_times(value) for key, value in status.items()}
    if isinstance(status, list):
        return [_without_times(value) for value in status]
    return NOW if status == "<time>" else status
