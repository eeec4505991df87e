"""Validation of pods: their spec when created, and what may change later."""
