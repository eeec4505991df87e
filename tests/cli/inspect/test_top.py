"""`kubeqos top` against a server that answers as metrics-server does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cli.inspect.top import WATCH_SECONDS, again
from kubeqos.codec import decode_json, encode_json
from tests.shared import commands

METRICS = "/apis/metrics.k8s.io/v1beta1"


def node(name: str) -> dict[str, Any]:
    classes = [{"name": "gold", "capacity": 2}, {"name": "bronze"}]
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi"},
            "qosResources": {"containerQoSResources": [{"name": "rdt", "classes": classes}]},
        },
    }


def pod(name: str, on: str, cls: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": "500m"}, "qosResources": [{"name": "rdt", "class": cls}]}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": resources}]},
        "status": {"phase": "Running"},
    }


def measured(name: str, *usages: tuple[str, str]) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "usage": {"cpu": cpu, "memory": memory}} for i, (cpu, memory) in enumerate(usages)]
    return {"metadata": {"name": name, "namespace": "default"}, "containers": containers}


PODS = [pod("web", "n1", "gold"), pod("db", "n1", "gold"), pod("cron", "n2", "bronze")]
POD_METRICS = [measured("web", ("250m", "100Mi"), ("6n", "28Mi")), measured("db", ("1500m", "2Gi"))]
ANSWERS: dict[str, Any] = {
    "/api/v1/nodes": [node("n1"), node("n2")],
    "/api/v1/pods": PODS,
    "/api/v1/namespaces/default/pods": PODS,
    f"{METRICS}/nodes": [{"metadata": {"name": "n1"}, "usage": {"cpu": "1750123456n", "memory": "2228224Ki"}}],
    f"{METRICS}/pods": POD_METRICS,
    f"{METRICS}/namespaces/default/pods": POD_METRICS,
}


class Handler(BaseHTTPRequestHandler):
    """Serves the lists above, and nothing else."""

    def do_GET(self) -> None:
        items = ANSWERS.get(self.path.partition("?")[0])
        body = encode_json({"items": items} if items is not None else {"kind": "Status", "reason": "NotFound"})
        self.send_response(200 if items is not None else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    path = tmp_path_factory.mktemp("top") / "kubeconfig"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
    }
    path.write_bytes(encode_json(document))
    yield path
    server.shutdown()
    server.server_close()


def top(kubeconfig: Path, *words: str) -> str:
    done = commands.run("top", *words, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_nodes_with_their_limited_classes(kubeconfig: Path) -> None:
    assert top(kubeconfig, "nodes") == (
        "NAME   CPU(CORES)   CPU(%)      MEMORY(BYTES)   MEMORY(%)   CLASSES (USED/CAPACITY)\n"
        "n1     1751m        43%         2176Mi          26%         rdt=gold 2/2\n"
        "n2     <unknown>    <unknown>   <unknown>       <unknown>   rdt=gold 0/2\n"
    )


def test_pods_sum_their_containers_and_are_sorted_by_use(kubeconfig: Path) -> None:
    assert top(kubeconfig, "pods", "--sort-by", "cpu") == (
        "NAME   CPU(CORES)   MEMORY(BYTES)   CLASSES\n"
        "db     1500m        2048Mi          c:rdt=gold\n"
        "web    251m         128Mi           c:rdt=gold\n"
        "cron   <unknown>    <unknown>       c:rdt=bronze\n"
    )
    assert top(kubeconfig, "pods", "-A", "-o", "wide").splitlines()[1] == (
        "default     cron   <unknown>    <unknown>       500m          <none>           Burstable   c:rdt=bronze"
    )
    assert top(kubeconfig, "pods", "-o", "name") == "pod/cron\npod/db\npod/web\n"


def test_classes_with_what_their_pods_use_together(kubeconfig: Path) -> None:
    assert top(kubeconfig, "classes") == (
        "CLASS        USED/CAPACITY   CPU(CORES)   MEMORY(BYTES)\n"
        "rdt=bronze   1/inf           <unknown>    <unknown>\n"
        "rdt=gold     2/4             1751m        2176Mi\n"
    )
    listed = decode_json(top(kubeconfig, "classes", "-o", "json").encode())
    assert listed[1] == {"name": "rdt=gold", "cpu": "1750000006n", "memory": "2176Mi", "used": "2/4"}


def test_a_cluster_without_metrics_is_told_in_kubectls_words(kubeconfig: Path) -> None:
    """Nothing is served for that namespace, as nothing is on a cluster without a metrics server."""
    done = commands.run("top", "pods", "-n", "bare", env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    first, *rest = done.stderr.splitlines()
    assert (done.returncode, done.stdout, first) == (1, "", "Error: Metrics API not available")
    assert rest[1] == "  nothing serves metrics.k8s.io there; `kubeqos top classes` counts class use without it"


def test_a_watched_table_is_shown_until_one_has_seen_enough() -> None:
    shown: list[int] = []

    def enough(seconds: float) -> None:
        assert seconds == WATCH_SECONDS
        if len(shown) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        again(lambda: shown.append(1), True, enough)
    assert len(shown) == 3
    again(lambda: shown.append(1), False, enough)
    assert len(shown) == 4
