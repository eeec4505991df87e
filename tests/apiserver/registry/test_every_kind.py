"""Every kind of the table is served: written, read in each form, listed, watched, patched and deleted."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.protobuf import CONTENT_TYPE, MAGIC, decode_body, encode_body, wire
from kubeqos.apiserver.registry.kinds import KINDS, Kind, kind_named
from kubeqos.model import schema
from tests.apiserver.examples import NAMES, collection, example
from tests.apiserver.live import LiveServer

STORED = [kind for kind in KINDS if kind.stored]
PUBLISHED = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "published_bodies.jsonl").read_text().splitlines()
]
NO_PROTOBUF = ("resource.k8s.io/v1alpha1",)
NEVER_BLIND = (
    "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    "APIService", "CustomResourceDefinition", "ClusterTrustBundle", "PodCertificateRequest", "Lease", "RuntimeClass",
    "PodDisruptionBudget", "DeviceTaintRule", "CSIDriver", "CSINode", "CSIStorageCapacity", "VolumeAttachment",
    "StorageVersionMigration",
)  # fmt: skip
"""Who replaces one of these says which version: Kubernetes does not let them be overwritten unseen."""
BINARY = {"Accept": CONTENT_TYPE}
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
MERGE = {"Content-Type": "application/merge-patch+json"}


def name_of(kind: Kind) -> str:
    return f"{kind.plural}.{kind.version}.{kind.group}"


@pytest.mark.parametrize("kind", STORED, ids=name_of)
def test_a_kind_from_its_birth_to_its_end(live: LiveServer, kind: Kind) -> None:
    path, name = collection(kind), NAMES.get(kind.kind, "every-kind")
    before = live.call("GET", path).body["metadata"]["resourceVersion"]
    made = live.call("POST", path, example(kind, "every-kind"))
    assert made.code == 201, made.body
    assert (made.body["kind"], made.body["apiVersion"]) == (kind.kind, kind.api_version)
    assert live.call("POST", path, example(kind, "every-kind")).code == 409
    read = live.call("GET", f"{path}/{name}").body
    assert read == made.body
    listed = live.call("GET", path).body
    assert listed["kind"] == f"{kind.kind}List"
    [item] = [one for one in listed["items"] if one["metadata"]["name"] == name]
    assert {"kind": kind.kind, "apiVersion": kind.api_version, **item} == read

    table = live.call("GET", path, headers=TABLE).body
    assert [column["name"] for column in table["columnDefinitions"]] == [column.name for column in kind.columns]
    assert all(len(row["cells"]) == len(kind.columns) for row in table["rows"])

    patched = live.call("PATCH", f"{path}/{name}", {"metadata": {"labels": {"seen": "yes"}}}, MERGE)
    assert patched.code == 200, patched.body
    assert patched.body["metadata"]["labels"]["seen"] == "yes"
    assert live.call("PUT", f"{path}/{name}", patched.body).code == 200
    blind = {key: value for key, value in patched.body["metadata"].items() if key != "resourceVersion"}
    replaced = live.call("PUT", f"{path}/{name}?dryRun=All", {**patched.body, "metadata": blind})
    assert replaced.code == (422 if kind.kind in NEVER_BLIND else 200), replaced.body

    answer = live.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
    assert answer.code == 200, answer.body
    release(live, f"{path}/{name}")
    assert live.call("GET", f"{path}/{name}").code == 404

    def ours(event: Any) -> bool:
        return bool(event["object"]["metadata"]["name"] == name)

    watch = f"{path}?watch=1&resourceVersion={before}&timeoutSeconds=60"
    events = live.watched(watch, lambda event: event["type"] == "DELETED" and ours(event))
    told = [event for event in events if ours(event)]
    assert {event["object"]["apiVersion"] for event in told} == {kind.api_version}
    assert (told[0]["type"], told[-1]["type"]) == ("ADDED", "DELETED")


def release(live: LiveServer, path: str) -> None:
    """Take the finalizers of an object away: nobody here does what they wait for."""
    found = live.call("GET", path)
    if found.code == 200:
        live.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)
        if found.body["kind"] == "Namespace":
            live.call("PUT", f"{path}/finalize", {**found.body, "spec": {}})


@pytest.mark.parametrize("kind", [kind for kind in STORED if "AdmissionPolicy" in kind.kind], ids=name_of)
def test_who_stores_an_admission_policy_is_told_that_nobody_evaluates_it(live: LiveServer, kind: Kind) -> None:
    path, patch = collection(kind), {"metadata": {"labels": {"seen": "yes"}}}
    made = live.call("POST", path, example(kind, "told"))
    patched = live.call("PATCH", f"{path}/told", patch, MERGE)
    replaced = live.call("PUT", f"{path}/told", patched.body)
    for answer, code in ((made, 201), (patched, 200), (replaced, 200)):
        assert answer.code == code, answer.body
        assert [one for one in answer.warnings if "CEL, which is not evaluated here" in one], answer.warnings
    assert live.call("GET", f"{path}/told").warnings == []
    live.call("DELETE", f"{path}/told")


@pytest.mark.parametrize("kind", [kind for kind in STORED if kind.api_version not in NO_PROTOBUF], ids=name_of)
def test_who_takes_nothing_but_protobuf_gets_it(live: LiveServer, kind: Kind) -> None:
    path, name = collection(kind), NAMES.get(kind.kind, "binary")
    group, version = kind.group, kind.version
    type_schema = schema.kind(group, version, kind.kind)
    sent = {**example(kind, "binary"), "apiVersion": kind.api_version, "kind": kind.kind}
    made = live.call("POST", path, encode_body(sent), {**BINARY, "Content-Type": CONTENT_TYPE})
    assert (made.code, made.content_type) == (201, CONTENT_TYPE), made.raw
    plain = live.call("GET", f"{path}/{name}").body
    binary = live.call("GET", f"{path}/{name}", headers=BINARY)
    assert schema.normalise(decode_body(binary.raw), type_schema) == schema.normalise(plain, type_schema)
    listed = decode_body(live.call("GET", path, headers=BINARY).raw)
    assert listed["kind"] == f"{kind.kind}List"
    assert name in [one["metadata"]["name"] for one in listed["items"]]
    missing = decode_body(live.call("GET", f"{path}/192.0.2.77", headers=BINARY).raw)
    assert (missing["kind"], missing["reason"]) == ("Status", "NotFound")
    live.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")
    release(live, f"{path}/{name}")


def test_a_watch_in_protobuf(live: LiveServer) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    live.call("POST", path, {"metadata": {"name": "watched"}, "data": {"a": "b"}})
    answer = live.call("GET", f"{path}?watch=1&fieldSelector=metadata.name%3Dwatched&timeoutSeconds=1", headers=BINARY)
    assert answer.content_type == f"{CONTENT_TYPE};stream=watch"
    [size] = struct.unpack(">I", answer.raw[:4])
    event = answer.raw[4 : 4 + size]
    parts = {number: event[at:end] for number, _, at, end in wire.fields(event, 0, size)}
    assert parts[1] == b"ADDED"
    [(_, _, at, end)] = list(wire.fields(parts[2], 0, len(parts[2])))
    assert parts[2][at:].startswith(MAGIC)
    assert decode_body(parts[2][at:end])["data"] == {"a": "b"}


def test_metadata_alone_in_protobuf(live: LiveServer) -> None:
    accept = f"{CONTENT_TYPE};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    found = decode_body(live.call("GET", "/api/v1/namespaces", headers={"Accept": accept}).raw)
    assert "default" in [one["metadata"]["name"] for one in found["items"]]
    assert all(one.keys() <= {"metadata", "kind", "apiVersion"} for one in found["items"])


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api", "APIVersions"),
        ("/apis", "APIGroupList"),
        ("/api/v1", "APIResourceList"),
        ("/apis/apps", "APIGroup"),
        ("/apis/apps/v1", "APIResourceList"),
    ],
)
def test_discovery_in_protobuf(live: LiveServer, path: str, kind: str) -> None:
    answer = live.call("GET", path, headers=BINARY)
    assert (answer.code, answer.content_type) == (200, CONTENT_TYPE)
    told, plain = decode_body(answer.raw), live.call("GET", path).body
    assert (told["kind"], told.pop("apiVersion")) == (kind, plain.pop("apiVersion", ""))
    assert told == plain


def test_all_groups_at_once_in_protobuf(live: LiveServer) -> None:
    for path in ("/api", "/apis"):
        forms = [
            f"{media};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            for media in (CONTENT_TYPE, "application/json")
        ]
        binary, plain = (live.call("GET", path, headers={"Accept": form}) for form in forms)
        assert [binary.content_type, plain.content_type] == forms
        assert decode_body(binary.raw) == plain.body


def test_a_scale_in_protobuf(live: LiveServer) -> None:
    path = collection(kind_named("Deployment", "apps"))
    live.call("POST", path, example(kind_named("Deployment", "apps"), "scaled"))
    scale = decode_body(live.call("GET", f"{path}/scaled/scale", headers=BINARY).raw)
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 1})
    headers = {**BINARY, "Content-Type": CONTENT_TYPE}
    changed = live.call("PUT", f"{path}/scaled/scale", encode_body({**scale, "spec": {"replicas": 3}}), headers)
    assert decode_body(changed.raw)["spec"] == {"replicas": 3}


@pytest.mark.parametrize("path", ["/version", "/openapi/v2", "/openapi/v3/api/v1"])
def test_what_has_no_protobuf_form_of_kubernetes(live: LiveServer, path: str) -> None:
    assert live.call("GET", path, headers=BINARY).code == 406
    assert live.call("GET", path, headers={"Accept": f"{CONTENT_TYPE},*/*"}).code == 200


SCHEMA = {
    "type": "object", "required": ["a"], "minProperties": 0, "x-kubernetes-map-type": "atomic",
    "properties": {
        "a": {"type": "array", "items": {"type": "number", "maximum": 10, "minimum": 0.5, "enum": [1, 2.5, None]}},
        "b": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}},
        "c": {"type": "object", "additionalProperties": True, "x-kubernetes-preserve-unknown-fields": True},
        "d": {"additionalProperties": False, "anyOf": [{"type": "string"}, {"not": {"type": "integer"}}]},
        "e": {"items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
        "f": {"dependencies": {"x": ["y", "z"], "y": {"type": "object"}}, "default": {"k": [1]}},
    },
}  # fmt: skip


def test_schemas_of_definitions_in_protobuf() -> None:
    """What JSON writes as a schema or something else is a message of its own."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    obj = {**head, "metadata": {"name": "x"}, "spec": {"group": "g", "versions": [version]}}
    assert decode_body(encode_body(obj)) == obj


