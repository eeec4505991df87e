"""A Helm chart with CRDs, by an unmodified Helm, on an embedded cluster: installed, upgraded, rolled back, removed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.stock import find

from tests.scenarios.programs import started
from tests.stock.needs import needs_stock

pytestmark = [*needs_stock("helm"), pytest.mark.kubectl]

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "shelves.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "shelves", "singular": "shelf", "kind": "Shelf", "listKind": "ShelfList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "properties": {"books": {"type": "integer"}}}},
                    }
                },
            }
        ],
    },
}
TEMPLATES = {
    "shelf.yaml": """
apiVersion: example.com/v1
kind: Shelf
metadata: {name: {{ .Release.Name }}-shelf}
spec: {books: {{ .Values.books }}}
""",
    "deployment.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-web}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "web:{{ .Values.tag }}"}]
""",
    "service.yaml": """
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-web}
spec: {selector: {app: web}, ports: [{port: 80}]}
""",
    "hook.yaml": """
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-prepare
  annotations: {"helm.sh/hook": "pre-install", "helm.sh/hook-delete-policy": "hook-succeeded"}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: prepare, image: "job:1", command: [sh, -c, sleep 1]}]}
""",
}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("helm")
    with started(["up", "--data-dir", str(folder / "data"), "--port", "0", "--nodes", "1"], "kubeconfig"):
        yield folder / "data" / "kubeconfig"


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chart")
    for name in ("crds", "templates"):
        (folder / name).mkdir()
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: library, version: 1.0.0}")
    (folder / "values.yaml").write_text("{books: 3, replicas: 1, tag: '1'}")
    (folder / "crds" / "shelves.yaml").write_text(yaml.safe_dump(CRD))
    for name, text in TEMPLATES.items():
        (folder / "templates" / name).write_text(text)
    return folder


def test_a_chart_with_definitions_lives_its_life(kubeconfig: Path, chart: Path) -> None:
    program = str((find("helm") or ())[0])
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(chart.parent)}

    def run(*words: str) -> str:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def get(*words: str) -> Any:
        return json.loads(run("kubectl", "get", *words, "-o", "json"))

    assert "STATUS: deployed" in run(program, "install", "lib", str(chart), "--wait", "--timeout", "120s")
    assert get("shelf", "lib-shelf")["spec"] == {"books": 3}
    assert get("deployment", "lib-web")["status"]["availableReplicas"] == 1
    assert not get("jobs")["items"], "the hook ran, succeeded and was taken away"
    run(program, "upgrade", "lib", str(chart), "--set", "books=5,replicas=2,tag=2", "--wait", "--timeout", "120s")
    assert get("shelf", "lib-shelf")["spec"] == {"books": 5}
    assert get("deployment", "lib-web")["status"]["availableReplicas"] == 2
    run(program, "rollback", "lib", "1", "--wait", "--timeout", "120s")
    assert get("shelf", "lib-shelf")["spec"] == {"books": 3}
    assert [one["revision"] for one in json.loads(run(program, "history", "lib", "-o", "json"))] == [1, 2, 3]
    run(program, "uninstall", "lib", "--wait", "--timeout", "120s")
    assert not get("shelves.example.com")["items"] and not get("deployments")["items"]
    assert get("crd", "shelves.example.com"), "Helm leaves definitions where they are"
