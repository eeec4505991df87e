"""`kubeqos node`: the node agent, on a real container runtime or on a simulated machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from pathlib import Path
from typing import Any

import click

from kubeqos.errors import ConfigurationError, InputError


@click.command("node")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="How to reach the API server; as kubectl finds it.")
@click.option("--node-name", help="Name of the node; this machine's host name if left out.")
@click.option("--runtime-endpoint", "endpoint", help="CRI socket, such as unix:///run/containerd/containerd.sock.")
@click.option("--simulated", metavar="MACHINE", help="Simulate: a machine file (YAML) or a name such as laptop8.")
@click.option("--classes", type=click.Path(), help="QoS-class resources of a simulated runtime (YAML).")
@click.option("--state-dir", type=click.Path(path_type=Path), default=Path("/var/lib/kubeqos"), show_default=True)
@click.option("--log-dir", type=click.Path(path_type=Path), default=Path("/var/log/pods"), show_default=True)
@click.option("--pod-manifest-path", type=click.Path(path_type=Path), help="Folder of static pods.")
@click.option("--cgroup-root", default="", help="Cgroup below which pods live.")
@click.option("--cgroup-driver", type=click.Choice(["cgroupfs", "systemd"]), default="cgroupfs", show_default=True)
@click.option("--max-pods", default=110, show_default=True)
@click.option("--cpu-manager-policy", type=click.Choice(["none", "static"]), default="none", show_default=True)
@click.option("--reserved-cpus", default="", help="CPUs kept for the system, such as 0-1.")
@click.option("--memory-manager-policy", type=click.Choice(["none", "static"]), default="none", show_default=True)
@click.option(
    "--topology-manager-policy",
    type=click.Choice(["none", "best-effort", "restricted", "single-numa-node"]),
    default="none",
    show_default=True,
)
@click.option("--topology-manager-scope", type=click.Choice(["container", "pod"]), default="container")
@click.option("--qos-class-eviction", is_flag=True, help="Evict pods whose QoS class the runtime no longer offers.")
@click.option("--feature-gates", default="", metavar="A=true,B=false")
@click.option("--node-labels", default="", metavar="KEY=VALUE,…")
@click.option("--node-ip", default="127.0.0.1", show_default=True)
def command(**options: Any) -> None:
    """Run the node agent."""
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    if bool(options["endpoint"]) == bool(options["simulated"]):
        raise ConfigurationError(
            "say where containers run", remedy="pass --runtime-endpoint SOCKET or --simulated MACHINE, one of them"
        )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(options))


async def _run(options: dict[str, Any]) -> None:
    from kubeqos.client.http import HttpApi
    from kubeqos.node.agent import NodeAgent

    settings = settings_of(options)
    settings.check()
    runtime, machine = _runtime(options, settings.node_name)
    api = HttpApi.from_kubeconfig(options["kubeconfig"])
    agent = NodeAgent(settings, runtime, machine, api=api)
    running = asyncio.create_task(agent.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    click.echo(f"node {settings.node_name} on {runtime.endpoint}: {len(machine.online)} CPUs", err=True)
    try:
        await running
    except asyncio.CancelledError:
        click.echo("stopping; containers run on", err=True)
    finally:
        await runtime.close()
        await api.close()


def settings_of(options: dict[str, Any]) -> Any:
    """The agent's settings from the flags."""
    from kubeqos.gates import FeatureGates
    from kubeqos.model.cpuset import CpuSet
    from kubeqos.node.settings import NodeSettings
    from kubeqos.topology.hints import Policy, Scope

    return NodeSettings(
        node_name=options["node_name"] or socket.gethostname().lower(),
        state_dir=options["state_dir"],
        log_dir=options["log_dir"],
        static_pod_dir=options["pod_manifest_path"],
        cgroup_root=options["cgroup_root"],
        cgroup_driver=options["cgroup_driver"],
        max_pods=options["max_pods"],
        cpu_manager_policy=options["cpu_manager_policy"],
        reserved_cpus=CpuSet.parse(options["reserved_cpus"]),
        memory_manager_policy=options["memory_manager_policy"],
        topology_policy=Policy(options["topology_manager_policy"]),
        topology_scope=Scope(options["topology_manager_scope"]),
        qos_class_eviction=options["qos_class_eviction"],
        gates=FeatureGates.parse(options["feature_gates"]),
        labels=_labels(options["node_labels"]),
        addresses=(options["node_ip"],),
    )


def _labels(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"--node-labels: {part!r} is not a label", remedy="write KEY=VALUE,KEY=VALUE")
        found[key] = value
    return found


def _runtime(options: dict[str, Any], name: str) -> Any:
    """The runtime, and the machine whose CPUs and memory are handed out."""
    from kubeqos.cri.client import CriClient
    from kubeqos.cri.simulated import SimulatedRuntime
    from kubeqos.cri.simulated.classes import read_classes
    from kubeqos.model.machinefile import machine_from_yaml
    from kubeqos.model.machines import MACHINES
    from kubeqos.model.sysfs import read_machine

    if options["endpoint"]:
        return CriClient(options["endpoint"]), read_machine(Path("/sys"), name=name)
    described = options["simulated"]
    machine = MACHINES[described]() if described in MACHINES else machine_from_yaml(_read(described))
    offers = read_classes(_read(options["classes"]), options["classes"]) if options["classes"] else ()
    return SimulatedRuntime(machine, offers, name=name), machine


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot read {path}: {reason}") from error
