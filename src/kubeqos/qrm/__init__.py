"""QoS Resource Manager (KEP-3461): manager, plugin SDK and built-in plugins."""
