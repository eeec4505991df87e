"""A resource plugin in Go, on Katalyst's own stub and messages, on a stock node: it registers, and serves pods.

The module under `katalyst` takes both from the Go module proxy; nothing of them is ours.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.stock.kube_apiserver import process
from tests.stock.kubelet import NODE
from tests.stock.needs import needs_stock
from tests.stock.whole import PARTS, Whole, stock_cluster
from tools import golang

SOURCE = Path(__file__).parent / "katalyst"
VERSION = golang.required(SOURCE, "github.com/kubewharf/katalyst-core")
PROGRAM = golang.cache() / "stock" / f"katalyst-{VERSION}" / "plugin"
CANNOT = "" if PROGRAM.exists() else golang.unsuitable(shutil.which("go"), SOURCE)
pytestmark = [
    *needs_stock(*PARTS, root=True),
    pytest.mark.kubectl,
    pytest.mark.skipif(bool(CANNOT), reason=CANNOT),
]
ASKED = {"requests": {"cpu": "500m"}, "limits": {"cpu": "500m"}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Whole]:
    if not PROGRAM.exists():
        golang.compile_to(PROGRAM, SOURCE, ["go", "build"], ".", {})
    with stock_cluster(Whole) as made, ExitStack() as stack:
        made.run("kubeqos install --image registry.example/kubeqos:1")
        made.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        made.kubectl("create", "namespace", "team")
        registry = made.folder / "cores" / "plugins_registry"
        registry.mkdir(parents=True)
        (made.folder / "node.yaml").write_text(
            "apiVersion: kubeqos.io/v1alpha1\nkind: NodeConfiguration\nprofile: qrm\nqosResourcePlugins: [cpu]\n"
            f"stateDir: {made.folder / 'cores'}\n"
        )
        stack.enter_context(process([str(PROGRAM), str(registry / "cpu.sock"), "cpu", "1"], made.folder, "katalyst"))
        made.start_agent("--node-config", str(made.folder / "node.yaml"))

        def registered() -> bool:
            found = [one.get("status") or {} for one in made.get("nodeqoses")["items"]]
            return any(one["name"] == "cpu" and one["healthy"] for each in found for one in each.get("plugins", ()))

        made.eventually("registered", registered)
        yield made
        made.kubectl("delete", "pods", "--all", "-n", "team", "--now")


def test_a_plugin_on_katalysts_stub_serves_pods(cluster: Whole) -> None:
    cluster.pod("served", {}, ASKED)
    cluster.eventually("served", lambda: cluster.cpus("served") == "1")
    assert "Allocate" in (cluster.folder / "katalyst.log").read_text()
    assert "ResourcePluginsReady" in cluster.run(f"kubeqos describe node {NODE}")
    cluster.kubectl("delete", "pod", "served", "-n", "team", "--now")
    cluster.eventually("told", lambda: "RemovePod" in (cluster.folder / "katalyst.log").read_text())
