"""`kubeqos defrag NODE`: who would move so that the free CPUs lie together, and with `--apply` the moving."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cli.output import emit, emit_names, is_data, table, wide_output_option
from kubeqos.errors import InputError, RemoteError

if TYPE_CHECKING:
    from kubeqos.views.defrag import DefragPlan

APPLY_SECONDS = 60.0
LOOK_SECONDS = 0.5


@click.command("defrag")
@asks()
@click.option("--apply", "apply", is_flag=True, help="Move them now, without a restart, through the CPU plugin.")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="The CPU plugin's socket, on a node that `up` does not run."
)
@data_dir_option
@wide_output_option
@click.argument("node", callback=names.plain("node"), shell_complete=names.complete("node"))
def command(target: Target, apply: bool, socket: Path | None, data_dir: Path, form: str, node: str) -> None:
    """Plan which containers to move so that the CPUs of a NODE that nobody owns lie closer together.

    Only containers with CPUs of their own are moved, each to as many, and none to more NUMA nodes than it has. Memory,
    devices and the cores of claims stay where they are, and the answer says why. Nothing is changed without --apply.
    """
    plan = _plan(target, node)
    if is_data(form):
        from kubeqos.views.defrag import as_data

        emit(as_data(plan), form)
    elif form == "name":
        emit_names(f"pod/{move.owner.split('/')[1]}" for move in plan.found.moves)
    else:
        click.echo(_told(plan))
    if apply and plan.found.moves:
        _apply(target, plan, socket, data_dir)


def _plan(target: Target, node: str) -> DefragPlan:
    from kubeqos.model.objects import PodView
    from kubeqos.views.defrag import defrag_plan

    raw = target.api.get(f"/api/v1/nodes/{node}")
    pods = target.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    return defrag_plan(raw, map(PodView.of, pods))


def _told(plan: DefragPlan) -> str:
    parts = []
    if plan.found.moves:
        rows = []
        for move in plan.found.moves:
            left, entered = plan.places(move)
            rows.append([move.owner, len(move.after), move.before, left, move.after, entered])
        parts.append(table(["container", "cpus", "from", "numa", "to", "numa"], rows))
        parts.append(
            table(["measure", "now", "then"], [[what, _number(a), _number(b)] for what, a, b in plan.measures()])
        )
    else:
        parts.append(f"Nobody on node {plan.node} need move.")
        parts.append(table(["measure", "now"], [[what, _number(now)] for what, now, _ in plan.measures()]))
    if plan.staying:
        parts.append(table(["stays", "because"], sorted(plan.staying.items())))
    if plan.fixed:
        parts.append(table(["not moved", "because"], plan.fixed.items()))
    if plan.found.moves and plan.cannot_apply:
        parts.append(f"It cannot be applied: {plan.cannot_apply}.")
    return "\n\n".join(parts)


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"


def _apply(target: Target, plan: DefragPlan, socket: Path | None, data_dir: Path) -> None:
    """Tell the plugin, then see that the node has done it."""
    if plan.cannot_apply:
        raise InputError(f"node {plan.node}: {plan.cannot_apply}", remedy="let the pods be made anew, one by one")
    from kubeqos.cli.extend.plugin import ask_cpu_plugin, cpu_socket
    from kubeqos.qrm.proto import cpupools_pb2 as pb

    request = pb.MoveOwnersRequest()
    for move in plan.found.moves:
        asked = request.owners[plan.uids[move.owner]]
        asked.before, asked.after = str(move.before), str(move.after)
    ask_cpu_plugin(socket or cpu_socket(plan.node, data_dir), "MoveOwners", request)
    deadline = time.monotonic() + APPLY_SECONDS
    wanted = {move.owner: move.after for move in plan.found.moves}
    while _owned(target, plan.node, set(wanted)) != wanted:
        if time.monotonic() > deadline:
            raise RemoteError(
                f"the plugin agreed, and node {plan.node} has not moved all of them within {APPLY_SECONDS:.0f} s",
                remedy=f"see `kubeqos map {plan.node}` and the node's events",
            )
        time.sleep(LOOK_SECONDS)
    click.echo(f"\nmoved {len(wanted)} container{'' if len(wanted) == 1 else 's'}", err=True)


def _owned(target: Target, node: str, owners: set[str]) -> dict[str, object]:
    from kubeqos.views.machine import published

    _, assignments = published(target.api.get(f"/api/v1/nodes/{node}"))
    return {name: held.cpus for name, held in assignments.containers.items() if name in owners and held.exclusive}
