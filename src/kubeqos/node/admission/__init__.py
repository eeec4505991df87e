"""Admission: one transaction over every resource manager, and the ledger that remembers what it gave.

Called by the agent's effects. It never talks to the container runtime.
"""
