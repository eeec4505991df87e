"""KEP-3461, "Simulation: how QRM works": the proposal's three examples with its own machine and its own numbers.

Real plugin processes, real sockets, the node agent; read back from the runtime. Where the KEP's text has slips, the
scenario says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kubeqos.codec import decode_json
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.model.machine import Machine
from kubeqos.qrm.messages import Allocation, NumaHint
from tests.qrm.harness import PluginProcess, QrmNode, plugin_processes, pod, qrm_node, short_folder, until

EXAMPLE_1 = """
pools:
  online: {cpus: "0-37,40-77"}
  offline: {cpus: "38-39,78-79"}
roles:
  online-micro_service: {pool: online}
  ETL: {pool: offline}
"""
EXAMPLE_2_CPU = """
reserved: "0-1,40-41"
roles:
  storage-service: {dedicated: true, numa: bind}
  reranker: {dedicated: true, numa: bind}
  numa-enhancement: {dedicated: true, numa: bind}
"""
EXAMPLE_2_MEMORY = """
systemReserved: 524288000
roles:
  storage-service: {numa: bind}
  reranker: {numa: bind}
  numa-enhancement: {numa: bind}
"""
EXAMPLE_3_NIC = """
roles: [numa-enhancement]
nics:
  eth1: {netns: /var/run/netns/ns1}
"""
POD1 = "054a696f-d176-488d-b228-d6046faaf67c"
POD2 = "fe8d9c25-6fb4-4983-908f-08e39ebeafe7"
POD3 = "26731da7-b283-488b-b232-cff611c914e1"


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as found:
        yield found


def state_of(plugin: PluginProcess) -> Any:
    return decode_json(plugin.state.read_bytes())["data"]


def held(node: QrmNode, uid: str, resource: str) -> Allocation:
    holding = node.manager.allocations.get(uid, "container0")
    assert holding is not None
    return holding.resources[resource]


@pytest.mark.proves("qrm-pools")
async def test_example_1_running_a_qos_system(folder: Path) -> None:
    cpu = PluginProcess(folder, "cpu", kep80(), EXAMPLE_1)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")

            pod1 = await node.run(pod("pod1", "online-micro_service", uid=POD1, cpu="4"))
            assert pod1["cpuset_cpus"] == "0-37,40-77"
            assert held(node, POD1, "cpu").quantity == 76
            pod2 = await node.run(pod("pod2", "ETL", uid=POD2, cpu="2"))
            assert pod2["cpuset_cpus"] == "38-39,78-79"
            assert held(node, POD2, "cpu").quantity == 4
            pod3 = await node.run(pod("pod3", "online-micro_service", uid=POD3, cpu="4"))
            assert pod3["cpuset_cpus"] == "0-37,40-77"
            assert node.calls == []

            assert cpu.set_pool("online=0-13,40-53", "offline=14-39,54-79").returncode == 0
            await until("re-adjusted", lambda: len(node.calls) == 3)
            for uid, cpus, quantity in (
                (POD1, "0-13,40-53", 28),
                (POD2, "14-39,54-79", 52),
                (POD3, "0-13,40-53", 28),
            ):
                assert node.resources(uid)["cpuset_cpus"] == cpus
                assert held(node, uid, "cpu").quantity == quantity
            # The online pool gives way before the offline pool enters.
            assert [call.linux.cpuset_cpus for call in node.calls] == ["0-13,40-53"] * 2 + ["14-39,54-79"]


async def test_example_1_by_sizes_alone(folder: Path) -> None:
    """The same sets come out when only their sizes are said: pools lie side by side on each NUMA node."""
    sizes = EXAMPLE_1.replace('cpus: "0-37,40-77"', "size: 76").replace('cpus: "38-39,78-79"', "size: 4")
    cpu = PluginProcess(folder, "cpu", kep80(), sizes)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            assert (await node.run(pod("pod1", "online-micro_service", cpu="4")))["cpuset_cpus"] == "0-37,40-77"
            assert cpu.set_pool("online=28", "offline=52").returncode == 0
            await until("re-adjusted", lambda: node.calls)
            assert node.resources("uid-pod1")["cpuset_cpus"] == "0-13,40-53"
            refused = cpu.set_pool("online=28", "offline=53")
            assert refused.returncode == 1
            assert "not enough cpus for the pools: requested=81, available=80" in refused.stderr


def kep_memory(machine: Machine) -> Machine:
    """The totals of the KEP's checkpoint; its prose says "26 GB in NUMA node1", a slip for 226."""
    sizes = {0: 237706936320, 1: 237806551040}
    return replace(machine, nodes=tuple(replace(node, memory_bytes=sizes[node.id]) for node in machine.nodes))


