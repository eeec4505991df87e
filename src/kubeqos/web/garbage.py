"""Memory of a part that runs for long: API server, scheduler and node agents freeze when ready.

Requests and decisions leave no cycles behind, so that counting references frees nearly everything; what the collector
does beside is to walk what is alive again and again. That took a quarter of the event loop's time, and a full round
stopped everything for as long as a hundred requests take.

The C library hands large buffers back when they are freed, until the first of them is: from then on it keeps such in
its heap, between what stays. Each TLS connection has one of 256 KiB; a burst of them would stay for good.
"""

from __future__ import annotations

import ctypes
import gc
import sys

YOUNG = 10_000  # objects made and not freed before the collector looks at them
_MMAP_THRESHOLD = -3  # of <malloc.h>
_LARGE = 128 * 1024  # bytes: where the C library begins, too, and now stays
_ROUNDS = 10  # of one generation before the next older one is looked at, as is usual


def freeze_loaded() -> None:
    """What is loaded by now stays, and need not be walked any more; the young are looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, _ROUNDS, _ROUNDS)
    _hand_back_large_buffers()


def _hand_back_large_buffers() -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none, and does so anyway
        mallopt(_MMAP_THRESHOLD, _LARGE)
