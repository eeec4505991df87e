"""`kubeqos agent`: the node's part of kubeqos in a stock Kubernetes cluster, a plugin of the container runtime."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubeqos.stock.agent.agent import Settings


@click.command("agent")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="The API server and who we are to it.")
@click.option("--context", help="Which context of the kubeconfig.")
@click.option("--node-name", default="", help="The Node that this machine is; the host's name unless given.")
@click.option(
    "--config",
    "classes",
    required=True,
    type=click.Path(path_type=Path),
    help="The node's classes (classes.yaml), as for the relay.",
)
@click.option(
    "--node-config",
    "cores",
    type=click.Path(path_type=Path),
    help="A NodeConfiguration: hand out cores, too, by resource plugins or compute drivers.",
)
@click.option(
    "--kubelet-dir",
    "kubelet",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubelet"),
    show_default=True,
    help="Where the kubelet keeps its state; its own CPU and memory managers must be off.",
)
@click.option(
    "--nri-socket",
    type=click.Path(path_type=Path),
    default=Path("/var/run/nri/nri.sock"),
    show_default=True,
    help="Where the runtime takes NRI plugins.",
)
@click.option(
    "--relay-socket",
    metavar="ENDPOINT",
    help="Where the runtime has no NRI, stand in front of it here: the kubelet's containerRuntimeEndpoint.",
)
@click.option(
    "--container-runtime-endpoint",
    "runtime",
    metavar="ENDPOINT",
    default="unix:///run/containerd/containerd.sock",
    show_default=True,
    help="The runtime's own socket, for --relay-socket.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=Path("/var/lib/kubeqos/relay.json"),
    show_default=True,
    help="Where assignments are kept with --relay-socket.",
)
@click.option(
    "--runtime-settings",
    type=click.Path(path_type=Path),
    help="What may be changed in the runtime's own settings (runtime.yaml); nothing unless given.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    help="A folder that was made for this agent on the host; it is removed when kubeqos is uninstalled.",
)
@click.option("--cgroup-root", type=click.Path(path_type=Path), default=Path("/sys/fs/cgroup"), show_default=True)
@click.option("--resctrl-root", type=click.Path(path_type=Path), default=Path("/sys/fs/resctrl"), show_default=True)
@click.option(
    "--simulated-resctrl",
    metavar="MACHINE",
    help="Where there is no such hardware: a resctrl tree of this machine (a name or a file), beside --state.",
)
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="For health and metrics.")
@click.option("--port", default=10268, show_default=True, type=click.IntRange(0, 65535), help="0 serves nothing.")
def command(
    kubeconfig: Path | None,
    context: str | None,
    node_name: str,
    classes: Path,
    cores: Path | None,
    kubelet: Path,
    nri_socket: Path,
    relay_socket: str | None,
    runtime: str,
    state: Path,
    runtime_settings: Path | None,
    state_dir: Path | None,
    cgroup_root: Path,
    resctrl_root: Path,
    simulated_resctrl: str | None,
    bind_address: str,
    port: int,
) -> None:
    """Give the pods of this node their QoS classes, beside an unmodified kubelet.

    Works through NRI, which containerd 2 and CRI-O have; with --relay-socket also where the runtime has none. What the
    node offers is told in its NodeQOS object.
    """
    import uvloop

    from kubeqos.cli.parts.relay import local_machine, socket_path
    from kubeqos.stock.agent.agent import Settings

    node = node_name or socket.gethostname().lower()
    settings = Settings(
        node,
        classes,
        local_machine(cgroup_root, resctrl_root, simulated_resctrl, state.parent / "resctrl"),
        nri_socket,
        cores,
        kubelet,
        relay=socket_path(relay_socket, "--relay-socket") if relay_socket else None,
        runtime=socket_path(runtime, "--container-runtime-endpoint"),
        state=state,
        runtime_settings=runtime_settings,
        made_for_us=state_dir,
    )
    uvloop.run(_run(settings, kubeconfig, context, bind_address, port))


async def _run(settings: Settings, kubeconfig: Path | None, context: str | None, address: str, port: int) -> None:
    from kubeqos.cli.parts.working import work
    from kubeqos.client.http import HttpApi
    from kubeqos.stock.agent.relaying import start
    from kubeqos.web.health import application

    api = HttpApi.from_kubeconfig(kubeconfig, context)
    agent = await start(api, settings)
    offers = ", ".join(sorted(agent.offers)) or "no classes"
    banner = f"agent of node {settings.node}: {offers}"
    await work(api, agent.run(), application(agent.ready, agent.registry), address, port, banner)
