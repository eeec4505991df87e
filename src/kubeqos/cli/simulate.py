"""`kubeqos simulate`: rehearse a change before making it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeqos.cli.connection import Target, cluster_options
from kubeqos.cli.output import emit, output_option, table
from kubeqos.errors import InputError

if TYPE_CHECKING:
    from kubeqos.document import Doc

MAX_NODES = 100_000


@click.group("simulate")
def command() -> None:
    """Rehearse a change on a copy of the cluster."""


@command.command("scale-up")
@cluster_options
@click.option(
    "--node-group", "groups_file", type=click.Path(path_type=Path), required=True, help="Groups of nodes to add."
)
@output_option
def scale_up(target: Target, groups_file: Path, form: str) -> None:
    """Tell how many nodes of which group would make the pending pods run.

    The file lists groups: `name`, `max`, and a node `template` with labels, taints, allocatable and qosResources.
    """
    from kubeqos.placement.scaleup import rehearse

    groups = read_groups(groups_file)
    cluster, waiting = snapshot(target.api.items("/api/v1/nodes"), target.api.items("/api/v1/pods"))
    outcome = rehearse(cluster, waiting, groups)
    if form != "table":
        emit({"added": outcome.added, "placed": outcome.placed, "unplaced": outcome.unplaced}, form)
        return
    if not waiting:
        click.echo("No pods are pending.")
        return
    click.echo(table(["group", "nodes to add"], outcome.added.items()))
    click.echo()
    rows = [[name, node, ""] for name, node in outcome.placed.items()]
    rows += [[name, "", why] for name, why in outcome.unplaced.items()]
    click.echo(table(["pod", "would run on", "why not"], rows))


def snapshot(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """The cluster as placement sees it, and the pods that wait for a node."""
    from kubeqos.model.objects import NodeView, PodView
    from kubeqos.placement.cluster import Cluster, PlacedPod
    from kubeqos.placement.scaleup import Waiting
    from kubeqos.placement.shape import compile_shape
    from kubeqos.scheduler.core import node_facts

    cluster, waiting = Cluster(), []
    for raw in nodes:
        cluster.set_node(node_facts(NodeView.of(raw)))
    for raw in pods:
        pod = PodView.of(raw)
        if pod.is_terminal:
            continue
        name, uid = f"{pod.metadata.namespace}/{pod.metadata.name}", pod.metadata.uid
        if not pod.spec.node_name:
            waiting.append(Waiting(uid, name, compile_shape(pod)))
        elif pod.spec.node_name in cluster.row_of:
            cluster.add_pod(pod.spec.node_name, PlacedPod(uid, name, compile_shape(pod)))
    return cluster, waiting


def read_groups(path: Path) -> list[Any]:
    """Node groups from their file, strictly."""
    from kubeqos.document import read_document
    from kubeqos.placement.scaleup import NodeGroup

    doc = read_document(path, "node groups", InputError)
    listed = doc if doc.is_list else doc.fields(("groups",)).get("groups")
    groups = []
    for each in listed.elements() if listed is not None else ():
        fields = each.fields(("name", "max", "template"))
        most = fields["max"].integer(0, MAX_NODES) if "max" in fields else 10
        groups.append(NodeGroup(each.required(fields, "name").text(), _template(fields.get("template")), most))
    if not groups:
        doc.fail("no node groups found", "list them under `groups:`")
    return groups


def _template(doc: Doc | None) -> Any:
    from kubeqos.model.objects import NodeView
    from kubeqos.scheduler.core import node_facts

    fields = doc.fields(("labels", "annotations", "taints", "allocatable", "qosResources")) if doc else {}
    raw = {key: child.plain() for key, child in fields.items()}
    try:
        node = {
            "metadata": {"labels": raw.get("labels") or {}, "annotations": raw.get("annotations") or {}},
            "spec": {"taints": raw.get("taints") or []},
            "status": {
                "allocatable": {"pods": "110", **(raw.get("allocatable") or {})},
                "qosResources": raw.get("qosResources") or {},
            },
        }
        return node_facts(NodeView.of(node))
    except InputError as error:
        where = f"{doc.where}: {error.where}" if doc else error.where
        raise InputError(error.what, where=where) from error
