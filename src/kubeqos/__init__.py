"""kubeqos: QoS-aware resource management for Kubernetes.

The rooms, from the ground up: model, rules, topology and placement decide and do no I/O; store, client, apiserver,
controllers, scheduler, plugins, cri, qrm, cci and node move bytes around those decisions; cluster, dashboard and
cli are doors. A lower room never imports a higher one (checked by import-linter). See docs/architecture.md.
"""

__version__ = "0.1.0"
