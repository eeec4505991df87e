"""What the store refuses, and why. The API server turns these into `Status` answers."""

from __future__ import annotations

import copy

from kubeqos.errors import KubeqosError
from kubeqos.store.records import Stored


class StoreError(KubeqosError):
    """A write or a read that the store could not do; nothing of it is visible."""

    def again(self) -> StoreError:
        """A copy for another waiter: one object raised in many tasks would collect all their tracebacks."""
        twin = copy.copy(self)
        twin.__cause__ = self.__cause__
        return twin


class Conflict(StoreError):
    """A compare-and-set found another state than it expected."""

    def __init__(self, key: str, current: Stored | None) -> None:
        found = f"is at revision {current.revision}" if current else "does not exist"
        super().__init__(f"{key} {found}", where=key)
        self.key = key
        self.current = current


class Compacted(StoreError):
    """The history that was asked for is gone; `oldest` is the oldest revision that can still be read."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"history before revision {oldest} has been compacted")
        self.oldest = oldest


class FutureRevision(StoreError):
    """A revision that no write has reached yet."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is in the future, the newest is {current}")
        self.requested = requested
        self.current = current


class Full(StoreError):
    """There is no room for a write, and nothing of it was done: the same may be written when there is."""


class ReadOnly(StoreError):
    """After an I/O error the store answers reads and refuses writes until it is opened again."""
