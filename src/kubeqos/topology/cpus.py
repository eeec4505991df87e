"""CPU allocation by the options of Kubernetes' static CPU policy.

`allocate_cpus` is what the node agent's CPU manager and the QRM "native" policy call; `topology.compute` adds
the per-core attributes of KEP-3675 on top of the same allocators.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Shortage, Unsatisfiable, Violation
from kubeqos.topology.distributed import take_distributed
from kubeqos.topology.packed import take_packed
from kubeqos.topology.wholecores import take_whole_cores


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """Options of the static policy under their Kubernetes meaning; all off is plain packed allocation."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    distribute_across_cores: bool = False
    align_by_socket: bool = False
    prefer_align_by_uncore_cache: bool = False

    def conflicts(self) -> tuple[Violation, ...]:
        """Pairs of options that contradict each other; a node agent refuses to start with them."""
        pairs = (
            (
                "full-pcpus-only",
                self.full_pcpus_only,
                "distribute-cpus-across-cores",
                self.distribute_across_cores,
            ),
            (
                "distribute-cpus-across-numa",
                self.distribute_across_numa,
                "distribute-cpus-across-cores",
                self.distribute_across_cores,
            ),
            (
                "prefer-align-cpus-by-uncorecache",
                self.prefer_align_by_uncore_cache,
                "distribute-cpus-across-cores",
                self.distribute_across_cores,
            ),
            (
                "prefer-align-cpus-by-uncorecache",
                self.prefer_align_by_uncore_cache,
                "distribute-cpus-across-numa",
                self.distribute_across_numa,
            ),
        )
        return tuple(Violation(a, f"cannot be combined with {b}") for a, on, b, also in pairs if on and also)


def take_cpus(machine: Machine, free: CpuSet, count: int, options: CpuOptions | None = None) -> CpuSet | None:
    """`count` CPUs out of `free`, or None when there are not enough; sizes are not checked against cores."""
    options = options or CpuOptions()
    if count > len(free):
        return None
    if options.distribute_across_numa:
        group = machine.threads_per_core if options.full_pcpus_only else 1
        mask = take_distributed(
            machine.layout,
            free.mask,
            count,
            group=group,
            spread=options.distribute_across_cores,
            by_socket=options.align_by_socket,
        )
    else:
        mask = take_packed(
            machine.layout,
            free.mask,
            count,
            spread=options.distribute_across_cores,
            by_uncore=options.prefer_align_by_uncore_cache,
        )
    return CpuSet(mask)


def allocate_cpus(
    machine: Machine,
    free: CpuSet,
    count: int,
    options: CpuOptions | None = None,
    *,
    aligned: CpuSet | None = None,
) -> Allocated | Unsatisfiable:
    """Exclusive CPUs for one container, preferring those in `aligned` (the CPUs of the merged NUMA hint).

    As in Kubernetes, CPUs outside the hint are added only when the hint alone cannot serve the request; with
    align-by-socket the hint is widened to the whole sockets it touches first.
    """
    options = options or CpuOptions()
    if count > len(free):
        return Unsatisfiable((Shortage("cpus", count, len(free)),))
    threads = machine.threads_per_core
    if options.full_pcpus_only:
        if count % threads:
            detail = f"requested {count} cpus not multiple cpus per core = {threads}"
            return Unsatisfiable((Violation("SMT Alignment Error", detail),))
        whole = machine.whole_cores(free)
        if count > len(whole):
            have = f"available physical CPUs = {len(whole)}, requested CPUs = {count}"
            detail = f"not enough free physical CPUs: {have}"
            return Unsatisfiable((Violation("SMT Alignment Error", detail),))
        free = whole
    near = free if aligned is None else free & _widened(machine, aligned, options)
    first = take_cpus(machine, near, min(count, len(near)), options)
    rest = take_cpus(machine, free - (first or CpuSet()), count - len(first or ()), options)
    if first is None or rest is None:
        return Unsatisfiable((Shortage("cpus", count, len(free)),))
    cpus = first | rest
    if options.full_pcpus_only and machine.whole_cores(cpus) != cpus:  # only where cores differ in size
        exact = take_whole_cores(machine.layout, free.mask, count)
        if exact is None:
            return Unsatisfiable(
                (Violation("SMT Alignment Error", f"{count} cpus cannot be made of whole free cores"),)
            )
        cpus = CpuSet(exact)
    return Allocated(cpus, whole=cpus)


def _widened(machine: Machine, aligned: CpuSet, options: CpuOptions) -> CpuSet:
    if not options.align_by_socket:
        return aligned
    return CpuSet.union(socket for socket in machine.sockets.values() if socket & aligned)
