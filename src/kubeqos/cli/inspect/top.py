"""`kubeqos top nodes|pods|classes`: what is used right now, with the classes it is used under.

Measured use comes from metrics.k8s.io where the cluster serves it. Class use is counted from pods and needs
no metrics.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import click

from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit, emit_names, is_data, table, wide_output_option
from kubeqos.errors import KubeqosError
from kubeqos.model.objects import NodeView, PodView
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.classes import catalog
from kubeqos.rules.qos.podqos import effective_requests, qos_class
from kubeqos.views.usage import class_use, pod_holdings, used_classes

GROUP = "/apis/metrics.k8s.io/v1beta1"
_MEBI = 1 << 20
UNKNOWN = "<unknown>"
WATCH_SECONDS = 2.0

sort_option = click.option(
    "--sort-by", "order", type=click.Choice(["name", "cpu", "memory"]), default="name", show_default=True
)


@dataclass(frozen=True, slots=True)
class Use:
    """CPU and memory in use; None where nobody measures."""

    cpu: Quantity | None = None
    memory: Quantity | None = None

    def __add__(self, other: Use) -> Use:
        return Use(_sum(self.cpu, other.cpu), _sum(self.memory, other.memory))


@dataclass(frozen=True, slots=True)
class Line:
    """One node, pod or class."""

    name: str
    use: Use
    namespace: str = ""
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    qos: str = ""
    classes: tuple[str, ...] = ()
    held: str = ""


watch_option = click.option(
    "-w", "--watch", is_flag=True, help=f"Show it again every {WATCH_SECONDS:.0f} seconds, until interrupted."
)


def again(show: Callable[[], None], watch: bool, sleep: Callable[[float], None] = time.sleep) -> None:
    """Show it once, or until the user has seen enough."""
    while True:
        if watch and sys.stdout.isatty():
            click.clear()
        show()
        if not watch:
            return
        sys.stdout.flush()
        sleep(WATCH_SECONDS)


@click.group("top")
def command() -> None:
    """Show what nodes, pods and classes use."""


@command.command("nodes")
@asks("selector")
@sort_option
@watch_option
@wide_output_option
def nodes(target: Target, order: str, watch: bool, form: str) -> None:
    """Show CPU and memory in use on each node, and how much of each limited class is taken."""
    again(lambda: _nodes(target, order, form), watch)


def _nodes(target: Target, order: str, form: str) -> None:
    measured = _measured(target, "nodes")
    pods = target.reader.items("/api/v1/pods")
    found = [node_line(raw, measured, pods) for raw in target.reader.items("/api/v1/nodes", **target.query)]
    headers = ["name", "cpu(cores)", "cpu(%)", "memory(bytes)", "memory(%)", "classes (used/capacity)"]
    rows = [
        [
            each.name,
            _cpu(each.use.cpu),
            _share(each.use.cpu, each.allocatable.get("cpu")),
            _memory(each.use.memory),
            _share(each.use.memory, each.allocatable.get("memory")),
            "  ".join(each.classes),
        ]
        for each in ordered(found, order)
    ]
    _print(found, order, form, "node", headers, rows, "No resources found")


@command.command("pods")
@asks("namespace", "all_namespaces", "selector")
@sort_option
@watch_option
@wide_output_option
def pods(target: Target, order: str, watch: bool, form: str) -> None:
    """Show CPU and memory in use by each pod, and the classes it asks for."""
    again(lambda: _pods(target, order, form), watch)


def _pods(target: Target, order: str, form: str) -> None:
    measured = _measured(target, target.path("pods", group="").lstrip("/"))
    found = [pod_line(PodView.of(raw), measured) for raw in target.items("pods")]
    wide = form == "wide"
    headers = (["namespace"] if target.all_namespaces else []) + ["name", "cpu(cores)", "memory(bytes)"]
    headers += ["cpu request", "memory request", "qos"] if wide else []
    rows = []
    for each in ordered(found, order):
        row: list[object] = [each.namespace] if target.all_namespaces else []
        row += [each.name, _cpu(each.use.cpu), _memory(each.use.memory)]
        row += [each.requests.get("cpu"), each.requests.get("memory"), each.qos] if wide else []
        rows.append([*row, ", ".join(each.classes)])
    _print(found, order, form, "pod", [*headers, "classes"], rows, target.nothing_found())


@command.command("classes")
@asks()
@sort_option
@wide_output_option
def classes(target: Target, order: str, form: str) -> None:
    """Show how much of each class is taken, and what its pods use together."""
    served = target.reader.get_or_none(f"{GROUP}/pods")
    measured = _by_name(served["items"]) if served else None
    found = class_lines(target.reader.items("/api/v1/nodes"), target.reader.items("/api/v1/pods"), measured)
    rows = [[each.name, each.held, _cpu(each.use.cpu), _memory(each.use.memory)] for each in ordered(found, order)]
    headers = ["class", "used/capacity", "cpu(cores)", "memory(bytes)"]
    _print(found, order, form, "", headers, rows, "No QoS classes found.")
    if not served and form in ("table", "wide"):
        click.echo("Metrics API not available: CPU and memory are unknown.", err=True)


# -- from objects to lines ---------------------------------------------------------------------------------------------


def node_line(raw: dict[str, Any], measured: Mapping[str, Use], pods: Iterable[Mapping[str, Any]]) -> Line:
    """One node with its limited classes."""
    node = NodeView.of(raw)
    name = node.metadata.name
    here = [pod for pod in pods if (pod.get("spec") or {}).get("nodeName") == name]
    held = tuple(
        f"{one.resource}={one.cls} {one.used}/{one.capacity}" for one in class_use([raw], here) if one.capacity
    )
    return Line(name, measured.get(f"/{name}", Use()), allocatable=node.status.allocatable, classes=held)


def pod_line(pod: PodView, measured: Mapping[str, Use]) -> Line:
    """One pod with the classes it holds, a container's own after its name."""
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return Line(
        pod.metadata.name,
        measured.get(key, Use()),
        pod.metadata.namespace,
        requests=effective_requests(pod.spec),
        qos=pod.status.qos_class or str(qos_class(pod).qos_class),
        classes=tuple(f"{what}={cls}" for what, cls in pod_holdings(pod).items()),
    )


