"""`kubeqos scheduler`: the scheduler as a process of its own, against any API server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.election import leader_elect

if TYPE_CHECKING:
    from kubeqos.scheduler.core import Scheduler


@click.command("scheduler")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The API server and who we are to it.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A SchedulerConfiguration file.")
@click.option("--feature-gates", default="", help="For example QOSResources=true.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For health and metrics.")
@click.option("--port", default=10259, show_default=True, type=click.IntRange(0, 65535), help="0 serves nothing.")
@leader_elect("kubeqos-scheduler")
def command(
    kubeconfig: Path | None,
    context: str | None,
    config_file: Path | None,
    feature_gates: str,
    bind_address: str,
    port: int,
    leader_elect: bool,
    lease: str,
) -> None:
    """Place pods on nodes, with QoS classes, claims and preemption.

    Class requests are looked at when the gate QOSResources is on.
    """
    import uvloop

    from kubeqos import gates
    from kubeqos.scheduler import config
    from kubeqos.scheduler.core import Profile, Scheduler

    enabled = gates.FeatureGates.parse(feature_gates)
    profiles = config.load(config_file) if config_file else (Profile(),)
    core = Scheduler(profiles, classes=enabled.enabled(gates.QOS_RESOURCES))
    uvloop.run(_run(core, kubeconfig, context, bind_address, port, lease if leader_elect else ""))


async def _run(
    core: Scheduler, kubeconfig: Path | None, context: str | None, address: str, port: int, lease: str
) -> None:
    from kubeqos.cli.parts.working import led, work
    from kubeqos.client.http import HttpApi
    from kubeqos.scheduler.service import SchedulerService
    from kubeqos.scheduler.serving import application

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    service = SchedulerService(api, core)
    banner = f"scheduling for {', '.join(core.profiles)}"
    part = led(api, lease, service.ready, service.run) if lease else service.run()
    await work(api, part, application(service), address, port, banner)
