"""Commands that run one part of the system: API server, scheduler, controllers, node, relay, runtime.

Called by `cli.main` and by units of systemd. They read flags and files, build the part
and wait for its end; each part is the same that `kubeqos up` runs.
"""