def test_who_also_takes_json_gets_json(live: LiveServer) -> None:
    both = live.call("GET", "/api/v1/namespaces/default", headers={"Accept": f"{CONTENT_TYPE},application/json"})
    assert both.content_type == "application/json"


def test_a_kind_of_a_proposal_has_no_protobuf_form(live: LiveServer) -> None:
    answer = live.call("GET", "/apis/resource.k8s.io/v1alpha1/resourceclasses", headers=BINARY)
    assert answer.code == 406
    assert b"only the following media types are accepted: application/json, application/yaml" in answer.raw
    missing = {"Accept": f"{CONTENT_TYPE};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    assert live.call("GET", "/api/v1/namespaces/none", headers=missing).body["reason"] == "NotFound"


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case["kind"])
def test_bodies_that_kubernetes_published(case: dict[str, Any]) -> None:
    """Every field of a type, written by Kubernetes itself as protobuf and as JSON."""
    obj = case["object"]
    group, _, version = obj["apiVersion"].rpartition("/")
    type_schema = schema.kind(group, version, obj["kind"])
    assert schema.check(obj, type_schema) == schema.Findings()
    assert schema.normalise(json.loads(json.dumps(obj)), type_schema) == obj
    assert schema.normalise(decode_body(bytes.fromhex(case["hex"])), type_schema) == obj
    assert schema.normalise(decode_body(encode_body(obj)), type_schema) == obj


