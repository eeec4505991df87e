"""What a node publishes of its machine, and what follows for a pod: pools, NUMA nodes, claims for cores.

Asked by `placement.counted` and `placement.score`; each module decides as the node's own managers would. Pure.
"""
