"""`kubeqos plugin`: the built-in resource plugins, each until it is interrupted, and the CPU plugin's pools."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kubeqos.cli.local.datadir import data_dir_option
from kubeqos.cli.output import emit, output_option, table
from kubeqos.cluster.instance import Instance
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.plugins import DEFAULT_REGISTRY

CALL_SECONDS = 10.0
Command = Callable[..., Any]


def serving_options(command: Command) -> Command:
    """The options that all plugins share."""
    options = [
        click.option("--machine", "machine_file", type=click.Path(), help="Machine (YAML or a known name); this one."),
        click.option("--config", "config_file", type=click.Path(), help="The plugin's configuration (YAML)."),
        click.option("--registry", type=click.Path(path_type=Path), default=DEFAULT_REGISTRY, show_default=True),
        click.option("--state", type=click.Path(path_type=Path), help="Where to keep state; nowhere if left out."),
        click.option("--legacy", type=click.Path(path_type=Path), help="A manager's socket to register at."),
        click.option("--name", default="", help="Name of the socket, if not that of the resource."),
        click.option("--metrics", metavar="HOST:PORT", help="Where to serve metrics."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(name="plugin")
def command() -> None:
    """Run a built-in resource plugin, or look into it."""


@command.group(invoke_without_command=True)
@serving_options
@click.option("--cgroup-root", type=click.Path(path_type=Path), default="/sys/fs/cgroup", show_default=True)
@click.pass_context
def cpu(context: click.Context, /, cgroup_root: Path, **given: Any) -> None:
    """CPUs by role: pools, CPUs of one's own, whole NUMA nodes."""
    if context.invoked_subcommand is not None:
        return
    from kubeqos.qrm.plugins.cpu.config import CpuConfig
    from kubeqos.qrm.plugins.cpu.plugin import CpuPlugin
    from kubeqos.qrm.plugins.cpu.usage import UsageReader

    plugin = CpuPlugin(load_machine(given["machine_file"]), _config(given, CpuConfig), UsageReader(cgroup_root))
    _serve(plugin, given, plugin.install)


@command.command()
@serving_options
def memory(**given: Any) -> None:
    """Memory by NUMA node."""
    from kubeqos.qrm.plugins.memory import MemoryConfig, MemoryPlugin

    _serve(MemoryPlugin(load_machine(given["machine_file"]), _config(given, MemoryConfig)), given)


@command.command()
@serving_options
def nic(**given: Any) -> None:
    """Network interfaces near their pods, shared."""
    from kubeqos.qrm.plugins.nic import NicConfig, NicPlugin

    _serve(NicPlugin(load_machine(given["machine_file"]), _config(given, NicConfig)), given)


@command.command()
@serving_options
def knob(**given: Any) -> None:
    """Any cgroup property by role."""
    from kubeqos.qrm.plugins.knobs import KnobConfig, KnobPlugin

    _serve(KnobPlugin(_config(given, KnobConfig)), given)


def _serve(plugin: Any, given: dict[str, Any], install: Any = lambda _server: None) -> None:
    from kubeqos.qrm.sdk.serving import serve

    metrics = None
    if given["metrics"]:
        host, _, port = given["metrics"].rpartition(":")
        if not port.isdigit():
            raise InputError(f"--metrics {given['metrics']!r} is not an address", remedy="write HOST:PORT")
        metrics = host or "127.0.0.1", int(port)
    serve(
        plugin,
        given["registry"],
        name=given["name"],
        state=given["state"],
        legacy=given["legacy"],
        metrics=metrics,
        install=install,
    )


def _config(given: dict[str, Any], kind: type[Any]) -> Any:
    from kubeqos.qrm.plugins.roles import read_config

    source = given["config_file"]
    return kind() if source is None else read_config(_text(source), kind, source)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


# ---- Leaving


@command.command()
@click.argument("name")
@click.option("--registry", type=click.Path(path_type=Path), default=DEFAULT_REGISTRY, show_default=True)
@click.option("--node", help="The plugin folder of this node of the cluster on this machine, in place of --registry.")
@data_dir_option
def retire(name: str, registry: Path, node: str | None, data_dir: Path) -> None:
    """Tell a node that the plugin of this resource is not coming back.

    Pods do not wait for it any more and its resources leave the node; what it gave to pods that run stays theirs. This
    holds until a plugin of this name registers again.
    """
    from kubeqos.plugins.registration import retirement
    from kubeqos.plugins.sockets import answers

    folder = registry_of(node, data_dir) if node else registry
    if not folder.is_dir():
        raise InputError("there is no plugin folder", where=str(folder), remedy="name the node's with --registry")
    socket = folder / f"{name.replace('/', '_')}.sock"
    if answers(socket):
        raise InputError(f"plugin {name} still runs", where=str(socket), remedy="stop it, then retire it")
    retirement(folder, name).write_text(name)
    click.echo(f"{name} is retired: pods of the node at {folder} do not wait for it any more")


