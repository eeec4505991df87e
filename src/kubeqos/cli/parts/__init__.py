"""Commands that run one part of the system: API server, scheduler, controllers, node, relay, runtime.

Called by `cli.main` and by units of systemd. They read flags and files, build the part and wait for
its end. Each is the same that `kubeqos up` runs, but for the two of a stock cluster (`controller`, `agent`).
"""
