"""The node's part in a stock cluster: what `kubeqos agent` runs on each node, beside an unmodified kubelet and runtime.

`core` decides which classes a container gets and is pure; `adjusting` words that as NRI wants it. `hooks` is the NRI
plugin: it answers the runtime and calls the class providers of the embedded home. `report` tells the cluster what the
node offers and how it is used (NodeQOS).
"""
