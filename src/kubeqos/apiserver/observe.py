"""What the API server tells about itself: health, metrics under Kubernetes' names, one audit line per request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeqos import __version__
from kubeqos.apiserver.requests import Request, Route
from kubeqos.codec import encode_json
from kubeqos.gates import GATES, FeatureGates
from kubeqos.logs import logger
from kubeqos.model.timestamps import micro_timestamp
from kubeqos.rules.quota.quota import Quota
from kubeqos.web.messages import Query, Response

log = logger("kubeqos.apiserver")
TEXT = "text/plain; charset=utf-8"
_READ_ONLY, _MUTATING = "readOnly", "mutating"
_LABELS = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code")
_BUCKETS = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)


def request_kind(method: str) -> str:
    """How Kubernetes divides requests that are being answered."""
    return _READ_ONLY if method in ("GET", "HEAD", "OPTIONS") else _MUTATING


@dataclass(frozen=True, slots=True)
class _Total(Collector):
    name: str
    about: str
    value: Callable[[], float]

    def collect(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self.name, self.about, value=self.value())


@dataclass(frozen=True, slots=True)
class _QuotaClasses(Collector):
    """Classes as quotas count them; what a node has of a class, the node tells."""

    quotas: Callable[[], Iterable[tuple[str, Quota]]]

    def collect(self) -> Iterable[Metric]:
        labels = ["namespace", "resourcequota", "level", "resource", "class"]
        text = "Assignments of a class that a quota counts in its namespace."
        used = GaugeMetricFamily("kubeqos_quota_class_used", text, labels=labels)
        text = "Most assignments of a class that a quota allows; absent where it sets no limit."
        most = GaugeMetricFamily("kubeqos_quota_class_hard", text, labels=labels)
        for namespace, quota in self.quotas():
            for (level, resource, cls), capacity in quota.allowed.items():
                values = [namespace, quota.name, str(level), resource, cls]
                used.add_metric(values, quota.classes_used[level, resource, cls])
                if capacity is not None:
                    most.add_metric(values, capacity)
        yield used
        yield most


class Metrics:
    """Counters with the names and labels that stock dashboards expect."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "apiserver_request", "Requests by verb, resource and code.", _LABELS, registry=self.registry
        )
        self.durations = Histogram(
            "apiserver_request_duration_seconds",
            "Time to answer.",
            ("verb", "group", "version", "resource", "subresource", "scope", "component"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.inflight = {_READ_ONLY: 0, _MUTATING: 0}
        """Requests that are being answered, by their kind; watches and other long ones are not among them."""
        now = Gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being answered now, watches excepted.",
            ("request_kind",),
            registry=self.registry,
        )
        for kind in self.inflight:
            now.labels(kind).set_function(lambda kind=kind: float(self.inflight[kind]))  # type: ignore[misc]
        self._children: dict[tuple[str, ...], tuple[Counter, Histogram]] = {}

    def observe(self, route: Route | None, method: str, code: int, seconds: float, *, dry_run: bool) -> None:
        """Count one answered request."""
        key = (*_labels(route, method), str(code), "All" if dry_run else "")
        found = self._children.get(key)
        if found is None:
            verb, group, version, resource, sub, scope, shown, dry = key
            found = self._children[key] = (
                self.requests.labels(verb, dry, group, version, resource, sub, scope, "apiserver", shown),
                self.durations.labels(verb, group, version, resource, sub, scope, "apiserver"),
            )
        found[0].inc()
        found[1].observe(seconds)

    def features(self, gates: FeatureGates) -> None:
        """Which features are on, as every component of Kubernetes says it (KEP-3008, Monitoring Requirements)."""
        enabled = Gauge(
            "kubernetes_feature_enabled", "Whether a feature is on.", ("name", "stage"), registry=self.registry
        )
        for gate in GATES.values():
            enabled.labels(gate.name, gate.stage.value).set(gates.enabled(gate.name))

    def quota_classes(self, quotas: Callable[[], Iterable[tuple[str, Quota]]]) -> None:
        """How full the classes of quotas are."""
        self.registry.register(_QuotaClasses(quotas))

    def counter(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A total that somebody else keeps, read when the metrics are asked for."""
        self.registry.register(_Total(name, about, value))

    def gauge(self, name: str, about: str, value: Callable[[], float]) -> None:
        """A value read when the metrics are asked for."""
        Gauge(name, about, registry=self.registry).set_function(value)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)


def _labels(route: Route | None, method: str) -> tuple[str, ...]:
    if route is None:
        return (method, "", "", "", "", "")
    scope = "resource" if route.name else "namespace" if route.namespace else "cluster"
    return (route.verb.upper(), route.group, route.version, route.resource, route.subresource, scope)


Check = Callable[[], str | None]


@dataclass
class Health:
    """Named checks behind /healthz, /livez and /readyz; a check answers None or what is wrong."""

    checks: dict[str, Check] = field(default_factory=lambda: {"ping": lambda: None, "log": lambda: None})

    def respond(self, path: str, query: Query) -> Response | None:
        """The answer to a health path; None for any other path."""
        parts = [part for part in path.split("/") if part]
        if not parts or parts[0] not in ("healthz", "livez", "readyz") or len(parts) > 2:
            return None
        if len(parts) == 2:
            check = self.checks.get(parts[1])
            if check is None:
                return None
            problem = check()
            return Response(500 if problem else 200, (problem or "ok").encode(), TEXT)
        excluded = set(query.get("exclude", ()))
        results = {name: None if name in excluded else check() for name, check in self.checks.items()}
        failed = [name for name, problem in results.items() if problem]
        if not failed and "verbose" not in query:
            return Response(200, b"ok", TEXT)
        return Response(500 if failed else 200, self._report(parts[0], results, excluded), TEXT)

    def _report(self, name: str, results: Mapping[str, str | None], excluded: set[str]) -> bytes:
        lines = []
        for check, problem in results.items():
            if check in excluded:
                lines.append(f"[+]{check} excluded: ok")
            else:
                lines.append(f"[-]{check} failed: reason withheld" if problem else f"[+]{check} ok")
        failed = any(results.values())
        if unknown := ", ".join(f'"{one}"' for one in sorted(excluded - results.keys())):
            lines.append(f"warn: some health checks cannot be excluded: no matches for {unknown}")
        lines.append(f"{name} check {'failed' if failed else 'passed'}")
        return ("\n".join(lines) + "\n").encode()


_Entry = tuple[float, str, str, str, int, float, str, str]


class Audit:
    """One JSON line per request, written in batches; the file is rotated once it is large."""

    def __init__(self, path: Path, *, max_bytes: int = 64 << 20) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._lines: list[_Entry] = []  # put into words when they are written
        self._failing = False
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - lives as long as the server
        os.chmod(path, 0o600)

    def record(self, request: Request, source: str, code: int, seconds: float, started: float) -> None:
        identity, agent = request.identity, request.user_agent
        self._lines.append((started, identity.user, request.method, request.path, code, seconds, agent, source))
        if len(self._lines) >= 512:
            self.flush()

    def flush(self) -> None:
        """Hand the collected lines to the kernel."""
        if not self._lines:
            return
        lines, self._lines = self._lines, []
        try:
            self._file.write(b"".join([_line(*line) for line in lines]))
            if self._file.tell() > self._max_bytes:
                self._rotate()
        except OSError as error:  # a full disk must not take the answers with it
            if not self._failing:
                log.error("audit log: lines are lost: %s", error.strerror)
            self._failing = True
            return
        self._failing = False

    def _rotate(self) -> None:
        """Where no new file can be made the old one goes on, under its new name."""
        if self._path.exists():
            os.replace(self._path, self._path.with_name(self._path.name + ".1"))
        fresh = open(self._path, "ab", buffering=0)  # noqa: SIM115
        self._file.close()
        self._file = fresh
        os.chmod(self._path, 0o600)

    def close(self) -> None:
        self.flush()
        self._file.close()


def _line(
    started: float, user: str, method: str, path: str, code: int, seconds: float, agent: str, source: str
) -> bytes:
    said = {
        "time": micro_timestamp(started),
        "user": user,
        "verb": method,
        "path": path,
        "code": code,
        "ms": round(seconds * 1000, 3),
        "agent": agent,
        "from": source,
    }
    return encode_json(said) + b"\n"


def version_info() -> bytes:
    """What `kubectl version` shows. The minor version is the API's: 1.37, the level the schemas are at."""
    return encode_json(
        {
            "major": "1",
            "minor": "37",
            "gitVersion": f"v1.37.0+kubeqos.{__version__}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "python",
            "platform": f"linux/{os.uname().machine.replace('x86_64', 'amd64').replace('aarch64', 'arm64')}",
        }
    )
