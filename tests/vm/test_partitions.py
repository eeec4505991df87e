"""CPUs of one's own as a partition of the kernel (Linux 6.7 and newer): the host's own processes keep off them too."""

from __future__ import annotations

import pytest

from tests.vm.conftest import BOTH, NodeMaker
from tests.vm.node import SETTINGS, Node, guaranteed, pod
from tests.vm.stocknode import StockNode
from tests.vm.test_placement import cpu_list, partition

pytestmark = [pytest.mark.vm, pytest.mark.slow]
CORES = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0-1"}


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, node_of: NodeMaker) -> Node:
    if request.param == "stock":
        return node_of("systemd", machine="newer-kernel", kind=StockNode, **CORES)
    return node_of(request.param, machine="newer-kernel", **SETTINGS)


def of_the_host(node: Node) -> set[int]:
    """Where the machine's first process may run."""
    return cpu_list(node.vm.run("sh", "-c", "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/1/status").strip())


def may_go_to(node: Node, cpu: int) -> bool:
    """Whether root may put a process of the host there."""
    return node.vm.attempt("taskset", "-c", str(cpu), "true")[0] == 0


@pytest.mark.parametrize("node", BOTH, indirect=True)
@pytest.mark.proves("exclusive-cpus")
def test_the_kernel_keeps_everybody_off_the_cpus_of_an_owner(node: Node) -> None:
    everywhere = set(range(8))
    assert of_the_host(node) == everywhere
    node.start_pod(pod("owner", resources=guaranteed("2", "128Mi")))
    owned = cpu_list(node.process("owner")["cpus"])
    assert partition(node) == "root"
    level = node.levels("owner")[0]
    assert level["cpuset.cpus.partition"] == "root" and cpu_list(level["cpuset.cpus.effective"]) == owned
    assert of_the_host(node) == everywhere - owned
    assert not any(may_go_to(node, cpu) for cpu in owned)
    node.vm.run("systemctl", "daemon-reload")
    assert cpu_list(node.process("owner")["cpus"]) == owned and of_the_host(node) == everywhere - owned
    node.delete("owner")
    node.until("the host has them back", lambda: of_the_host(node) == everywhere)
    assert all(may_go_to(node, cpu) for cpu in owned)


@pytest.mark.parametrize("node", ["stock"], indirect=True)
@pytest.mark.proves("exclusive-cpus", on=("v2", "stock"))
def test_beside_a_stock_kubelet_the_kernel_keeps_guaranteed_pods_off_while_the_agent_is_away(node: Node) -> None:
    node.start_pod(pod("owner", resources=guaranteed("2", "128Mi")))
    owned = cpu_list(node.process("owner")["cpus"])
    assert len(owned) == 2 and not any(may_go_to(node, cpu) for cpu in owned)
    node.kill_agent()
    # One that would have CPUs of its own, and nobody is there to give it any: it shares those that nobody owns.
    node.start_pod(pod("late", resources=guaranteed("1", "64Mi")))
    assert not owned & cpu_list(node.process("late")["cpus"])
    assert cpu_list(node.process("owner")["cpus"]) == owned
    node.start_agent()
    node.delete("late")
    node.delete("owner")
    node.until("the host has them back", lambda: of_the_host(node) == set(range(8)))
