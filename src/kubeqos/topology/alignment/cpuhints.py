"""Topology hints of a CPU request: on which NUMA nodes it would fit, and which of those it prefers.

Kubernetes' rule: a set of nodes is a hint if its free CPUs (with those that the pod's finished init
containers left to it) cover the request and it holds all of the latter; it is preferred if no smaller set
could ever cover the request, counting all CPUs, or, with align-by-socket, also if it spans no more sockets
than needed.
"""

from __future__ import annotations

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.alignment.masks import ENUMERATED, all_masks, fewest_nodes, numa_set, to_mask, useful_masks


def cpu_hints(
    machine: Machine,
    free: CpuSet,
    count: int,
    *,
    reusable: CpuSet = NO_CPUS,
    align_by_socket: bool = False,
) -> tuple[Hint, ...]:
    """Hints for `count` exclusive CPUs; empty when no placement is possible."""
    layout = machine.layout
    nodes = list(layout.numas)
    have = {node: (mask & (free | reusable).mask).bit_count() for node, mask in layout.numas.items()}
    kept = to_mask([node for node, mask in layout.numas.items() if mask & reusable.mask])
    smallest = fewest_nodes(count, (mask.bit_count() for mask in layout.numas.values()))

    def fits(mask: tuple[int, ...]) -> bool:
        return sum([have[node] for node in mask]) >= count and not (kept and kept & ~to_mask(mask))

    if len(nodes) <= ENUMERATED:
        masks = [mask for mask in all_masks(nodes) if fits(mask)]
    else:
        # So many nodes have too many subsets to list: of those that fit, only the smallest can win a merge.
        giving = sorted((node for node in nodes if have[node]), key=lambda n: (not kept >> n & 1, -have[n], n))
        masks = useful_masks(nodes, giving, smallest, fits)
    few_sockets = _fewest_sockets(machine, smallest) if align_by_socket else None
    return tuple(
        Hint(
            numa_set(mask),
            len(mask) == smallest or (few_sockets is not None and _sockets(machine, mask) == few_sockets),
        )
        for mask in masks
    )


def _fewest_sockets(machine: Machine, smallest: int) -> int | None:
    per_socket = len(machine.layout.numas) // max(1, len(machine.layout.sockets))
    return -(-smallest // per_socket) if per_socket else None


def _sockets(machine: Machine, mask: tuple[int, ...]) -> int:
    return len({socket for node in mask for socket in machine.layout.sockets_in_numa[node]})
