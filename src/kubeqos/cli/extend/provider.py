"""`kubeqos provider`: start a class provider from a skeleton, and see whether any provider keeps to the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.extend.judged import tell
from kubeqos.cli.output import output_option

if TYPE_CHECKING:
    from kubeqos.plugins.examined import Check


@click.group(name="provider")
def command() -> None:
    """Make and test class providers."""


@command.command()
@click.argument("name")
@click.option("--folder", type=click.Path(path_type=Path), default=".", help="Where to make it; here.")
@click.option("--resource", default="", help="The resource whose classes it brings, if not example.com/NAME.")
def new(name: str, folder: Path, resource: str) -> None:
    """Write a working provider with a test."""
    from kubeqos.cri.providers.kit.skeleton import write_skeleton

    provider, *others = write_skeleton(name, folder, resource)
    for file in (provider, *others):
        click.echo(file)
    click.echo(
        f"run it:   python {provider} /run/{name}.sock\n"
        f"use it:   resources: {{{resource or f'example.com/{name}'}: {{endpoint: 'unix:///run/{name}.sock'}}}}\n"
        f"test it:  python -m pytest {provider.parent}"
    )


@command.command()
@click.argument("endpoint")
@click.option("--config", default="null", metavar="JSON", help="What the class file would say under `config`.")
@output_option
def conformance(endpoint: str, config: str, form: str) -> None:
    """Ask the provider at a socket everything that a relay asks, and what none should, and judge its answers."""
    import asyncio

    from kubeqos.codec import decode_json

    socket, given = Path(endpoint.removeprefix("unix://")), decode_json(config.encode())
    tell(asyncio.run(_judged(socket, given)), form)


async def _judged(socket: Path, given: object) -> list[Check]:
    from kubeqos.cri.providers.kit.conformance import Kit

    return await Kit(socket, given).run()
