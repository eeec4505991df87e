"""Indexes beside the columns: interned values, node labels by key, and pods grouped by their labels."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from kubeqos.placement.shape import Group, Shape

Ints = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Rows = Ints | slice

_V = TypeVar("_V", bound=Hashable)
Accepts = Callable[[str, Mapping[str, str]], bool]
"""Whether pods of a namespace with these labels are meant."""
_KEPT_FOLLOWED = 1024


def grown(array: npt.NDArray[Any], rows: int, absent: int | bool) -> npt.NDArray[Any]:
    """A longer copy, filled up with `absent`."""
    return np.concatenate([array, np.full(rows - len(array), absent, dtype=array.dtype)])


class Interner(Generic[_V]):
    """Small numbers for repeated values, in the order of their first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[_V, int] = {}
        self.values: list[_V] = []

    def number(self, value: _V) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def known(self, value: _V) -> int | None:
        return self._numbers.get(value)

    def __len__(self) -> int:
        return len(self.values)


class LabelIndex:
    """Node labels by key: for every row the number of its value, 0 where it has no such label."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._columns: dict[str, Small] = {}
        self._values: dict[str, Interner[str | None]] = {}

    def write(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace the labels of one row."""
        for key, column in self._columns.items():
            if key not in labels:
                column[row] = 0
        for key, value in labels.items():
            column = self.column(key)
            column[row] = self._values[key].number(value)

    def column(self, key: str) -> Small:
        """The numbers of a key's values; made on first use."""
        found = self._columns.get(key)
        if found is None:
            found = self._columns[key] = np.zeros(self._rows, dtype=np.int32)
            self._values[key] = Interner()
            self._values[key].number(None)
        return found

    def values(self, key: str) -> Sequence[str | None]:
        """Every value a key ever had, by number; number 0 is "no such label"."""
        self.column(key)
        return self._values[key].values

    def matching(self, key: str, accepts: Callable[[str | None], bool], rows: Rows) -> Bools:
        """The rows whose value of a key satisfies a predicate, asked once per distinct value."""
        answers = np.fromiter((accepts(value) for value in self.values(key)), dtype=np.bool_)
        return answers[self.column(key)[rows]]

    def equal(self, key: str, value: str, rows: Rows) -> Bools:
        """The rows with exactly this label."""
        number = self._values[key].known(value) if key in self._columns else None
        if number is None:
            return np.zeros(len(self.column(key)[rows]), dtype=np.bool_)
        same: Bools = self._columns[key][rows] == number
        return same

    def grow(self, rows: int) -> None:
        self._rows = rows
        for key in self._columns:
            self._columns[key] = grown(self._columns[key], rows, 0)


class PodGroups:
    """How many pods of each (namespace, labels) run on each row, and which of them repel others.

    Affinity and spreading ask "how many pods matching this selector run here": a selector is evaluated once per
    distinct group, not per pod.
    """

    def __init__(self, rows: int = 64) -> None:
        self._rows = rows
        self._groups: dict[Group, Counter[int]] = {}
        self.repelling: dict[Shape, Counter[int]] = {}
        self._followed: OrderedDict[Hashable, tuple[Accepts, Ints]] = OrderedDict()
        self._followers: dict[Group, list[Ints]] = {}

    def add(self, shape: Shape, row: int, sign: int) -> None:
        """Count a pod in or out."""
        _count(self._groups, shape.group, row, sign)
        if self._followed:
            for counts in self._counts_with(shape.group):
                counts[row] = counts.item(row) + sign
        if shape.anti_affinity:
            _count(self.repelling, shape, row, sign)

    def followed(self, key: Hashable, accepts: Accepts) -> Ints:
        """`counts` that stay true while pods come and go: the same array, until it is forgotten or rows are added.

        For who asks the same of every pod that it places. `key` stands for the predicate.
        """
        found = self._followed.get(key)
        if found is not None:
            self._followed.move_to_end(key)
            return found[1]
        counts = self.counts(self._rows, accepts)
        self._followed[key] = accepts, counts
        if len(self._followed) > _KEPT_FOLLOWED:
            self._followed.popitem(last=False)
        self._followers.clear()
        return counts

    def _counts_with(self, group: Group) -> list[Ints]:
        """The followed counts that a group of pods belongs to."""
        found = self._followers.get(group)
        if found is None:
            namespace, labels = group[0], dict(group[1])
            if len(self._followers) > _KEPT_FOLLOWED:
                self._followers.clear()
            found = [counts for accepts, counts in self._followed.values() if accepts(namespace, labels)]
            self._followers[group] = found
        return found

    def grow(self, rows: int) -> None:
        """Columns became longer: what is followed is counted anew when it is asked for."""
        self._rows = rows
        self._followed.clear()
        self._followers.clear()

    def counts(self, rows: int, accepts: Accepts) -> Ints:
        """For every row the number of pods whose namespace and labels satisfy a predicate."""
        totals = np.zeros(rows, dtype=np.int64)
        for (namespace, labels), counts in self._groups.items():
            if accepts(namespace, dict(labels)):
                for row, count in counts.items():
                    totals[row] += count
        return totals


def _count(table: dict[_V, Counter[int]], key: _V, row: int, sign: int) -> None:
    counts = table.get(key)
    if counts is None:
        counts = table[key] = Counter()
    counts[row] += sign
    if counts[row] == 0:
        del counts[row]
        if not counts:
            del table[key]
