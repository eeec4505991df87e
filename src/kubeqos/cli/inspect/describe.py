"""`kubeqos describe node|pod|quota`: what kubectl's describe leaves out, in KEP-3008's layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.inspect import quota
from kubeqos.cli.inspect.why import protection
from kubeqos.cli.output import table
from kubeqos.client.errors import ApiError
from kubeqos.model.annotations.published import decode_assignments
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, DRIVERS_ANNOTATION, PROFILE_LABEL
from kubeqos.model.objects import NodeView, PodView
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.classes import Catalog, ClassKey, Level, ResourceType, catalog, requested
from kubeqos.rules.qos.podqos import effective_requests, qos_class
from kubeqos.views.usage import pod_holdings, running_on, used_classes
from kubeqos.views.why import protected_memory

_KINDS = {spelling: kind for kind, spellings in names.SPELLINGS.items() for spelling in spellings}


@click.command("describe")
@asks("namespace")
@click.argument("kind", type=click.Choice(sorted(_KINDS)), metavar="node|pod|quota")
@click.argument("name", shell_complete=names.complete_described)
def command(target: Target, kind: str, name: str) -> None:
    """Describe a node's classes and resource managers, a pod's classes, or a quota."""
    match _KINDS[kind]:
        case "node":
            raw = target.reader.get(f"/api/v1/nodes/{name}")
            pods = target.reader.items("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")
            click.echo(node_text(raw, [PodView.of(pod) for pod in pods]))
        case "pod":
            raw = target.reader.get(target.path("pods", name))
            click.echo(pod_text(raw, _node_of(target, raw)))
        case _:
            click.echo(quota.as_text(target.reader.get(target.path("resourcequotas", name))))


def _node_of(target: Target, pod: dict[str, Any]) -> dict[str, Any] | None:
    """The pod's node; none while it has none, and for users who may not read nodes."""
    name = (pod.get("spec") or {}).get("nodeName")
    try:
        return target.reader.get_or_none(f"/api/v1/nodes/{name}") if name else None
    except ApiError as error:
        if not error.forbidden:
            raise
        return None


def node_text(raw: dict[str, Any], pods: Iterable[PodView]) -> str:
    """A node: profile, drivers, conditions, classes with capacity and use, requests."""
    node = NodeView.of(raw)
    offered = catalog(node.status.qos_resources)
    here = running_on(pods).get(node.metadata.name, [])
    used = used_classes(here, offered)
    lines = [
        f"Name:     {node.metadata.name}",
        f"Profile:  {node.metadata.labels.get(PROFILE_LABEL, '<none>')}",
    ]
    if drivers := node.metadata.annotations.get(DRIVERS_ANNOTATION):
        lines.append(f"Drivers:  {drivers}")
    rows = [[one.type, one.status, one.reason, one.message] for one in node.status.conditions]
    if rows:
        lines += ["", "Conditions:", _indented(table(["type", "status", "reason", "message"], rows))]
    if extended := _extended(node, here):
        lines += ["", "Resources of plugins:", _indented(extended)]
    lines += ["", "Pod QoS resources:", _classes(offered, Level.POD, used)]
    lines += ["", "Container QoS resources:", _classes(offered, Level.CONTAINER, used)]
    lines += [f"Refused:  {reason}" for reason in offered.refused]
    lines += ["", "Pods:", _indented(_pods(here))]
    if owners := _owners(node):
        lines += ["", "CPUs:", _indented(owners)]
    if protected := _protected(node):
        lines += ["", "Protected memory:", _indented(protected)]
    return "\n".join(lines)


def _extended(node: NodeView, pods: Iterable[PodView]) -> str:
    """What plugins add to the node, and how much of it is asked for; kubectl shows the rest."""
    requests = [effective_requests(pod.spec) for pod in pods]
    rows = [
        [
            name,
            capacity,
            node.status.allocatable.get(name),
            sum((one.get(name, Quantity.ZERO) for one in requests), Quantity.ZERO),
        ]
        for name, capacity in sorted(node.status.capacity.items())
        if "/" in name
    ]
    return table(["name", "capacity", "allocatable", "requested"], rows) if rows else ""


