"""`kubeqos scheduler`: the scheduler as a process of its own, against any API server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.election import LeaseName, leader_elect

if TYPE_CHECKING:
    from kubeqos.scheduler.core import Profile, Scheduler


@click.command("scheduler")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The API server and who we are to it.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A SchedulerConfiguration file.")
@click.option("--feature-gates", default="", help="For example QOSResources=true.")
@click.option("--stock", is_flag=True, help="Be the second scheduler of a stock cluster, and an extender of its first.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For health, metrics and extenders.")
@click.option("--port", default=10259, show_default=True, type=click.IntRange(0, 65535), help="0 serves nothing.")
@leader_elect("kubeqos-scheduler")
def command(
    kubeconfig: Path | None,
    context: str | None,
    config_file: Path | None,
    feature_gates: str,
    stock: bool,
    bind_address: str,
    port: int,
    leader_elect: bool,
    lease: str,
    lease_namespace: str,
) -> None:
    """Place pods on nodes, with QoS classes, claims and preemption.

    Class requests are looked at when the gate QOSResources is on. With --stock it places the pods of an unmodified
    cluster whose schedulerName is kubeqos, by what NodeQOS objects say and pods' annotations ask for.
    """
    import uvloop

    from kubeqos import gates
    from kubeqos.scheduler import config
    from kubeqos.scheduler.core import Profile, Scheduler

    enabled = gates.FeatureGates.parse(feature_gates)
    profiles = config.load(config_file) if config_file else ()
    elected = LeaseName(lease_namespace, lease) if leader_elect else None
    if stock:
        uvloop.run(_run_stock(profiles, kubeconfig, context, bind_address, port, elected))
        return
    core = Scheduler(profiles or (Profile(),), classes=enabled.enabled(gates.QOS_RESOURCES))
    uvloop.run(_run(core, kubeconfig, context, bind_address, port, elected))


async def _run(
    core: Scheduler, kubeconfig: Path | None, context: str | None, address: str, port: int, lease: LeaseName | None
) -> None:
    from kubeqos.cli.parts.working import led, work
    from kubeqos.client.http import HttpApi
    from kubeqos.scheduler.service import SchedulerService
    from kubeqos.scheduler.serving import application

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    service = SchedulerService(api, core)
    part = led(api, lease, service.ready, service.run) if lease else service.run()
    await work(api, part, application(service), address, port, _banner(core))


async def _run_stock(
    profiles: tuple[Profile, ...],
    kubeconfig: Path | None,
    context: str | None,
    address: str,
    port: int,
    lease: LeaseName | None,
) -> None:
    import asyncio

    from kubeqos.cli.parts.working import led, work
    from kubeqos.client.http import HttpApi
    from kubeqos.stock.scheduling.scheduler import StockScheduler
    from kubeqos.stock.scheduling.serving import application, stock_service
    from kubeqos.stock.scheduling.waking import Waking

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    core = StockScheduler(profiles) if profiles else StockScheduler()
    service, waking = stock_service(api, core), Waking(api, core)
    leads = asyncio.Event()

    async def lead() -> None:
        leads.set()
        await asyncio.Event().wait()

    async def part() -> None:
        # Every replica follows the cluster: it answers kube-schedulers, and leads without having to learn first.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run(leads))
            tasks.create_task(waking.run())
            tasks.create_task(led(api, lease, asyncio.Event(), lead) if lease else lead())

    await work(api, part(), application(service, core, waking), address, port, _banner(core))


def _banner(core: Scheduler) -> str:
    return f"scheduling for {', '.join(core.profiles)}"
