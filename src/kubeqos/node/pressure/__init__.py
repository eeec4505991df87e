"""A node that runs short: samples of use, thresholds, who goes first, which images are removed.

Called by `run` once per period. `thresholds`, `imagegc` and `storagelimits` decide, `housekeeping` performs; a pod is
ended by telling the pod machine, never behind its back.
"""
