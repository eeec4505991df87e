"""Commands for an existing Kubernetes cluster: put kubeqos into it, look whether it can be, take it out again."""
