"""The node's part in a stock cluster: what `kubeqos agent` runs on each node, beside an unmodified kubelet and runtime.

Two shells around one keeper of classes (`cri.classes`) and one of cores (`stock.cores`). `hooks` is the NRI plugin, and
`adjusting` its words; `relaying` puts the relay in front of a runtime without NRI, and `relaycores` lays cores upon its
calls. `annotations` says what pods ask for. `report` tells the cluster what the node offers and how that is used.
"""
