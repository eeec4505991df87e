"""Decisions on one cluster: a columnar snapshot of all nodes, fit, score and preemption.

Called by the scheduler's loop, by `kubeqos simulate` and by the scheduler extender. The snapshot is updated
incrementally; a decision reads it and returns a node, or for every node the reason it was refused.
"""
