"""`kubeqos up`: a cluster on this machine, until Ctrl-C or `kubeqos down`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cli.local.stories import STAGE
from kubeqos.cluster.instance import Instance, Running
from kubeqos.errors import ConfigurationError, KubeqosError

if TYPE_CHECKING:
    from kubeqos.cluster.clusterfile import ClusterPlan
    from kubeqos.cluster.embedded import Embedded

_DETACH_SECONDS = 300.0  # the process tells itself when it cannot start; a busy machine takes its time
_RUNTIME_SECONDS = 5.0


@click.command("up")
@data_dir_option
@click.option(
    "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Of the API, on 127.0.0.1."
)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A ClusterConfiguration file.")
@click.option("--nodes", type=click.IntRange(1, 10_000), help="So many small simulated nodes instead.")
@click.option("--node-runtime", metavar="ENDPOINT", help="Add this machine as a node, with this CRI runtime.")
@click.option(
    "--node-config", type=click.Path(path_type=Path), help="A NodeConfiguration file for the node of --node-runtime."
)
@click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="COMMAND",
    help="Also run this resource plugin beside nodes of profile qrm; its last argument is the plugin folder.",
)
@click.option(
    "--driver",
    "drivers",
    multiple=True,
    metavar="COMMAND",
    help="Also run this compute driver beside nodes of profile cci; its last argument is the plugin folder.",
)
@click.option("--dashboard/--no-dashboard", default=True, show_default=True, help="Serve a live page at /dashboard.")
@click.option("--detach", is_flag=True, help="Return when the cluster is ready, and leave it running.")
def command(
    data_dir: Path,
    port: int,
    config_file: Path | None,
    nodes: int | None,
    node_runtime: str | None,
    node_config: Path | None,
    plugins: tuple[str, ...],
    drivers: tuple[str, ...],
    dashboard: bool,
    detach: bool,
) -> None:
    """Start an API server, a scheduler and simulated nodes on this machine."""
    watch = _Stopwatch()
    if config_file is not None and nodes is not None:
        raise ConfigurationError("--config and --nodes exclude each other", remedy="count nodes in the file instead")
    if node_config is not None and node_runtime is None:
        raise ConfigurationError(
            "--node-config is about the node of --node-runtime, which is not given",
            remedy="pass --node-runtime, or describe nodes in a file for --config",
        )
    instance = Instance(data_dir)
    running = instance.running()
    if running is not None:
        click.echo(f"already running (process {running.pid}), API on https://127.0.0.1:{running.port}")
        click.echo(_next_steps(instance, running))
        _tell_link(_fresh_link(instance))
        return
    if node_runtime is not None:
        _check_runtime(node_runtime, f"--node-runtime {node_runtime}")
    wanted = (config_file, nodes, node_runtime, node_config, plugins, drivers)
    checked = config_file or node_config or plugins or drivers
    plan = _plan(*wanted) if checked else None  # a bad file leaves nothing behind
    if detach:
        _detached(instance)
        return
    instance.prepare()
    watch.tell(f"starting in {instance.data_dir}")  # what follows takes a while to load
    plan = plan or _plan(*wanted)
    import uvloop

    uvloop.run(_run(instance, plan, port, watch, dashboard=dashboard))


class _Stopwatch:
    """Tells what is done, and how many seconds after the command began."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def tell(self, line: str) -> None:
        click.echo(f"  {self.seconds:5.1f} s  {line}", err=True)


def _plan(
    config_file: Path | None,
    nodes: int | None,
    node_runtime: str | None,
    node_config: Path | None,
    plugins: tuple[str, ...],
    drivers: tuple[str, ...],
) -> ClusterPlan:
    from kubeqos.cluster.clusterfile import (
        beside_simulated,
        default_plan,
        fleet_plan,
        load_plan,
        local_node,
        with_programs,
    )
    from kubeqos.cluster.programs import DRIVER, PLUGIN, from_option

    plan = load_plan(config_file) if config_file else fleet_plan(nodes) if nodes else default_plan()
    for node in plan.nodes:
        if node.endpoint:
            _check_runtime(node.endpoint, f"{config_file}: node {node.name!r}")
    if node_runtime is not None:
        plan = replace(plan, nodes=(*plan.nodes, local_node(node_runtime, node_config)))
    here = Path.cwd()
    own = [*(from_option(PLUGIN, one, here) for one in plugins), *(from_option(DRIVER, one, here) for one in drivers)]
    plan = beside_simulated(with_programs(plan, own))
    if config_file is not None or node_config is not None:
        from kubeqos.cluster.embedded import check_plan

        check_plan(plan)
    return plan


