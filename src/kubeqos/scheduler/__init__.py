"""Queue and loop around `placement`: which pod next, where, bind, explain.

Run by `kubeqos scheduler` and by `cluster`. `core` and `queue` are synchronous and pure, `service` watches and binds by
`client`. Everything about fitting is `placement`'s; nothing here looks into a node.
"""
