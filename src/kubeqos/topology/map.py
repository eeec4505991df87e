"""A machine as text: sockets, NUMA nodes, caches, cores, and who owns each thread.

    socket 0
      NUMA 0  16.0 GiB  nic eth0
        L3 0  AA AA .. ..  0-7

One character is one thread, one group of characters one core, one line one cache (or a part of it). Plain
ASCII, the same with and without colour. Used by `kubeqos map` and by `kubeqos why`.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from itertools import groupby

from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.machine import CoreKind, Cpu, Machine, NumaNode

FIXED = {"shared": ".", "reserved": "#", "isolated": "!"}  # the pools that every machine has
LETTERS = string.ascii_uppercase + string.ascii_lowercase + string.digits
CROWD = "*"  # owners beyond the letters
NOBODY = "."
WIDTH = 100


def render_map(machine: Machine, owners: Mapping[str, CpuSet] | None = None, *, width: int = WIDTH) -> str:
    """Draw the machine with its owners (for example `Pools.partition`); CPUs of nobody count as shared."""
    owners = {name: cpus & machine.online for name, cpus in (owners or {}).items()}
    signs = owner_signs(owners)
    of_cpu = {cpu: signs[name] for name, cpus in owners.items() for cpu in cpus}
    lines = [_title(machine)]
    digits = len(str(max(machine.uncores, default=0)))
    for socket in machine.sockets:
        lines.append(f"socket {socket}")
        for node in machine.nodes:
            inside = [c for c in machine.cpus if c.socket == socket and c.numa == node.id]
            if inside:
                lines.append("  " + node_line(machine, node))
                lines += _core_lines(inside, of_cpu, digits, width)
    lines += memory_only(machine)
    lines += _legend(owners, signs)
    return "\n".join(lines) + "\n"


def _title(machine: Machine) -> str:
    counts = (
        (len(machine.online), "CPU"),
        (len(machine.cores), "core"),
        (len(machine.uncores), "L3 cache"),
        (len(machine.numa), "NUMA node"),
        (len(machine.sockets), "socket"),
    )
    text = ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in counts)
    extra = "".join(
        f"; {what} {cpus}" for what, cpus in (("isolated", machine.isolated), ("offline", machine.offline)) if cpus
    )
    return (f"{machine.name}: " if machine.name else "") + text + extra


def node_line(machine: Machine, node: NumaNode) -> str:
    """A NUMA node in one line: its memory, huge pages and devices."""
    devices = [f"{device.kind} {device.name}" for device in machine.devices if device.numa == node.id]
    pages = [f"{count} x {_size(page)} pages" for page, count in sorted(node.hugepages.items()) if count]
    return "  ".join([f"NUMA {node.id}", _size(node.memory_bytes), *pages, *devices])


def _core_lines(cpus: list[Cpu], of_cpu: Mapping[int, str], digits: int, width: int) -> Iterator[str]:
    """One line per cache and kind of core, broken where too wide; each ends with the CPUs it shows."""
    mixed = len({cpu.kind for cpu in cpus}) > 1
    pad = len("    L3 ") + digits + (len(" performance") if mixed else 0)
    by_cache = sorted(cpus, key=lambda c: (c.uncore, c.kind is CoreKind.EFFICIENCY, c.core, c.id))
    for (uncore, kind), group in groupby(by_cache, key=lambda c: (c.uncore, c.kind)):
        label = (f"    L3 {uncore:<{digits}}" + (f" {kind.value}" if mixed else "")).ljust(pad)
        cores = [list(threads) for _, threads in groupby(group, key=lambda c: c.core)]
        cell = max(map(len, cores)) + 1
        per_line = max(1, (width - len(label) - 32) // cell)
        for start in range(0, len(cores), per_line):
            row = cores[start : start + per_line]
            drawn = " ".join("".join(of_cpu.get(cpu.id, NOBODY) for cpu in core) for core in row)
            numbers = CpuSet.from_ids(cpu.id for core in row for cpu in core)
            yield f"{label if not start else ' ' * len(label)}  {drawn}  {numbers}"


def memory_only(machine: Machine) -> Iterator[str]:
    """Nodes without CPUs, those of equal size on one line."""
    bare = [node for node in machine.nodes if node.id not in machine.cpu_numa]
    for size, group in groupby(bare, key=lambda node: node.memory_bytes):
        nodes = list(group)
        if len(nodes) == 1:
            yield f"{node_line(machine, nodes[0])}  memory only"
            continue
        ids = NumaSet.from_ids(node.id for node in nodes)
        devices = [f"{d.kind} {d.name}" for d in machine.devices if d.numa is not None and d.numa in ids]
        yield "  ".join([f"NUMA {ids}", f"{_size(size)} each", "memory only", *devices])


def owner_signs(owners: Mapping[str, CpuSet]) -> dict[str, str]:
    """A character for each owner, letters in the order of their first CPUs."""
    signs = {name: FIXED[name] for name in owners if name in FIXED}
    rest = sorted((name for name in owners if name not in FIXED), key=lambda n: (_first(owners[n]), n))
    for index, name in enumerate(rest):
        signs[name] = LETTERS[index] if index < len(LETTERS) else CROWD
    return signs


def _legend(owners: Mapping[str, CpuSet], signs: Mapping[str, str]) -> Iterator[str]:
    shown = [name for name in owners if owners[name]]
    if not shown:
        return
    widest = max(map(len, shown))
    yield ""
    for name in sorted(shown, key=lambda n: (n in FIXED, _first(owners[n]), n)):
        cpus = owners[name]
        yield f"{signs[name]} {name:<{widest}}  {len(cpus):>4}  {cpus}"


def _first(cpus: CpuSet) -> int:
    return cpus.first() if cpus else -1


def _size(size: int) -> str:
    for shift, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            text = f"{size / (1 << shift):.1f}".removesuffix(".0")
            return f"{text} {unit}"
    return f"{size} B"
