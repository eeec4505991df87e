"""Kept for a live page of nodes, classes, quotas and decisions. Nothing lives here yet."""
