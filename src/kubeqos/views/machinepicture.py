"""A machine as a picture: sockets, NUMA nodes, caches, cores and threads in the colours of their owners. Pure.

The twin of the text of `topology.map`, with the same letters. For `kubeqos map -o svg|png` and the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import CoreKind, Cpu, Machine
from kubeqos.topology.map import FIXED, NOBODY, memory_only, node_line, owner_signs
from kubeqos.views.picture import FAINT, FREE, LINE, OWNERS, PAPER, PLATE, TEXT, Box, Label, Picture

WIDTH = 760.0
THREAD, CORE_GAP, ROW = 17.0, 5.0, 23.0
MARGIN, INDENT = 16.0, 62.0
_RESERVED, _ISOLATED = "#c4ccd4", "#f3e3b3"

Part = Box | Label


def machine_picture(machine: Machine, owners: Mapping[str, CpuSet], title: str) -> Picture:
    """Draw the machine with its owners; CPUs of nobody count as shared."""
    owners = {name: cpus & machine.online for name, cpus in owners.items() if cpus & machine.online}
    signs = owner_signs(owners)
    of_cpu = {cpu: name for name, cpus in owners.items() for cpu in cpus}
    parts: list[Part] = [Label(MARGIN, 26, title, 16, bold=True)]
    y = 44.0
    for socket in machine.sockets:
        for node in machine.nodes:
            inside = [cpu for cpu in machine.cpus if cpu.socket == socket and cpu.numa == node.id]
            if inside:
                drawn, bottom = _numa(inside, of_cpu, signs, y)
                words = f"socket {socket}   {node_line(machine, node)}"
                parts.append(Box(MARGIN, y, WIDTH - 2 * MARGIN, bottom - y, PLATE, LINE, 6))
                parts.append(Label(MARGIN + 10, y + 19, words, 12, FAINT))
                parts += drawn
                y = bottom + 10
    for line in memory_only(machine):
        parts.append(Label(MARGIN + 10, y + 12, line, 12, FAINT))
        y += ROW
    legend, bottom = _legend(owners, signs, y + 10)
    return Picture(WIDTH, bottom + 8, title, (*parts, *legend))


def _numa(cpus: list[Cpu], of_cpu: Mapping[int, str], signs: Mapping[str, str], top: float) -> tuple[list[Part], float]:
    """The caches of one NUMA node, each in rows of cores; and where it ends."""
    parts: list[Part] = []
    y = top + 30
    by_cache = sorted(cpus, key=lambda one: (one.uncore, one.kind is CoreKind.EFFICIENCY, one.core, one.id))
    for uncore, group in groupby(by_cache, key=lambda one: one.uncore):
        parts.append(Label(MARGIN + 10, y + 13, f"L3 {uncore}", 11, FAINT))
        x = MARGIN + INDENT
        for _, threads in groupby(group, key=lambda one: one.core):
            core = list(threads)
            if x + len(core) * THREAD > WIDTH - MARGIN - 8:
                x, y = MARGIN + INDENT, y + ROW
            for cpu in core:
                parts += _thread(cpu, of_cpu.get(cpu.id, ""), signs, x, y)
                x += THREAD
            x += CORE_GAP
        y += ROW
    return parts, y + 5


def _thread(cpu: Cpu, owner: str, signs: Mapping[str, str], x: float, y: float) -> Iterator[Part]:
    sign = signs.get(owner, NOBODY)
    fill, ink = colours(owner, sign)
    told = f"CPU {cpu.id}: {owner or 'shared'}; core {cpu.core}, cache {cpu.uncore}, NUMA {cpu.numa}"
    yield Box(x, y, THREAD - 1, THREAD, fill, LINE if fill == FREE else "", 2, told)
    if sign != NOBODY:
        yield Label(x + (THREAD - 1) / 2, y + 12.5, sign, 11, ink, True, "middle")


def colours(owner: str, sign: str) -> tuple[str, str]:
    """Of an owner's threads and of the letter on them."""
    if owner in FIXED or sign == NOBODY:
        return {"reserved": _RESERVED, "isolated": _ISOLATED}.get(owner, FREE), TEXT
    index = ord(sign) - ord("A")
    return OWNERS[index % len(OWNERS)], PAPER


def _legend(owners: Mapping[str, CpuSet], signs: Mapping[str, str], y: float) -> tuple[list[Part], float]:
    parts: list[Part] = []
    for name in sorted(owners, key=lambda one: (one in FIXED, owners[one].first(), one)):
        fill, ink = colours(name, signs[name])
        parts.append(Box(MARGIN, y, THREAD - 1, THREAD, fill, LINE if fill == FREE else "", 2))
        if signs[name] != NOBODY:
            parts.append(Label(MARGIN + (THREAD - 1) / 2, y + 12.5, signs[name], 11, ink, True, "middle"))
        words = f"{name}: {len(owners[name])} CPUs, {owners[name]}"
        parts.append(Label(MARGIN + 26, y + 13, words if len(words) < 110 else f"{words[:108]} …", 12))
        y += ROW
    return parts, y
