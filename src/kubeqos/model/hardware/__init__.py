"""Machines from elsewhere: described in a file, known by name, or read from this computer's sysfs.

Called where a node or a fleet is configured. `sysfs` alone reads files, below a root that is given to it; the result is
a `model.machine.Machine` in every case.
"""