def test_both_forms_of_an_event_are_one_object(live: LiveServer) -> None:
    newer, older = collection(kind_named("Event", "events.k8s.io")), collection(kind_named("Event"))
    live.call("POST", newer, example(kind_named("Event", "events.k8s.io"), "both"))
    seen = live.call("GET", f"{older}/both").body
    assert (seen["message"], seen["involvedObject"]["name"]) == ("it runs", "x")
    again = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    live.call("PATCH", f"{newer}/both", again, MERGE)
    assert live.call("GET", f"{older}/both").body["series"] == again["series"]
    # What happened does not change; only the older form lets somebody say so.
    refused = live.call("PATCH", f"{newer}/both", {"note": "it still runs"}, MERGE)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (422, "message")
    assert live.call("PATCH", f"{older}/both", {"message": "it still runs"}, MERGE).code == 200
    assert live.call("GET", f"{newer}/both").body["note"] == "it still runs"
    selected = live.call("GET", f"{newer}?fieldSelector=regarding.name%3Dx").body["items"]
    assert "both" in [one["metadata"]["name"] for one in selected]


def test_two_versions_that_have_nothing_in_common_keep_their_objects_apart(live: LiveServer) -> None:
    old, new = (kind for kind in KINDS if kind.kind == "ResourceClaim")
    assert live.call("POST", collection(old), example(old, "same")).code == 201
    assert live.call("POST", collection(new), example(new, "same")).code == 201
    assert "resourceClassName" in live.call("GET", f"{collection(old)}/same").body["spec"]
    assert "devices" in live.call("GET", f"{collection(new)}/same").body["spec"]


