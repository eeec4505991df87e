"""What API objects mean for placement: pods to shapes, nodes to facts, claims and volumes to what they need.

Pure. Called by the scheduler's core and feed, and by whoever places pods on a copy of a cluster; it decides on no pod.
"""
