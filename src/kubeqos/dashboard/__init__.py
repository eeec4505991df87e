"""A small live page of nodes, classes, quotas and decisions."""
