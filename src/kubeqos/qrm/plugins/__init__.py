"""The built-in plugins, each a process of its own (`kubeqos plugin cpu|memory|nic|knob`), written with the SDK.

Each keeps its decisions in values without I/O. The SDK saves their state; its JSON has the shape of the KEP's examples.
"""
