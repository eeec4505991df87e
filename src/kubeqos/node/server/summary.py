"""A sample in the forms that others read: Kubernetes' stats summary and Prometheus' resource metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kubeqos.codec import JsonObject
from kubeqos.model.timestamps import timestamp
from kubeqos.node.pressure.samples import ContainerSample, NodeSample, PodSample, Processor, Supply


def summary(node: str, sample: NodeSample | None) -> JsonObject:
    """`/stats/summary`; before the first sample nothing but the node's name."""
    if sample is None:
        return {"node": {"nodeName": node}, "pods": []}
    at = timestamp(sample.at)
    memory = sample.levels.get("memory.available")
    found = {
        "nodeName": node,
        "cpu": _cpu(sample.cpu, at),
        "memory": _known(
            time=at, availableBytes=memory.available if memory else None, workingSetBytes=sample.memory_working_set
        ),
        "fs": _filesystem(sample.levels.get("nodefs.available"), sample.levels.get("nodefs.inodesFree"), at),
    }
    return {"node": found, "pods": [_pod(pod, at) for pod in sample.pods.values()]}


def _pod(pod: PodSample, at: str) -> JsonObject:
    return {
        "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "containers": [_container(one, at) for one in pod.containers],
        "cpu": _cpu(pod.cpu, at),
        "memory": _known(time=at, workingSetBytes=pod.memory_working_set),
        "volume": [{"name": name, "usedBytes": size, "inodesUsed": inodes} for name, size, inodes in pod.volumes],
        "process_stats": _known(process_count=pod.processes),
    }


def _container(one: ContainerSample, at: str) -> JsonObject:
    found: JsonObject = {
        "name": one.name,
        "cpu": _cpu(one.cpu, at),
        "memory": _known(time=at, usageBytes=one.memory_usage, workingSetBytes=one.memory_working_set),
    }
    for key, pair in (("rootfs", one.rootfs), ("logs", one.logs)):
        if pair is not None:
            found[key] = {"time": at, "usedBytes": pair[0], "inodesUsed": pair[1]}
    return found


def _cpu(cpu: Processor, at: str) -> JsonObject:
    return _known(time=at, usageNanoCores=cpu.nano_cores, usageCoreNanoSeconds=cpu.core_ns)


def _filesystem(size: Supply | None, inodes: Supply | None, at: str) -> JsonObject:
    found: dict[str, Any] = {"time": at}
    if size is not None:
        used = size.capacity - size.available
        found |= {"availableBytes": size.available, "capacityBytes": size.capacity, "usedBytes": used}
    if inodes is not None:
        found |= {"inodesFree": inodes.available, "inodes": inodes.capacity}
    return found


def _known(**values: Any) -> JsonObject:
    return {key: value for key, value in values.items() if value is not None}


def resource_metrics(sample: NodeSample | None) -> Iterable[Metric]:
    """`/metrics/resource` under Kubernetes' names."""
    node_cpu = CounterMetricFamily("node_cpu_usage_seconds", "CPU time of the node.")
    node_memory = GaugeMetricFamily("node_memory_working_set_bytes", "Working set of the node.")
    labels = ["container", "namespace", "pod"]
    cpu = CounterMetricFamily("container_cpu_usage_seconds", "CPU time of a container.", labels=labels)
    memory = GaugeMetricFamily("container_memory_working_set_bytes", "Working set of a container.", labels=labels)
    if sample is not None:
        if sample.cpu.core_ns is not None:
            node_cpu.add_metric([], sample.cpu.core_ns / 1e9)
        if sample.memory_working_set is not None:
            node_memory.add_metric([], sample.memory_working_set)
        for pod in sample.pods.values():
            for one in pod.containers:
                name = [one.name, pod.namespace, pod.name]
                if one.cpu.core_ns is not None:
                    cpu.add_metric(name, one.cpu.core_ns / 1e9)
                if one.memory_working_set is not None:
                    memory.add_metric(name, one.memory_working_set)
    return node_cpu, node_memory, cpu, memory
