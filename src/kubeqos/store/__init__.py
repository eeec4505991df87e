"""Revisioned object store on SQLite, with watch.

Called by the API server only. Keys are strings, values are bytes; one global revision orders every write. A
write is acknowledged after it has been synced to disk. `records` holds the values, `store` the memory index
and the batches, `watch` the cursors, `database` the file, `writer` the thread that writes it.
"""

from kubeqos.store.errors import Compacted, Conflict, Full, FutureRevision, ReadOnly, StoreError
from kubeqos.store.records import Delete, Event, Page, Put, Retention, Statistics, Stored
from kubeqos.store.store import Store
from kubeqos.store.watch import Interest, Pace, Watch
from kubeqos.store.writer import Writer

__all__ = [
    "Compacted",
    "Conflict",
    "Delete",
    "Event",
    "Full",
    "FutureRevision",
    "Interest",
    "Pace",
    "Page",
    "Put",
    "ReadOnly",
    "Retention",
    "Statistics",
    "Store",
    "StoreError",
    "Stored",
    "Watch",
    "Writer",
]