def _owners(node: NodeView) -> str:
    """Who runs on which CPUs, as the node's agent publishes it; nothing from agents that do not."""
    published = node.metadata.annotations.get(ASSIGNMENTS_ANNOTATION)
    if not published:
        return ""
    assignments = decode_assignments(published)
    rows = [
        [name, "exclusive" if held.exclusive else "shared", held.cpus] for name, held in assignments.containers.items()
    ]
    rows += [[name, "pool", cpus] for name, cpus in assignments.pools.items()]
    return table(["owner", "how", "cpus"], rows) if rows else ""


def _protected(node: NodeView) -> str:
    """Whose memory the kernel does not reclaim, and how much of what was asked for that is."""
    published = node.metadata.annotations.get(ASSIGNMENTS_ANNOTATION)
    found = decode_assignments(published).protected if published else {}
    rows = [
        [name, Quantity.from_bytes(one.asked_bytes), Quantity.from_bytes(one.effective_bytes), one.because]
        for name, one in found.items()
    ]
    return table(["pod", "asked", "effective", "because"], rows) if rows else ""


def _classes(offered: Catalog, level: Level, used: dict[ClassKey, int]) -> str:
    """KEP-3008, Kubectl: `gold (1)` is a class with its capacity; what is in use stands before it: `gold (1/3)`."""
    kinds = offered.of_level(level)
    if not kinds:
        return "  <none>"
    rows = [
        [kind.name, "Yes" if kind.mutable else "No", "  ".join(_class(kind, cls, used) for cls in kind.classes)]
        for kind in sorted(kinds, key=lambda kind: kind.name)
    ]
    return _indented(table(["name", "mutable", "classes (used/capacity)"], rows))


def _class(kind: ResourceType, cls: str, used: dict[ClassKey, int]) -> str:
    capacity = kind.classes[cls]
    return f"{cls} ({used.get((kind.level, kind.name, cls), 0)}/{capacity or 'inf'})"


def _pods(pods: list[PodView]) -> str:
    if not pods:
        return "<none>"
    rows = []
    for pod in sorted(pods, key=lambda each: (each.metadata.namespace, each.metadata.name)):
        requests = effective_requests(pod.spec)
        classes = ", ".join(f"{name}={cls}" for name, cls in pod_holdings(pod).items())
        rows.append(
            [pod.metadata.namespace, pod.metadata.name, pod.status.qos_class or qos_class(pod).qos_class]
            + [requests.get(name) for name in ("cpu", "memory")]
            + [classes]
        )
    return table(["namespace", "name", "qos", "cpu", "memory", "classes"], rows)


def pod_text(raw: dict[str, Any], node: dict[str, Any] | None = None) -> str:
    """A pod: its QoS class and why, what its node protects, classes requested and assigned, per container."""
    pod = PodView.of(raw)
    decision = qos_class(pod)
    lines = [
        f"Name:       {pod.metadata.name}",
        f"Namespace:  {pod.metadata.namespace}",
        f"Node:       {pod.spec.node_name or '<none>'}",
        f"Status:     {pod.status.phase or 'Unknown'}" + (f" ({pod.status.reason})" if pod.status.reason else ""),
        f"QoS Class:  {pod.status.qos_class or decision.qos_class} ({decision.because})",
    ]
    if pod.status.message:
        lines.append(f"Message:    {pod.status.message}")
    if memory := protected_memory(pod, node):
        lines.append(f"Memory:     {protection(memory)}")
    rows: list[list[str | None]] = []
    wanted, given = requested(pod.spec.qos_resources), {one.name: one.class_ for one in pod.status.qos_resources}
    rows += [["<pod>", name, wanted.get(name), _assigned(given.get(name))] for name in sorted({*wanted, *given})]
    statuses = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        wanted = requested(container.resources.qos_resources)
        status = statuses.get(container.name)
        given = {one.name: one.class_ for one in status.qos_resources} if status else {}
        rows += [
            [container.name, name, wanted.get(name), _assigned(given.get(name))] for name in sorted({*wanted, *given})
        ]
    lines += ["", "QoS resources:"]
    lines.append(_indented(table(["container", "resource", "requested", "assigned"], rows) if rows else "<none>"))
    return "\n".join(lines)


def _assigned(cls: str | None) -> str | None:
    return "<system default>" if cls == "" else cls


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
