"""The controllers' metrics, under Kubernetes' names where Kubernetes has one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """Counters of all controllers of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._duration = Histogram(
            "workqueue_work_duration_seconds", "Time of one reconciliation.", ["name"], registry=self.registry
        )
        self._retries = Counter("workqueue_retries", "Reconciliations that failed.", ["name"], registry=self.registry)
        self._depth = Gauge("workqueue_depth", "Keys that wait.", ["name"], registry=self.registry)
        self.evictions = Counter(
            "node_taint_controller_pod_evictions", "Pods evicted from tainted nodes.", registry=self.registry
        )
        self.nodes_lost = Counter("node_collector_nodes_lost", "Nodes that fell silent.", registry=self.registry)
        self.collected = Counter(
            "garbage_collector_objects_deleted", "Objects deleted because nobody needs them.", registry=self.registry
        )
        self.audits = Counter("kubeqos_quota_audits", "Audits of a namespace's quotas.", registry=self.registry)
        self.drift = Gauge(
            "kubeqos_quota_drift",
            "Resources of quotas whose recorded usage is not the sum over the objects.",
            registry=self.registry,
        )

    def worked(self, name: str, seconds: float) -> None:
        self._duration.labels(name).observe(seconds)

    def retried(self, name: str) -> None:
        self._retries.labels(name).inc()

    def waiting(self, name: str, keys: int) -> None:
        self._depth.labels(name).set(keys)
