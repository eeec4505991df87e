"""The control plane of kubeqos in a stock cluster: what `kubeqos controller` runs, in any number of replicas.

Every replica answers webhooks. The one that leads also keeps the certificates and the registration of the webhooks,
counts class quotas, and brings what nodes offer (NodeQOS) to where stock parts look for it: extended resources and
labels of Nodes, QOSClass objects. `certificates`, `registration` and `offers` decide and are pure.
"""
