"""One row or many: what a filter or a score reads of the cluster, so that each is written once for both.

Placing a pod changes one row, and the next pod of its shape asks for that row alone. On an array of one, numpy takes a
microsecond for every step and there are fifty of them; plain numbers cost a tenth. A rule that is arithmetic on
`at.read(column)` is the same sentence for both: `OneRow` reads a number, `ManyRows` an array.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from operator import itemgetter, methodcaller
from typing import Any

import numpy as np

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.indexes import Ints, Rows

EVERY_ROW = slice(None)
Number = Any
"""An int or a float of one row, an array of many."""
Truth = Any
"""A bool of one row, an array of many."""


class OneRow:
    """One row, in plain numbers."""

    __slots__ = ("read", "row")

    def __init__(self, row: int) -> None:
        self.row = row
        self.read: Callable[[Any], Any] = methodcaller("item", row)  # the quickest way to a plain number

    def among(self, rows: Collection[int]) -> Truth:
        """Whether it is one of these."""
        return self.row in rows

    def ask(self, concerned: Truth, question: Callable[[int], bool]) -> Truth:
        """The answer to what no arithmetic on columns can tell, if the row is concerned."""
        return concerned and question(self.row)

    def count(self, concerned: Truth, question: Callable[[int], int]) -> Number:
        """A number that no arithmetic on columns can tell, if the row is concerned; else none."""
        return question(self.row) if concerned else 0

    larger: Callable[..., Any] = staticmethod(max)
    smaller: Callable[..., Any] = staticmethod(min)
    whole: Callable[..., Any] = staticmethod(int)


class ManyRows:
    """Some rows, or all, as arrays."""

    def __init__(self, cluster: Cluster, rows: Rows = EVERY_ROW) -> None:
        self._cluster = cluster
        self.rows = rows
        self.read: Callable[[Any], Any] = itemgetter(rows)

    @cached_property
    def numbers(self) -> Ints:
        """The numbers of the rows."""
        return np.arange(len(self._cluster.alive))[self.rows]

    def among(self, rows: Collection[int]) -> Truth:
        """Which of them are among these."""
        if not rows:
            return np.zeros(len(self.numbers), dtype=np.bool_)
        return np.isin(self.numbers, list(rows))

    def ask(self, concerned: Truth, question: Callable[[int], bool]) -> Truth:
        """The answers for those rows that are concerned."""
        answers = np.zeros(len(concerned), dtype=np.bool_)
        for index in np.flatnonzero(concerned).tolist():
            answers[index] = question(int(self.numbers[index]))
        return answers

    def count(self, concerned: Truth, question: Callable[[int], int]) -> Number:
        """The numbers of those rows that are concerned."""
        numbers = np.zeros(len(concerned), dtype=np.int64)
        for index in np.flatnonzero(concerned).tolist():
            numbers[index] = question(int(self.numbers[index]))
        return numbers

    larger: Callable[..., Any] = staticmethod(np.maximum)
    smaller: Callable[..., Any] = staticmethod(np.minimum)

    @staticmethod
    def whole(numbers: Any) -> Any:
        return numbers.astype(np.int64)


At = OneRow | ManyRows
