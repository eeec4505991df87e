"""`kubeqos relay`: a CRI endpoint in front of any container runtime that adds QoS-class resources."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeqos.errors import InputError

if TYPE_CHECKING:
    from kubeqos.cri.providers.catalog import LocalMachine


@click.command("relay")
@click.option(
    "--listen", required=True, metavar="ENDPOINT", help="Where to serve CRI, such as unix:///run/kubeqos/cri.sock."
)
@click.option(
    "--runtime",
    required=True,
    metavar="ENDPOINT",
    help="The runtime's socket, such as unix:///run/containerd/containerd.sock.",
)
@click.option(
    "--config",
    required=True,
    type=click.Path(path_type=Path),
    help="The node's classes (classes.yaml); read again when it changes.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubeqos/relay.json"),
    show_default=True,
    help="Where assignments are kept.",
)
@click.option("--cgroup-root", type=click.Path(path_type=Path), default=Path("/sys/fs/cgroup"), show_default=True)
@click.option("--resctrl-root", type=click.Path(path_type=Path), default=Path("/sys/fs/resctrl"), show_default=True)
@click.option(
    "--simulated-resctrl",
    metavar="MACHINE",
    help="Where there is no such hardware: a resctrl tree of this machine (a name or a file), beside --state.",
)
@click.option(
    "--require-hook",
    is_flag=True,
    help="Refuse to start a container with classes where the runtime lacks the hook of `kubeqos relay-hook`.",
)
@click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus metrics there.")
def command(
    listen: str,
    runtime: str,
    config: Path,
    state: Path,
    cgroup_root: Path,
    resctrl_root: Path,
    simulated_resctrl: str | None,
    require_hook: bool,
    metrics: str | None,
) -> None:
    """Give any container runtime QoS-class resources.

    Point the kubelet's containerRuntimeEndpoint at --listen. Calls that have nothing to do with classes pass through
    unchanged. SIGHUP reads the configuration again.
    """
    # Imported here: `kubeqos relay --help` need not wait for gRPC.
    import sys

    import uvloop

    from kubeqos import logs
    from kubeqos.cri.relay.server import Settings, serve

    state.parent.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        listen=socket_path(listen, "--listen"),
        runtime=socket_path(runtime, "--runtime"),
        config=config,
        state=state,
        machine=local_machine(cgroup_root, resctrl_root, simulated_resctrl, state.parent / "resctrl"),
        metrics_address=address(metrics) if metrics else None,
        require_hook=require_hook,
    )
    logs.to_stream(sys.stdout)
    uvloop.run(serve(settings))


def local_machine(cgroup_root: Path, resctrl_root: Path, simulated: str | None, tree: Path) -> LocalMachine:
    """This machine's cgroups, and its resctrl, or at `tree` that of a machine that is only simulated."""
    from kubeqos.cri.enforcing.host import Host
    from kubeqos.cri.providers.catalog import LocalMachine
    from kubeqos.cri.providers.rdt.simulated import SimulatedResctrl, plant
    from kubeqos.model.hardware.loading import load_machine

    if simulated is None:
        return LocalMachine(Host(cgroup_root), resctrl_root)
    plant(load_machine(simulated), tree)
    return LocalMachine(Host(cgroup_root), tree, SimulatedResctrl(tree), mbps_mode=False)


def socket_path(endpoint: str, option: str) -> Path:
    path = endpoint.removeprefix("unix://")
    if not path.startswith("/"):
        raise InputError(f"{option} {endpoint!r} is not a socket", remedy="write it like unix:///run/kubeqos/cri.sock")
    return Path(path)


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"--metrics {text!r} is not an address", remedy="write it like 127.0.0.1:9465")
    return host, int(port)
