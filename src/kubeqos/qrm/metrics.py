"""The manager's metrics: calls, allocations, reconciles, drift and the health of plugins."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 10)


class Metrics:
    """Counters of one manager."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        labels = ("plugin", "method", "code")
        self.calls = Histogram(
            "kubeqos_qrm_call_seconds", "Calls to plugins.", labels, registry=self.registry, buckets=_BUCKETS
        )
        self.allocations = Counter(
            "kubeqos_qrm_allocations", "Allocations, by outcome.", ("resource", "outcome"), registry=self.registry
        )
        self.reconciles = Histogram(
            "kubeqos_qrm_reconcile_seconds", "Reconciles.", registry=self.registry, buckets=_BUCKETS
        )
        self.updates = Counter(
            "kubeqos_qrm_updates", "Changes of what running containers should have.", registry=self.registry
        )
        self.drift = Counter(
            "kubeqos_qrm_drift",
            "Differences between a plugin and the ledger.",
            ("plugin", "kind"),
            registry=self.registry,
        )
        self.refused_answers = Counter(
            "kubeqos_qrm_refused_answers",
            "Answers of plugins that were not believed.",
            ("plugin", "method"),
            registry=self.registry,
        )
        self.up = Gauge(
            "kubeqos_qrm_plugin_up", "1 while a plugin is connected and answers.", ("plugin",), registry=self.registry
        )
        self.unreleased = Gauge(
            "kubeqos_qrm_releases_owed", "Releases a plugin has not acknowledged.", ("plugin",), registry=self.registry
        )
