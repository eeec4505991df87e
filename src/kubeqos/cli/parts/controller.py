"""`kubeqos controller`: the control plane of kubeqos for a stock Kubernetes cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubeqos.stock.control.controller import Settings


@click.command("controller")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The API server and who we are to it.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option(
    "-n", "--namespace", default="kubeqos-system", show_default=True, help="Where the lease and the certificates are."
)
@click.option(
    "--service",
    default="kubeqos-webhook",
    show_default=True,
    help="The Service by which API servers find the webhooks.",
)
@click.option(
    "--webhook-url", default="", help="How API servers reach the webhooks without a Service, https://HOST:PORT."
)
@click.option(
    "--webhook-bind-address", "host", default="0.0.0.0", show_default=True, help="Where webhooks are answered."
)
@click.option("--webhook-port", default=9443, show_default=True, type=click.IntRange(0, 65535))
@click.option("--feature-gates", default="", help="For example QOSResourcesStrictNames=true.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For health and metrics.")
@click.option("--port", default=10267, show_default=True, type=click.IntRange(0, 65535), help="0 serves nothing.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str,
    service: str,
    webhook_url: str,
    host: str,
    webhook_port: int,
    feature_gates: str,
    bind_address: str,
    port: int,
) -> None:
    """Give a stock Kubernetes cluster QoS classes.

    Answers admission webhooks, counts class quotas, and brings what nodes offer to their Node objects. Any number of
    replicas may run: one of them leads.
    """
    import secrets
    import socket

    import uvloop

    from kubeqos.errors import InputError
    from kubeqos.gates import STRICT_NAMES, FeatureGates
    from kubeqos.stock.control.controller import Settings
    from kubeqos.stock.control.registration import Address

    if webhook_url and not webhook_url.startswith("https://"):
        raise InputError("webhooks are served over TLS", where=f"--webhook-url {webhook_url}", remedy="use https://")
    address = Address(url=webhook_url) if webhook_url else Address(service, namespace)
    identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    # Its classes are the annotations' and the objects', so that the gate which names depend on is on anyhow.
    gates = FeatureGates.parse(",".join(filter(None, ("QOSResources=true", feature_gates))))
    strict = gates.enabled(STRICT_NAMES)
    settings = Settings(address, namespace, identity, host, webhook_port, strict)
    uvloop.run(_run(settings, kubeconfig, context, bind_address, port))


async def _run(settings: Settings, kubeconfig: Path | None, context: str | None, address: str, port: int) -> None:
    from kubeqos.cli.parts.working import work
    from kubeqos.client.http import HttpApi
    from kubeqos.stock.control.controller import StockController
    from kubeqos.web.health import application

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    controller = StockController(api, settings)
    where = settings.address.url or f"service {settings.namespace}/{settings.address.service}"
    banner = f"controller for stock clusters: webhooks at {where}"
    await work(api, controller.run(), application(controller.ready, controller.registry), address, port, banner)
