"""QoS Resource Manager (KEP-3461): manager, plugin SDK and built-in plugins.

The node agent calls `manager.QosResourceManager` through the contract of `plugins.managers`. What to ask a plugin is
decided in `asking`, what its answers mean in `answers`, who holds what in `allocations`; `endpoint` and `registry` move
the bytes. Plugin authors use `sdk` and `kit`; `plugins` holds the built-in ones, each a process of its own.
"""
