"""Resource plugins (KEP-3461) on two NUMA nodes: pools, whole nodes for one pod, and who has to make room for it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.vm.conftest import NodeMaker
from tests.vm.node import REGISTRY, Node, guaranteed, pod
from tests.vm.test_placement import cpu_list

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)]

ROLES: dict[str, Any] = {"hpc": {"dedicated": True, "numa": "exclusive"}}
PLUGINS = {
    "cpu": {"reserved": "0", "pools": {"online": {"size": 4}}, "roles": {**ROLES, "web": {"pool": "online"}}},
    "memory": {"systemReserved": 64 << 20, "roles": ROLES},
}


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, node_of: NodeMaker) -> Node:
    """A node of profile qrm, with a plugin for CPUs and one for memory beside it."""
    found = node_of(request.param, profile="qrm", kubeReserved={"memory": "256Mi"})
    for name, config in PLUGINS.items():
        found.vm.write(f"/run/node/{name}.yaml", json.dumps(config))
        words = ("--config", f"/run/node/{name}.yaml", "--registry", REGISTRY, "--state", f"/run/node/{name}.state")
        found.unit(f"kq-{name}", "kubeqos", "plugin", name, *words)
    found.until("both plugins are used", lambda: PLUGINS.keys() <= plugins_used(found))
    return found


def plugins_used(node: Node) -> set[str]:
    """Those that the node's condition names; it is true as soon as the first of them answers."""
    conditions = node.get("/api/v1/nodes/numa")["status"]["conditions"]
    told = next((one for one in conditions if one["type"] == "ResourcePluginsReady"), {"status": "", "message": ""})
    return set(re.findall(r"\w+", told["message"])) if told["status"] == "True" else set()


def of_role(name: str, role: str, mib: int, cpu: str) -> dict[str, Any]:
    amounts = {"requests": {"cpu": cpu, "memory": f"{mib * 3}Mi"}}
    found = pod(name, "hog", "memory", str(mib), resources=amounts)
    found["metadata"]["annotations"] = {"kubernetes.io/pod-role": role}
    return found


def homes(node: Node, name: str) -> set[str]:
    """The NUMA nodes that pages of a pod lie on."""
    return set(node.ask("pages", id=node.container_id(name)))


def told(node: Node, *words: str) -> str:
    """What `kubeqos` says. An emulated machine is now and then too slow for its deadlines: it is asked again."""
    return str(
        node.until(
            f"kubeqos {' '.join(words)} succeeds",
            lambda: (answer := node.vm.attempt("kubeqos", *words, seconds=120))[0] == 0 and answer[1],
        )
    )


def mapped(node: Node, name: str) -> str:
    """What `kubeqos map` says of the pod: its line in the table of those who share CPUs."""
    said = told(node, "map", "numa", "--kubeconfig", "/run/cluster/kubeconfig")
    return next((line for line in said.splitlines() if line.startswith(f"default/{name}/")), "")


def resize(node: Node, cpus: str) -> None:
    """Give the pool other CPUs, and wait until web runs there."""
    told(node, "plugin", "cpu", "set-pool", f"online={cpus}", "--socket", f"{REGISTRY}/cpu.sock")
    node.until(f"web runs on {cpus}", lambda: cpu_list(node.process("web")["cpus"]) == cpu_list(cpus))


@pytest.mark.proves("qrm-pools", "numa-alignment")
def test_a_pool_that_loses_a_numa_node_goes_with_its_memory_and_the_map_says_so(node: Node) -> None:
    """The pool's CPUs are taken off node 1, whose memory then goes to a pod of its own, and comes back after it."""
    node.start_pod(of_role("web", "web", 32, "100m"))
    node.says("web", "holds 32")
    process = node.process("web")
    assert (cpu_list(process["cpus"]), process["mems"]) == ({2, 3, 4, 5}, "0-1"), "an equal part of each node"
    resize(node, "4-7")
    resize(node, "2-3")
    node.start_pod(of_role("hpc", "hpc", 32, "4"))
    node.says("hpc", "holds 32")
    process = node.process("hpc")
    assert (cpu_list(process["cpus"]), process["mems"], homes(node, "hpc")) == ({4, 5, 6, 7}, "1", {"1"})
    node.until("the pool's memory follows", lambda: node.process("web")["mems"] == "0")
    node.until("its pages are moved", lambda: homes(node, "web") == {"0"})
    node.until("the map says so", lambda: mapped(node, "web").endswith("NUMA 0"))
    node.delete("hpc")
    node.until("the pool may use both again", lambda: node.process("web")["mems"] == "0-1")
    node.until("the map says that as well", lambda: mapped(node, "web").endswith("NUMA 0-1"))


@pytest.mark.proves("qrm-pools")
def test_who_has_cores_of_its_own_uses_all_of_them_whatever_its_limit(node: Node) -> None:
    """1.1 CPUs are asked for and are the limit, as for any pod; two CPUs are its own, and it may use both: all that the
    pool, which a test before this one may have moved, leaves of a NUMA node.
    """
    told(node, "plugin", "cpu", "set-pool", "online=2-5", "--socket", f"{REGISTRY}/cpu.sock")
    busy = pod("busy", "hog", "burn", "2", resources=guaranteed("1100m", "96Mi"))
    busy["metadata"]["annotations"] = {"kubernetes.io/pod-role": "hpc"}
    node.start_pod(busy)
    node.says("busy", "burning")
    assert cpu_list(node.process("busy")["cpus"]) == {6, 7}
    own, of_pod = node.levels("busy")[:2]
    assert own["cpu.max"].split()[0] == of_pod["cpu.max"].split()[0] == "max"
    busy_id, seconds = node.container_id("busy"), 10
    used = node.ask("rates", ids=[busy_id], seconds=seconds)[busy_id]["cpuMicroseconds"] / 1e6
    print(f"with a limit of 1.1 CPUs and 2 CPUs of its own it used {used:.1f} s of CPU time in {seconds} s")
    assert used > 1.5 * seconds, used