@pytest.mark.parametrize(
    ("plural", "body", "why"),
    [
        ("storage.k8s.io/v1/storageclasses", {}, "provisioner: Required value"),
        (
            "storage.k8s.io/v1/storageclasses",
            {"provisioner": "x", "reclaimPolicy": "Burn"},
            'reclaimPolicy: Unsupported value: "Burn": supported values: "Delete", "Retain"',
        ),
        (
            "discovery.k8s.io/v1/namespaces/default/endpointslices",
            {"addressType": "IPv9", "endpoints": []},
            'addressType: Unsupported value: "IPv9"',
        ),
        ("networking.k8s.io/v1/ipaddresses", {"spec": {}}, "must be a valid IP address"),
        ("node.k8s.io/v1/runtimeclasses", {}, "handler: Required value"),
    ],
)
def test_what_does_not_fit_its_kind_is_refused(live: LiveServer, plural: str, body: dict[str, Any], why: str) -> None:
    answer = live.call("POST", f"/apis/{plural}", {"metadata": {"name": "wrong"}, **body})
    assert answer.code == 422
    assert why in answer.body["message"]


def test_what_may_not_change_stays(live: LiveServer) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses"
    live.call("POST", path, {"metadata": {"name": "fixed"}, "provisioner": "a"})
    answer = live.call("PATCH", f"{path}/fixed", {"provisioner": "b"}, MERGE)
    assert answer.code == 422
    assert "provisioner: Invalid value: null: field is immutable" in answer.body["message"]


def test_a_pod_gets_what_its_runtime_class_says(live: LiveServer) -> None:
    scheduling = {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]}
    body = {"handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}, "scheduling": scheduling}
    live.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {"metadata": {"name": "kata"}, **body})
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "c", "image": "x"}], "runtimeClassName": "kata"}
    made = live.call("POST", pods, {"metadata": {"name": "boxed"}, "spec": spec}).body["spec"]
    assert made["overhead"] == {"cpu": "250m"}
    assert made["nodeSelector"] == {"kata": "yes"}
    assert {"key": "kata", "operator": "Exists"} in made["tolerations"]
    conflict = {**spec, "nodeSelector": {"kata": "no"}}
    refused = live.call("POST", pods, {"metadata": {"name": "other"}, "spec": conflict})
    assert "conflict: runtimeClass.scheduling.nodeSelector[kata] = yes" in refused.body["message"]
    unknown = live.call("POST", pods, {"metadata": {"name": "other"}, "spec": {**spec, "runtimeClassName": "none"}})
    assert 'RuntimeClass "none" not found' in unknown.body["message"]


def test_who_asks_for_a_certificate_is_who_asks(live: LiveServer) -> None:
    kind = kind_named("CertificateSigningRequest", "certificates.k8s.io")
    body = example(kind, "asked")
    body["spec"] = {**body["spec"], "username": "somebody-else"}
    made = live.call("POST", collection(kind), body).body
    assert made["spec"]["username"] == "admin"
    path = f"{collection(kind)}/asked"
    condition = {"type": "Approved", "status": "True", "reason": "Tests"}
    approved = live.call("PUT", f"{path}/approval", {**made, "status": {"conditions": [condition]}}).body
    assert [one["type"] for one in approved["status"]["conditions"]] == ["Approved"]
    issued = live.call("PUT", f"{path}/status", {**approved, "status": {"certificate": "eA=="}}).body
    assert [one["type"] for one in issued["status"]["conditions"]] == ["Approved"]  # a signer decides nothing
    assert issued["status"]["certificate"] == "eA=="


def test_the_parts_of_the_control_plane(live: LiveServer) -> None:
    table = live.call("GET", "/api/v1/componentstatuses", headers=TABLE).body
    assert [row["cells"][:3] for row in table["rows"]] == [["etcd-0", "Healthy", "ok"]]
    assert live.call("GET", "/api/v1/componentstatuses/nobody").code == 404


def test_other_servers_learn_whom_to_trust(live: LiveServer) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert live.call("GET", path).body["data"]["client-ca-file"].startswith("-----BEGIN CERTIFICATE-----")


@pytest.mark.parametrize(
    ("user", "verb", "path"),
    [
        ("system:kube-scheduler", "create", ("", "pods", "binding")),
        ("system:kube-scheduler", "list", ("storage.k8s.io", "csinodes", "")),
        ("system:kube-scheduler", "update", ("", "persistentvolumes", "")),
        ("system:kube-controller-manager", "list", ("batch", "jobs", "")),
        ("system:serviceaccount:kube-system:job-controller", "create", ("", "pods", "")),
        ("system:serviceaccount:kube-system:node-controller", "delete", ("", "nodes", "")),
    ],
)
def test_components_of_kubernetes_have_their_roles(
    live: LiveServer, user: str, verb: str, path: tuple[str, str, str]
) -> None:
    group, resource, subresource = path
    wanted = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    review = {"spec": {"user": user, "resourceAttributes": wanted}}
    answer = live.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.body["status"]["allowed"] is True
