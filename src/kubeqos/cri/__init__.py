"""The container runtime side: CRI messages, client, relay with class providers, simulated runtime.

Called by the node agent (`client`, `simulated`) and by `kubeqos relay` and `kubeqos runtime`. It never speaks to an API
server: what it knows of a pod came over CRI.
"""
