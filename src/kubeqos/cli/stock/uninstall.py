"""`kubeqos uninstall`: take kubeqos out of a Kubernetes cluster, without a trace."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("uninstall")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use.")
@click.option("--context", help="The context of the kubeconfig to use.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(kubeconfig: Path | None, context: str | None, yes: bool) -> None:
    """Take kubeqos out of a Kubernetes cluster.

    Webhooks go first; then the controller and the agents, what they wrote on Nodes, our kinds with all their objects,
    and the namespace kubeqos-system. Pods run on; their annotations stay.
    """
    import asyncio

    if not yes:
        click.confirm("QOSClass, QOSClassQuota, QOSClassLimits and NodeQOS objects are deleted too. Go on?", abort=True)
    asyncio.run(_uninstall(kubeconfig, context))


async def _uninstall(kubeconfig: Path | None, context: str | None) -> None:
    from kubeqos.client.http import HttpApi
    from kubeqos.stock.installer import uninstall

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    try:
        async for said in uninstall(api):
            click.echo(said)
    finally:
        await api.close()
