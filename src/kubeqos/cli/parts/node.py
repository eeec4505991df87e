"""`kubeqos node`: the node agent, on a real container runtime or on a simulated machine.

Every setting of a `NodeConfiguration` is a flag too; a flag overrides the file.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubeqos.errors import ConfigurationError
from kubeqos.model.hardware.loading import load_machine
from kubeqos.node.config.configuration import SETTINGS

if TYPE_CHECKING:
    import asyncio

    from kubeqos.cri.simulated.service import ClassFile
    from kubeqos.node.agent import NodeAgent
    from kubeqos.node.config.configuration import NodeConfiguration


def setting_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for every setting, in the order of the table."""
    for setting in reversed(list(SETTINGS.values())):
        names = [f"--{setting.flag}", *([f"--{setting.also}"] if setting.also else [])]
        metavar = "true|false" if isinstance(setting.default, bool) else None
        flag_value = "true" if isinstance(setting.default, bool) and not setting.default else None
        command = click.option(
            *names, setting.name, help=setting.about, metavar=metavar, is_flag=False, flag_value=flag_value
        )(command)
    return command


@click.command("node")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="How to reach the API server; as kubectl finds it.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A NodeConfiguration file (YAML).")
@setting_flags
def command(kubeconfig: Path | None, config_file: Path | None, **given: str | None) -> None:
    """Run the node agent.

    Settings come from --config and from flags; a flag overrides the file.
    """
    import asyncio
    import sys

    from kubeqos import logs
    from kubeqos.node.config.configuration import load

    logs.to_stream(sys.stderr)
    flags = {each.flag: text for each in SETTINGS.values() if (text := given[each.name]) is not None}
    config = load(config_file, flags)
    if not config.runtime_endpoint and not config.simulated_machine:
        raise ConfigurationError(
            "node configuration: say where containers run",
            remedy="set containerRuntimeEndpoint (--runtime-endpoint) or simulatedMachine (--simulated), one of them",
        )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(config, kubeconfig))


async def _run(config: NodeConfiguration, kubeconfig: Path | None) -> None:
    import asyncio
    import dataclasses

    from kubeqos.client.http import HttpApi
    from kubeqos.node.config.assembly import Hosting, node_parts
    from kubeqos.node.config.checks import refuse_machine
    from kubeqos.node.config.driver import detected
    from kubeqos.node.run import running_node

    config = dataclasses.replace(config, node_name=config.node_name or socket.gethostname().lower())
    runtime, machine, classes = _runtime(config)
    refuse_machine(config, machine)  # before a kubeconfig is looked for
    api = HttpApi.from_kubeconfig(kubeconfig)
    authority = _authority(kubeconfig, config.state_dir)
    if authority is None:
        what = "the kubeconfig names no certificate authority: logs, exec, port-forward and metrics are not served"
        click.echo(f"{what}, because nobody who asks for them could be known", err=True)
    config = await detected(config, runtime)
    parts = node_parts(config, runtime, machine, Hosting(api=api), client_authority=authority)
    try:
        async with running_node(parts) as (agent, _):
            running = asyncio.create_task(agent.run())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, running.cancel)
            asked = asyncio.Event()
            loop.add_signal_handler(signal.SIGHUP, asked.set)
            following = asyncio.create_task(_follow_classes(agent, runtime, classes, asked))
            running.add_done_callback(lambda _: following.cancel())
            click.echo(f"node {config.node_name} on {runtime.endpoint}: {len(machine.online)} CPUs", err=True)
            with contextlib.suppress(asyncio.CancelledError):
                await running
            click.echo("stopping; containers run on", err=True)
    finally:
        await runtime.close()
        await api.close()


async def _follow_classes(agent: NodeAgent, runtime: Any, classes: ClassFile | None, asked: asyncio.Event) -> None:
    """Show new classes as soon as there are any: those of a simulated machine's file, or, when asked by SIGHUP, those
    of the runtime."""
    import asyncio

    from kubeqos.cri.errors import CallError
    from kubeqos.cri.simulated.service import LOOK_SECONDS

    await agent.ready.wait()
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS if classes else None):
                await asked.wait()
        forced = asked.is_set()
        asked.clear()
        changed = classes is not None and classes.follow(
            runtime, lambda text: click.echo(text, err=True), forced=forced
        )
        if changed or (forced and classes is None):
            try:
                await agent.refresh_runtime()
            except CallError as error:
                click.echo(f"the runtime does not answer: {error.details}", err=True)
            await agent.node.write()


def _authority(kubeconfig: Path | None, state: Path) -> Path | None:
    """The authority of the cluster, whose certificates the agent's endpoint accepts, as a file."""
    import base64

    from kubeqos.client.kubeconfig import load

    cluster = load(kubeconfig).cluster
    if cluster.certificate_authority and not cluster.certificate_authority_data:
        return Path(cluster.certificate_authority)
    if not cluster.certificate_authority_data:
        return None
    path = state / "clients-ca.crt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(cluster.certificate_authority_data))
    return path


def _runtime(config: NodeConfiguration) -> Any:
    """The runtime, the machine whose CPUs and memory are handed out, and the file of a simulated one's classes."""
    from kubeqos.cri.client import CriClient
    from kubeqos.cri.simulated import SimulatedRuntime
    from kubeqos.cri.simulated.service import ClassFile
    from kubeqos.model.hardware.sysfs import read_machine

    if config.runtime_endpoint:
        return CriClient(config.runtime_endpoint), read_machine(Path("/sys"), name=config.node_name), None
    machine = load_machine(config.simulated_machine)
    classes = ClassFile(config.classes_file) if config.classes_file else None
    offers = classes.offers() if classes else ()
    return SimulatedRuntime(machine, offers, name=config.node_name), machine, classes
