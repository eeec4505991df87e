"""What a node believes of its machine is what `lscpu` and `numactl -H` say, on every machine of the table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.vm.machines import MACHINES
from tools.vm.vm import Vm

from tests.vm.conftest import Machines
from tests.vm.node import CHECKER

pytestmark = pytest.mark.vm

BELIEVED = """
import json
from pathlib import Path
from kubeqos.model.hardware.sysfs import read_machine
machine = read_machine(Path("/sys"))
print(json.dumps({
    "cpus": {cpu.id: [cpu.core, cpu.socket, cpu.numa] for cpu in machine.cpus},
    "offline": list(machine.offline),
    "nodes": {
        node.id: {
            "cpus": [cpu.id for cpu in machine.cpus if cpu.numa == node.id],
            "bytes": node.memory_bytes,
            "distances": [machine.distance(node.id, other.id) for other in machine.nodes],
            "hugepages": {str(size): count for size, count in node.hugepages.items()},
        }
        for node in machine.nodes
    },
    "nics": {one.name: one.numa for one in machine.devices if one.kind == "nic"},
}))
"""


def says(vm: Vm, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(vm.run(*words))
    return found


def groups(pairs: dict[str, object]) -> set[frozenset[str]]:
    """Which CPUs belong together: two programs may number the same cores differently."""
    return {frozenset(cpu for cpu, group in pairs.items() if group == one) for one in pairs.values()}


@pytest.mark.proves("discovery")
@pytest.mark.parametrize(
    "name", [pytest.param(one.name, marks=[] if one.core else [pytest.mark.slow]) for one in MACHINES.values()]
)
def test_the_machine_is_what_lscpu_and_numactl_say(machines: Machines, name: str) -> None:
    vm = machines.get(name)
    truth = says(vm, "python3", "-I", CHECKER, "hardware")
    believed = says(vm, "python3", "-c", BELIEVED)
    online = {cpu: facts for cpu, facts in truth["cpus"].items() if facts["online"]}
    assert believed["cpus"].keys() == online.keys()
    assert [str(cpu) for cpu in believed["offline"]] == [cpu for cpu in truth["cpus"] if cpu not in online]
    for column, fact in enumerate(("core", "socket", "node")):
        ours = {cpu: facts[column] for cpu, facts in believed["cpus"].items()}
        assert groups(ours) == groups({cpu: facts[fact] for cpu, facts in online.items()}), fact
    assert believed["nodes"].keys() == truth["nodes"].keys()
    for number, node in believed["nodes"].items():
        said = truth["nodes"][number]
        assert [str(cpu) for cpu in node["cpus"]] == said["cpus"]
        assert node["bytes"] >> 20 == said["MB"]
        assert node["distances"] == said["distances"]
        pages = {
            key.partition("/")[2]: n for key, n in truth["hugepages"].items() if key.startswith(f"{number}/") and n
        }
        assert {str(int(size) >> 10): count for size, count in node["hugepages"].items() if count} == pages
    machine = MACHINES[name]
    assert believed["nics"] == truth["nics"]
    assert sorted(truth["nics"].values()) == sorted(machine.nics)
    assert len(truth["cpus"]) == machine.sockets * machine.cores * machine.threads
    assert len(truth["nodes"]) == len(machine.nodes)
