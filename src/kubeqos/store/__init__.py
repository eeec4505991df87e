"""Revisioned object store on SQLite, with watch.

Called by the API server only. Keys are strings, values are bytes; one global revision orders every write. A
write is acknowledged after it has been synced to disk.
"""
