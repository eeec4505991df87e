"""Memory of a part that runs for long: API server, scheduler and node agents freeze when ready.

Requests and decisions leave no cycles behind, so that counting references frees nearly everything; what the collector
does beside is to walk what is alive again and again. That took a quarter of the event loop's time, and a full round
stopped everything for as long as a hundred requests take.

Each TLS connection has a buffer of 256 KiB, and each read from one makes another for a moment. The C library keeps what
was freed in its heap, between what stays, so that a burst of connections would keep its memory for good; and where it
is told to map such buffers by themselves, every request pays for a mapping, a sixteenth of all it costs. So a heap that
several connections have left is swept once, a little later.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys

YOUNG = 10_000  # objects made and not freed before the collector looks at them
_ROUNDS = 10  # of one generation before the next older one is looked at, as is usual
_SEVERAL, _LATER_SECONDS = 8, 5.0


def freeze_loaded() -> None:
    """What is loaded by now stays, and need not be walked any more; the young are looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, _ROUNDS, _ROUNDS)


class _Leftovers:
    """The connections of this process that have ended since its heap was swept."""

    def __init__(self) -> None:
        self._ended = 0
        self._swept_by: asyncio.AbstractEventLoop | None = None

    def add(self) -> None:
        self._ended += 1
        loop = asyncio.get_running_loop()
        if self._ended >= _SEVERAL and self._swept_by is not loop:  # one that was closed before sweeps nothing any more
            self._swept_by = loop
            loop.call_later(_LATER_SECONDS, self._sweep)

    def _sweep(self) -> None:
        self._ended, self._swept_by = 0, None
        hand_back()


_leftovers = _Leftovers()
connection_ended = _leftovers.add
"""To be called for every TLS connection that has ended, by the loop that it had."""


def hand_back() -> None:
    """Give the pages of the heap that nothing is in to the system again. Takes milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # musl has none, and maps large buffers by themselves
        trim(0)
