"""A plugin and a driver of one's own beside `kubeqos up`, as `qrm new` and `cci new` write them, and what shows it."""

from __future__ import annotations

import ssl
import sys
import time
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from kubeqos.cci.kit.skeleton import write_skeleton as new_driver
from kubeqos.client.light import LightApi
from kubeqos.qrm.kit.skeleton import write_skeleton as new_plugin
from tests.dashboard.browser import Cluster
from tests.scenarios.cluster import needs_kubectl

pytestmark = [pytest.mark.kubectl, needs_kubectl]
CLUSTER = """
apiVersion: kubeqos.io/v1alpha1
kind: ClusterConfiguration
nodes:
- name: mine
  machine: kep80
  profile: qrm
  plugins:
  - cpu
  - {{name: memory, config: memory.yaml}}
  - {{name: hugepool, command: [{python}, hugepool.py, "{{registry}}"]}}
  settings: {{topologyManagerPolicy: single-numa-node, topologyManagerScope: pod, port: 0}}
- name: cores
  machine: kep80
  profile: cci
  reservedCPUs: 0-1
  drivers: [reference, {{name: fast, command: [{python}, driver.py]}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: wants}
spec:
  containers:
  - {name: app, image: app, resources: {limits: {example.com/hugepool: "3"}, requests: {example.com/hugepool: "3"}}}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("own")
    (plugin, *_), (driver, *_) = new_plugin("hugepool", folder), new_driver("fast.example.com", folder / "fast")
    for made in (plugin, driver):
        made.rename(folder / made.name)
    (folder / "memory.yaml").write_text("systemReserved: 1048576\n")
    (folder / "cluster.yaml").write_text(CLUSTER.format(python=sys.executable))
    found = Cluster(folder)
    found.kubeqos("up", "--config", str(folder / "cluster.yaml"), "--port", "0", "--detach")
    yield found
    found.kubeqos("down")


def told_of(ask: Callable[[], str], *words: str) -> str:
    """The answer as soon as it has the words, or the last one after half a minute."""
    deadline = time.monotonic() + 30
    while not all(word in (answer := ask()) for word in words) and time.monotonic() < deadline:
        time.sleep(0.2)
    return answer


def test_a_plugin_of_ones_own_serves_pods_and_is_told_of(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-f", "-", manifest=POD)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/wants", "--timeout=60s")
    assert "HUGEPOOL=3.0" in cluster.kubectl("exec", "wants", "--", "printenv").splitlines()
    # The node's record of its decision comes by itself, after the pod's status.
    why = told_of(lambda: cluster.kubeqos("why", "wants"), "policy")
    assert "policy single-numa-node, NUMA 0 (preferred)" in why
    assert "example.com/hugepool by plugin example.com/hugepool: prefers NUMA 0" in why
    assert "example.com/hugepool: 3, HUGEPOOL=3.0, NUMA 0, chosen by plugin example.com/hugepool" in why
    told = cluster.kubeqos("podresources", "mine")
    assert "example.com/hugepool   100" in told and "example.com/hugepool=3" in told


def test_several_drivers_serve_one_node(cluster: Cluster) -> None:
    drivers = "fast.example.com", "reference.cci.kubeqos.io"  # each registers when it has started
    node = told_of(lambda: cluster.kubectl("get", "node", "cores", "-o", "yaml"), *drivers)
    assert all(driver in node for driver in drivers)


def test_metrics_of_nodes_are_reached_through_the_api_server_and_on_their_port(cluster: Cluster) -> None:
    """The names that KEP-3675 gives, and QRM's, for which KEP-3461 gives none."""
    cores = cluster.kubectl("get", "--raw", "/api/v1/nodes/cores/proxy/metrics")
    for name in ("manager_allocation_requests", "manager_allocation_errors", "resource_manager_allocation_requests"):
        assert f"# TYPE cci_{name}_total counter" in cores
    assert "cci_manager_available_cpus 78.0" in cores
    mine = cluster.kubectl("get", "--raw", "/api/v1/nodes/mine/proxy/metrics")
    assert 'kubeqos_qrm_plugin_up{plugin="example.com/hugepool"} 1.0' in mine
    assert 'kubeqos_qrm_plugin_up{plugin="example.com/hugepool"} 1.0' in scraped(cluster, "mine")


def scraped(cluster: Cluster, node: str) -> str:
    """What a node answers on its own port to whom the cluster's authority knows."""
    raw = LightApi.from_kubeconfig(cluster.kubeconfig).get(f"/api/v1/nodes/{node}")
    port = raw["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    user = yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"]
    for key in ("client-certificate", "client-key"):
        (cluster.folder / f"{key}.pem").write_bytes(b64decode(user[f"{key}-data"]))
    context = ssl.create_default_context(cafile=str(cluster.data_dir / "nodes" / node / "pki" / "ca.crt"))
    context.load_cert_chain(cluster.folder / "client-certificate.pem", cluster.folder / "client-key.pem")
    with urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", context=context, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_options_add_to_the_cluster_that_is_always_there(tmp_path: Path) -> None:
    (plugin, *_) = new_plugin("hugepool", tmp_path)
    found = Cluster(tmp_path)
    found.kubeqos("up", "--plugin", f"{sys.executable} {plugin}", "--port", "0", "--detach")
    try:
        shown = found.kubectl("get", "node", "qrm", "-o", "jsonpath={.status.allocatable}")
        assert '"example.com/hugepool":"100"' in shown
    finally:
        found.kubeqos("down")
