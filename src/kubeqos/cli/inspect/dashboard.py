"""`kubeqos dashboard`: a live page beside any cluster; `--link` logs in to the one that a cluster serves itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli import names
from kubeqos.errors import KubeqosError

if TYPE_CHECKING:
    from kubeqos.client.http import HttpApi
    from kubeqos.client.light import LightApi

LINKS = "/dashboard/api/v1/links"


@click.command("dashboard")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use.")
@click.option("--context", help="The context of the kubeconfig to use.", shell_complete=names.complete("context"))
@click.option("-n", "--namespace", help="The one to look at where not all may be.")
@click.option("--link", is_flag=True, help="Only print a link to the dashboard that the API server serves itself.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="An address of this machine itself.")
@click.option("--port", default=7443, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
def command(
    kubeconfig: Path | None, context: str | None, namespace: str | None, link: bool, bind_address: str, port: int
) -> None:
    """Show nodes, pods, classes and reasons live, in a browser.

    Prints a link that logs in once, within a quarter of an hour; SIGHUP prints another. Everybody who logs in sees what
    the user of the kubeconfig may read, and nothing can be changed.
    """
    if link:
        from kubeqos.client.light import LightApi

        click.echo(new_link(LightApi.from_kubeconfig(kubeconfig, context)))
        return
    import uvloop

    from kubeqos.client.http import HttpApi
    from kubeqos.client.kubeconfig import load

    config = load(kubeconfig, context)
    user = config.user.as_ or config.context_name or "the kubeconfig's user"
    api = HttpApi.from_kubeconfig(kubeconfig, context)
    uvloop.run(_serve(api, config.cluster.server, user, namespace or config.namespace, bind_address, port))


def new_link(api: LightApi) -> str:
    """A link for the user of a kubeconfig, from a cluster that serves the dashboard itself."""
    from kubeqos.client.errors import ApiError

    try:
        return str(api.write("POST", LINKS, {})[0]["link"])
    except (ApiError, KeyError) as error:
        if isinstance(error, ApiError) and error.status not in (403, 404):
            raise
        raise KubeqosError(
            "this API server serves no dashboard of its own",
            where=api.server,
            remedy="run kubeqos dashboard without --link: it serves one beside the cluster",
        ) from error


async def _serve(api: HttpApi, cluster: str, user: str, namespace: str, host: str, port: int) -> None:
    import asyncio
    import signal

    from kubeqos.dashboard.home import beside
    from kubeqos.web.identity import Identity

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    identity = Identity.authenticated(user)
    try:
        async with beside(api, cluster, namespace, host, port) as dashboard:
            loop.add_signal_handler(signal.SIGHUP, lambda: click.echo(dashboard.link(identity)))
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            click.echo(dashboard.link(identity))
            await stop.wait()
    finally:
        await api.close()