# ---- Pools


def socket_options(command: Command) -> Command:
    """Which plugin is meant, by its socket or by a node of the local cluster; the command gets one `socket`."""

    def found(*words: Any, socket: Path, node: str | None, data_dir: Path, **more: Any) -> Any:
        return command(*words, socket=cpu_socket(node, data_dir) if node else socket, **more)

    found.__doc__ = command.__doc__
    wrapped: Command = found
    for option in (
        data_dir_option,
        click.option("--node", help="The plugin of this node of the cluster on this machine, in place of --socket."),
        click.option(
            "--socket",
            type=click.Path(path_type=Path),
            default=f"{DEFAULT_REGISTRY}/cpu.sock",
            show_default=True,
            help="Socket of the CPU plugin.",
        ),
    ):
        wrapped = option(wrapped)
    wrapped.__click_params__ += getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return wrapped


def registry_of(node: str, data_dir: Path) -> Path:
    """The plugin folder of a node of the cluster on this machine."""
    running = Instance(data_dir).running()
    if running is None:
        raise InputError("no cluster is running", where=str(data_dir), remedy="start one, or name the --socket")
    return running.registry(node)


def cpu_socket(node: str, data_dir: Path) -> Path:
    """The CPU plugin's socket of a node of the cluster on this machine."""
    socket = registry_of(node, data_dir) / "cpu.sock"
    if not socket.exists():
        raise InputError(f"node {node!r} has no CPU plugin", where=str(socket), remedy="name a node of profile qrm")
    return socket


@cpu.command("pools")
@socket_options
@output_option
def pools(socket: Path, form: str) -> None:
    """Show the CPU plugin's pools."""
    from kubeqos.qrm.proto import cpupools_pb2 as pb

    _show(ask_cpu_plugin(socket, "GetPools", pb.GetPoolsRequest()), form)


@cpu.command("set-pool")
@click.argument("sizes", nargs=-1, required=True, metavar="POOL=CPUS...")
@socket_options
@output_option
def set_pool(sizes: tuple[str, ...], socket: Path, form: str) -> None:
    """Resize pools, all or none: POOL=0-13,40-53 or, for so many CPUs, POOL=28."""
    from kubeqos.qrm.proto import cpupools_pb2 as pb

    request = pb.SetPoolsRequest()
    for size in sizes:
        name, equals, wanted = size.partition("=")
        if not (name and equals and wanted):
            raise InputError(f"{size!r} is not a size", remedy="write POOL=0-13,40-53 or POOL=28")
        if wanted.isdigit():
            request.pools[name].count = int(wanted)
        else:
            request.pools[name].cpus = str(CpuSet.parse(wanted))
    _show(ask_cpu_plugin(socket, "SetPools", request), form)


def ask_cpu_plugin(socket: Path, method: str, request: Any) -> Any:
    """Call the pools API of a CPU plugin."""
    import asyncio

    from kubeqos.plugins.sockets import call, dial
    from kubeqos.qrm.proto import cpupools_pb2 as pb

    path = f"/{pb.DESCRIPTOR.services_by_name['CpuPools'].full_name}/{method}"

    async def ask() -> Any:
        channel = dial(socket)
        try:
            return await call(channel, path, request, pb.PoolsResponse, seconds=CALL_SECONDS)
        finally:
            await channel.close(None)

    return asyncio.run(ask())


def _show(answer: Any, form: str) -> None:
    rows = [
        {
            "pool": one.name,
            "count": one.count,
            "cpus": one.cpus,
            "requested": one.requested,
            "containers": list(one.containers),
        }
        for one in answer.pools
    ]
    if form != "table":
        emit(rows, form)
        return
    headers = ("pool", "count", "cpus", "requested", "containers")
    cells = [[row[name] if name != "containers" else len(row["containers"]) for name in headers] for row in rows]
    click.echo(table(headers, cells))
