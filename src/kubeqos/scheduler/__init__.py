"""Queue and loop around `placement`: which pod next, where, bind, explain.

Run by `kubeqos scheduler` and by `cluster`. `reading` says what objects mean, `core` and `queue` decide, all of them
synchronous and pure; `service` watches and binds by `client`. Everything about fitting is `placement`'s; nothing here
looks into a node.
"""
