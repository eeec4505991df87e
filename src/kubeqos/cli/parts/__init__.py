"""Commands that run one part of the system: API server, scheduler, controllers, node, relay, plugins, drivers.

Called by `cli.main`, by units of systemd and by `cluster.pluginprocesses`. They read flags and files, build the part
and wait for its end; each part is the same that `kubeqos up` runs.
"""
