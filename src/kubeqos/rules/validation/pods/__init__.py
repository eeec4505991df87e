"""Validation of pods: their spec when created, and what may change later.

Called by the table of kinds above, and for pod templates by `workloads`. It adds field errors to a list and never
changes the pod.
"""
