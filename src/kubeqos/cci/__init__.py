"""Container Compute Interface (KEP-3675): manager, store, driver SDK and built-in drivers.

The node agent calls `manager` through the contract of `plugins.managers`; driver authors use `sdk` and `kit`; the API
server is given `claims.admission`. A driver's answer is checked (`answers`) before anybody believes it.
"""
