"""The node agent: admission, pod workers, managers, status, eviction, pod-resources server."""
