"""`kubeqos map NODE`: a machine as text, with the owner of every CPU; `-w` draws it again when it changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import coloured, columns, emit, is_data, paint, picture_output_option, table
from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.published import Assignments, assignments_to_dict
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.hardware.machinefile import machine_to_dict
from kubeqos.model.machine import Machine
from kubeqos.topology.map import LETTERS, render_map
from kubeqos.topology.pools import Pools
from kubeqos.views.machine import owners, published

PICTURES = ("svg", "png")
_CLEAR = "\x1b[H\x1b[J"
_ROUND_SECONDS = 25  # below the connection's own deadline
_COLOURS = ("green", "yellow", "blue", "magenta", "cyan", "bright_green", "bright_yellow", "bright_blue")
_CORES = re.compile(r"^(?P<label> {4}(?:L3 \d+ *[a-z]*| +)  )(?P<cores>\S+(?: \S+)*)(?P<rest>  \S+)$")
_LEGEND = re.compile(r"^(?P<label>)(?P<cores>\S)(?P<rest> .*)$")


@click.command("map")
@asks("selector")
@click.option("--machine", "machine_file", help="Draw the machine of this file (or of this name), without a cluster.")
@click.option("--all", "every", is_flag=True, help="Draw every node; with -l those with these labels.")
@click.option("-w", "--watch", is_flag=True, help="Draw again whenever something moves.")
@picture_output_option
@click.argument("node", callback=names.plain("node"), required=False, shell_complete=names.complete("node"))
def command(target: Target, machine_file: str | None, every: bool, watch: bool, form: str, node: str | None) -> None:
    """Draw the NUMA nodes, caches and cores of a NODE, and who owns each.

    One character is one thread, one group of characters one core. With -o svg or png it is a coloured picture.
    """
    if [node is not None, machine_file is not None, every].count(True) != 1:
        raise click.UsageError("name a node, all of them with --all, or a machine with --machine")
    if target.selector and not every:
        raise click.UsageError("-l chooses among all nodes; give it with --all")
    if every and (watch or form in PICTURES):
        raise click.UsageError("one node can be watched or drawn at a time")
    if watch and form != "table":
        raise click.UsageError("-w draws text; take -o without it")
    if every:
        show_all(target.reader.items("/api/v1/nodes", **target.query), form)
    elif machine_file is not None:
        machine = load_machine(machine_file)
        show(f"machine/{machine_file}", machine, Assignments(Pools(machine).partition), form)
    elif watch:
        for text in drawings(target, str(node)):
            click.echo((_CLEAR if sys.stdout.isatty() else "") + text)
    else:
        show(f"node/{node}", *published(target.reader.get(f"/api/v1/nodes/{node}")), form)


def drawings(target: Target, node: str) -> Iterator[str]:
    """The map now, and each time that it changes."""
    target.reader.get(f"/api/v1/nodes/{node}")  # says NotFound, which a watch would wait for instead
    last = ""
    while True:
        events = target.reader.watch(
            "/api/v1/nodes", fieldSelector=f"metadata.name={node}", timeoutSeconds=str(_ROUND_SECONDS)
        )
        for kind, raw in events:
            if kind == "DELETED":
                raise KubeqosError(f"node {node!r} was deleted")
            if kind in ("ADDED", "MODIFIED"):
                text = drawn(*published(raw))
                if text != last:
                    yield text
                last = text


def show(name: str, machine: Machine, assignments: Assignments, form: str) -> None:
    """Print once."""
    if is_data(form):
        emit(_data(machine, assignments), form)
    elif form in PICTURES:
        draw(name, machine, assignments, form)
    else:
        click.echo(name if form == "name" else drawn(machine, assignments))


def draw(name: str, machine: Machine, assignments: Assignments, form: str) -> None:
    """Print the drawing."""
    from kubeqos.views.machinepicture import machine_picture
    from kubeqos.views.picture import svg

    picture = machine_picture(machine, owners(machine, assignments), name.replace("/", " ", 1))
    if form == "svg":
        click.echo(svg(picture), nl=False)
        return
    from kubeqos.cli.inspect.pixels import png

    if sys.stdout.isatty():
        raise click.UsageError("a PNG is no text; write it to a file with `> map.png`")
    click.echo(png(picture), nl=False)


def show_all(nodes: list[dict[str, Any]], form: str) -> None:
    """Print every node that says what it is made of, and of the others that they do not."""
    found: dict[str, tuple[Machine, Assignments] | None] = {}
    for raw in nodes:
        try:
            found[raw["metadata"]["name"]] = published(raw)
        except KubeqosError:
            found[raw["metadata"]["name"]] = None
    if is_data(form):
        emit([{"node": name, **_data(*one)} for name, one in found.items() if one is not None], form)
    elif form == "name":
        click.echo("\n".join(f"node/{name}" for name in found))
    else:
        silent = "says nothing of its machine: no kubeqos node agent runs there"
        click.echo("\n\n".join(f"node {name}\n{drawn(*one) if one else silent}" for name, one in found.items()))


def _data(machine: Machine, assignments: Assignments) -> dict[str, Any]:
    return {"machine": machine_to_dict(machine), "assignments": assignments_to_dict(assignments)}


def drawn(machine: Machine, assignments: Assignments) -> str:
    """The map, then the containers that share CPUs."""
    lines = render_map(machine, owners(machine, assignments), width=columns()).rstrip("\n")
    if coloured():
        lines = "\n".join(_coloured(line) for line in lines.splitlines())
    sharing = assignments.sharing()
    if not sharing:
        return lines
    rows = [[name, held.cpus, f"NUMA {held.mems}" if held.mems else "all"] for name, held in sorted(sharing.items())]
    return f"{lines}\n\n{table(['container', 'shares cpus', 'memory of'], rows)}"


def _coloured(line: str) -> str:
    found = _CORES.match(line) or _LEGEND.match(line)
    if found is None or line.startswith(("socket", "NUMA")):
        return line
    cores = "".join(
        paint(sign, _COLOURS[LETTERS.index(sign) % 8]) if sign in LETTERS else sign for sign in found["cores"]
    )
    return f"{found['label']}{cores}{found['rest']}"
