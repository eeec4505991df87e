"""The CCI manager's metrics, under the names that KEP-3675 gives (Monitoring Requirements)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kubeqos.model.cpuset import CpuSet

_BUCKETS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.012, 0.025, 0.05, 0.1, 0.5, 1, 2, 5)


class Metrics:
    """Counters and gauges of one manager."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._requests = Counter(
            "cci_manager_allocation_requests",
            "Containers that asked for CPUs, by driver; empty for standard containers.",
            ["driver"],
            registry=self.registry,
        )
        self._asked = Counter(
            "cci_resource_manager_allocation_requests",
            "The same under the other name that the proposal uses, over all drivers.",
            registry=self.registry,
        )
        self._errors = Counter(
            "cci_manager_allocation_errors",
            "Containers that were refused, by driver and reason.",
            ["driver", "reason"],
            registry=self.registry,
        )
        self._available = Gauge("cci_manager_available_cpus", "CPUs that nobody holds.", registry=self.registry)
        self._exclusive = Gauge("cci_manager_exclusive_cpus", "CPUs held exclusively.", registry=self.registry)
        self._call = Histogram(
            "cci_driver_call_duration_seconds",
            "Time of calls to drivers, failed ones included.",
            ["driver", "method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._healthy = Gauge("cci_driver_healthy", "1 while the driver is well.", ["driver"], registry=self.registry)
        self._unbelieved = Counter(
            "cci_manager_refused_answers",
            "Answers of drivers that were not believed.",
            ["driver", "method"],
            registry=self.registry,
        )
        self._damaged = Counter(
            "cci_manager_state_repairs", "Repairs of the stored state at start.", registry=self.registry
        )

    def requested(self, driver: str) -> None:
        self._requests.labels(driver).inc()
        self._asked.inc()

    def refused(self, driver: str, reason: str) -> None:
        self._errors.labels(driver, reason).inc()

    def cpus(self, available: CpuSet, exclusive: CpuSet) -> None:
        self._available.set(len(available))
        self._exclusive.set(len(exclusive))

    def called(self, driver: str, method: str, seconds: float) -> None:
        self._call.labels(driver, method).observe(seconds)

    def healthy(self, driver: str, well: bool) -> None:
        self._healthy.labels(driver).set(1 if well else 0)

    def forget(self, driver: str) -> None:
        """A driver that is gone has no health."""
        self._healthy.remove(driver)

    def unbelieved(self, driver: str, method: str) -> None:
        self._unbelieved.labels(driver, method).inc()

    def repaired(self, count: int) -> None:
        self._damaged.inc(count)
