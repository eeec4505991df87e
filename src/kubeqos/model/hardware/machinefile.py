"""A machine as a document that people write: dict or YAML to `Machine` and back.

    name: split80
    numa:
    - {id: 0, memoryBytes: 242665652224, hugepages: {2097152: 1024}, distances: {0: 10, 1: 21}}
    cpus:
    - {socket: 0, numa: 0, uncore: 0, cores: ["0,40", "1,41"]}
    devices:
    - {name: eth0, kind: nic, numa: 0}

CPUs come in groups that share socket, NUMA node, cache and kind; each core is the list of its threads. Called
by the CLI and the node agent's configuration; every mistake is one `InputError` that names the line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from kubeqos.document import Doc
from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import CoreKind, Cpu, Device, Machine, NumaNode
from kubeqos.model.reading import cpu_set

_TOP = ("name", "numa", "cpus", "devices", "isolated", "offline")
_GROUP = ("socket", "numa", "uncore", "kind", "cores")
_CORE = ("id", "cpus")
_NODE = ("id", "memoryBytes", "hugepages", "distances")
_DEVICE = ("name", "kind", "numa", "attributes")
_KINDS = {kind.value: kind for kind in CoreKind}
_MOST = 2**63 - 1


def machine_from_dict(value: object, source: str = "machine") -> Machine:
    """Read the document form."""
    return machine_from_doc(Doc.of(value, source))


def machine_from_doc(doc: Doc) -> Machine:
    """Read a document, or the part of one, that describes a machine."""
    doc = replace(doc, error=InputError)
    top = doc.fields(_TOP)
    cpus = [cpu for group in _elements(top, "cpus") for cpu in _read_group(group)]
    nodes = [_read_node(node) for node in _elements(top, "numa")]
    if "numa" not in top:
        nodes = [NumaNode(numa_id) for numa_id in sorted({cpu.numa for cpu in cpus})]
    devices = [_read_device(device) for device in _elements(top, "devices")]
    isolated, offline = (cpu_set(top[key]) if key in top else NO_CPUS for key in ("isolated", "offline"))
    name = top["name"].text() if "name" in top else ""
    try:
        return Machine(tuple(cpus), tuple(nodes), tuple(devices), isolated, offline, name)
    except InputError as error:
        doc.fail(error.what)


def machine_to_yaml(machine: Machine) -> str:
    """Write one machine so that `machine_from_doc` gives it back."""
    return str(yaml.safe_dump(machine_to_dict(machine), sort_keys=False, default_flow_style=None, width=100))


def machine_to_dict(machine: Machine) -> dict[str, Any]:
    """The document form; members that say nothing are left out."""
    groups: dict[tuple[int, int, int, CoreKind], dict[int, list[int]]] = {}
    for cpu in machine.cpus:
        cores = groups.setdefault((cpu.socket, cpu.numa, cpu.uncore, cpu.kind), {})
        cores.setdefault(cpu.core, []).append(cpu.id)
    out: dict[str, Any] = {
        "name": machine.name,
        "numa": [_node_to_dict(node) for node in machine.nodes],
        "cpus": [
            {"socket": socket, "numa": numa, "uncore": uncore}
            | ({"kind": kind.value} if kind is not CoreKind.PERFORMANCE else {})
            | {"cores": [_core_to_item(core, threads) for core, threads in cores.items()]}
            for (socket, numa, uncore, kind), cores in groups.items()
        ],
        "devices": [_device_to_dict(device) for device in machine.devices],
        "isolated": str(machine.isolated),
        "offline": str(machine.offline),
    }
    return {key: value for key, value in out.items() if value}


def _core_to_item(core: int, threads: list[int]) -> str | dict[str, Any]:
    text = str(CpuSet.from_ids(threads))
    return text if core == threads[0] else {"id": core, "cpus": text}


def _node_to_dict(node: NumaNode) -> dict[str, Any]:
    out = {
        "memoryBytes": node.memory_bytes,
        "hugepages": dict(node.hugepages),
        "distances": dict(node.distances),
    }
    return {"id": node.id} | {key: value for key, value in out.items() if value}


def _device_to_dict(device: Device) -> dict[str, Any]:
    out: dict[str, Any] = {"name": device.name, "kind": device.kind}
    if device.numa is not None:
        out["numa"] = device.numa
    return out | ({"attributes": dict(device.attributes)} if device.attributes else {})


def _elements(fields: dict[str, Doc], key: str) -> list[Doc]:
    return list(fields[key].elements()) if key in fields else []


def _read_group(doc: Doc) -> list[Cpu]:
    group = doc.fields(_GROUP)
    socket, numa, uncore = (_whole(group, key) for key in ("socket", "numa", "uncore"))
    kind = _KINDS[group["kind"].one_of(_KINDS)] if "kind" in group else CoreKind.PERFORMANCE
    cpus: list[Cpu] = []
    for item in _elements(group, "cores"):
        core = item.fields(_CORE) if item.is_mapping else {"cpus": item}
        threads = cpu_set(item.required(core, "cpus"))
        if not threads:
            item.fail("a core needs at least one CPU")
        core_id = _whole(core, "id", threads.first())
        cpus += [Cpu(cpu, core_id, socket, numa, uncore, kind) for cpu in threads]
    return cpus


def _read_node(doc: Doc) -> NumaNode:
    node = doc.fields(_NODE)
    doc.required(node, "id")
    hugepages, distances = (_read_table(node[key]) if key in node else {} for key in ("hugepages", "distances"))
    return NumaNode(_whole(node, "id"), _whole(node, "memoryBytes"), hugepages, distances)


def _read_table(doc: Doc) -> dict[int, int]:
    table: dict[int, int] = {}
    for key, value in doc.items().items():
        if not (key.isascii() and key.isdigit()):
            value.fail(f"{key!r} is not a whole number")
        table[int(key)] = value.integer(0, _MOST)
    return table


def _read_device(doc: Doc) -> Device:
    device = doc.fields(_DEVICE)
    attributes = device["attributes"].items() if "attributes" in device else {}
    return Device(
        doc.required(device, "name").text(),
        device["kind"].text() if "kind" in device else "other",
        device["numa"].integer(0, _MOST) if "numa" in device else None,
        {key: value.text() for key, value in attributes.items()},
    )


def _whole(fields: dict[str, Doc], key: str, absent: int = 0) -> int:
    return fields[key].integer(0, _MOST) if key in fields else absent
