"""A kopf operator with its own kind and webhooks, unchanged, on our API server: watches, patches, finalizers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from kubeqos.testing import TestServer, api_server
from kubeqos.web.pki import Pki

HERE = Path(__file__).parent
OPERATOR = HERE / "kopf_operator.py"
SPEC = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["every"],
            "properties": {"every": {"type": "string"}, "keep": {"type": "integer"}},
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
VERSION = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
BACKUPS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "backups.ops.example.com"},
    "spec": {
        "group": "ops.example.com",
        "scope": "Namespaced",
        "names": {"plural": "backups", "kind": "Backup"},
        "versions": [{**VERSION, "schema": {"openAPIV3Schema": SPEC}}],
    },
}
WHERE = ("ops.example.com", "v1", "default", "backups")


@contextmanager
def operator(server: TestServer, folder: Path) -> Iterator[Path]:
    pki = Pki(folder / "pki")
    certificate, key = pki.server_files(["127.0.0.1"])
    paths = {"HOOK_CERTIFICATE": certificate, "HOOK_KEY": key, "HOOK_AUTHORITY": pki.ca_file}
    environment = {**os.environ, "KUBECONFIG": str(server.kubeconfig), **{k: str(v) for k, v in paths.items()}}
    words = [sys.executable, "-m", "kopf", "run", "--standalone", "--namespace=default", str(OPERATOR)]
    log = folder / "operator.log"
    with log.open("wb") as out:
        running = subprocess.Popen(words, env=environment, stdout=out, stderr=subprocess.STDOUT)
    try:
        yield log
    finally:
        running.terminate()
        running.wait(30)


def eventually(log: Path, is_so: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := is_so()):
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        time.sleep(0.1)
    return found


def backup(name: str, **spec: Any) -> Any:
    return {"apiVersion": "ops.example.com/v1", "kind": "Backup", "metadata": {"name": name}, "spec": spec}


def refused(api: client.CustomObjectsApi, body: Any) -> tuple[int, str]:
    try:
        api.create_namespaced_custom_object(*WHERE, body)
    except client.ApiException as error:
        return error.status, error.body
    raise AssertionError("it was taken")


@pytest.mark.slow
def test_an_operator_with_its_own_kind_and_webhooks(tmp_path: Path) -> None:
    with api_server(BACKUPS) as server, operator(server, tmp_path) as log:
        connection = config.new_client_from_config(str(server.kubeconfig))
        api, core = client.CustomObjectsApi(connection), client.CoreV1Api(connection)
        hooks = client.AdmissionregistrationV1Api(connection)

        def configured() -> bool:
            lists = (hooks.list_mutating_webhook_configuration(), hooks.list_validating_webhook_configuration())
            return all(one.items and one.items[0].webhooks for one in lists)

        eventually(log, configured)
        made = api.create_namespaced_custom_object(*WHERE, backup("daily", every="24h"))
        assert made["spec"] == {"every": "24h", "keep": 7}, "its mutating webhook was asked"
        code, body = refused(api, backup("lazy", every="never"))
        assert code == 422 and "denied the request: never is not often enough" in body

        def planned(keep: str) -> Any:
            plans = [one for one in core.list_namespaced_config_map("default").items if one.data]
            return next((one for one in plans if one.data.get("keep") == keep), None)

        plan = eventually(log, lambda: planned("7"))
        assert plan.metadata.owner_references[0].uid == made["metadata"]["uid"]

        def status() -> Any:
            return api.get_namespaced_custom_object(*WHERE, "daily").get("status", {}).get("back_up")

        assert eventually(log, status) == {"kept": 7}
        api.patch_namespaced_custom_object(*WHERE, "daily", {"spec": {"keep": 3}})
        eventually(log, lambda: planned("3"))
        api.delete_namespaced_custom_object(*WHERE, "daily")
        eventually(log, lambda: not api.list_namespaced_custom_object(*WHERE)["items"])
        assert core.read_namespaced_config_map("daily-gone", "default"), "its finalizer waited for it"
