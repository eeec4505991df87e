"""For people who write a resource plugin: a skeleton to start from, and a judge of what it says and does.

`kubeqos qrm new` and `kubeqos qrm conformance` call it; no manager needs it.
"""
