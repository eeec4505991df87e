"""Decisions on one object: pod QoS, memory QoS, limits, quota, QoS classes, eviction, validation.

Called by admission in the API server, by the node agent and by `kubeqos check` and `kubeqos classify`, which
therefore give the same answers. A rule takes values and returns a decision that carries its reasons. It never
reads a file or a clock, never logs, and does not raise for an expected answer.
"""
