"""Cores beside an unmodified kubelet on two NUMA nodes: pools and owners of a plugin (KEP-3461), owners of a driver."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeqos.model.annotations.wellknown import CONTAINER_POLICY_ANNOTATION
from tests.vm.conftest import NodeMaker
from tests.vm.node import CLASSES, REGISTRY, guaranteed, pod
from tests.vm.stocknode import StockNode
from tests.vm.test_placement import cpu_list
from tests.vm.test_pools import told

pytestmark = [pytest.mark.vm, pytest.mark.slow]

ROLE = "kubernetes.io/pod-role"
PLUGIN = {
    "reserved": "0",
    "pools": {"online": {"cpus": "2-3"}},
    "roles": {"web": {"pool": "online"}, "storage": {"dedicated": True, "numa": "bind", "fullCores": True}},
}


@pytest.fixture(scope="module")
def node(node_of: NodeMaker, request: pytest.FixtureRequest) -> StockNode:
    """A stock node whose agent hands out cores: with a plugin for CPUs, or with a driver."""
    period = {"qosResourcePlugins": ["cpu"], "qosResourceManagerReconcilePeriod": "1s"}
    settings = {"profile": request.param, **(period if request.param == "qrm" else {"reservedSystemCPUs": "0"})}
    found = node_of("systemd", CLASSES, kind=StockNode, **settings)
    assert isinstance(found, StockNode)
    if request.param == "qrm":
        found.vm.write("/run/node/cpu.yaml", json.dumps(PLUGIN))
        words = ("--config", "/run/node/cpu.yaml", "--registry", REGISTRY, "--state", "/run/node/cpu.state")
        found.unit("kq-cpu", "kubeqos", "plugin", "cpu", *words)
    else:
        found.unit("kq-driver", "kubeqos", "driver", "reference", "--registry", REGISTRY)
    found.until("it is used", lambda: any(one["healthy"] for one in found.told().get("plugins", ())))
    return found


def cpus(node: StockNode, name: str) -> set[int]:
    return cpu_list(node.process(name)["cpus"])


def annotated(annotations: dict[str, str], *words: Any, **more: Any) -> dict[str, Any]:
    found = pod(*words, **more)
    found["metadata"]["annotations"] = annotations
    return found


def used(node: StockNode, name: str, seconds: int = 10) -> float:
    """How many CPUs a container kept busy while some seconds went by."""
    one = node.container_id(name)
    return float(node.ask("rates", ids=[one], seconds=seconds)[one]["cpuMicroseconds"]) / 1e6 / seconds


@pytest.mark.proves("qrm-pools", "exclusive-cpus", on=("v2", "stock"))
@pytest.mark.parametrize("node", ["qrm"], indirect=True)
def test_a_pool_is_moved_and_an_owner_has_its_cores_alone_and_whole(node: StockNode) -> None:
    node.start_pod(annotated({ROLE: "web"}, "web"))
    node.start_pod(pod("plain"))
    assert cpus(node, "web") == {2, 3}
    before = cpus(node, "plain")
    assert not before & {2, 3}
    node.start_pod(annotated({ROLE: "storage"}, "owner", "hog", "burn", "2", resources=guaranteed("1100m", "64Mi")))
    owned = cpus(node, "owner")
    assert owned in ({4, 5}, {6, 7}), "both threads of one core"
    node.until("others have left", lambda: cpus(node, "plain") == before - owned)
    node.says("owner", "burning")
    assert used(node, "owner") > 1.5, "it is not held to its limit of 1.1 CPUs"
    free = {4, 5, 6, 7} - owned
    told(node, "plugin", "cpu", "set-pool", f"online={min(free)}-{max(free)}", "--socket", f"{REGISTRY}/cpu.sock")
    node.until("web is moved", lambda: cpus(node, "web") == free)
    node.vm.run("systemctl", "daemon-reload")
    assert cpus(node, "owner") == owned and cpus(node, "web") == free
    node.until("nothing has taken its cores from it", lambda: used(node, "owner") > 1.5)


@pytest.mark.proves("cci-claims", "exclusive-cpus", on=("v2", "stock"))
@pytest.mark.parametrize("node", ["cci"], indirect=True)
def test_who_asks_a_driver_owns_whole_cores_and_the_others_leave_them(node: StockNode) -> None:
    node.start_pod(pod("plain"))
    everything = cpus(node, "plain")
    asking = {f"{CONTAINER_POLICY_ANNOTATION}main": "sibling-cores-required"}
    node.start_pod(annotated(asking, "owner", resources=guaranteed("2", "64Mi")))
    owned = cpus(node, "owner")
    assert owned in ({2, 3}, {4, 5}, {6, 7}), "both threads of one core, and none beside the reserved one"
    node.until("the other pod has left", lambda: cpus(node, "plain") == everything - owned)
    node.start_pod(pod("late"))
    assert not cpus(node, "late") & owned
    node.kill_agent()
    node.start_pod(pod("unasked"))
    assert not cpus(node, "unasked") & owned, "although nobody was there to say where it may run"
    assert cpus(node, "owner") == owned
    node.start_agent()
    node.delete("owner")
    node.until("the other pod has all again", lambda: cpus(node, "plain") == everything)
