"""The edge of the QoS Resource Manager: what a plugin sends is checked here, one function per message, or is not used.

`messages` has the functions, `values` what the fields of an allocation may hold, `capacity` what a node may be told
to have. Pure; called by the manager's parts that talk to plugins and by the conformance kit. Nothing here remembers,
tells or repairs: the last good value stays where the caller keeps it.
"""
