"""Packed CPU allocation: whole sockets and NUMA nodes, then caches, then cores, then threads, best fit first.

Follows Kubernetes' static policy decision for decision (`kubernetes-node` notes §5.2), with one difference on
purpose: a unit counts as whole only if all of it is free, so that an irregular machine never yields CPUs that
were taken. `spread` skips whole cores and walks CPU ids (option distribute-cpus-across-cores). Masks are
plain ints here; `topology.cpus` is the door that speaks `CpuSet`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kubeqos.model.cpuset import iterate_bits
from kubeqos.model.hardware.layout import Layout


def take_packed(layout: Layout, free: int, count: int, *, spread: bool = False, by_uncore: bool = False) -> int:
    """Exactly `count` CPUs out of `free`, which must hold that many."""
    taker = _Taker(layout, free, count)
    stages = [taker.whole_numas, taker.whole_sockets]
    if not layout.numa_first:
        stages.reverse()
    if by_uncore:
        stages.append(taker.uncores)
    if not spread:
        stages.append(taker.whole_cores)
    stages.append(taker.threads_spread if spread else taker.threads_packed)
    for stage in stages:
        if taker.need <= 0:
            break
        stage()
    return taker.taken


def take_in_steps(layout: Layout, free: int, steps: int, group: int, *, spread: bool = False) -> int:
    """What `steps` packed allocations of `group` CPUs each would take one after the other, mostly in one go.

    A step too small for a whole core takes threads of the fullest cores, a step of one core takes whole cores while
    there are any: both are just the later stages of one large allocation.
    """
    taker = _Taker(layout, free, steps * group)
    if spread and group < layout.socket_size:
        taker.threads_spread()
    elif group in (1, layout.core_size) and group < layout.socket_size:
        if group == layout.core_size:
            taker.whole_cores()
        if taker.need > 0:
            taker.threads_packed()
    else:
        for _ in range(steps):
            taken = take_packed(layout, taker.free, group, spread=spread)
            taker.taken |= taken
            taker.free &= ~taken
    return taker.taken


def sorted_numas(layout: Layout, free: int) -> list[int]:
    """NUMA nodes with free CPUs, fullest first; nested in their sockets when sockets are the larger unit."""
    if layout.numa_first:
        return _by_free(layout.numas, layout.numas, free)
    found: list[int] = []
    for socket in _by_free(layout.sockets, layout.sockets, free):
        found += _by_free(layout.numas_in_socket[socket], layout.numas, free)
    return list(dict.fromkeys(found))


def _by_free(ids: Iterable[int], masks: Mapping[int, int], free: int) -> list[int]:
    """Units with free CPUs, those with the fewest first: best fit leaves the emptiest units whole."""
    return [unit for _, unit in sorted([((masks[i] & free).bit_count(), i) for i in ids if masks[i] & free])]


class _Taker:
    """State of one allocation: what is still free, still needed, already taken."""

    __slots__ = ("free", "layout", "need", "taken")

    def __init__(self, layout: Layout, free: int, count: int) -> None:
        self.layout = layout
        self.free = free
        self.need = count
        self.taken = 0

    def _take(self, mask: int) -> None:
        self.taken |= mask
        self.free &= ~mask
        self.need -= mask.bit_count()

    def _take_whole(self, units: Iterable[int], masks: Mapping[int, int], nominal: int | None) -> None:
        for unit in units:
            mask = masks[unit]
            size = mask.bit_count()
            if size <= self.need and mask & self.free == mask and nominal in (None, size):
                self._take(mask)

    def whole_numas(self) -> None:
        self._take_whole(sorted_numas(self.layout, self.free), self.layout.numas, None)

    def whole_sockets(self) -> None:
        if self.need >= self.layout.socket_size:
            self._take_whole(self._sockets(), self.layout.sockets, self.layout.socket_size)

    def uncores(self) -> None:
        """Whole caches while they fit; else the whole remainder inside one cache, never spread over two."""
        order = self._uncores()
        if self.need >= self.layout.uncore_size:
            self._take_whole(order, self.layout.uncores, None)
        for uncore in order:
            if self.need <= 0:
                return
            self._fit_into(uncore)

    def _fit_into(self, uncore: int) -> None:
        layout = self.layout
        wanted = -(-self.need // layout.core_size)
        mask = 0
        for core in layout.cores_in_uncore[uncore]:
            if layout.cores[core] & self.free:
                mask |= layout.cores[core] & self.free
                wanted -= 1
                if not wanted:
                    break
        if self.need % 2 and layout.core_size > 1 and mask.bit_count() > self.need:
            mask ^= 1 << (mask.bit_length() - 1)
        if mask.bit_count() == self.need:
            self._take(mask)

    def whole_cores(self) -> None:
        size = self.layout.core_size
        for cores in self._cores():
            if self.need < size:
                return
            self._take_whole(cores, self.layout.cores, size)

    def threads_packed(self) -> None:
        for cores in self._cores():
            for core in cores:
                self._take_lowest(self.layout.cores[core] & self.free)
                if self.need <= 0:
                    return

    def threads_spread(self) -> None:
        for socket in self._sockets():
            self._take_lowest(self.layout.sockets[socket] & self.free)
            if self.need <= 0:
                return

    def _take_lowest(self, mask: int) -> None:
        if mask.bit_count() > self.need:
            kept = 0
            for cpu, _ in zip(iterate_bits(mask), range(self.need), strict=False):
                kept |= 1 << cpu
            mask = kept
        self._take(mask)

    def _sockets(self) -> list[int]:
        layout, free = self.layout, self.free
        if not layout.numa_first:
            return _by_free(layout.sockets, layout.sockets, free)
        found: list[int] = []
        for numa in sorted_numas(layout, free):
            found += _by_free(layout.sockets_in_numa[numa], layout.sockets, free)
        return list(dict.fromkeys(found))

    def _uncores(self) -> list[int]:
        layout, free = self.layout, self.free
        found: list[int] = []
        for numa in sorted_numas(layout, free):
            found += _by_free(layout.uncores_in_numa[numa], layout.uncores, free)
        return list(dict.fromkeys(found))

    def _cores(self) -> Iterator[list[int]]:
        """Cores with free CPUs, one list per enclosing unit, so that no more is sorted than needed."""
        layout = self.layout
        if layout.numa_first:
            for socket in self._sockets():
                yield _by_free(layout.cores_in_socket[socket], layout.cores, self.free)
        else:
            for numa in sorted_numas(layout, self.free):
                yield _by_free(layout.cores_in_numa[numa], layout.cores, self.free)
