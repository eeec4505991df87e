"""Speed of topology decisions, beside their targets.

The Go figures are constants for comparison, not measured here: Kubernetes' own functions, timed earlier on two cores
of the same kind with inputs of the same size; "reported" is a user's report on other hardware (kubernetes#131738).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import combinations

from bench.machine import describe
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import big384, regular, superchip34
from kubeqos.model.machine import Machine
from kubeqos.topology.alignment.cpuhints import cpu_hints
from kubeqos.topology.alignment.hints import Hint, Offer, Policy
from kubeqos.topology.alignment.merge import merge
from kubeqos.topology.attributes import CpuRequest, MemoryAffinity, Siblings
from kubeqos.topology.compute import allocate
from kubeqos.topology.cpus import CpuOptions, take_cpus
from kubeqos.topology.map import render_map
from kubeqos.topology.memory import MemoryState

SEED = 5


def best_ms(work: Callable[[], object], repeats: int = 7) -> float:
    """The best of several runs, in milliseconds: the least disturbed one."""
    work()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best * 1000


def report(what: str, ms: float, target: float | None = None, upstream: str = "") -> None:
    goal = f"target {target:g} ms {'met' if ms <= target else 'MISSED'}" if target is not None else ""
    print(f"  {what:<64} {ms:9.3f} ms  {goal:<20} {f'Go: {upstream}' if upstream else ''}".rstrip())


def all_masks(nodes: int) -> list[NumaSet]:
    return [NumaSet.from_ids(c) for k in range(1, nodes + 1) for c in combinations(range(nodes), k)]


def disagreeing_offers(nodes: int, providers: int) -> list[Offer]:
    """Every provider offers every mask, and no mask is preferred by all: the worst case of a merge."""
    masks = all_masks(nodes)
    return [
        Offer("p", f"r{i}", [Hint(mask, len(mask) == 1 and mask.first() == i % nodes) for mask in masks])
        for i in range(providers)
    ]


def agreeing_offers(nodes: int, providers: int) -> list[Offer]:
    return [Offer("p", f"r{i}", [Hint(m, len(m) == 1) for m in all_masks(nodes)]) for i in range(providers)]


def realistic_34() -> list[Offer]:
    """Singles, pairs and all of 34 nodes for cpu and memory; devices on four nodes, a NIC on two."""
    ids = [*((i,) for i in range(34)), *combinations(range(34), 2), tuple(range(34))]
    pairs = [NumaSet.from_ids(c) for c in ids]
    gpus = [NumaSet.from_ids(c) for k in (1, 2) for c in combinations(range(2, 6), k)]
    nics = [NumaSet.of(0), NumaSet.of(17)]
    return [
        Offer("cpu", "cpu", [Hint(m, len(m) == 2) for m in pairs]),
        Offer("memory", "memory", [Hint(m, len(m) == 1) for m in pairs]),
        Offer("memory", "hugepages-1Gi", [Hint(m, len(m) == 1) for m in pairs]),
        Offer("device", "example.com/gpu", [Hint(m, len(m) == 1) for m in gpus]),
        Offer("device", "example.com/nic", [Hint(m, True) for m in nics]),
    ]


def merges() -> None:
    eight, many = NumaSet.from_mask(0xFF), NumaSet.from_mask((1 << 34) - 1)
    policy = Policy.BEST_EFFORT
    worst = {n: disagreeing_offers(8, n) for n in (2, 3, 4, 8, 16)}
    go = {2: "8-13 ms", 3: "4700-5200 ms", 4: "21 minutes reported"}
    for number, offers in worst.items():
        ms = best_ms(lambda offers=offers: merge(offers, eight, policy))  # type: ignore[misc]
        what = f"merge, 8 NUMA nodes x {number} providers x 255 hints, none agree"
        report(what, ms, 5 if number == 4 else None, go.get(number, ""))
    agree = agreeing_offers(8, 4)
    report(
        "merge, 8 NUMA nodes x 4 providers x 255 hints, all agree",
        best_ms(lambda: merge(agree, eight, policy)),
        5,
    )
    near = big384().distance
    ms = best_ms(lambda: merge(worst[4], eight, policy, closest=near))
    report("the same with prefer-closest-numa-nodes, none agree", ms, 5)
    offers = realistic_34()
    report("merge, 34 NUMA nodes, realistic hints", best_ms(lambda: merge(offers, many, policy)), 20)
    ten = disagreeing_offers(10, 4)
    report("merge, 10 NUMA nodes x 4 providers x 1023 hints", best_ms(lambda: merge(ten, NumaSet(1023), policy)))


def scattered(machine: Machine, share: float) -> CpuSet:
    chance = random.Random(SEED)
    return CpuSet.from_ids(cpu for cpu in machine.online if chance.random() < share)


def worst_of(machine: Machine, options: CpuOptions, frees: list[CpuSet], counts: list[int]) -> float:
    """The slowest of many requests, each measured as the best of its runs."""
    worst = 0.0
    for free in frees:
        for count in counts:
            if count <= len(free):
                worst = max(worst, best_ms(lambda f=free, n=count: take_cpus(machine, f, n, options), 3))  # type: ignore[misc]
    return worst


def allocations() -> None:
    machine = big384()
    frees = [machine.online, scattered(machine, 0.8), scattered(machine, 0.5)]
    counts = [1, 2, 7, 8, 31, 48, 97, 150, 191]
    report(
        "packed, 384 CPUs, slowest of 27 requests",
        worst_of(machine, CpuOptions(), frees, counts),
        0.5,
        "18-25 ms",
    )
    spread = CpuOptions(distribute_across_cores=True)
    report("spread, 384 CPUs, slowest", worst_of(machine, spread, frees, counts), 0.5)
    uncore = CpuOptions(prefer_align_by_uncore_cache=True)
    report("packed by cache, 384 CPUs, slowest", worst_of(machine, uncore, frees, counts), 0.5)
    evenly = CpuOptions(distribute_across_numa=True)
    ms = worst_of(machine, evenly, frees, [*counts, 20, 44, 61, 99, 130, 171])
    report("distributed, 8 NUMA nodes, slowest of 45 requests", ms, 2, "15-26 ms")
    aligned = CpuOptions(distribute_across_numa=True, align_by_socket=True, full_pcpus_only=True)
    report(
        "distributed by socket in whole cores, slowest",
        worst_of(machine, aligned, frees, [8, 20, 44, 130]),
        2,
    )
    wish = CpuRequest(16, exclusive=True, siblings=Siblings.REQUIRED, memory=MemoryAffinity.BIND_REQUIRED)
    report("16 sibling cpus on one NUMA node, 384 CPUs", best_ms(lambda: allocate(machine, frees[1], wish)))


def hints() -> None:
    machine = big384()
    free = scattered(machine, 0.7)
    report("hints of a CPU request, 8 NUMA nodes", best_ms(lambda: cpu_hints(machine, free, 60)), 1, "18-22 ms")
    state = MemoryState.of(machine)
    wish = {"memory": 100 << 30, "hugepages-2Mi": 1 << 30}
    report("hints of a memory request, 8 NUMA nodes", best_ms(lambda: state.hints("p", "c", wish)))
    wide = regular(sockets=34, cores_per_uncore=4, name="34 nodes")
    report("hints of a CPU request, 34 NUMA nodes", best_ms(lambda: cpu_hints(wide, wide.online, 20)))
    chip = MemoryState.of(superchip34())
    wish = {"memory": 20 << 30}
    report("hints of a memory request, 34 NUMA nodes", best_ms(lambda: chip.hints("p", "c", wish)))
    report("text map, 384 CPUs", best_ms(lambda: render_map(machine, {"shared": free})))


def main() -> None:
    """Print every figure."""
    print(f"  {describe()}")
    merges()
    allocations()
    hints()


if __name__ == "__main__":
    main()
