"""The values that go into and come out of the store.

Structs without GC tracking where they cannot form cycles: tens of thousands of them stay resident, and a full
collection must not walk them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

Value = bytes | Callable[[int], bytes]
EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One key at one revision; `created` is the revision that created it."""

    key: str
    value: bytes
    revision: int
    created: int


class Put(msgspec.Struct, frozen=True):
    """Write a key. `expect` 0: it must not exist; n: it must be at revision n; None: either way.

    A callable value receives the revision it will get, so that it can carry it.
    """

    key: str
    value: Value
    expect: int | None = None


class Delete(msgspec.Struct, frozen=True):
    """Remove a key, which must exist. `final` is the last state, shown by the DELETED event."""

    key: str
    final: Value | None = None
    expect: int | None = None


class Event(msgspec.Struct, frozen=True, gc=False):
    """What one write did to one key; `previous` is the value before it."""

    type: EventType
    key: str
    value: bytes
    revision: int
    previous: bytes | None


class Page(msgspec.Struct, frozen=True):
    """Part of a range: items sorted by key, how many more there are, and the revision they were read at."""

    items: list[Stored]
    more: bool
    remaining: int
    revision: int


class Retention(msgspec.Struct, frozen=True):
    """How much history is kept for watches and reads at a revision; the newest state is always kept."""

    seconds: float = 300.0
    revisions: int = 100_000


class Statistics(msgspec.Struct):
    """What the store has done since it was opened, for metrics; `sync_seconds` is time spent in the writer."""

    commits: int = 0
    batches: int = 0
    rows: int = 0
    failed_batches: int = 0
    sync_seconds: float = 0.0
