"""`kubeqos apiserver`: the API server alone, for clients that bring their own controllers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.errors import ConfigurationError, KubeqosError

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from kubeqos.apiserver.server import Settings


@click.command("apiserver")
@click.option("--data-dir", type=click.Path(path_type=Path), required=True, help="Where everything is kept.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="0 picks a free port.")
@click.option(
    "--token-auth-file", type=click.Path(path_type=Path), help="Static bearer tokens (token,user,uid,groups)."
)
@click.option(
    "--kubelet-certificate-authority",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Who signs kubelets' serving certificates, if not the cluster's authority (PEM).",
)
@click.option(
    "--service-cluster-ip-range",
    default="10.96.0.0/12",
    show_default=True,
    metavar="CIDR",
    help="Addresses that services are given.",
)
@click.option("--feature-gates", default="", metavar="A=true,B=false", help="Turn features on or off.")
@click.option("--audit/--no-audit", default=True, show_default=True, help="Write audit.log into the data directory.")
def command(
    data_dir: Path,
    host: str,
    port: int,
    token_auth_file: Path | None,
    kubelet_certificate_authority: Path | None,
    service_cluster_ip_range: str,
    feature_gates: str,
    audit: bool,
) -> None:
    """Serve the Kubernetes API from a directory.

    The admin's kubeconfig is written to DATA_DIR/kubeconfig.
    """
    import logging
    import sys

    import uvloop

    from kubeqos import logs
    from kubeqos.apiserver.server import Settings
    from kubeqos.cci.claims.admission import check_claims
    from kubeqos.gates import CCI, QOS_RESOURCES, FeatureGates
    from kubeqos.stock.definitions import definitions

    logs.to_stream(sys.stderr, logging.WARNING)
    try:
        gates = FeatureGates.parse(feature_gates)
        checks = (check_claims,) if gates.enabled(CCI) else ()
        authority, addresses = kubelet_certificate_authority, _range(service_cluster_ip_range)
        described = definitions() if gates.enabled(QOS_RESOURCES) else ()
        settings = Settings(
            data_dir, host, port, token_auth_file, audit, gates, checks, authority, addresses, described
        )
        uvloop.run(_run(settings))
    except KubeqosError as error:
        raise click.ClickException("\n".join(error.lines())) from error


def _range(text: str) -> IPv4Network:
    from ipaddress import IPv4Network

    try:
        found = IPv4Network(text)
        if found.prefixlen > 28:
            raise ValueError(f"{text} has room for fewer than 14 services")
    except ValueError as error:
        what = f"--service-cluster-ip-range: {error}"
        raise ConfigurationError(what, remedy="give an IPv4 network such as 10.96.0.0/12") from error
    return found


async def _run(settings: Settings) -> None:
    import asyncio

    from kubeqos.apiserver.server import ApiServer

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with ApiServer.start(settings) as server:
        click.echo(f"serving https://{server.application.address}  kubeconfig {server.kubeconfig}")
        await stop.wait()


if __name__ == "__main__":
    command()
