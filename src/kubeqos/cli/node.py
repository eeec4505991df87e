"""`kubeqos node`: the node agent, on a real container runtime or on a simulated machine.

Everything it is told stands in a `NodeConfiguration` file (`--config`) or in flags, which win; every setting of the
file has a flag.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeqos.errors import ConfigurationError, InputError
from kubeqos.node.config import SETTINGS, load

if TYPE_CHECKING:
    from kubeqos.cci.manager import Settings as CciSettings
    from kubeqos.cri.runtime import Runtime
    from kubeqos.model.machine import Machine
    from kubeqos.node.config import NodeConfiguration

CGROUP_FS = Path("/sys/fs/cgroup")
SHORT = {"container-runtime-endpoint": "runtime-endpoint", "simulated-machine": "simulated", "classes-file": "classes"}
"""Flags that are typed every day have a second, shorter name."""


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One flag per setting of the configuration file."""
    for setting in reversed(list(SETTINGS.values())):
        names = [f"--{setting.flag}", *([f"--{SHORT[setting.flag]}"] if setting.flag in SHORT else [])]
        command = click.option(*names, setting.flag.replace("-", "_"), metavar="VALUE", help=setting.about)(command)
    return command


@click.command("node")
@click.option("--config", "file", type=click.Path(path_type=Path), help="NodeConfiguration (YAML).")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="How to reach the API server; as kubectl finds it.")
@settings_options
def command(file: Path | None, kubeconfig: Path | None, **flags: str | None) -> None:
    """Run the node agent."""
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    given = {name.replace("_", "-"): value for name, value in flags.items() if value is not None}
    config = load(file, given)
    if not config.node_name:
        config = load(file, given | {"hostname-override": socket.gethostname().lower()})
    if bool(config.runtime_endpoint) == bool(config.simulated_machine):
        raise ConfigurationError(
            "node configuration: say where containers run",
            remedy="set containerRuntimeEndpoint (--runtime-endpoint) or simulatedMachine (--simulated), one of them",
        )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(config, kubeconfig))


async def run(config: NodeConfiguration, kubeconfig: Path | None) -> None:
    """Run one node until SIGINT or SIGTERM."""
    from kubeqos.client.http import HttpApi
    from kubeqos.node.agent import NodeAgent
    from kubeqos.node.assembly import settings_of
    from kubeqos.node.extensions import extensions
    from kubeqos.node.pressure import PressureSettings
    from kubeqos.node.services import ServiceSettings, serve_node

    runtime, machine = runtime_of(config)
    settings = settings_of(config, machine, cgroup_fs=CGROUP_FS if config.runtime_endpoint else None)
    api = HttpApi.from_kubeconfig(kubeconfig)
    beside = extensions(settings, machine, api, cci=cci_settings(config))
    agent = NodeAgent(settings, runtime, machine, api=api, managers=beside.managers, claims=beside.claims)
    click.echo(f"node {settings.node_name} on {runtime.endpoint}: {len(machine.online)} CPUs", err=True)
    pressure = PressureSettings(
        config.thresholds(), config.eviction_transition, config.eviction_max_pod_grace, config.eviction_ranking
    )
    services = ServiceSettings(pressure, config.housekeeping_interval, config.pod_resources_socket)
    try:
        async with beside.running(agent), serve_node(agent, services):
            running = asyncio.create_task(agent.run())
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, running.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await running
            click.echo("stopping; containers run on", err=True)
    finally:
        await runtime.close()
        await api.close()


def cci_settings(config: NodeConfiguration) -> CciSettings:
    from kubeqos.cci.drivers import Deadlines
    from kubeqos.cci.manager import Settings

    return Settings(
        standard_minimum=config.cci_standard_minimum,
        several_drivers=config.cci_several_drivers,
        best_effort_without_driver=config.cci_fallback,
        driver_wait_seconds=config.cci_driver_timeout,
        deadlines=Deadlines(call=config.cci_call_timeout),
    )


def runtime_of(config: NodeConfiguration) -> tuple[Runtime, Machine]:
    """The runtime, and the machine whose CPUs and memory are handed out."""
    from kubeqos.cri.client import CriClient
    from kubeqos.cri.simulated import SimulatedRuntime
    from kubeqos.cri.simulated.classes import read_classes
    from kubeqos.model.machinefile import machine_from_yaml
    from kubeqos.model.machines import MACHINES
    from kubeqos.model.sysfs import read_machine

    if config.runtime_endpoint:
        return CriClient(config.runtime_endpoint), read_machine(Path("/sys"), name=config.node_name)
    described = config.simulated_machine
    machine = MACHINES[described]() if described in MACHINES else machine_from_yaml(_read(Path(described)))
    offers = read_classes(_read(config.classes_file), str(config.classes_file)) if config.classes_file else ()
    return SimulatedRuntime(machine, offers, name=config.node_name), machine


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from error
