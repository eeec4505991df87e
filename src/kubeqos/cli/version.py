"""`kubeqos version`: this program, and the API server that the kubeconfig names, if it answers."""

from __future__ import annotations

import click

from kubeqos import __version__
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit
from kubeqos.errors import KubeqosError


@click.command("version")
@asks()
@click.option("--client", is_flag=True, help="Do not ask the server.")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="As data.")
def command(target: Target, client: bool, form: str | None) -> None:
    """Show the version of this program and of the API server."""
    found = {"clientVersion": __version__}
    problem = ""
    if not client:
        try:
            found["serverVersion"] = str(target.api.get("/version").get("gitVersion", ""))
        except KubeqosError as error:
            problem = error.what
    if form is not None:
        emit(found, form)
        return
    click.echo(f"Client: {found['clientVersion']}")
    if "serverVersion" in found:
        click.echo(f"Server: {found['serverVersion']}")
    elif problem:
        click.echo(f"Server: unknown ({problem})", err=True)
