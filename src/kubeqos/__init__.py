"""kubeqos: QoS-aware resource management for Kubernetes.

The rooms, from the ground up: model, rules, topology and placement decide and do no I/O; web, store, client, apiserver,
controllers, scheduler, plugins, cri, qrm, cci and node move bytes around those decisions; cluster, simulation and
cli put them together. A lower room never imports a higher one (import-linter). See docs/architecture.md.
"""

__version__ = "0.1.0"
