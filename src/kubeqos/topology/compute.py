"""Allocation by the attributes of KEP-3675: what CCI drivers and the built-in exclusive policies call.

`allocate` serves one group of cores, `allocate_claim` a claim of several (exclusive ones first, all or
nothing). Hard attributes hold in every answer; soft ones are tried together, then dropped one by one, and the
answer says which. Nothing is remembered here: the caller passes what is available and records what it got
(`topology.pools`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kubeqos.model.cpuset import NO_NUMA, CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Reason, Shortage, Unsatisfiable, Violation
from kubeqos.topology.attributes import (
    CpuRequest,
    DeviceAffinity,
    Isolation,
    MemoryAffinity,
    Siblings,
    eligible,
    owned,
)
from kubeqos.topology.packed import take_packed
from kubeqos.topology.wholecores import (
    core_sums,
    even_core_shares,
    one_thread_each,
    take_most_siblings,
    take_whole_cores,
    whole_cores,
)


def allocate(machine: Machine, available: CpuSet, request: CpuRequest) -> Allocated | Unsatisfiable:
    """CPUs for one request out of `available` (online, not reserved, not owned exclusively by anyone)."""
    wrong = request.contradictions()
    if wrong:
        return Unsatisfiable(wrong)
    for attempt, dropped in _relaxations(request):
        mask = _Picker(machine, available, attempt).pick()
        if mask:
            cpus = CpuSet(mask)
            memory = _memory_nodes(machine, attempt, cpus)
            return Allocated(cpus, owned(machine, request, cpus), memory, dropped)
    return Unsatisfiable(_reasons(machine, available, request))


def allocate_claim(
    machine: Machine,
    available: CpuSet,
    requests: Sequence[CpuRequest],
    regions: Sequence[CpuSet] | None = None,
) -> tuple[Allocated, ...] | Unsatisfiable:
    """Every group of a claim, or none; exclusive groups go first, shared ones never stand in their way.

    No CPU serves two groups. `regions` bounds where each group may come from.
    """
    answers: dict[int, Allocated] = {}

    def urgency(index: int) -> tuple[bool, int, int]:
        return not requests[index].exclusive, -len(_hard_parts(requests[index])), index

    for index in sorted(range(len(requests)), key=urgency):
        inside = available & regions[index] if regions else available
        answer = allocate(machine, inside, requests[index])
        if isinstance(answer, Unsatisfiable):
            return answer
        answers[index] = answer
        # Only CORE-SIBLING-PREFERRED lets the rest of its own claim use a sibling that is left over.
        keeps = requests[index].siblings is not Siblings.PREFERRED
        available -= answer.whole | answer.cpus if keeps else answer.cpus
    return tuple(answers[index] for index in range(len(requests)))


def _relaxations(request: CpuRequest) -> Iterator[tuple[CpuRequest, tuple[str, ...]]]:
    """The request with its wishes turned into demands, then with fewer and fewer of them."""
    memories = [(request.memory, "")]
    if request.memory.preferred:
        memories = [
            (request.memory.as_required, ""),
            (MemoryAffinity.NONE, f"{request.memory.value} not met"),
        ]
    devices = [(request.device, "")]
    if request.device is DeviceAffinity.PREFERRED:
        devices = [(DeviceAffinity.REQUIRED, "")]
        if request.device_numa:
            devices.append((DeviceAffinity.NONE, f"{request.device.value} not met"))
    for device, no_device in devices:
        for memory, no_memory in memories:
            dropped = tuple(text for text in (no_device, no_memory) if text)
            yield replace(request, device=device, memory=memory), dropped


def _memory_nodes(machine: Machine, request: CpuRequest, cpus: CpuSet) -> NumaSet:
    """The nodes that memory should come from; empty where the request does not say."""
    if request.memory.interleave:
        return NumaSet.from_ids(node.id for node in machine.nodes if node.memory_bytes) or machine.cpu_numa
    return machine.numa_of(cpus) if request.memory.bind else NO_NUMA


@dataclass(frozen=True, slots=True)
class _Picker:
    """One attempt in which every attribute is a demand."""

    machine: Machine
    available: CpuSet
    request: CpuRequest

    def pick(self) -> int | None:
        """The largest answer up to what was asked for, or None below the least that was asked for."""
        request, layout = self.request, self.machine.layout
        region = eligible(self.machine, self.available, request)
        if request.device is DeviceAffinity.REQUIRED and request.device_numa:
            region &= self.machine.cpus_in(request.device_numa & self.machine.numa)
        usable = self.usable(region.mask)
        nodes = [usable & mask for mask in layout.numas.values()]
        if request.memory.interleave:
            return self._largest(usable, lambda count: self._interleaved(nodes, count))
        if not request.memory.bind:
            return self._largest(usable, lambda count: self._take(usable, count))
        best: tuple[int, int, int] | None = None
        for node in nodes:  # most CPUs first (a range may be served), then the fullest node: best fit
            found = self._largest(node, lambda count, node=node: self._take(node, count))  # type: ignore[misc]
            if found and (best is None or (-found.bit_count(), node.bit_count()) < best[:2]):
                best = (-found.bit_count(), node.bit_count(), found)
        return best[2] if best else None

    def usable(self, region: int) -> int:
        """What the sibling rule leaves of a region: complete cores, or one thread of each free core.

        Who owns full cores takes no part of one that others use.
        """
        if self.request.exclusive and not self.request.threads:
            region &= whole_cores(self.machine.layout, self.available.mask)
        if self.request.siblings is Siblings.REQUIRED:
            return whole_cores(self.machine.layout, region)
        if self.request.siblings is Siblings.DENIED:
            return one_thread_each(self.machine.layout, region, self.available.mask)
        return region

    def _largest(self, usable: int, take: Callable[[int], int | None]) -> int | None:
        most = min(self.request.most or self.request.count, usable.bit_count())
        counts: Sequence[int] = range(self.request.count, most + 1)
        if self.request.siblings is Siblings.REQUIRED:
            counts = [n for n in core_sums(self.machine.layout, usable, most) if n >= self.request.count]
        for count in reversed(counts):
            mask = take(count)
            if mask is not None:
                return mask
        return None

    def _take(self, usable: int, count: int) -> int | None:
        layout = self.machine.layout
        if count > usable.bit_count():
            return None
        if self.request.siblings is Siblings.REQUIRED:
            return take_whole_cores(layout, usable, count)
        if self.request.siblings is Siblings.PREFERRED:
            return take_most_siblings(layout, usable, count)
        return take_packed(layout, usable, count)

    def _interleaved(self, nodes: Sequence[int], count: int) -> int | None:
        """A share of every node, as even as can be; in whole cores where siblings are required."""
        if self.request.siblings is Siblings.REQUIRED:
            shares = even_core_shares(self.machine.layout, nodes, count)
        else:
            shares = _even_shares([node.bit_count() for node in nodes], count)
        if shares is None:
            return None
        union = 0
        for node, share in zip(nodes, shares, strict=True):
            union |= self._take(node, share) or 0
        return union


def _even_shares(room: Sequence[int], count: int) -> list[int] | None:
    """Shares that differ as little as possible, at least one for each node."""
    left = count - len(room)
    if left < 0 or min(room, default=0) < 1 or sum(room) < count:
        return None
    shares = [1] * len(room)
    while left:
        for index, most in enumerate(room):
            if left and shares[index] < most:
                shares[index] += 1
                left -= 1
    return shares


_NEUTRAL = {"siblings": Siblings.ANY, "memory": MemoryAffinity.NONE, "device": DeviceAffinity.NONE}


def _hard_parts(request: CpuRequest) -> list[str]:
    """The attributes of a request that are demands."""
    full = request.exclusive and not request.threads
    parts = ["siblings"] if full or request.siblings in (Siblings.REQUIRED, Siblings.DENIED) else []
    if request.memory.required:
        parts.append("memory")
    if request.device is DeviceAffinity.REQUIRED and request.device_numa:
        parts.append("device")
    return parts


def _reasons(machine: Machine, available: CpuSet, request: CpuRequest) -> tuple[Reason, ...]:
    """What stands in the way: a plain shortage, demands that fail by themselves, or their combination."""
    base = eligible(machine, available, request)
    if len(base) < request.count:
        isolated = "isolated " if request.isolation is Isolation.REQUIRED else ""
        kind = f"{request.kind.value} " if request.kind else ""
        return (Shortage(f"{isolated}{kind}cpus", request.count, len(base)),)
    parts = _hard_parts(request)
    found: list[Reason] = []
    for part in parts:
        alone = replace(request, **{name: value for name, value in _NEUTRAL.items() if name != part})  # type: ignore[arg-type]
        if not _Picker(machine, available, alone).pick():
            found.append(_explain(machine, available, request, part, base))
    if not found:
        names = " and ".join(getattr(request, part).value or "EXCLUSIVE" for part in parts)
        found.append(Violation(names, f"can each be met for {request.count} cpus, but not together"))
    return tuple(found)


def _explain(machine: Machine, available: CpuSet, request: CpuRequest, part: str, base: CpuSet) -> Reason:
    """Why one demand cannot be met."""
    count, name = request.count, getattr(request, part).value or "EXCLUSIVE"
    if part == "siblings":
        have = _Picker(machine, available, request).usable(base.mask).bit_count()
        if have >= count:
            return Violation(name, f"{count} cpus cannot be made of whole free cores")
        what = "whole free cores" if request.siblings is Siblings.DENIED else "cpus in whole free cores"
        return Shortage(what, count, have, f"({name})")
    if part == "device":
        inside = base & machine.cpus_in(request.device_numa & machine.numa)
        return Shortage("cpus", count, len(inside), f"on NUMA {request.device_numa} ({name})")
    if request.memory.bind:
        roomiest = max((len(base & cpus) for cpus in machine.numa_cpus.values()), default=0)
        return Shortage("cpus", count, roomiest, f"on one NUMA node ({name})")
    empty = machine.cpu_numa - machine.numa_of(base)
    if empty:
        return Violation(name, f"NUMA nodes {empty} have no free cpu")
    return Violation(name, f"{count} cpus cannot cover {len(machine.cpu_numa)} NUMA nodes")
