"""What a node agent answers to others: logs, streams, statistics, its pods, its metrics.

The API server asks an agent in its own process directly (`apiserver.nodes.proxy.NodeEndpoint`); everybody
else comes through `node.server.routes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeqos.codec import JsonObject, encode_json
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.errors import InputError
from kubeqos.gates import GATES
from kubeqos.logs import logger
from kubeqos.node.agent import NodeAgent
from kubeqos.node.cri.configs import pod_log_dir
from kubeqos.node.pod.journal import encode
from kubeqos.node.pod.observed import SeenContainer, Stage
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.pressure.housekeeping import Housekeeper
from kubeqos.node.server.exec import attach_url, carry, exec_url, refusal
from kubeqos.node.server.logs import LogOptions, read_log
from kubeqos.node.server.pinned import pinned
from kubeqos.node.server.podresources import PodResourcesServicer, plain
from kubeqos.node.server.summary import resource_metrics, summary
from kubeqos.web.channels import ERROR, UNREACHABLE, StreamOptions, failure_status, frame, tunnel
from kubeqos.web.messages import Query, Response
from kubeqos.web.status import ApiError, bad_request
from kubeqos.web.websockets import Socket

TEXT = "text/plain"
PORT_FORWARD_PATH = "portForward"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

log = logger("kubeqos.node.server.endpoint")


class NodeServer:
    """One agent's answers, by question."""

    def __init__(self, agent: NodeAgent, housekeeper: Housekeeper, pod_resources: PodResourcesServicer) -> None:
        self.agent = agent
        self.housekeeper = housekeeper
        self._pod_resources = pod_resources
        self.registry = CollectorRegistry()
        self.registry.register(_Counters(agent, housekeeper, pod_resources))
        self._resources = CollectorRegistry()
        self._resources.register(_Resources(housekeeper))

    async def get(self, path: str, query: Query) -> Response:
        """Whatever can be read: pods, metrics, statistics, logs, what happened to a pod."""
        match path.split("/"):
            case ["healthz"]:
                return Response(200, b"ok", TEXT)
            case ["pods"]:
                return Response(200, self.pods())
            case ["metrics"]:
                return Response(200, self.metrics(), PROMETHEUS)
            case ["metrics", "resource"]:
                return Response(200, self.resource_metrics(), PROMETHEUS)
            case ["stats", "summary"]:
                return Response(200, encode_json(await self.summary()))
            case ["pinned"]:
                return Response(200, encode_json({"containers": await pinned(self.agent.runtime, self._pods())}))
            case ["podresources"]:
                return Response(200, encode_json(await self.held()))
            case ["stories", namespace, pod]:
                return Response(200, self.story(namespace, pod))
            case ["containerLogs", namespace, pod, container]:
                return await self.logs(namespace, pod, container, query)
        return Response(404, b"404 page not found\n", TEXT)

    def story(self, namespace: str, name: str) -> bytes:
        """What happened to a pod, in words and in steps that can be replayed."""
        found = self.agent.core.recorded(namespace, name)
        if found is None:
            raise _no_pod(name)
        return encode(found)

    # ---- Logs

    async def logs(self, namespace: str, pod: str, container: str, query: Query) -> Response:
        """A container's log, whole or as it grows. A pod that has ended is answered from its files."""
        try:
            options = LogOptions.of(query, self.agent.now())
        except InputError as error:
            raise bad_request(error.what) from error
        record = self._record(namespace, pod)
        seen = _instance(record, container, previous=options.previous)
        path = self._log_path(record, container, seen)
        identity = seen.id

        def runs() -> bool:
            now = self.agent.core.pods.get(record.uid)
            found = now.seen.newest(container) if now is not None else None
            return found is not None and found.id == identity and found.live

        return Response(200, content_type=TEXT, stream=read_log(path, options, runs))

    def _record(self, namespace: str, name: str) -> PodRecord:
        for pod in self.agent.core.pods.values():
            metadata = pod.view.metadata
            if (metadata.namespace, metadata.name) == (namespace, name):
                return pod
        raise _no_pod(name)

    def _log_path(self, pod: PodRecord, container: str, seen: SeenContainer) -> Path:
        return pod_log_dir(pod.admitted, self.agent.context) / container / f"{seen.attempt}.log"

    # ---- Streams

    async def stream(self, path: str, query: Query, socket: Socket) -> None:
        """Carry the streams of `exec/…`, `attach/…` or `portForward/…` on a WebSocket."""
        what, *rest = path.split("/")
        try:
            url = await self.stream_url(path, query)
        except ApiError as error:
            whole = what == "exec" and error.code == 501
            if not whole and what != PORT_FORWARD_PATH:  # which has no stream for errors
                await socket.send(frame(ERROR, failure_status(str(error))))
            if not whole:
                return
            url = None
        if what == PORT_FORWARD_PATH and url is not None:
            try:
                await tunnel(url, socket)
            except UNREACHABLE as error:
                log.warning("port-forward to %s: the runtime's streaming server: %s", "/".join(rest), error)
            return
        await carry(self.agent.runtime, self._running(*rest).id, StreamOptions.of(query), url, socket)

    async def stream_url(self, path: str, query: Query) -> str:
        """Where the runtime opens the streams that a path asks for; 501 where it opens none."""
        try:
            match path.split("/"):
                case ["exec", namespace, pod, container]:
                    seen = self._running(namespace, pod, container)
                    return await exec_url(self.agent.runtime, seen.id, StreamOptions.of(query))
                case ["attach", namespace, pod, container]:
                    seen = self._running(namespace, pod, container)
                    return await attach_url(self.agent.runtime, seen.id, StreamOptions.of(query))
                case ["portForward", namespace, pod]:
                    sandbox = self._record(namespace, pod).sandbox
                    if sandbox is None:
                        raise bad_request(f'pod "{pod}" is not running')
                    request = cri.PortForwardRequest(pod_sandbox_id=sandbox.id)
                    return await self.agent.runtime.port_forward_url(request)
        except CallError as error:
            raise refusal(error) from error
        raise ApiError(404, "NotFound", "404 page not found", details={})

    def _running(self, namespace: str, pod: str, container: str) -> SeenContainer:
        known = self._record(namespace, pod).containers.get(container)
        seen = known.newest if known is not None else None
        if seen is None or seen.stage is not Stage.RUNNING:
            raise bad_request(f'container not found ("{container}")')
        return seen

    # ---- Statistics

    async def summary(self) -> JsonObject:
        return summary(self.agent.settings.node_name, await self.housekeeper.latest())

    async def held(self) -> JsonObject:
        """What the Pod Resources API answers, in JSON: every pod, and the node as if it were empty."""
        listed, node = await self._pod_resources.listed(), await self._pod_resources.allocatable()
        return {"pods": plain(listed)["podResources"], "allocatable": plain(node)}

    def pods(self) -> bytes:
        """The pods of this node as the agent knows them."""
        known = [{**pod.raw, "status": pod.status or pod.raw.get("status") or {}} for pod in self._pods()]
        return encode_json({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": known})

    def _pods(self) -> Iterable[PodRecord]:
        return [pod for pod in self.agent.core.pods.values() if pod.source != "runtime"]

    def metrics(self) -> bytes:
        """The agent's own counters, and those of managers that count."""
        measured: list[Any] = [manager for manager in self.agent.managers if hasattr(manager, "metrics")]
        return b"".join(map(generate_latest, (self.registry, *(one.metrics.registry for one in measured))))

    def resource_metrics(self) -> bytes:
        return generate_latest(self._resources)


def _no_pod(name: str) -> ApiError:
    return ApiError(404, "NotFound", f'pods "{name}" not found', details={"name": name, "kind": "pods"})


def _instance(pod: PodRecord, container: str, *, previous: bool) -> SeenContainer:
    """The instance of a container whose log is meant, in Kubernetes' words when there is none."""
    known = pod.containers.get(container)
    instances = known.instances if known is not None else ()
    name = pod.view.metadata.name
    if previous:
        if len(instances) < 2:
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
        return instances[1]
    if not instances or instances[0].stage is Stage.CREATED:
        waiting = pod.waits.get(container)
        reason = waiting.reason if waiting is not None else "ContainerCreating"
        if len(instances) > 1:
            return instances[1]
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return instances[0]


_START_ERRORS = {"CreateContainer": "CreateContainerError", "StartContainer": "RunContainerError"}
"""Effects that bring a container up, and Kubernetes' words for their failure."""


class _Resources(Collector):
    def __init__(self, housekeeper: Housekeeper) -> None:
        self._housekeeper = housekeeper

    def collect(self) -> Iterable[Metric]:
        return resource_metrics(self._housekeeper.last)


class _Counters(Collector):
    """The agent's own counters, under Kubernetes' names where it has them."""

    def __init__(self, agent: NodeAgent, housekeeper: Housekeeper, pod_resources: PodResourcesServicer) -> None:
        self._agent = agent
        self._housekeeper = housekeeper
        self._pod_resources = pod_resources

    def collect(self) -> Iterable[Metric]:
        yield from self._pressure()
        yield from self._work()
        yield from self._classes()
        yield from self._repairs()

    def _pressure(self) -> Iterable[Metric]:
        """Who had to go, and what was freed before."""
        pressure, freed = self._housekeeper.pressure, self._housekeeper.freed
        yield _counted("kubelet_evictions", "Pods evicted, by signal.", "eviction_signal", pressure.evictions)
        text = "Pods that made room for a critical one."
        yield _counted("kubelet_preemptions", text, "preemption_signal", self._agent.core.preemptions)
        short = GaugeMetricFamily("kubeqos_node_pressure", "Whether the node is short of it.", labels=["condition"])
        for kind, (status, _, _) in pressure.shown().items():
            short.add_metric([kind], float(status == "True"))
        yield short
        removed = {"containers": freed.containers, "images": freed.images.total()}
        yield _counted("kubeqos_node_reclaimed", "Things removed to free the disk.", "kind", removed)
        text = "Unused images removed, by reason."
        yield _counted("kubelet_image_garbage_collected", text, "reason", freed.images)

    def _work(self) -> Iterable[Metric]:
        counters = self._agent.counters
        yield GaugeMetricFamily("kubelet_running_pods", "Pods with a sandbox.", value=_running(self._agent))
        yield _counted("kubeqos_node_effects", "Calls to runtime and managers.", "kind", counters.effects)
        yield _counted("kubeqos_node_effect_failures", "Those of them that failed.", "kind", counters.failures)
        text = "Errors when containers were created or started (KEP-3008: a class that the runtime refuses)."
        errors = {code: counters.failures.get(effect, 0) for effect, code in _START_ERRORS.items()}
        yield _counted("kubelet_started_containers_errors", text, "code", errors)
        name = "kubelet_pod_resources_endpoint_requests"
        yield _counted(name, "Calls of the Pod Resources API.", "kind", self._calls())

    def _classes(self) -> Iterable[Metric]:
        """Which features are on, and how full the classes of the node are."""
        enabled = GaugeMetricFamily("kubernetes_feature_enabled", "Whether a feature is on.", labels=["name", "stage"])
        for gate in GATES.values():
            enabled.add_metric([gate.name, gate.stage.value], float(self._agent.settings.gates.enabled(gate.name)))
        yield enabled
        names = ["level", "resource", "class"]
        text = "Assignments that pods hold of a class, by the node's own count."
        held = GaugeMetricFamily("kubeqos_node_class_held", text, labels=names)
        text = "Most assignments of a class; 0 is unlimited."
        most = GaugeMetricFamily("kubeqos_node_class_capacity", text, labels=names)
        if self._agent.classes is not None:
            used = self._agent.classes.used()
            for kind in self._agent.classes.catalog.types.values():
                for cls, capacity in kind.classes.items():
                    labels = [kind.level.value, kind.name, cls]
                    held.add_metric(labels, used[kind.level, kind.name, cls])
                    most.add_metric(labels, capacity)
        yield held
        yield most

    def _repairs(self) -> Iterable[Metric]:
        """What others damaged and this agent put right, and what it cannot."""
        restarts = self._agent.supervisor.restarts
        yield _counted("kubeqos_node_task_restarts", "Tasks of the agent that died and began again.", "task", restarts)
        damaged = self._agent.counters.damaged_checkpoints
        yield CounterMetricFamily("kubeqos_node_damaged_checkpoints", "Checkpoints set aside.", value=damaged)
        refused = self._agent.writer.refused if self._agent.writer is not None else 0
        text = "Pod statuses that the API server refused and that were dropped."
        yield CounterMetricFamily("kubeqos_node_refused_statuses", text, value=refused)
        drifts = self._agent.cgroups.files.drifts if self._agent.cgroups is not None else 0
        text = "Cgroup values that somebody else had changed, put right."
        yield CounterMetricFamily("kubeqos_node_cgroup_drifts", text, value=drifts)
        text = "Containers that had other CPUs or NUMA nodes than they were granted, and strangers on owned CPUs."
        yield _counted("kubeqos_node_container_drifts", text, "kind", self._agent.books.counts)
        yield self._partitions()
        text = "Containers that lack a cgroup v2 file that a plugin sets: this node has cgroup v1."
        yield _counted("kubeqos_node_unapplied_cgroup_files", text, "file", self._agent.unsupported.files)

    def _partitions(self) -> Metric:
        reasons = self._agent.cgroups.partitions if self._agent.cgroups is not None else {}
        states = Counter("none" if why else "root" for why in reasons.values())
        text = "Containers with CPUs of their own, by whether these are a partition of the kernel."
        owners = GaugeMetricFamily("kubeqos_node_cpu_partitions", text, labels=["state"])
        for state in ("root", "none"):
            owners.add_metric([state], states[state])
        return owners

    def _calls(self) -> dict[str, int]:
        return {**self._pod_resources.counts.calls, "refused": self._pod_resources.counts.refused}


def _counted(name: str, text: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label])
    for kind, count in sorted(counts.items()):
        family.add_metric([kind], count)
    return family


def _running(agent: NodeAgent) -> float:
    return float(sum(pod.sandbox is not None for pod in agent.core.pods.values()))
