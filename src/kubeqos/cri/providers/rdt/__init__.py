"""Cache and memory bandwidth classes by resctrl (Intel RDT, AMD PQoS, Arm MPAM).

`config` parses goresctrl's YAML form, `machine` describes what the hardware has, `resolve` turns both into schemata
(pure), `files` reads and writes the resctrl file system, `provider` joins them for the relay.
"""
