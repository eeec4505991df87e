"""`kubeqos resctrl`: cache and memory bandwidth by class, as the resctrl file system has it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cli.output import emit, is_data, table, wide_output_option
from kubeqos.errors import InputError

if TYPE_CHECKING:
    from kubeqos.cri.providers.rdt.shown import GroupShown

_MEBIBYTE = 1 << 20


@click.command("resctrl")
@data_dir_option
@wide_output_option
@click.argument("node", required=False)
@click.option(
    "--root", type=click.Path(path_type=Path), help="Of a real machine: /sys/fs/resctrl, where it is mounted."
)
def command(data_dir: Path, form: str, node: str | None, root: Path | None) -> None:
    """Show the resctrl groups of a simulated NODE of `kubeqos up`: schemata, tasks, and counters that move.

    With `-o wide` also what is measured of every container. With --root those of a real machine.
    """
    from kubeqos.cri.providers.rdt.shown import look

    found = look(_tree(root) if root is not None else _of_node(data_dir, node))
    if is_data(form):
        emit([asdict(one) for one in found], form)
        return
    shown = [one for one in found if form == "wide" or not one.monitor]
    click.echo(table(["group", "l3", "mb", "tasks", "cache", "memory traffic"], [_row(one) for one in shown]))


def _row(one: GroupShown) -> list[object]:
    name = f"  {one.monitor}" if one.monitor else one.group
    limits = ["", ""] if one.monitor else [one.schemata.get(kind, "") for kind in ("L3", "MB")]
    return [
        name,
        *limits,
        one.tasks,
        f"{one.occupancy_bytes / _MEBIBYTE:g} MiB",
        f"{one.moved_bytes / _MEBIBYTE:.0f} MiB",
    ]


def _of_node(data_dir: Path, node: str | None) -> Path:
    from kubeqos.cluster.resctrl import FOLDER

    trees = {path.parent.name: path for path in sorted(data_dir.glob(f"nodes/*/{FOLDER}"))}
    if not trees:
        remedy = "start one with kubeqos up, whose nodes need the provider rdt in their classes"
        raise InputError(f"no simulated node with resctrl in {data_dir}", remedy=remedy)
    if node is None:
        return next(iter(trees.values()))
    if node not in trees:
        raise InputError(f"node {node!r} has no simulated resctrl", remedy=f"those that have: {', '.join(trees)}")
    return trees[node]


def _tree(root: Path) -> Path:
    if not (root / "schemata").exists():
        remedy = "mount -t resctrl resctrl /sys/fs/resctrl, on a machine that has it"
        raise InputError(f"{root} is no resctrl file system", remedy=remedy)
    return root
