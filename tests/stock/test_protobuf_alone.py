"""An unmodified kube-scheduler that takes nothing but protobuf works on our server: informers, leases and bindings."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from tools.stock import find

from kubeqos.apiserver import app
from kubeqos.apiserver.protobuf import CONTENT_TYPE
from kubeqos.web.messages import Response
from tests.apiserver.live import LiveServer, live_server
from tests.stock.kube_apiserver import process
from tests.stock.needs import needs_stock

pytestmark = needs_stock("kube-scheduler")

PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
ROOM = {"cpu": "4", "memory": "4Gi", "pods": "10"}


def configured(folder: Path, live: LiveServer) -> str:
    path = folder / "scheduler.json"
    connection = {
        "kubeconfig": str(live.kubeconfig),
        "contentType": CONTENT_TYPE,
        "acceptContentTypes": CONTENT_TYPE,
    }
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    path.write_text(json.dumps({**head, "clientConnection": connection}))
    return str(path)


def add_node(live: LiveServer, name: str) -> None:
    live.call("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is"}
    status = {"capacity": ROOM, "allocatable": ROOM, "conditions": [ready]}
    assert live.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE).code == 200
    live.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)


def place_of(live: LiveServer, pod: str) -> Any:
    return live.call("GET", f"{PODS}/{pod}").body["spec"].get("nodeName")


def test_it_binds_what_it_sees_in_protobuf_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media: set[str] = set()
    real = app.binary

    def noted(response: Response, accept: str) -> Response:
        told = real(response, accept)
        if accept == CONTENT_TYPE:
            media.add(told.content_type)
        return told

    monkeypatch.setattr(app, "binary", noted)
    with live_server(tmp_path / "data") as live:
        words = [str((find("kube-scheduler") or [""])[0]), "--config", configured(tmp_path, live), "--secure-port=0"]
        with process(words, tmp_path, "kube-scheduler") as part:
            for number in (1, 2):  # the second node and pod come to watches that are open
                add_node(live, f"n{number}")
                spec = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}]}
                assert live.call("POST", PODS, {"metadata": {"name": f"p{number}"}, "spec": spec}).code == 201
                deadline = time.monotonic() + 90
                while not place_of(live, f"p{number}"):
                    assert time.monotonic() < deadline, part.log.read_text()[-3000:]
                    time.sleep(0.3)
        assert {place_of(live, "p1"), place_of(live, "p2")} == {"n1", "n2"}
    assert {one.partition(";")[0] for one in media} == {CONTENT_TYPE}
