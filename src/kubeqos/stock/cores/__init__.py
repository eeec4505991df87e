"""Cores on a stock node: the managers of the embedded home (QRM, CCI, CPUs, memory) beside an unmodified kubelet.

A pod is admitted as soon as it is bound here, long before the runtime asks; what a new container gets is then a
look-up, and whoever runs already is moved. `keeper` is the only one that others call: both shells, the NRI plugin and
the relay, bring it the same `events`. `pods` is its table, `shared` gives everybody else the CPUs that nobody owns,
`tableruntime` and `nriruntime` are the two ways to `node.updates` in which a container is told, `assembly` makes it all
from a NodeConfiguration. Called by `stock.agent`.
"""
