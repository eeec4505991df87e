"""Our own OpenAPI documents hold together."""

from __future__ import annotations

import json
import re
from typing import Any

from kubeqos.apiserver.protobuf import wire
from tests.apiserver.live import LiveServer

POD = "io.k8s.api.core.v1.Pod"


def documents(live: LiveServer) -> dict[str, Any]:
    paths = live.call("GET", "/openapi/v3").body["paths"]
    return {path: live.call("GET", entry["serverRelativeURL"]).body for path, entry in paths.items()}


def test_every_reference_leads_somewhere(live: LiveServer) -> None:
    for path, document in documents(live).items():
        known = document["components"]["schemas"]
        for reference in set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))):
            assert reference in known, (path, reference)


def test_kubectl_finds_field_validation_for_every_kind(live: LiveServer) -> None:
    """kubectl looks for a PATCH of the kind with this parameter before it sends a manifest."""
    for document in documents(live).values():
        for operations in document["paths"].values():
            patch = operations.get("patch")
            if patch is not None:
                assert "fieldValidation" in {p["name"] for p in patch["parameters"]}
                assert patch["x-kubernetes-group-version-kind"]["kind"]


def test_the_new_fields_are_described(live: LiveServer) -> None:
    schemas = documents(live)["api/v1"]["components"]["schemas"]
    assert schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["qosResources"]["description"]
    assert schemas["io.k8s.api.core.v1.ResourceQuotaSpec"]["properties"]["qosResources"]["description"]


def test_the_older_form_says_the_same(live: LiveServer) -> None:
    """Tools that never learned v3 read /openapi/v2."""
    whole = live.call("GET", "/openapi/v2").body
    assert whole["swagger"] == "2.0"
    text = json.dumps(whole)
    assert set(re.findall(r'"\$ref": "#/definitions/([^"]+)"', text)) <= whole["definitions"].keys()
    # As keywords: a schema of schemas has fields of these names.
    for newer in ('"#/components', '"oneOf": [', '"anyOf": [', '"allOf": [', '"requestBody"', '"nullable": true'):
        assert newer not in text
    pod = whole["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["qosResources"]["type"] == "array"
    create = whole["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"]
    [body] = [parameter for parameter in create["parameters"] if parameter["in"] == "body"]
    assert body["schema"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Pod"}


def test_the_older_form_as_protobuf(live: LiveServer) -> None:
    """client-go's discovery asks for it in no other form."""
    spoken = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    whole = live.call("GET", "/openapi/v2", headers=spoken)
    assert whole.code == 200
    assert inside(whole.raw, 1) == [b"2.0"]
    [definitions], [paths] = inside(whole.raw, 9), inside(whole.raw, 8)
    named = {inside(one, 1)[0].decode(): inside(one, 2)[0] for one in inside(definitions, 1)}
    assert named.keys() == live.call("GET", "/openapi/v2").body["definitions"].keys()
    extensions = {inside(one, 1)[0]: inside(inside(one, 2)[0], 2)[0] for one in inside(named[POD], 31)}
    kind = [{"group": "", "version": "v1", "kind": "Pod"}]
    assert json.loads(extensions[b"x-kubernetes-group-version-kind"]) == kind
    spec = {inside(one, 1)[0]: inside(one, 2)[0] for one in inside(inside(named[POD], 25)[0], 1)}[b"spec"]
    assert inside(spec, 1) == [b"#/definitions/io.k8s.api.core.v1.PodSpec"]
    assert b"/api/v1/namespaces/{namespace}/pods" in [inside(one, 1)[0] for one in inside(paths, 2)]


def inside(message: bytes, wanted: int) -> list[bytes]:
    """The occurrences of one field of a message."""
    return [message[at:end] for number, _, at, end in wire.fields(message, 0, len(message)) if number == wanted]
