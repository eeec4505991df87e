"""`kubeqos controllers`: all controllers as a process of its own, against any API server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.election import LeaseName, leader_elect

if TYPE_CHECKING:
    from kubeqos.controllers.controller import Settings

_SECONDS = click.FloatRange(min=0, min_open=True)


@click.command("controllers")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The API server and who we are to it.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option(
    "--node-monitor-grace-period",
    "grace",
    default=40.0,
    show_default=True,
    type=_SECONDS,
    help="Seconds after which a node that does not renew its lease is not ready.",
)
@click.option(
    "--terminated-pod-gc-threshold",
    "threshold",
    default=12500,
    show_default=True,
    type=click.IntRange(min=0),
    help="Finished pods that are kept; 0 keeps all.",
)
@click.option("--quota-audit-period", "audit", default=60.0, show_default=True, type=_SECONDS, help="Seconds.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For health and metrics.")
@click.option("--port", default=10257, show_default=True, type=click.IntRange(0, 65535), help="0 serves nothing.")
@leader_elect("kubeqos-controllers")
def command(
    kubeconfig: Path | None,
    context: str | None,
    grace: float,
    threshold: int,
    audit: float,
    bind_address: str,
    port: int,
    leader_elect: bool,
    lease: str,
    lease_namespace: str,
) -> None:
    """Keep replicas, claims, nodes, namespaces and quotas as they should be.

    Run one of these per cluster, or several with --leader-elect.
    """
    import uvloop

    from kubeqos.controllers.controller import Settings

    settings = Settings(
        node_monitor_grace_seconds=grace,
        node_monitor_period_seconds=min(5.0, grace / 4),
        terminated_pod_threshold=threshold,
        quota_audit_period_seconds=audit,
    )
    elected = LeaseName(lease_namespace, lease) if leader_elect else None
    uvloop.run(_run(settings, kubeconfig, context, bind_address, port, elected))


async def _run(
    settings: Settings, kubeconfig: Path | None, context: str | None, address: str, port: int, lease: LeaseName | None
) -> None:
    from kubeqos.cli.parts.working import led, work
    from kubeqos.client.http import HttpApi
    from kubeqos.controllers.manager import ControllerManager
    from kubeqos.web.health import application

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    manager = ControllerManager(api, settings)
    banner = f"controllers: {', '.join(found.name for found in manager.controllers)}"
    tells = application(manager.ready, manager.metrics.registry, lagging=manager.lagging)
    part = led(api, lease, manager.ready, manager.run) if lease else manager.run()
    await work(api, part, tells, address, port, banner)
