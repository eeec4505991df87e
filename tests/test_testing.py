"""`kubeqos.testing`: an API server for other people's tests, used as they would use it."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeqos.errors import InputError, StateError
from kubeqos.testing import TestServer, api_server
from tests.scenarios.cluster import needs_kubectl

BACKUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "backups.ops.example.com"},
    "spec": {
        "group": "ops.example.com",
        "scope": "Namespaced",
        "names": {"plural": "backups", "kind": "Backup", "shortNames": ["bk"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Every", "type": "string", "jsonPath": ".spec.every"}],
                "schema": {
                    "openAPIV3Schema": {
                        "description": "A backup that is made again and again.",
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["every"],
                                "properties": {
                                    "every": {"type": "string", "description": "How often, such as 1h."},
                                    "keep": {"type": "integer", "default": 3},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
DAILY = {
    "apiVersion": "ops.example.com/v1",
    "kind": "Backup",
    "metadata": {"name": "daily"},
    "spec": {"every": "24h"},
}


def ask(server: TestServer, path: str) -> Any:
    request = urllib.request.Request(f"{server.url}{path}", headers={"Authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=str(server.authority))) as answer:
        return json.load(answer)


def test_a_server_with_the_kinds_that_a_test_needs(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([BACKUPS, DAILY]))
    with api_server(file) as server:
        [backup] = ask(server, "/apis/ops.example.com/v1/backups")["items"]
        assert backup["spec"] == {"every": "24h", "keep": 3}
        [made] = server.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}})
        assert made["metadata"]["namespace"] == "default"


def test_two_servers_know_nothing_of_each_other() -> None:
    with api_server(BACKUPS) as one, api_server() as other:
        assert "ops.example.com" in [group["name"] for group in ask(one, "/apis")["groups"]]
        assert "ops.example.com" not in [group["name"] for group in ask(other, "/apis")["groups"]]


def test_what_cannot_be_created_is_said(tmp_path: Path) -> None:
    with api_server() as server:
        with pytest.raises(InputError, match=r'no matches for kind "Backup" in version "ops.example.com/v1"'):
            server.create(DAILY)
        with pytest.raises(StateError, match="cannot read the manifest: No such file"):
            server.create(tmp_path / "missing.yaml")


@pytest.mark.kubectl
@needs_kubectl
def test_kubectl_works_with_a_kind_that_was_just_defined(tmp_path: Path) -> None:
    with api_server(BACKUPS) as server:

        def kubectl(*arguments: str, manifest: Any = None) -> str:
            done = subprocess.run(
                ["kubectl", "--kubeconfig", str(server.kubeconfig), *arguments],
                input=None if manifest is None else json.dumps(manifest),
                capture_output=True, text=True, check=False,
                env={**os.environ, "HOME": str(tmp_path)},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        kubectl("wait", "crd/backups.ops.example.com", "--for=condition=Established", "--timeout=10s")
        kubectl("apply", "-f", "-", manifest=DAILY)
        assert kubectl("get", "bk").split() == ["NAME", "EVERY", "daily", "24h"]
        kubectl("apply", "-f", "-", manifest={**DAILY, "spec": {"every": "12h"}})
        kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", manifest={**DAILY, "spec": {"every": "6h"}})
        assert kubectl("get", "backup/daily", "-o", "jsonpath={.spec}") == '{"every":"6h","keep":3}'
        assert "How often, such as 1h." in kubectl("explain", "backup.spec.every")
        kubectl("patch", "bk", "daily", "--subresource=status", "--type=merge", "-p", '{"status":{"phase":"Done"}}')
        kubectl("delete", "crd", "backups.ops.example.com")
