"""For people who write a class provider: a skeleton to start from, and a judge of what it says and does.

`kubeqos provider new` and `kubeqos provider conformance` call it; no relay needs it.
"""
