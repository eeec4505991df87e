"""Watches: the store's events on their way to clients, framed once for all who select the same.

Called by `handlers`. It reads the store and writes to connections; it never changes an object.
"""
