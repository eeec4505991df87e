"""NUMA alignment: hints of managers and plugins, and their merge."""
