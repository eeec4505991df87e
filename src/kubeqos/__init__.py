"""kubeqos: QoS-aware resource management for Kubernetes.

The rooms, from the ground up: model, rules, topology and placement decide and do no I/O; web, store, client, apiserver,
controllers, scheduler, plugins, nri, cri, qrm, cci and node move bytes around those decisions; cluster and simulation
put them together, and stock does so beside an unmodified Kubernetes; views, dashboard and cli show and steer it, and
testing lends the API server to other people's tests. A lower room never imports a higher one (import-linter). See
docs/architecture.md.
"""

__version__ = "0.1.0"
