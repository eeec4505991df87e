"""The scheduler's metrics, under Kubernetes' names so that existing dashboards work."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeqos.client.events import EventRecorder
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Effect, Evict
from kubeqos.scheduler.window import Window

_PROFILE = "default-scheduler"


class Metrics:
    """Counters of one scheduler."""

    def __init__(self, core: Scheduler) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(_Queue(core))
        self._attempt = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one scheduling turn, which may decide for several pods.",
            registry=self.registry,
        )
        self._victims = Counter("scheduler_preemption_victims", "Pods evicted for others.", registry=self.registry)

    def watch(self, window: Window, events: EventRecorder) -> None:
        """Show what goes out to the server: bindings on their way, events told and left out."""
        for name, what, read in (
            ("kubeqos_scheduler_bindings_in_flight", "Bindings on their way.", lambda: window.in_flight),
            ("kubeqos_scheduler_binding_window", "Bindings that may be on their way.", lambda: window.size),
            ("kubeqos_scheduler_events_written", "Events told to the server.", lambda: events.result.written),
            ("kubeqos_scheduler_events_dropped", "Events left out.", lambda: events.result.dropped),
        ):
            Gauge(name, what, registry=self.registry).set_function(read)

    def decided(self, effects: Iterable[Effect], seconds: float) -> None:
        """Count one turn of the loop."""
        self._attempt.observe(seconds)
        self._victims.inc(sum(isinstance(effect, Evict) for effect in effects))


class _Queue(Collector):
    """Reads the core's counters when somebody scrapes."""

    def __init__(self, core: Scheduler) -> None:
        self._core = core

    def collect(self) -> Iterable[Metric]:
        pending = GaugeMetricFamily("scheduler_pending_pods", "Pods without a node, by queue.", labels=["queue"])
        for queue, place in (("active", "active"), ("backoff", "backoff"), ("unschedulable", "waiting")):
            pending.add_metric([queue], self._core.queue.count(place))
        yield pending
        attempts = CounterMetricFamily(
            "scheduler_schedule_attempts", "Attempts to place a pod, by result.", labels=["profile", "result"]
        )
        for outcome, count in self._core.counters.attempts.items():
            attempts.add_metric([_PROFILE, str(outcome)], count)
        yield attempts
        refused = CounterMetricFamily(
            "kubeqos_scheduler_refused_pods", "Pods that their node did not let in, by its reason.", labels=["reason"]
        )
        for reason, count in sorted(self._core.refusals.counts.items()):
            refused.add_metric([reason], count)
        yield refused
        yield GaugeMetricFamily(
            "kubeqos_scheduler_kept_off",
            "Nodes that equal pods are kept off because one was refused there lately.",
            value=self._core.refusals.closed,
        )
        yield CounterMetricFamily(
            "scheduler_preemption_attempts", "Attempts to make room.", value=self._core.counters.preemptions
        )
