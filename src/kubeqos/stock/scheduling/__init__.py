"""Our scheduler in a stock cluster: what `kubeqos scheduler --stock` runs, beside the cluster's own scheduler.

`scheduler` is the one of the embedded home, fed with Nodes and their NodeQOS as one and with pods whose annotations are
read as fields. `extender` answers for it what a kube-scheduler asks that was told to (its extender API, version 1).
Both decide and are pure; `serving` puts them on HTTP. Every replica answers; the one that leads places pods, too.
"""
