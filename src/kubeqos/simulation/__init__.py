"""Rehearsals: scenarios in virtual time, fitting of manifests, growth of a cluster.

Called by the command line. Nothing here reaches a cluster.
"""
