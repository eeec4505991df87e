"""Quota audit, replicas, claims from templates, garbage collection, node and namespace lifecycle.

Each controller is level-triggered: it compares what is with what should be and writes the difference through
`client`. None keeps state that cannot be rebuilt by listing.
"""
