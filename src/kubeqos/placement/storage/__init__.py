"""Volumes: which nodes can reach what a pod's volume claims are bound to, or can have it made there.

`needs` are values of a pod's shape, worked out by `scheduler.reading.storage`; `filters` put them to the nodes, in
kube-scheduler's order and words.
"""
