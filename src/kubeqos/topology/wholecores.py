"""Exactly so many CPUs made of complete cores, on machines whose cores differ in size too.

Used where siblings are required (KEP-3675) and by full-pcpus-only. Regular machines take the packed answer as
it is; hybrid ones need a little arithmetic, because three CPUs can be one big core and one small one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kubeqos.model.cpuset import iterate_bits
from kubeqos.model.hardware.layout import Layout
from kubeqos.topology.packed import sorted_numas, take_packed


def whole_cores(layout: Layout, free: int) -> int:
    """The part of `free` that consists of complete cores."""
    mask = 0
    for core in layout.cores.values():
        if core & free == core:
            mask |= core
    return mask


def take_whole_cores(layout: Layout, free: int, count: int) -> int | None:
    """Complete cores out of `free` with exactly `count` CPUs together; None when there is no such choice."""
    free = whole_cores(layout, free)
    if count > free.bit_count():
        return None
    packed = take_packed(layout, free, count)
    if whole_cores(layout, packed) == packed:
        return packed
    by_size: dict[int, list[int]] = {}
    for numa in sorted_numas(layout, free):
        for core in layout.cores_in_numa[numa]:
            if layout.cores[core] & free:
                by_size.setdefault(layout.cores[core].bit_count(), []).append(layout.cores[core])
    sizes = sorted(by_size, reverse=True)
    numbers = _solve([(size, len(by_size[size])) for size in sizes], count)
    if numbers is None:
        return None
    mask = 0
    for size, number in zip(sizes, numbers, strict=True):
        for core in by_size[size][:number]:
            mask |= core
    return mask


def take_most_siblings(layout: Layout, free: int, count: int) -> int:
    """`count` CPUs out of `free`, as many of them as possible in complete cores."""
    able = min(count, whole_cores(layout, free).bit_count())
    for number in range(able, 0, -1):
        mask = take_whole_cores(layout, free, number)
        if mask is not None:
            rest = count - number
            return mask | (take_packed(layout, free & ~mask, rest) if rest else 0)
    return take_packed(layout, free, count)


def one_thread_each(layout: Layout, region: int, available: int) -> int:
    """One thread in `region` of each core that is completely available."""
    mask = 0
    for core in layout.cores.values():
        if core & available == core and core & region:
            mask |= 1 << next(iterate_bits(core & region))
    return mask


def even_core_shares(layout: Layout, nodes: Sequence[int], count: int) -> list[int] | None:
    """How many CPUs of each node, in complete cores and at least one core, add up to `count` most evenly."""
    best: dict[int, tuple[int, list[int]]] = {0: (0, [])}  # total so far → sum of squares, shares
    for node in nodes:
        following: dict[int, tuple[int, list[int]]] = {}
        for share in core_sums(layout, node, count):
            for total, (squares, shares) in best.items():
                known = following.get(total + share)
                if total + share <= count and (known is None or squares + share * share < known[0]):
                    following[total + share] = (squares + share * share, [*shares, share])
        best = following
    return best[count][1] if count in best else None


def core_sums(layout: Layout, free: int, most: int) -> list[int]:
    """Every number of CPUs, from one core up to `most`, that complete cores in `free` can add up to."""
    reachable = 1  # bit n: n CPUs can be had
    for core in layout.cores.values():
        if core & free == core:
            reachable |= reachable << core.bit_count()
    return [number for number in range(1, most + 1) if reachable >> number & 1]


def _solve(sizes: list[tuple[int, int]], total: int) -> list[int] | None:
    """How many of each size (with how many there are) add up to the total; large ones are used first."""
    if not sizes:
        return [] if total == 0 else None
    (size, number), rest = sizes[0], sizes[1:]
    for used in range(min(number, total // size), -1, -1):
        others = _solve(rest, total - used * size)
        if others is not None:
            return [used, *others]
    return None
