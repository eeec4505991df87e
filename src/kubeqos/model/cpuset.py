"""Sets of CPU ids and sets of NUMA node ids: two types that never mix, an int bitmask underneath.

`CpuSet` and `NumaSet` read and write the kernel's list format ("0-3,8"), compare by value and support set
algebra with operators of their own kind only: `CpuSet | NumaSet` is a TypeError for Python and an error for
mypy. Every room that speaks of CPUs or NUMA nodes uses them; allocators work on `.mask` where speed matters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from kubeqos.errors import InputError

MAX_ID = 65535  # a bitmask must stay small; Linux itself stops at 8192 CPUs and 1024 NUMA nodes

_NUMBER = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class _IdSet:
    """What both kinds share."""

    mask: int = 0

    @classmethod
    def of(cls, *ids: int) -> Self:
        """The set of these ids."""
        return cls.from_ids(ids)

    @classmethod
    def from_ids(cls, ids: Iterable[int]) -> Self:
        """The set of these ids, in any order, repeats allowed."""
        mask = 0
        for number in ids:
            mask |= 1 << _checked(number, str(number))
        return cls(mask)

    @classmethod
    def from_mask(cls, mask: int) -> Self:
        """The set whose member i is bit i of `mask`."""
        if mask < 0:
            raise InputError(f"invalid mask {mask}: must not be negative")
        return cls(mask)

    @classmethod
    def union(cls, sets: Iterable[Self]) -> Self:
        """All of them together."""
        mask = 0
        for each in sets:
            mask |= each.mask
        return cls(mask)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the kernel's list format as strictly as Kubernetes does: no blanks, no empty items."""
        mask = 0
        for item in text.split(",") if text else ():
            start, dash, end = item.partition("-")
            first = last = _number(start, item)
            if dash:
                last = _number(end, item)
                if first > last:
                    raise InputError(f'invalid range "{item}" ({first} > {last})', where=f'list "{text}"')
            _checked(first, item)
            _checked(last, item)
            mask |= ((1 << (last - first + 1)) - 1) << first
        return cls(mask)

    def __or__(self, other: Self) -> Self:
        return type(self)(self.mask | other.mask) if type(other) is type(self) else NotImplemented

    def __and__(self, other: Self) -> Self:
        return type(self)(self.mask & other.mask) if type(other) is type(self) else NotImplemented

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.mask & ~other.mask) if type(other) is type(self) else NotImplemented

    def __xor__(self, other: Self) -> Self:
        return type(self)(self.mask ^ other.mask) if type(other) is type(self) else NotImplemented

    def __le__(self, other: Self) -> bool:
        """Subset."""
        return not self.mask & ~other.mask if type(other) is type(self) else NotImplemented

    def __lt__(self, other: Self) -> bool:
        """Proper subset."""
        if type(other) is not type(self):
            return NotImplemented
        return self.mask != other.mask and not self.mask & ~other.mask

    def __ge__(self, other: Self) -> bool:
        return not other.mask & ~self.mask if type(other) is type(self) else NotImplemented

    def __gt__(self, other: Self) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.mask != other.mask and not other.mask & ~self.mask

    def isdisjoint(self, other: Self) -> bool:
        """Whether the two sets share no member."""
        return not (self & other).mask

    def __contains__(self, number: int) -> bool:
        return number >= 0 and bool(self.mask >> number & 1)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __iter__(self) -> Iterator[int]:
        return iterate_bits(self.mask)

    def first(self) -> int:
        """The smallest member; an empty set has none and raises."""
        if not self.mask:
            raise InputError("an empty set has no first member")
        return (self.mask & -self.mask).bit_length() - 1

    def lowest(self, count: int) -> Self:
        """The `count` smallest members, or all when there are fewer."""
        rest = self.mask
        for _ in range(min(count, len(self))):
            rest &= rest - 1
        return type(self)(self.mask ^ rest)

    def __str__(self) -> str:
        return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in self.ranges())

    def __repr__(self) -> str:
        return f'{type(self).__name__}("{self}")'

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Runs of neighbours as (first, last), ascending."""
        mask, base = self.mask, 0
        while mask:
            skip = (mask & -mask).bit_length() - 1
            mask >>= skip
            run = (~mask & (mask + 1)).bit_length() - 1
            yield base + skip, base + skip + run - 1
            mask >>= run
            base += skip + run


class CpuSet(_IdSet):
    """A set of logical CPU ids."""

    __slots__ = ()


class NumaSet(_IdSet):
    """A set of NUMA node ids."""

    __slots__ = ()


NO_CPUS = CpuSet()
NO_NUMA = NumaSet()


def iterate_bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _number(text: str, item: str) -> int:
    if not _NUMBER.match(text):
        raise InputError(
            f'invalid number "{text}" in "{item}"',
            remedy='write ids and ranges separated by commas, without blanks: "0-3,8"',
        )
    return int(text[:24])


def _checked(number: int, item: str) -> int:
    if not 0 <= number <= MAX_ID:
        raise InputError(f'id out of range in "{item}"', remedy=f"ids go from 0 to {MAX_ID}")
    return number
