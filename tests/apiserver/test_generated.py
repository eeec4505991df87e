"""Requests generated from our own OpenAPI, at objects that exist: no answer is a 5xx, every answer fits its schema.

One run of schemathesis over all groups takes about a minute; KUBEQOS_FUZZ sets how many examples each operation gets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.registry.kinds import KINDS
from tests.apiserver.examples import collection, example
from tests.apiserver.live import ADMIN_TOKEN, LiveServer

EXAMPLES = int(os.environ.get("KUBEQOS_FUZZ", "2"))
SEED = os.environ.get("KUBEQOS_FUZZ_SEED", "3008")  # the same requests every time; another seed finds others
CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance"


@pytest.fixture
def peopled(live: LiveServer) -> LiveServer:
    """A server that has one object `x` of every kind."""
    for kind in KINDS:
        if not kind.stored or kind.view is not None:
            continue  # it is there already, as what it is stored as
        answer = live.call("POST", collection(kind), example(kind))
        assert answer.code == 201, (kind.plural, answer.body)
    return live


def aimed(live: LiveServer) -> dict[str, Any]:
    """All documents as one, with paths that lead to the objects that exist, and deletions that delete nothing."""
    whole: dict[str, Any] = {"openapi": "3.0.0", "info": {"title": "all", "version": "v1"}, "paths": {}}
    schemas: dict[str, Any] = {}
    for entry in live.call("GET", "/openapi/v3").body["paths"].values():
        document = live.call("GET", entry["serverRelativeURL"]).body
        whole["paths"].update(document["paths"])
        schemas.update(document["components"]["schemas"])
    whole["components"] = {"schemas": schemas}
    for operations in whole["paths"].values():
        for parameter in operations.get("parameters", ()):
            parameter["schema"] = {"type": "string", "enum": ["default" if parameter["name"] == "namespace" else "x"]}
        for method in operations.keys() - {"parameters"}:
            operation = operations[method]
            # A watch does not end by itself, which the generator takes for a dead server; test_bad_input opens them.
            operation["parameters"] = [p for p in operation["parameters"] if p["name"] != "watch"]
            for parameter in operation["parameters"] if method == "delete" else ():
                if parameter["name"] == "dryRun":
                    parameter.update(required=True, schema={"type": "string", "enum": ["All"]})
    return whole


@pytest.mark.slow
@pytest.mark.explore
@pytest.mark.timeout(1200)
def test_generated_requests_never_make_the_server_fail(peopled: LiveServer, tmp_path: Path) -> None:
    document = aimed(peopled)
    assert {kind.plural for kind in KINDS} <= {part for path in document["paths"] for part in path.split("/")}
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(document))
    runner = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run(
        [runner, "run", file, "--url", f"https://{peopled.host}:{peopled.port}", "--tls-verify", "false",
         "-H", f"Authorization: Bearer {ADMIN_TOKEN}", "--checks", CHECKS, "--phases", "fuzzing",
         "--max-examples", str(EXAMPLES), "--seed", SEED, "--suppress-health-check", "all", "--continue-on-failure",
         "--generation-database", "none", "--request-timeout", "20", "--warnings", "off"],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-20_000:]
