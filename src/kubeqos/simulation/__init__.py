"""Rehearsals: scenarios in virtual time on the real scheduler and the admission of real nodes, fitting of manifests,
growth of a cluster.

Called by the command line, the views and the dashboard. Nothing here reaches a cluster.
"""
