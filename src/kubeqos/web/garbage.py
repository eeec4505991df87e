"""Python's garbage collector in a part that runs for long: API server, scheduler and node agents freeze when ready.

Requests and decisions leave no cycles behind, so that counting references frees nearly everything; what the collector
does beside is to walk what is alive again and again. That took a quarter of the event loop's time, and a full round
stopped everything for as long as a hundred requests take.
"""

from __future__ import annotations

import gc

YOUNG = 10_000  # objects made and not freed before the collector looks at them
_ROUNDS = 10  # of one generation before the next older one is looked at, as is usual


def freeze_loaded() -> None:
    """What is loaded by now stays, and need not be walked any more; the young are looked at less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, _ROUNDS, _ROUNDS)
