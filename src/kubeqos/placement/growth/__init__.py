"""Decisions about the size of a cluster: which nodes to add for pods that wait, which to take away, the cost. Pure.

Asked by the autoscaler of `kubeqos up` (`cluster.autoscaler`), by `kubeqos autoscale plan` and by `kubeqos simulate
scale-up`. Works on copies of the cluster that it is given; whoever asks carries the answer out, or prints it.
"""
