"""Which NUMA masks are worth offering as hints.

Kubernetes offers every subset of the nodes, which is exact and affordable on small machines only. Up to
`ENUMERATED` nodes the same list is made here. On larger machines only useful masks are: those of the smallest
size at which the request fits at all, built from nodes that have something to give, and the set of all nodes
(so that another resource may still narrow the answer). Shared by CPU and memory hints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations

from kubeqos.model.cpuset import NumaSet

ENUMERATED = 10  # 1023 masks
MAX_MASKS = 2_000  # of one size, on a machine with more nodes

Fits = Callable[[tuple[int, ...]], bool]


def all_masks(nodes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every non-empty subset, by size, then by node ids: the order in which Kubernetes lists hints."""
    for size in range(1, len(nodes) + 1):
        yield from combinations(nodes, size)


def fewest_nodes(need: float, sizes: Iterable[float]) -> int:
    """On how many nodes of these sizes, free or not, a request fits; all of them where that is too little."""
    held, count = 0.0, 0
    for size in sorted(sizes, reverse=True):
        held += size
        count += 1
        if held >= need:
            break
    return max(1, count)


def useful_masks(nodes: Sequence[int], giving: Sequence[int], smallest: int, fits: Fits) -> list[tuple[int, ...]]:
    """Masks of the least size (from `smallest` on) that fit, and all nodes; `giving` is best node first."""
    everywhere = tuple(nodes)
    for size in range(smallest, len(giving) + 1):
        found = [mask for mask in _candidates(giving, size) if fits(mask)]
        if found:
            return found if everywhere in found or not fits(everywhere) else [*found, everywhere]
    return [everywhere] if fits(everywhere) else []


def _candidates(giving: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Subsets of this size; where there are too many, only those of the best nodes."""
    pool = len(giving)
    while pool > size and math.comb(pool, size) > MAX_MASKS:
        pool -= 1
    return combinations(sorted(giving[:pool]), size)


@lru_cache(maxsize=4096)  # the same few masks are asked about at every admission
def numa_set(mask: tuple[int, ...]) -> NumaSet:
    """A mask as a set of nodes."""
    return NumaSet(to_mask(mask))


def to_mask(nodes: Sequence[int]) -> int:
    """Node ids as a bitmask."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask
