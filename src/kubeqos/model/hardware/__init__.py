"""Machines from elsewhere: described in a file, known by name, or read from this computer's sysfs."""
