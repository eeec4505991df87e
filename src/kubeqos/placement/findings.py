"""What a filter reports: which rows it refuses, in which words, and whether evicting pods could change that."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kubeqos.placement.indexes import Bools, Ints
from kubeqos.placement.rows import At, ManyRows, Truth

COMPANY: Final = "company"
"""What pods wait for whose fit depends on which other pods run where."""
NUMA: Final = "numa"
"""What pods wait for that find no NUMA node with room for all that they want on one."""

COMPUTE: Final = "compute"
"""What pods wait for whose claims no node can serve."""

DOWN: Final = "down"
"""What pods wait for on nodes whose plugin or driver is down."""

VOLUMES: Final = "volumes"
"""What pods wait for whose volumes are not there, or not where they could run."""


class Finding:
    """One reason, for the rows it holds for. Texts are made only when somebody asks.

    `waits_for` names what would have to be freed for the finding to go away: a resource, a class, a pool, "ports",
    "company". `comes_by_itself` says that evicting pods is not the only way to get it.

    A text that names numbers is a function of them, `values` holds those numbers by row; rows with equal numbers share
    a text, so a large cluster is explained by as many texts as there are different ones.
    """

    __slots__ = ("_resolvable", "_text", "_values", "comes_by_itself", "refused", "waits_for")

    def __init__(
        self,
        refused: Bools,
        text: str | Callable[..., str],
        *values: Ints,
        resolvable: bool | Bools = False,
        waits_for: Hashable = None,
        comes_by_itself: bool = False,
    ) -> None:
        self.refused = refused
        self.waits_for = waits_for
        self.comes_by_itself = comes_by_itself or waits_for == COMPANY  # others come as well as go
        self._text = text
        self._values = values
        self._resolvable = resolvable

    def describe(self, index: int) -> str:
        """The reason for one row."""
        if isinstance(self._text, str):
            return self._text
        return self._text(*(int(each[index]) for each in self._values))

    def counted(self, among: Bools) -> Iterator[tuple[str, int]]:
        """Every text with the number of rows it holds for, of those in `among`."""
        rows = np.flatnonzero(self.refused & among)
        if not len(rows):
            return
        if isinstance(self._text, str):
            yield self._text, len(rows)
            return
        numbers, counts = np.unique(np.stack([each[rows] for each in self._values]), axis=1, return_counts=True)
        for column, count in zip(numbers.T.tolist(), counts.tolist(), strict=True):
            yield self._text(*column), count

    def resolvable(self) -> Bools:
        """The refused rows where evicting pods could help."""
        return self.refused & self._resolvable


def _nothing(_: ManyRows) -> tuple[Ints, ...]:
    return ()


def _never(_: ManyRows) -> bool:
    return False


def always(_: ManyRows) -> bool:
    """Evicting pods may help on every row."""
    return True


@dataclass(frozen=True, slots=True)
class Check:
    """One reason to refuse a row; see `Finding` for what the rest means."""

    refuses: Callable[[At], Truth]
    text: str | Callable[..., str]
    told: Callable[[ManyRows], tuple[Ints, ...]] = _nothing
    """The numbers that the text names."""
    resolvable: Callable[[ManyRows], Truth] = _never
    waits_for: Hashable = None
    comes_by_itself: bool = False

    def finding(self, at: ManyRows) -> Finding:
        """The check put to many rows."""
        return Finding(
            self.refuses(at),
            self.text,
            *self.told(at),
            resolvable=self.resolvable(at),
            waits_for=self.waits_for,
            comes_by_itself=self.comes_by_itself,
        )
