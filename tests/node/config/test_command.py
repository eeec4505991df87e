"""`kubeqos node` as a process: it registers, runs a pod, and leaves containers alone when it is stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.testing import TestServer, api_server
from tests.node.test_live import bound, until
from tests.shared import commands


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with api_server() as running:
        yield running


async def test_a_node_runs_as_a_process_of_its_own(server: TestServer, tmp_path: Path, short_path: Path) -> None:
    config = tmp_path / "node.yaml"
    config.write_text(
        f"""\
apiVersion: kubeqos.io/v1alpha1
kind: NodeConfiguration
nodeName: n1
stateDir: {short_path}
port: 0
podLogsDir: {tmp_path}/logs
simulatedMachine: kep80
cpuManagerPolicy: static
reservedSystemCPUs: 0-1
topologyManagerPolicy: single-numa-node
"""
    )
    words = ["node", "--config", str(config), "--kubeconfig", str(server.kubeconfig), "--max-pods", "20"]
    process = subprocess.Popen(  # noqa: ASYNC220 - it only starts
        [sys.executable, "-m", "kubeqos.cli.main", *words], stderr=subprocess.PIPE, text=True
    )
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    try:

        async def registered() -> Any:
            found = (await api.list(NODES)).items
            node = await api.get(NODES, "n1") if found else {}
            return node if (node.get("status") or {}).get("capacity") else None

        node = await until("node registers", registered)
        assert node["status"]["capacity"]["cpu"] == "80" and node["status"]["capacity"]["pods"] == "20"
        assert '"policy":"single-numa-node"' in node["metadata"]["annotations"]["kubeqos.io/topology"]
        await api.create(PODS, bound("web"))

        async def running() -> bool:
            pod = await api.get(PODS, "web", "default")
            return bool((pod.get("status") or {}).get("phase") == "Running")

        await until("pod runs", running)
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=20)
        await api.close()
    assert process.returncode == 0, said
    assert "node n1 on simulated:n1: 80 CPUs" in said and "containers run on" in said


def test_a_mistake_is_one_clear_message(tmp_path: Path) -> None:
    done = commands.run("node", "--root-dir", str(tmp_path))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: node configuration: say where containers run")
