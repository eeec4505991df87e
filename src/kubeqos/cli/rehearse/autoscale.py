"""`kubeqos autoscale`: what an autoscaler that knows QoS classes would do with a cluster. It changes nothing itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit, emit_names, is_data, table, wide_output_option

if TYPE_CHECKING:
    from kubeqos.placement.growth.decision import Decision


@click.group("autoscale")
def command() -> None:
    """Decide how many nodes of which group a cluster needs, its QoS classes included."""


@command.command("plan")
@asks()
@click.option(
    "--node-group", "groups_file", type=click.Path(path_type=Path), required=True, help="The file of node groups."
)
@wide_output_option
def plan(target: Target, groups_file: Path, form: str) -> None:
    """Tell which nodes to add for pods that wait, or which to take away, and what that costs.

    The same decision as the autoscaler of `kubeqos up` makes, for any cluster: groups are described in a file (`name`,
    `min`, `max`, `cost`, `selector`, `template`), their nodes are found by labels. Classes, cost, volumes
    and PodDisruptionBudgets count. Whoever runs the cluster carries it out.
    """
    from kubeqos.cli.rehearse.claimed import volumes_now
    from kubeqos.cli.rehearse.groups import read_groups
    from kubeqos.placement.growth.decision import decide
    from kubeqos.scheduler.reading.nodegroups import occupants
    from kubeqos.scheduler.reading.snapshot import snapshot

    nodes, pods = target.reader.items("/api/v1/nodes"), target.reader.items("/api/v1/pods")
    budgets = target.reader.items("/apis/policy/v1/poddisruptionbudgets")
    groups = read_groups(groups_file, nodes)
    volumes = volumes_now(target)
    cluster, waiting = snapshot(nodes, pods, volumes=volumes)
    found = decide(cluster, waiting, groups, occupants(pods, budgets, volumes))
    if is_data(form):
        emit(_plain(found), form)
    elif form == "name":
        emit_names([*(f"node/{name}" for name in found.up.new_nodes), *(f"node/{o.node}" for o in found.down.removals)])
    else:
        click.echo(_text(found, wide=form == "wide"))


def _plain(found: Decision) -> dict[str, Any]:
    return {
        "groups": [
            {
                "name": group.name,
                "nodes": len(group.members),
                "add": found.up.added[group.name],
                "remove": found.removed_from(group.name),
                "cost": group.cost,
            }
            for group in found.groups
        ],
        "cost": {"now": found.bill, "then": found.bill_after},
        "add": [{"node": name, "group": group} for name, group in found.up.new_nodes.items()],
        "remove": [asdict(one) for one in found.down.removals],
        "placed": found.up.placed,
        "unplaced": found.up.unplaced,
        "kept": found.down.kept,
    }


def _text(found: Decision, *, wide: bool) -> str:
    rows: list[list[object]] = [
        [g.name, len(g.members), found.up.added[g.name], found.removed_from(g.name), f"{g.cost:g}"]
        for g in found.groups
    ]
    parts = [table(["group", "nodes", "add", "remove", "cost each"], rows)]
    parts.append(f"Cost of all groups: {found.bill:g} now, {found.bill_after:g} then.")
    lines = [f"add     {step}" for step in found.up.trail]
    lines += [f"wait    {pod}: {why}" for pod, why in found.up.unplaced.items()]
    for one in found.down.removals:
        moves = "; ".join(f"{pod} moves to {node}" for pod, node in one.moves.items())
        lines.append(f"remove  {one.node}: {moves or 'nothing is on it'}")
    if wide:
        lines += [f"keep    {node}: {why}" for node, why in found.down.kept.items()]
    if lines:
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