async def _run(instance: Instance, plan: ClusterPlan, port: int, watch: _Stopwatch, *, dashboard: bool) -> None:
    import asyncio
    import logging
    from contextlib import AsyncExitStack

    from kubeqos import logs
    from kubeqos.cluster.embedded import running
    from kubeqos.stock.definitions import definitions

    # What is said on standard output is for the user; what components note down is for the log. A person at a terminal
    # wants to hear of troubles only.
    logs.to_stream(sys.stderr, logging.WARNING if sys.stderr.isatty() else logging.INFO)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running(plan, instance.data_dir, port, watch.tell, definitions()))
        bound = int(cluster.server.application.address.rpartition(":")[2])
        stories = STAGE.issubset(node.name for node in plan.nodes)
        now = Running(os.getpid(), bound, cluster.sockets, stories)
        link = await stack.enter_async_context(_page(cluster)) if dashboard else ""
        with instance.recorded(now):
            click.echo(f"ready in {watch.seconds:.1f} s")
            click.echo(_next_steps(instance, now))
            _tell_link(link)
            ended = asyncio.create_task(cluster.wait())
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if ended.done():
                ended.result()
            ended.cancel()
            click.echo("stopping", err=True)


@asynccontextmanager
async def _page(cluster: Embedded) -> AsyncIterator[str]:
    """The dashboard, while the block runs: a link that logs the administrator in."""
    from kubeqos.dashboard.home import mounted
    from kubeqos.web.identity import MASTERS, Identity
    from kubeqos.web.pki import ADMIN

    async with mounted(cluster.server, cluster.informers) as page:
        yield page.link(Identity.authenticated(ADMIN, [MASTERS]))


def _tell_link(link: str) -> None:
    if link:
        click.echo(f"  dashboard, for one login within 15 minutes:\n  {link}\n")


def _fresh_link(instance: Instance) -> str:
    """Another one, from a cluster that runs already; none where it serves no page."""
    from kubeqos.cli.inspect.dashboard import new_link
    from kubeqos.client.light import LightApi

    try:
        return new_link(LightApi.from_kubeconfig(instance.kubeconfig))
    except KubeqosError:
        return ""


def _detached(instance: Instance) -> None:
    """Start the same command in the background and wait until it says that it is ready."""
    instance.prepare()
    click.echo(f"starting in the background, log in {instance.log_file}", err=True)
    words = [word for word in sys.argv[1:] if word != "--detach"]
    # Whoever gives up while the process is being made must still end it: the interruption is heard a moment later.
    given_up: list[int] = []
    heard = signal.signal(signal.SIGINT, lambda number, _frame: given_up.append(number))
    with open(instance.log_file, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kubeqos.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        signal.signal(signal.SIGINT, heard)
        if given_up:
            raise KeyboardInterrupt
        running = _awaited(instance, process)
    except KeyboardInterrupt:
        process.terminate()  # who gives up on it has nobody who would stop it
        raise
    if running is not None:
        click.echo(f"running in the background (process {running.pid})")
        click.echo(_next_steps(instance, running))
        _tell_link(_fresh_link(instance))
        return
    if process.poll() is not None:
        click.echo(_last_error(instance.log_file), err=True)
        raise click.exceptions.Exit(1)
    process.terminate()
    process.wait()
    raise KubeqosError(f"the cluster was not ready within {_DETACH_SECONDS:.0f} s", where=str(instance.log_file))


def _awaited(instance: Instance, process: subprocess.Popen[bytes]) -> Running | None:
    """The cluster when it is ready; None when its process has ended, or time is up."""
    deadline = time.monotonic() + _DETACH_SECONDS
    while time.monotonic() < deadline:
        if (running := instance.running()) is not None or process.poll() is not None:
            return running
        time.sleep(0.05)
    return None


def _last_error(log: Path) -> str:
    """What the program in the background said before it ended."""
    said = log.read_text(errors="replace").strip().splitlines()
    starts = [number for number, line in enumerate(said) if line.startswith(("Error", "Usage"))]
    return "\n".join(said[starts[-1] if starts else -3 :])


def _check_runtime(endpoint: str, where: str) -> None:
    """A cluster whose only real node never answers is worse than none."""
    path = endpoint.removeprefix("unix://")
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_RUNTIME_SECONDS)
        try:
            client.connect(path)
        except OSError as error:
            raise ConfigurationError(
                f"no container runtime answers: {error.strerror or error}",
                where=where,
                remedy="start it, or name its CRI socket, such as unix:///run/containerd/containerd.sock",
            ) from error


def _next_steps(instance: Instance, running: Running) -> str:
    """Three commands to try, of those that work here."""
    program, kubectl = _program(), shutil.which("kubectl") is not None
    steps = ["kubectl get nodes -o wide" if kubectl else f"{program} status{instance.option}", f"{program} classes"]
    if running.stories and kubectl:
        steps[1] = "kubectl apply -f examples/qos-classes/pod.yaml"
    steps.append(f"{program} demo{instance.option}" if running.stories else f"{program} top nodes")
    return "\n".join(["", *(f"  {step}" for step in [f"export KUBECONFIG={instance.kubeconfig}", *steps]), ""])


def _program() -> str:
    """How to call this program: `make up` installs it where no shell looks."""
    beside = Path(sys.executable).with_name("kubeqos")
    if shutil.which("kubeqos") or not beside.exists():
        return "kubeqos"
    return str(beside.relative_to(Path.cwd())) if beside.is_relative_to(Path.cwd()) else str(beside)
