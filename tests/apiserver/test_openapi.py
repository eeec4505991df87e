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
