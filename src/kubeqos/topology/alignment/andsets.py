"""All results of AND-ing one mask of each list, without walking the cross product.

Called by `topology.alignment.merge` when lists are too long for plain Python sets. Two exact ways: a dense table over
all 2^width masks, filled either pair by pair or by a superset-sum transform (whose cost does not depend on
the lengths of the lists), and sorted arrays for machines with too many NUMA nodes for a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Masks = npt.NDArray[np.uint64]

DENSE_WIDTH = 18  # a table of 2^18 counters is 2 MB
PAIRS_AT_ONCE = 1 << 20  # bounds the memory of a pairwise AND


def and_all(start: int, lists: Sequence[Iterable[int]]) -> set[int]:
    """Every non-zero `start & m1 & m2 & …` with one m from each list."""
    bits = [bit for bit in range(start.bit_length()) if start >> bit & 1]
    arrays = [_compress(np.fromiter(masks, np.uint64), bits) for masks in lists]
    width = len(bits)
    reached = np.array([(1 << width) - 1], np.uint64)
    for offered in arrays:
        reached = _and(reached, np.unique(offered), width)
    return set(_expand(reached, bits).tolist())


def _and(left: Masks, right: Masks, width: int) -> Masks:
    pairs = len(left) * len(right)
    if width > DENSE_WIDTH:
        return _and_sparse(left, right)
    if pairs > width << width:
        return _and_by_transform(left, right, width)
    table = np.zeros(1 << width, bool)
    for part in _parts(left, right):
        table[np.bitwise_and.outer(part, right).ravel()] = True
    return _members(table)


def _and_sparse(left: Masks, right: Masks) -> Masks:
    found: Masks = np.empty(0, np.uint64)
    for part in _parts(left, right):
        both = np.bitwise_and.outer(part, right).ravel()
        found = np.union1d(found, both[both != 0])
    return found


def _and_by_transform(left: Masks, right: Masks, width: int) -> Masks:
    """The number of pairs that give each mask: superset sums, product, and back (Yates; AND-convolution)."""
    sums = []
    for masks in (left, right):
        counts = np.zeros(1 << width, np.int64)
        counts[masks] = 1
        for bit in range(width):
            halves = counts.reshape(-1, 2, 1 << bit)
            halves[:, 0] += halves[:, 1]
        sums.append(counts)
    product = sums[0] * sums[1]
    for bit in range(width):
        halves = product.reshape(-1, 2, 1 << bit)
        halves[:, 0] -= halves[:, 1]
    return _members(product != 0)


def _members(table: npt.NDArray[np.bool_]) -> Masks:
    table[0] = False
    return np.flatnonzero(table).astype(np.uint64)


def _parts(left: Masks, right: Masks) -> list[Masks]:
    rows = max(1, PAIRS_AT_ONCE // max(1, len(right)))
    return [left[at : at + rows] for at in range(0, len(left), rows)]


def _compress(masks: Masks, bits: Sequence[int]) -> Masks:
    """Move the given bit positions next to each other; order by value is kept, other bits are dropped."""
    if list(bits) == list(range(len(bits))):
        return masks & np.uint64((1 << len(bits)) - 1)
    out = np.zeros_like(masks)
    for to, bit in enumerate(bits):
        out |= (masks >> np.uint64(bit) & np.uint64(1)) << np.uint64(to)
    return out


def _expand(masks: Masks, bits: Sequence[int]) -> Masks:
    if list(bits) == list(range(len(bits))):
        return masks
    out = np.zeros_like(masks)
    for to, bit in enumerate(bits):
        out |= (masks >> np.uint64(to) & np.uint64(1)) << np.uint64(bit)
    return out
