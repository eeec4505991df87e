"""Workloads, jobs, endpoints, volumes, quota audit, claims, garbage collection, node and namespace lifecycle.

Each controller is two things: a pure function from the objects as they are to the `actions` that bring them closer to
what they should be, each with its reason; and a thin loop that calls it whenever something may have changed and
performs what it says. Level-triggered and idempotent: nothing is remembered that a new list would not show again, so
any of them may be killed at any moment and started elsewhere. `manager.ControllerManager` runs them all.
"""