def class_lines(
    nodes: list[dict[str, Any]], pods: list[dict[str, Any]], measured: Mapping[str, Use] | None
) -> list[Line]:
    """Every class with its slots over all nodes and the use of the pods that hold one; None where nobody measures."""
    slots: dict[tuple[str, str], list[int]] = {}
    for one in class_use(nodes, pods):
        slots.setdefault((one.resource, one.cls), []).extend((one.used, one.capacity))
    offered = {raw["metadata"]["name"]: catalog(NodeView.of(raw).status.qos_resources) for raw in nodes}
    use: dict[tuple[str, str], Use] = {}
    for pod in map(PodView.of, pods):
        if pod.is_terminal or pod.spec.node_name not in offered:
            continue
        mine = (measured or {}).get(f"{pod.metadata.namespace}/{pod.metadata.name}", Use())
        for _, resource, cls in used_classes([pod], offered[pod.spec.node_name]):
            use[(resource, cls)] = use.get((resource, cls), Use()) + mine
    unused = Use() if measured is None else Use(Quantity.ZERO, Quantity.ZERO)
    found = []
    for (resource, cls), numbers in sorted(slots.items()):
        used, capacities = sum(numbers[::2]), numbers[1::2]
        capacity = "inf" if 0 in capacities else str(sum(capacities))
        found.append(Line(f"{resource}={cls}", use.get((resource, cls), unused), held=f"{used}/{capacity}"))
    return found


def ordered(found: list[Line], order: str) -> list[Line]:
    """By name, or the greatest use first."""
    if order == "name":
        return sorted(found, key=lambda each: (each.namespace, each.name))

    def amount(each: Line) -> int:
        measured = each.use.cpu if order == "cpu" else each.use.memory
        return -1 if measured is None else measured.nanos

    return sorted(found, key=lambda each: (-amount(each), each.namespace, each.name))


# -- metrics -----------------------------------------------------------------------------------------------------------


def _measured(target: Target, collection: str) -> dict[str, Use]:
    served = target.reader.get_or_none(f"{GROUP}/{collection}", **target.query)
    if served is None:
        raise KubeqosError(
            "Metrics API not available",
            where=target.api.server,
            remedy="nothing serves metrics.k8s.io there; `kubeqos top classes` counts class use without it",
        )
    return _by_name(served.get("items") or [])


def _by_name(items: Iterable[Mapping[str, Any]]) -> dict[str, Use]:
    """Use by `namespace/name`; a pod's is the sum of its containers."""
    found = {}
    for raw in items:
        metadata = raw["metadata"]
        use = Use()
        for usage in [raw["usage"]] if "usage" in raw else [one["usage"] for one in raw.get("containers") or ()]:
            use += Use(*(Quantity.parse(usage[name]) if name in usage else None for name in ("cpu", "memory")))
        found[f"{metadata.get('namespace', '')}/{metadata['name']}"] = use
    return found


def _sum(first: Quantity | None, second: Quantity | None) -> Quantity | None:
    return second if first is None else first if second is None else first + second


def _cpu(amount: Quantity | None) -> str:
    return UNKNOWN if amount is None else f"{amount.milli()}m"


def _memory(amount: Quantity | None) -> str:
    return UNKNOWN if amount is None else f"{amount.value() // _MEBI}Mi"


def _share(used: Quantity | None, of: Quantity | None) -> str:
    if used is None or of is None or of.is_zero:
        return UNKNOWN
    return f"{used.nanos * 100 // of.nanos}%"


# -- printing ----------------------------------------------------------------------------------------------------------


def _print(
    found: list[Line], order: str, form: str, kind: str, headers: list[str], rows: list[list[Any]], nothing: str
) -> None:
    if is_data(form):
        emit([_plain(each) for each in ordered(found, order)], form)
    elif form == "name":
        emit_names(f"{kind}/{each.name}" if kind else each.name for each in ordered(found, order))
    elif not found:
        click.echo(nothing, err=True)
    else:
        click.echo(table(headers, rows))


def _plain(each: Line) -> dict[str, Any]:
    whole = {
        "namespace": each.namespace,
        "name": each.name,
        "cpu": None if each.use.cpu is None else str(each.use.cpu),
        "memory": None if each.use.memory is None else str(each.use.memory),
        "qosClass": each.qos,
        "classes": list(each.classes),
        "used": each.held,
    }
    return {key: value for key, value in whole.items() if value or key in ("name", "cpu", "memory")}
