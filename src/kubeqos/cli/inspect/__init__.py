"""Commands that look into a cluster: why, describe, map, top, classes, quota."""
