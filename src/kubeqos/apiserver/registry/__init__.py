"""Objects of the API from request to store: kinds, lifecycles, reads, writes, deletes, subresources.

Called by `handlers`; `upkeep` has what the server writes by itself. Knows admission only by its contract and no
shortcut at all; nothing here speaks HTTP.
"""
