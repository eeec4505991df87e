"""`kubeqos classify`: what the rules say about a pod, offline, with every reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kubeqos.cli.output import emit, emit_names, file_option, is_data, table, wide_output_option
from kubeqos.errors import InputError
from kubeqos.manifests import read
from kubeqos.model.objects import ContainerView, PodSpec, PodView
from kubeqos.model.quantity import Quantity, QuantityError
from kubeqos.rules.qos import cgroups, classes, podqos
from kubeqos.views.fitting import pod_of


@click.command(name="classify")
@file_option
@click.option("--node-memory", default="64Gi", show_default=True, help="Memory of the node the pod would run on.")
@wide_output_option
def command(files: tuple[str, ...], node_memory: str, form: str) -> None:
    """Show a pod's QoS class, effective resources, cgroup values and class demand, and why."""
    try:
        memory = Quantity.parse(node_memory).value()
    except QuantityError as error:
        raise InputError(f"--node-memory {node_memory}: {error.what}") from error
    if memory <= 0:
        raise InputError(f"--node-memory {node_memory}: must be positive")
    manifests = read(files)
    reports = [report(pod_of(manifest), memory) for manifest in manifests]
    if is_data(form):
        emit(reports[0] if len(reports) == 1 else reports, form)
    elif form == "name":
        emit_names(f"{manifest.kind.lower()}/{manifest.name}" for manifest in manifests)
    else:
        click.echo("\n\n".join(as_text(one) for one in reports))


def report(pod: PodView, node_memory: int) -> dict[str, Any]:
    """Everything the rules say, as plain values."""
    spec = pod.spec
    decision = podqos.qos_class(pod)
    qos = decision.qos_class
    node = cgroups.NodeMemory(node_memory, node_memory)
    settings = cgroups.CgroupSettings()
    names = sorted(
        {request.name for c in (*spec.init_containers, *spec.containers) for request in c.resources.qos_resources}
    )
    of_pod = cgroups.pod_values(spec, qos, node, settings)
    return {
        "pod": pod.metadata.name or pod.metadata.generate_name,
        "qosClass": str(qos),
        "because": decision.because,
        "requests": _amounts(podqos.effective_requests(spec)),
        "limits": _amounts(podqos.effective_limits(spec)),
        "containers": [
            _container(spec, container, qos, node, settings, names)
            for container in (*spec.init_containers, *spec.containers)
        ],
        "podCgroup": _values(of_pod, {int(size): limit for size, limit in of_pod.hugepage_limits.items()}),
        "classDemand": [
            {"level": str(level), "resource": resource, "class": cls, "count": count}
            for (level, resource, cls), count in sorted(classes.demand(spec).items())
        ],
    }


def _container(
    spec: PodSpec,
    container: ContainerView,
    qos: podqos.QosClass,
    node: cgroups.NodeMemory,
    settings: cgroups.CgroupSettings,
    names: list[str],
) -> dict[str, Any]:
    values = cgroups.container_values(spec, container, qos, node, settings)
    effective = classes.container_classes(spec, container, names)
    return {
        "name": container.name,
        "oomScoreAdj": cgroups.oom_score_adj(spec, container, qos, node.capacity_bytes),
        **_values(values, cgroups.hugepage_limits(container.resources.limits, ())),
        "classes": {name: {"class": one.class_name, "because": one.because} for name, one in effective.items()},
    }


def _values(values: cgroups.CgroupValues, hugepages: Mapping[int, int]) -> dict[str, Any]:
    """What stands in a cgroup; of page sizes that are not named nothing may be used."""
    return {
        "cpuShares": values.cpu_shares,
        "cpuQuotaUs": values.cpu_quota_us,
        "memoryLimit": values.memory_limit_bytes,
        "memoryMin": values.unified.get("memory.min"),
        "memoryLow": values.unified.get("memory.low"),
        "memoryHigh": values.unified.get("memory.high"),
        "hugepages": {cgroups.page_size_name(size): limit for size, limit in hugepages.items()},
    }


def _amounts(amounts: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}


def as_text(one: dict[str, Any]) -> str:
    """The report as a person reads it."""
    lines = [
        f"Pod:        {one['pod']}",
        f"QoS class:  {one['qosClass']} ({one['because']})",
        f"Requests:   {_joined(one['requests'])}",
        f"Limits:     {_joined(one['limits'])}",
        "",
        table(
            ["container", "oom_score_adj", "cpu.shares", "memory.min", "memory.high", "memory.max"],
            [
                [
                    c["name"],
                    c["oomScoreAdj"],
                    c["cpuShares"],
                    c["memoryMin"],
                    c["memoryHigh"] or "max",
                    c["memoryLimit"] or "max",
                ]
                for c in one["containers"]
            ],
        ),
    ]
    if one["classDemand"]:
        rows = [[d["level"], d["resource"], d["class"], d["count"]] for d in one["classDemand"]]
        lines += ["", table(["level", "qos resource", "class", "count"], rows)]
    return "\n".join(lines)


def _joined(amounts: dict[str, str]) -> str:
    return ", ".join(f"{name}={amount}" for name, amount in amounts.items()) or "<none>"
