"""The API server's side of nodes: which pods are where, and requests that a node's own endpoint answers."""
