"""The admission chain: the rules' pure pipeline with what it needs to know of the cluster, kept up to date.

Called by `registry` for every write. Synchronous, so that nothing happens between a decision and its commit.
"""
