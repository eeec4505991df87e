"""Commands for an existing Kubernetes cluster: put kubeqos into it, look whether it can be, take it out again.

Called by `cli.main`. What is put there, and what is looked at, `kubeqos.stock` says; here it is sent and printed.
"""
