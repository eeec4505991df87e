"""A machine as a document that people write: dict or YAML to `Machine` and back.

    name: split80
    numa:
    - {id: 0, memoryBytes: 242665652224, hugepages: {2097152: 1024}, distances: {0: 10, 1: 21}}
    cpus:
    - {socket: 0, numa: 0, uncore: 0, cores: ["0,40", "1,41"]}
    devices:
    - {name: eth0, kind: nic, numa: 0}

CPUs come in groups that share socket, NUMA node, cache and kind; each core is the list of its threads. Called
by the CLI and the node agent's configuration; every mistake is one `InputError` that says where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import yaml

from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import CoreKind, Cpu, Device, Machine, NumaNode

T = TypeVar("T")

_TOP = {"name", "numa", "cpus", "devices", "isolated", "offline"}
_GROUP = {"socket", "numa", "uncore", "kind", "cores"}
_NODE = {"id", "memoryBytes", "hugepages", "distances"}
_DEVICE = {"name", "kind", "numa", "attributes"}


def machine_from_yaml(text: str) -> Machine:
    """Read one machine from YAML (or JSON, which is YAML)."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"machine description: not YAML: {error}") from error
    return machine_from_dict(document)


def machine_to_yaml(machine: Machine) -> str:
    """Write one machine so that `machine_from_yaml` gives it back."""
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


def machine_from_dict(document: object) -> Machine:
    """Read the document form."""
    top = _mapping(document, "machine", _TOP)
    cpus: list[Cpu] = []
    for index, item in enumerate(_list(top.get("cpus"), "cpus")):
        cpus += _read_group(_mapping(item, f"cpus[{index}]", _GROUP), f"cpus[{index}]")
    nodes = [_read_node(item, f"numa[{i}]") for i, item in enumerate(_list(top.get("numa"), "numa"))]
    if "numa" not in top:
        nodes = [NumaNode(numa_id) for numa_id in sorted({cpu.numa for cpu in cpus})]
    devices = [_read_device(item, f"devices[{i}]") for i, item in enumerate(_list(top.get("devices"), "devices"))]
    isolated, offline = (_at(key, CpuSet.parse, str(top.get(key, ""))) for key in ("isolated", "offline"))
    return Machine(tuple(cpus), tuple(nodes), tuple(devices), isolated, offline, str(top.get("name", "")))


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


def _read_group(group: Mapping[str, Any], where: str) -> list[Cpu]:
    socket, numa, uncore = (_integer(group.get(key, 0), f"{where}.{key}") for key in ("socket", "numa", "uncore"))
    kind = _at(f"{where}.kind", _read_kind, group.get("kind", CoreKind.PERFORMANCE.value))
    cpus: list[Cpu] = []
    for index, item in enumerate(_list(group.get("cores"), f"{where}.cores")):
        place = f"{where}.cores[{index}]"
        core_id = item.get("id") if isinstance(item, dict) else None
        threads = _at(place, CpuSet.parse, str(item.get("cpus", "") if isinstance(item, dict) else item))
        if not threads:
            raise InputError("machine description: a core needs at least one CPU", where=place)
        core = threads.first() if core_id is None else _integer(core_id, f"{place}.id")
        cpus += [Cpu(cpu, core, socket, numa, uncore, kind) for cpu in threads]
    return cpus


def _read_kind(value: object) -> CoreKind:
    for kind in CoreKind:
        if value == kind.value:
            return kind
    raise InputError(f"unknown core kind {value!r}", remedy="write performance or efficiency")


def _read_node(item: object, where: str) -> NumaNode:
    node = _mapping(item, where, _NODE)
    tables = []
    for key in ("hugepages", "distances"):
        table = _mapping(node.get(key) or {}, f"{where}.{key}", None)
        tables.append({_integer(k, f"{where}.{key}"): _integer(v, f"{where}.{key}") for k, v in table.items()})
    memory = _integer(node.get("memoryBytes", 0), f"{where}.memoryBytes")
    return NumaNode(_integer(node.get("id"), f"{where}.id"), memory, *tables)


def _read_device(item: object, where: str) -> Device:
    device = _mapping(item, where, _DEVICE)
    if not device.get("name"):
        raise InputError("machine description: a device needs a name", where=where)
    numa = None if device.get("numa") is None else _integer(device["numa"], f"{where}.numa")
    attributes = _mapping(device.get("attributes") or {}, f"{where}.attributes", None)
    return Device(
        str(device["name"]),
        str(device.get("kind", "other")),
        numa,
        {str(k): str(v) for k, v in attributes.items()},
    )


def _at(where: str, read: Callable[[Any], T], value: object) -> T:
    try:
        return read(value)
    except InputError as error:
        raise InputError(f"machine description: {error.what}", where=where, remedy=error.remedy) from error


def _mapping(value: object, where: str, known: set[str] | None) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise InputError("machine description: expected a mapping", where=where)
    unknown = sorted(map(str, set(value) - known)) if known is not None else []
    if unknown:
        raise InputError(
            f"machine description: unknown member {unknown[0]!r}",
            where=where,
            remedy=f"known members are {', '.join(sorted(known or ()))}",
        )
    return value


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError("machine description: expected a list", where=where)
    return value


def _integer(value: object, where: str) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"machine description: expected a whole number, not {value!r}", where=where)
    return value