@pytest.mark.proves("qrm-pools", "numa-alignment")
async def test_example_2_numa_affinity_with_an_extended_policy(folder: Path) -> None:
    machine = kep_memory(kep80())
    cpu = PluginProcess(folder, "cpu", machine, EXAMPLE_2_CPU)
    memory = PluginProcess(folder, "memory", machine, EXAMPLE_2_MEMORY)
    async with qrm_node(folder, machine) as node:
        with plugin_processes(cpu, memory):
            await node.plugins("cpu", "memory")
            assert state_of(cpu)["machineState"] == {
                "0": {"reserved_cpuset": "0-1", "allocated_cpuset": "", "default_cpuset": "2-39"},
                "1": {"reserved_cpuset": "40-41", "allocated_cpuset": "", "default_cpuset": "42-79"},
            }
            assert state_of(cpu)["pod_entries"] == {}
            assert state_of(memory) == {
                "machineState": {
                    "memory": {
                        "0": {
                            "Allocated": "0",
                            "allocatable": "237182648320",
                            "free": "237182648320",
                            "pod_entries": {},
                            "systemReserved": "524288000",
                            "total": "237706936320",
                        },
                        "1": {
                            "Allocated": "0",
                            "allocatable": "237282263040",
                            "free": "237282263040",
                            "pod_entries": {},
                            "systemReserved": "524288000",
                            "total": "237806551040",
                        },
                    }
                },
                "pod_resource_entries": {},
            }

            pod1 = await node.run(pod("pod1", "storage-service", cpu="20", memory="40G"))
            assert (pod1["cpuset_cpus"], pod1["cpuset_mems"]) == ("2-21", "0")
            given = held(node, "uid-pod1", "cpu")
            assert (given.property, given.scalar, given.quantity) == ("CpusetCpus", True, 20)
            assert given.hints == (NumaHint((0,), True),)
            # The KEP files the memory under the key "cpu" and counts 1: slips, a real plugin says "memory" and bytes.
            assert held(node, "uid-pod1", "memory").quantity == 40e9

            # There is room on NUMA node 0, but the roles keep apart. (The KEP's JSON calls this pod's role
            # "storage-service" again; the text around it says reranker.)
            pod2 = await node.run(pod("pod2", "reranker", cpu="10", memory="20G"))
            assert (pod2["cpuset_cpus"], pod2["cpuset_mems"]) == ("42-51", "1")
            assert state_of(cpu)["machineState"]["1"] == {
                "reserved_cpuset": "40-41",
                "allocated_cpuset": "42-51",
                "default_cpuset": "52-79",
            }

            # With both nodes taken by other roles, a third role has nowhere to go.
            refusal = await node.refused(pod("pod3", "numa-enhancement", cpu="2", memory="1G"))
            assert "TopologyAffinityError" in refusal


@pytest.mark.proves("qrm-pools")
async def test_example_3_shared_nics_with_numa_affinity(folder: Path) -> None:
    machine = kep80()
    plugins = [
        PluginProcess(folder, "cpu", machine, EXAMPLE_2_CPU),
        PluginProcess(folder, "memory", machine, EXAMPLE_2_MEMORY),
        PluginProcess(folder, "nic", machine, EXAMPLE_3_NIC),
    ]
    async with qrm_node(folder, machine) as node:
        with plugin_processes(*plugins):
            await node.plugins("cpu", "memory", "NIC")
            nics = state_of(plugins[2])["machineState"]
            # The KEP spells the key "nuam_node".
            assert nics["1"]["nics"] == [
                {
                    "interface_name": "eth1",
                    "numa_node": 1,
                    "address": {"ipv6": "fdbd:dc05:3:155::20"},
                    "netns": "/var/run/netns/ns1",
                }
            ]
            # "We assume that all related resources in NUMA node0 have been allocated."
            full = await node.run(pod("full", "storage-service", cpu="38", memory="200G"))
            assert full["cpuset_cpus"] == "2-39"

            for name, cpus in (("pod1", "42-51"), ("pod2", "52-61")):
                found = await node.run(pod(name, "numa-enhancement", cpu="10", memory="20G"))
                assert (found["cpuset_cpus"], found["cpuset_mems"]) == (cpus, "1")
                config = node.config(f"uid-{name}")
                envs = {one.key: one.value.decode() for one in config.envs}
                assert envs["AFFINITY_NIC_ADDR_IPV6"] == "fdbd:dc05:3:155::20"
                assert config.annotations["kubernetes.io/host-netns-path"] == "/var/run/netns/ns1"
            assert "AFFINITY_NIC_ADDR_IPV6" not in {one.key for one in node.config("uid-full").envs}


@pytest.mark.proves("qrm-pools")
async def test_nobody_ever_shares_what_is_exclusive(folder: Path) -> None:
    """A pod without a role runs on the shared CPUs and makes room before the storage pod starts."""
    cpu = PluginProcess(folder, "cpu", kep80(), EXAMPLE_2_CPU)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            assert (await node.run(pod("web", cpu="1")))["cpuset_cpus"] == "2-39,42-79"
            storage = await node.run(pod("storage", "storage-service", cpu="20"))
            assert storage["cpuset_cpus"] == "2-21"
            assert node.resources("uid-web")["cpuset_cpus"] == "22-39,42-79"
            assert CpuSet.parse(str(node.calls[0].linux.cpuset_cpus)) == CpuSet.parse("22-39,42-79")
            node.remove("uid-storage")
            await until("given back", lambda: node.resources("uid-web")["cpuset_cpus"] == "2-39,42-79")
