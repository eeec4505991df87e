"""Our own OpenAPI documents: they hold together, and nothing generated from them makes the server fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.live import ADMIN_TOKEN, LiveServer


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


@pytest.mark.slow
@pytest.mark.parametrize("group", ["apis/scheduling.k8s.io/v1", "apis/apps/v1", "apis/coordination.k8s.io/v1"])
def test_generated_requests_never_make_the_server_fail(live: LiveServer, tmp_path: Path, group: str) -> None:
    document = documents(live)[group]
    for operations in document["paths"].values():
        listing = operations.get("get", {})
        # A watch does not end by itself, which the generator takes for a dead server.
        listing["parameters"] = [p for p in listing.get("parameters", ()) if p["name"] != "watch"]
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    runner = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [runner, "run", file, "--url", f"https://{live.host}:{live.port}", "--tls-verify", "false",
         "-H", f"Authorization: Bearer {ADMIN_TOKEN}", "--checks", "not_a_server_error", "--phases", "fuzzing",
         "--max-examples", "3", "--generation-deterministic"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
