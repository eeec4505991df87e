"""`kubeqos simulate`: rehearse a change before making it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kubeqos.cli.connection import Target, cluster_options
from kubeqos.cli.output import emit, output_option, table
from kubeqos.errors import InputError


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
    from kubeqos.codec import YamlError, decode_yaml
    from kubeqos.placement.scaleup import NodeGroup

    try:
        raw = decode_yaml(path.read_text())
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except YamlError as error:
        raise InputError(f"not valid YAML: {error}", where=str(path)) from error
    listed = raw.get("groups") if isinstance(raw, Mapping) else raw
    if not isinstance(listed, list) or not listed:
        raise InputError("no node groups found", where=str(path), remedy="list them under `groups:`")
    groups = []
    for index, each in enumerate(listed):
        where = f"{path}: groups[{index}]"
        _only(each, ("name", "max", "template"), where)
        if not isinstance(each.get("name"), str) or not isinstance(each.get("max", 10), int):
            raise InputError("a group needs a `name`, and `max` is a whole number", where=where)
        groups.append(NodeGroup(each["name"], _template(each.get("template") or {}, where), each.get("max", 10)))
    return groups


def _template(raw: Any, where: str) -> Any:
    from kubeqos.model.objects import NodeView
    from kubeqos.scheduler.core import node_facts

    known = ("labels", "annotations", "taints", "allocatable", "qosResources")
    _only(raw, known, f"{where}.template")
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
        raise InputError(error.what, where=f"{where}.template: {error.where}") from error


def _only(raw: Any, known: tuple[str, ...], where: str) -> None:
    if not isinstance(raw, Mapping):
        raise InputError("expected a map of settings", where=where)
    for key in raw:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            remedy = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(known)
            raise InputError(f"unknown setting {key!r}", where=where, remedy=remedy)
