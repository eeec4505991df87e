"""`kubeqos qrm`: start a resource plugin from a skeleton, and see whether any plugin keeps to the protocol."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.extend.judged import tell
from kubeqos.cli.output import output_option
from kubeqos.model.hardware.loading import load_machine

if TYPE_CHECKING:
    from kubeqos.plugins.examined import Check


@click.group(name="qrm")
def command() -> None:
    """Make and test resource plugins."""


@command.command()
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), default=".", help="Where to make it; here.")
@click.option("--resource", default="", help="The resource that it hands out, if not example.com/NAME.")
def new(name: str, folder: Path, resource: str) -> None:
    """Write a working plugin with a test."""
    from kubeqos.qrm.kit.skeleton import write_skeleton

    plugin, *others = write_skeleton(name, folder, resource)
    for file in (plugin, *others):
        click.echo(file)
    click.echo(f"run it:   python {plugin} REGISTRY\ntest it:  python -m pytest {plugin.parent}")


@command.command()
@click.argument("endpoint")
@click.option("--quantity", default=1.0, show_default=True, help="How much to ask for.")
@click.option("--role", default="", help="The role of the pods that ask.")
@click.option("--annotation", multiple=True, metavar="KEY=VALUE", help="An annotation of the pods that ask.")
@click.option(
    "--machine", "machine_file", metavar="NAME|FILE", help="The plugin's machine, to judge CPUs and NUMA nodes by."
)
@click.option("--command", "words", default="", help="Start the plugin by this command, and kill it on the way.")
@output_option
def conformance(
    endpoint: str,
    quantity: float,
    role: str,
    annotation: tuple[str, ...],
    machine_file: str | None,
    words: str,
    form: str,
) -> None:
    """Ask the plugin at a socket everything that a manager asks, and judge its answers."""
    import asyncio

    from kubeqos.plugins.killable import killable
    from kubeqos.qrm.kit.conformance import Kit

    machine = load_machine(machine_file) if machine_file else None
    annotations = dict(pair.partition("=")[::2] for pair in annotation)
    socket = Path(endpoint.removeprefix("unix://"))

    async def run() -> list[Check]:
        async with killable(shlex.split(words), socket) as program:
            kit = Kit(socket, quantity=quantity, role=role, annotations=annotations, machine=machine, program=program)
            return await kit.run()

    tell(asyncio.run(run()), form)
