"""`kubeqos cci`: start a new compute driver, check any driver, check a claim's parameters before they are used."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from kubeqos.cli.extend.driver import machine_option
from kubeqos.errors import InputError
from kubeqos.model.hardware.loading import load_machine

if TYPE_CHECKING:
    from kubeqos.cci.kit.examination import Verdict


@click.group("cci")
def command() -> None:
    """Write, check and inspect compute drivers and their claims."""


@command.command()
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), help="The folder; named like the driver if left out.")
def new(name: str, into: Path | None) -> None:
    """Write a new driver called NAME (such as fast.example.com) with a test."""
    from kubeqos.cci.kit.skeleton import write_skeleton

    driver, *others = write_skeleton(name, into)
    for file in (driver, *others):
        click.echo(file)
    click.echo(f"run it:   python {driver} REGISTRY\ntest it:  python -m pytest {driver.parent}")


@command.command()
@click.argument("socket", type=click.Path(path_type=Path))
@machine_option
@click.option("--command", "words", default="", help="Start the driver by this command, and kill it on the way.")
def conformance(socket: Path, machine: str | None, words: str) -> None:
    """Check the driver behind SOCKET against the interface."""
    import asyncio

    from kubeqos.cci.kit.conformance import examine
    from kubeqos.plugins.killable import killable

    if not words and not socket.is_socket():
        raise InputError(f"{socket} is not a socket", remedy="name the driver's socket in the plugin folder")

    async def run() -> list[Verdict]:
        async with killable(shlex.split(words), socket) as program:
            return await examine(socket, load_machine(machine), program)

    verdicts = asyncio.run(run())
    for one in verdicts:
        click.echo(f"{'FAILED' if one.problem else 'ok':<7} {one.check}  ({one.milliseconds:.1f} ms)")
        if one.problem:
            click.echo(f"        {one.problem}")
    failed = sum(bool(one.problem) for one in verdicts)
    click.echo(f"{len(verdicts) - failed} of {len(verdicts)} checks passed")
    sys.exit(1 if failed else 0)


@command.command()
@click.argument("file", type=click.File("r"))
def check(file: TextIO) -> None:
    """Check a claim's parameters, the text of a ConfigMap's config.json (- reads standard input)."""
    from kubeqos.topology.claims.document import Problem
    from kubeqos.topology.claims.parameters import parse

    text: str = file.read()
    found = parse(text)
    if isinstance(found, Problem):
        click.echo(f"{file.name}: {found.shown()}", err=True)
        sys.exit(1)
    for index, group in enumerate(found.groups):
        said = [
            name for key in ("cpu attributes", "mem attributes", "device attributes") for name in group.attributes(key)
        ]
        click.echo(f"group {index}: {group.cores} cores  {', '.join(said)}")
    click.echo(f"requests cpu: {found.least}, limits cpu: {found.most}")
