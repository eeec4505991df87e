"""For people who write a compute driver: a skeleton to start from, and a judge of what it says and does.

`kubeqos cci new` and `kubeqos cci conformance` call it; no manager needs it.
"""
