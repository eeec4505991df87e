"""Forms: what clients may ask for, and how answers look: options, bodies, tables, discovery, OpenAPI.

Called by `handlers` and `app`. It never touches the store.
"""
