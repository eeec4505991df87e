"""Claims (KEP-3675) on their way: fetched from the API, judged when they are written, put to drivers.

What they mean is decided in `topology.claims`. Called by the manager on the node and by admission in the API server.
"""
