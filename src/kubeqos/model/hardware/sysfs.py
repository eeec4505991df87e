"""Reads a `Machine` from a sysfs tree: the one module of this room that touches files.

The root is a parameter (`/sys` on a node, a recorded tree in tests). What the kernel does not tell is filled
with what Linux itself would assume; a tree without any CPU is refused. Called by the node agent at start and
by `kubeqos map --sysfs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.model.machine import CoreKind, Cpu, Device, Machine, NumaNode

# PCI base class and subclass → what people call it (PCI Code and ID Assignment specification, §1)
MOST_PARENTS = 4
"""How far above a device another one may say where both are: a bridge or two, never the root of all buses."""
PCI_KINDS = {"0x0108": "nvme", "0x0300": "gpu", "0x0302": "gpu", "0x0380": "gpu", "0x1200": "accelerator"}


def read_machine(root: Path, name: str = "") -> Machine:
    """The machine that this sysfs tree describes."""
    cpu_dir = root / "devices/system/cpu"
    online = _online(cpu_dir)
    if not online:
        raise InputError("no CPU found", where=str(cpu_dir), remedy="give the root of a sysfs tree, for example /sys")
    nodes = list(_nodes(root / "devices/system/node"))
    home = {cpu: node.id for node, cpus in nodes for cpu in cpus}
    uncores = _caches(cpu_dir, online)
    slow = _efficiency(root, cpu_dir, online)
    cores = _cores(cpu_dir, online)
    cpus = tuple(
        Cpu(
            number,
            cores[number],
            _socket(cpu_dir / f"cpu{number}"),
            home.get(number, 0),
            uncores[number],
            CoreKind.EFFICIENCY if number in slow else CoreKind.PERFORMANCE,
        )
        for number in online
    )
    described = tuple(node for node, _ in nodes) or (NumaNode(0),)
    isolated = _cpu_list(cpu_dir / "isolated") & online
    devices = tuple(_devices(root, {node.id for node in described}))
    return Machine(cpus, described, devices, isolated, _cpu_list(cpu_dir / "offline") - online, name)


def _text(path: Path) -> str | None:
    """One small file, or None when it is absent or the driver refuses to show it."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _number(path: Path, default: int) -> int:
    text = _text(path)
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]+", text) else default


def _cpu_list(path: Path) -> CpuSet:
    text = _text(path)
    try:
        return CpuSet.parse(text) if text else NO_CPUS
    except InputError as error:
        raise InputError(error.what, where=str(path), remedy=error.remedy) from error


def _numbered(folder: Path, prefix: str, suffix: str = "") -> list[tuple[int, Path]]:
    """Entries such as cpu0, node3 or hugepages-2048kB, ascending by number."""
    if not folder.is_dir():
        return []
    found = [(re.fullmatch(prefix + r"([0-9]+)" + suffix, path.name), path) for path in folder.iterdir()]
    return sorted((int(match[1]), path) for match, path in found if match)


def _online(cpu_dir: Path) -> CpuSet:
    """CPUs that are online and described; very old kernels have the folders but no list."""
    with_topology = CpuSet.from_ids(n for n, path in _numbered(cpu_dir, "cpu") if (path / "topology").is_dir())
    listed = _cpu_list(cpu_dir / "online")
    return listed & with_topology if listed else with_topology


def _socket(cpu: Path) -> int:
    return max(0, _number(cpu / "topology/physical_package_id", 0))


def _cores(cpu_dir: Path, online: CpuSet) -> dict[int, int]:
    """Core of each CPU, named by its lowest online thread: the kernel's core_id repeats on every socket."""
    cores: dict[int, int] = {}
    for number in online:
        topology = cpu_dir / f"cpu{number}/topology"
        threads = _cpu_list(topology / "core_cpus_list") or _cpu_list(topology / "thread_siblings_list")
        cores[number] = (threads & online or CpuSet.of(number)).first()
    return cores


def _caches(cpu_dir: Path, online: CpuSet) -> dict[int, int]:
    """Last-level cache of each CPU, numbered in CPU order; the socket stands in where there is no L3."""
    numbers: dict[tuple[str, int], int] = {}
    uncores: dict[int, int] = {}
    for number in online:
        cpu = cpu_dir / f"cpu{number}"
        key = ("socket", _socket(cpu))
        for _, index in _numbered(cpu / "cache", "index"):
            if _text(index / "level") == "3":
                key = ("cache", (_cpu_list(index / "shared_cpu_list") or CpuSet.of(number)).mask)
        uncores[number] = numbers.setdefault(key, len(numbers))
    return uncores


def _efficiency(root: Path, cpu_dir: Path, online: CpuSet) -> CpuSet:
    """Efficiency cores: Intel lists them as cpu_atom; elsewhere CPUs below the greatest cpu_capacity."""
    atom = _cpu_list(root / "devices/cpu_atom/cpus") & online
    if atom:
        return atom
    capacity = {number: _number(cpu_dir / f"cpu{number}/cpu_capacity", 0) for number in online}
    greatest = max(capacity.values())
    return CpuSet.from_ids(number for number, value in capacity.items() if 0 < value < greatest)


def _nodes(folder: Path) -> Iterator[tuple[NumaNode, CpuSet]]:
    found = _numbered(folder, "node")
    listed = _text(folder / "online")
    online = NumaSet.parse(listed) if listed else NumaSet.from_ids(n for n, _ in found)
    ids = [number for number, _ in found if number in online]
    for number, path in found:
        if number not in online:
            continue
        memory = re.search(r"MemTotal:\s*([0-9]+) kB", _text(path / "meminfo") or "")
        pages = {
            size_kb << 10: count
            for size_kb, entry in _numbered(path / "hugepages", "hugepages-", "kB")
            if (count := _number(entry / "nr_hugepages", 0))
        }
        row = [int(item) for item in (_text(path / "distance") or "").split()]
        distances = dict(zip(ids, row, strict=True)) if len(row) == len(ids) else {}
        total = int(memory[1]) << 10 if memory else 0
        yield NumaNode(number, total, pages, distances), _cpu_list(path / "cpulist")


def _devices(root: Path, nodes: set[int]) -> Iterator[Device]:
    """NICs that are real hardware, then the PCI devices of the kinds that workloads ask for."""

    def numa_of(path: Path) -> int | None:
        # A virtio interface is the child of the PCI device that has the node: whoever is nearest and says it counts.
        for one in (path, *list(path.resolve().parents)[:MOST_PARENTS]):
            number = _number(one / "numa_node", -1)
            if number in nodes:
                return number
        return None

    for path in _entries(root / "class/net"):
        if (path / "device").exists():  # virtual interfaces have no device behind them
            speed = _number(path / "speed", -1)
            facts = {"speed": str(speed)} if speed > 0 else {}
            if address := _text(path / "address"):
                facts["address"] = address
            yield Device(path.name, "nic", numa_of(path / "device"), facts)
    for path in _entries(root / "bus/pci/devices"):
        kind = PCI_KINDS.get((_text(path / "class") or "")[:6])
        if kind:
            facts = {key: text for key in ("vendor", "device") if (text := _text(path / key))}
            yield Device(path.name, kind, numa_of(path), facts)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []
