"""Corners of the protocol that the recorded answers leave out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apiserver.live import LiveServer

MERGE = {"Content-Type": "application/merge-patch+json"}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u-1"}
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize(
    ("timeout", "why"),
    [
        ("abc", 'time: invalid duration "abc"'),
        ("5", 'time: missing unit in duration "5"'),
        ("5x", 'time: unknown unit "x" in duration "5x"'),
        ("1h5", 'time: missing unit in duration "1h5"'),
        ("-", 'time: invalid duration "-"'),
    ],
)
def test_how_long_a_client_waits_must_be_a_duration(live: LiveServer, timeout: str, why: str) -> None:
    answer = live.call("GET", f"/api/v1/pods?timeout={timeout}")
    assert answer.code == 400
    assert answer.body["message"] == f"invalid timeout specified in the request URL - {why}"


@pytest.mark.parametrize("timeout", ["", "0", "32s", "1.5h", "1m30s", "-2s", "+5ms"])
def test_durations(live: LiveServer, timeout: str) -> None:
    assert live.call("GET", f"/api/v1/pods?timeout={timeout.replace('+', '%2B')}").code == 200


@pytest.mark.parametrize("query", ["labelSelector=%ZZ", "limit=%", "labelSelector=a;limit=x"])
def test_a_malformed_parameter_is_not_there(live: LiveServer, query: str) -> None:
    assert live.call("GET", f"/api/v1/pods?{query}").code == 200


@pytest.mark.parametrize("kind", ["nodes", "namespaces/default/resourcequotas", "namespaces/default/services"])
def test_a_status_write_takes_the_metadata_too(live: LiveServer, kind: str) -> None:
    base = f"/api/v1/{kind}"
    body: dict[str, Any] = {"metadata": {"name": "owned"}}
    if kind.endswith("services"):
        body["spec"] = {"ports": [{"port": 80}]}
    assert live.call("POST", base, body).code == 201
    patch = {"metadata": {"ownerReferences": [OWNER], "labels": {"a": "b"}}}
    answer = live.call("PATCH", f"{base}/owned/status?dryRun=All", patch, MERGE)
    assert answer.code == 200
    assert answer.body["metadata"]["ownerReferences"] == [OWNER]
    assert answer.body["metadata"]["labels"]["a"] == "b"
    live.call("DELETE", f"{base}/owned")


def test_a_pod_keeps_its_owners_whatever_its_node_says(live: LiveServer) -> None:
    base = "/api/v1/namespaces/default/pods"
    assert live.call("POST", base, {"metadata": {"name": "kept"}, **POD}).code == 201
    patch = {"metadata": {"ownerReferences": [OWNER]}, "status": {"podIP": "10.0.0.7"}}
    answer = live.call("PATCH", f"{base}/kept/status", patch, MERGE)
    assert "ownerReferences" not in answer.body["metadata"]
    assert answer.body["status"]["podIPs"] == [{"ip": "10.0.0.7"}]
    moved = live.call("PATCH", f"{base}/kept/status", {"status": {"podIP": "10.0.0.8"}}, MERGE)
    assert moved.body["status"]["podIPs"] == [{"ip": "10.0.0.8"}], "the two fields are one"
    live.call("DELETE", f"{base}/kept")


def test_a_namespace_in_an_object_that_has_none_is_dropped(live: LiveServer) -> None:
    made = live.call("POST", "/api/v1/nodes?dryRun=All", {"metadata": {"name": "n", "namespace": "default"}})
    assert made.code == 201
    assert "namespace" not in made.body["metadata"]
    patched = live.call("PATCH", "/api/v1/namespaces/default?dryRun=All", {"metadata": {"namespace": "x"}}, MERGE)
    assert patched.code == 200
    assert "namespace" not in patched.body["metadata"]


def test_a_patch_cannot_move_an_object(live: LiveServer) -> None:
    base = "/api/v1/namespaces/default/configmaps"
    live.call("POST", base, {"metadata": {"name": "stays"}})
    answer = live.call("PATCH", f"{base}/stays", {"metadata": {"namespace": "other"}}, MERGE)
    assert answer.code == 400
    why = "the namespace of the object (other) does not match the namespace on the request (default)"
    assert answer.body["message"] == why
    live.call("DELETE", f"{base}/stays")


LABELS = {"app": "scaled"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "scaled"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": POD["spec"]},
    },
}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
def deployment(live: LiveServer) -> Any:
    path = f"{DEPLOYMENTS}/scaled"
    assert live.call("PATCH", f"{path}?fieldManager=me", DEPLOYMENT, APPLY).code == 201
    yield path
    live.call("DELETE", path)


def test_who_scales_owns_the_replicas(live: LiveServer, deployment: str) -> None:
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "scaled"}, "spec": {"replicas": 5}}
    assert live.call("PUT", f"{deployment}/scale?fieldManager=hpa", scale).body["spec"] == {"replicas": 5}
    refused = live.call("PATCH", f"{deployment}?fieldManager=me", DEPLOYMENT, APPLY)
    assert refused.code == 409
    owner = 'conflict with "hpa" with subresource "scale" using apps/v1'
    assert refused.body["message"] == f"Apply failed with 1 conflict: {owner}: .spec.replicas"


@pytest.mark.parametrize(
    ("style", "patch"),
    [
        ("merge-patch", {"spec": {"replicas": 4}}),
        ("strategic-merge-patch", {"spec": {"replicas": 4}}),
        ("json-patch", [{"op": "replace", "path": "/spec", "value": {"replicas": 4}}]),
    ],
)
def test_a_scale_is_patched_like_any_object(live: LiveServer, deployment: str, style: str, patch: Any) -> None:
    headers = {"Content-Type": f"application/{style}+json"}
    assert live.call("PATCH", f"{deployment}/scale", patch, headers).body["spec"] == {"replicas": 4}
    assert live.call("GET", deployment).body["spec"]["replicas"] == 4
    assert live.call("GET", deployment).body["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        ({"spec": {"replicas": -1}}, 422, 'Scale.autoscaling "scaled" is invalid: spec.replicas: Invalid value: -1: '
                                          "must be greater than or equal to 0"),
        ({"metadata": {"name": "x"}}, 400, "the name of the object (x) does not match the name on the URL (scaled)"),
        ({"metadata": {"resourceVersion": "1"}}, 409, 'Operation cannot be fulfilled on deployments.apps "scaled": the '
         "object has been modified; please apply your changes to the latest version and try again"),
    ],
)  # fmt: skip
def test_a_scale_that_is_refused(live: LiveServer, deployment: str, patch: Any, code: int, message: str) -> None:
    answer = live.call("PATCH", f"{deployment}/scale", patch, MERGE)
    assert (answer.code, answer.body["message"]) == (code, message)
    assert live.call("PATCH", f"{deployment}/scale", patch, {"Content-Type": "application/json"}).code == 415


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("tailLines=-1", 422, 'PodLogOptions "x" is invalid: tailLines: Invalid value: -1: '
                              "must be greater than or equal to 0"),
        ("limitBytes=0", 422, 'PodLogOptions "x" is invalid: limitBytes: Invalid value: 0: must be greater than 0'),
        ("sinceSeconds=0", 422, 'PodLogOptions "x" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0'),
        ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422, 'PodLogOptions "x" is invalid: : Forbidden: '
         "at most one of `sinceTime` or `sinceSeconds` may be specified"),
        ("tailLines=few", 400, 'strconv.ParseInt: parsing "few": invalid syntax'),
        ("sinceTime=noon", 400, 'parsing time "noon" as "2006-01-02T15:04:05Z07:00": cannot parse "noon" as "2006"'),
        ("tailLines=5", 404, 'pods "x" not found'),
    ],
)  # fmt: skip
def test_what_may_be_asked_of_logs(live: LiveServer, query: str, code: int, message: str) -> None:
    answer = live.call("GET", f"/api/v1/namespaces/default/pods/x/log?{query}")
    assert (answer.code, answer.body["message"]) == (code, message)


def eviction(**metadata: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}


def test_an_eviction_names_its_pod(live: LiveServer) -> None:
    base = "/api/v1/namespaces/default/pods"
    live.call("POST", base, {"metadata": {"name": "victim"}, **POD})
    nameless = live.call("POST", f"{base}/victim/eviction", eviction())
    assert (nameless.code, nameless.body["message"]) == (400, "name in URL does not match name in Eviction object")
    assert live.call("POST", f"{base}/victim/eviction", eviction(name="victim", namespace="other")).code == 400
    assert live.call("POST", f"{base}/victim/eviction", eviction(name="victim")).code == 201


REVIEWS = "/apis/authorization.k8s.io/v1"
PATH = {"path": "/", "verb": "get"}
PODS = {"verb": "get", "resource": "pods"}


@pytest.mark.parametrize(
    ("plural", "body", "code", "message"),
    [
        ("selfsubjectaccessreviews", {"spec": {"resourceAttributes": PODS, "nonResourceAttributes": PATH}}, 422,
         'SelfSubjectAccessReview.authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: '
         '{"Path":"/","Verb":"get"}: cannot be specified in combination with resourceAttributes'),
        ("selfsubjectaccessreviews", {"spec": {"resourceAttributes": PODS}, "metadata": {"name": "x"}}, 422,
         'SelfSubjectAccessReview.authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"x"}: '
         "must be empty"),
        ("selfsubjectrulesreviews", {"spec": {}}, 400, "no namespace on request"),
    ],
)  # fmt: skip
def test_reviews_that_make_no_sense(live: LiveServer, plural: str, body: Any, code: int, message: str) -> None:
    answer = live.call("POST", f"{REVIEWS}/{plural}", body)
    assert (answer.code, answer.body["message"]) == (code, message)


def test_a_local_review_says_where(live: LiveServer) -> None:
    path = f"{REVIEWS}/namespaces/default/localsubjectaccessreviews"
    spec = {"user": "joe", "resourceAttributes": {**PODS, "namespace": "default"}}
    answer = live.call("POST", path, {"metadata": {"namespace": "default"}, "spec": spec})
    assert (answer.code, answer.body["status"]) == (201, {"allowed": False})


def test_tokens_are_reviewed(live: LiveServer) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert (
        live.call("POST", path, {"spec": {}}).body["message"] == "token is required for TokenReview in authentication"
    )
    unknown = live.call("POST", path, {"spec": {"token": "nobody's"}}).body["status"]
    assert unknown["user"] == {}
    assert "authenticated" not in unknown


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def test_a_token_is_for_those_it_was_asked_for(live: LiveServer) -> None:
    live.call("POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    body = {"metadata": {"name": "carrier"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    pod = live.call("POST", "/api/v1/namespaces/default/pods", body).body
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "carrier", "uid": pod["metadata"]["uid"]}

    def issued(**spec: Any) -> Any:
        return live.call("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})

    def reviewed(token: str, *audiences: str) -> Any:
        spec = {"token": token, "audiences": list(audiences)}
        return live.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec}).body["status"]

    def code(token: str) -> int:
        return live.call("GET", "/api/v1", headers={"Authorization": f"Bearer {token}"}).code

    vault = issued(audiences=["vault"], boundObjectRef=bound).body["status"]["token"]
    assert reviewed(vault, "vault", "other")["audiences"] == ["vault"]
    assert "authenticated" not in reviewed(vault) and code(vault) == 401
    ours = issued(boundObjectRef=bound).body
    assert ours["spec"]["audiences"] == ["kubeqos"]
    mine = ours["status"]["token"]
    assert code(mine) == 200 and reviewed(mine)["user"]["username"] == "system:serviceaccount:default:robot"
    assert "authenticated" not in reviewed(mine, "vault")
    assert issued(expirationSeconds=60).code == 422
    assert issued(boundObjectRef={**bound, "uid": "other"}).code == 409
    assert issued(boundObjectRef={**bound, "kind": "ConfigMap"}).code == 400
    live.call("DELETE", "/api/v1/namespaces/default/pods/carrier?gracePeriodSeconds=0")
    assert code(mine) == 401, "it ended with its pod"
    free = issued().body["status"]["token"]
    live.call("DELETE", f"{ACCOUNTS}/robot")
    assert code(free) == 401, "it ended with its account"


def test_health_is_told_to_any_method_and_says_what_it_could_not_leave_out(live: LiveServer) -> None:
    assert live.call("HEAD", "/livez").code == 200
    report = live.call("GET", "/readyz?verbose&exclude=moon").body
    assert 'warn: some health checks cannot be excluded: no matches for "moon"\nreadyz check passed' in report


TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def test_a_subresource_is_shown_in_the_form_that_was_asked_for(live: LiveServer, deployment: str) -> None:
    """`kubectl get --subresource=...` asks for a table, as it does without."""
    base = "/api/v1/namespaces/default/pods"
    live.call("POST", base, {"metadata": {"name": "shown"}, **POD})
    whole, status = (live.call("GET", f"{base}/shown{end}", headers=TABLE).body for end in ("", "/status"))
    assert status["columnDefinitions"] == whole["columnDefinitions"]
    assert status["rows"][0]["cells"][:3] == ["shown", "0/1", "Pending"]
    assert live.call("GET", f"{base}/shown/status", headers={"Accept": "text/html"}).code == 406
    scale = live.call("GET", f"{deployment}/scale", headers=TABLE).body
    assert [column["name"] for column in scale["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert scale["rows"][0]["cells"][:3] == ["scaled", 2, 0]
    live.call("DELETE", f"{base}/shown")


def test_a_binding_keeps_its_role(live: LiveServer) -> None:
    base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    assert live.call("POST", base, {"metadata": {"name": "bound"}, "roleRef": role}).code == 201
    answer = live.call("PUT", f"{base}/bound", {"metadata": {"name": "bound"}, "roleRef": {**role, "name": "b"}})
    shown = '{"APIGroup":"rbac.authorization.k8s.io","Kind":"Role","Name":"b"}'
    assert answer.body["message"].endswith(f"roleRef: Invalid value: {shown}: field is immutable")
    live.call("DELETE", f"{base}/bound")


def test_a_resize_does_not_change_how_resizes_are_made(live: LiveServer) -> None:
    base = "/api/v1/namespaces/default/pods"
    live.call("POST", base, {"metadata": {"name": "sized"}, **POD})
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    patch = {"spec": {"containers": [{"name": "c", "resizePolicy": policy}]}}
    headers = {"Content-Type": "application/strategic-merge-patch+json"}
    answer = live.call("PATCH", f"{base}/sized/resize", patch, headers)
    assert (
        answer.body["message"] == 'Pod "sized" is invalid: spec: Forbidden: only cpu and memory resources are mutable'
    )
    live.call("DELETE", f"{base}/sized")


def test_how_dependents_go_can_be_changed_while_finalizers_hold_their_owner(live: LiveServer) -> None:
    base = "/api/v1/namespaces/default/configmaps"
    live.call("POST", base, {"metadata": {"name": "held", "finalizers": ["example.com/x"]}})
    first = live.call("DELETE", f"{base}/held", {"propagationPolicy": "Foreground"}).body["metadata"]
    second = live.call("DELETE", f"{base}/held", {"propagationPolicy": "Orphan"}).body["metadata"]
    assert first["finalizers"] == ["example.com/x", "foregroundDeletion"]
    assert second["finalizers"] == ["example.com/x", "orphan"]
    assert second["deletionTimestamp"] == first["deletionTimestamp"]
    assert live.call("GET", f"{base}/held").body["metadata"] == second, "what was answered is what is stored"
    live.call("PATCH", f"{base}/held", {"metadata": {"finalizers": None}}, MERGE)
    assert live.call("GET", f"{base}/held").code == 404


def test_nothing_changes_while_a_grace_period_runs(live: LiveServer) -> None:
    base = "/api/v1/namespaces/default/pods"
    live.call("POST", base, {"metadata": {"name": "going"}, "spec": {"nodeName": "n", **POD["spec"]}})
    first = live.call("DELETE", f"{base}/going").body
    again = live.call("DELETE", f"{base}/going", {"propagationPolicy": "Foreground"}).body
    assert again == first == live.call("GET", f"{base}/going").body
    live.call("DELETE", f"{base}/going", {"gracePeriodSeconds": 0})
    assert live.call("GET", f"{base}/going").code == 404


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"gracePeriodSeconds": "x"}, "string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
        ({"dryRun": "All"}, "string into Go struct field DeleteOptions.dryRun of type []string"),
        (
            {"preconditions": {"uid": 5}},
            "number into Go struct field Preconditions.preconditions.uid of type types.UID",
        ),
    ],
)
def test_delete_options_of_the_wrong_type(live: LiveServer, options: Any, field: str) -> None:
    answer = live.call("DELETE", "/api/v1/namespaces/default/configmaps/any", options)
    assert (answer.code, answer.body["message"]) == (400, f"json: cannot unmarshal {field}")
