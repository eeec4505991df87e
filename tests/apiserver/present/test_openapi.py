"""Our own OpenAPI documents hold together."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.apiserver.live import LiveServer


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
    for newer in ('"#/components', '"oneOf"', '"anyOf"', '"allOf"', '"requestBody"', '"nullable"'):
        assert newer not in text
    pod = whole["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert pod["qosResources"]["type"] == "array"
    create = whole["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"]
    [body] = [parameter for parameter in create["parameters"] if parameter["in"] == "body"]
    assert body["schema"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Pod"}
    spoken = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    assert live.call("GET", "/openapi/v2", headers=spoken).code == 406
