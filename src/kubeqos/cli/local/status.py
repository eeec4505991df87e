"""`kubeqos status`: is the local cluster up, and are its parts well?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cli.output import emit, output_option, table
from kubeqos.client.light import LightApi
from kubeqos.cluster.instance import Instance, Running

_COLUMNS = ("node", "status", "profile", "pods")


@click.command("status")
@data_dir_option
@output_option
def command(data_dir: Path, form: str) -> None:
    """Show whether the cluster runs, and its nodes; the exit code is 1 when it does not."""
    instance = Instance(data_dir)
    running = instance.running()
    if running is None:
        if form == "table":
            click.echo(f"not running (data in {data_dir})")
        else:
            emit({"running": False, "dataDir": str(data_dir)}, form)
        raise click.exceptions.Exit(1)
    api = LightApi.from_kubeconfig(instance.kubeconfig)
    nodes = api.items("/api/v1/nodes")
    pods = api.items("/api/v1/pods")
    rows = [[node["metadata"]["name"], _ready(node), _profile(node), _count(node, pods)] for node in nodes]
    waiting = sum(1 for pod in pods if not (pod.get("spec") or {}).get("nodeName"))
    if form != "table":
        emit(_plain(instance, running, rows, waiting), form)
        return
    click.echo(f"running (process {running.pid}), API on https://127.0.0.1:{running.port}")
    click.echo(f"kubeconfig {instance.kubeconfig}")
    click.echo(f"sockets of plugins and drivers {running.sockets}")
    click.echo()
    click.echo(table(_COLUMNS, rows))
    if waiting:
        click.echo(f"\n{waiting} pods have no node; `kubeqos why POD` tells why")


def _plain(instance: Instance, running: Running, rows: list[list[Any]], waiting: int) -> dict[str, Any]:
    return {
        "running": True,
        "pid": running.pid,
        "server": f"https://127.0.0.1:{running.port}",
        "kubeconfig": str(instance.kubeconfig),
        "sockets": str(running.sockets),
        "nodes": [dict(zip(_COLUMNS, row, strict=True)) for row in rows],
        "podsWithoutNode": waiting,
    }


def _ready(node: dict[str, Any]) -> str:
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return "Ready" if condition.get("status") == "True" else "NotReady"
    return "Unknown"


def _profile(node: dict[str, Any]) -> str | None:
    from kubeqos.model.annotations.wellknown import PROFILE_LABEL

    labels: dict[str, str] = node["metadata"].get("labels") or {}
    return labels.get(PROFILE_LABEL)


def _count(node: dict[str, Any], pods: list[dict[str, Any]]) -> int:
    name = node["metadata"]["name"]
    return sum(1 for pod in pods if (pod.get("spec") or {}).get("nodeName") == name)
