"""`kubeqos runtime`: run a simulated container runtime, or look into any CRI runtime.

Without a subcommand it serves a simulated machine until it is interrupted; `ps`, `inspect` and `classes` ask
a runtime (containerd, CRI-O, the relay or a simulated one) at its endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from google.protobuf import json_format
from google.protobuf.message import Message

from kubeqos.cli.output import emit, output_option, table
from kubeqos.codec import decode_json
from kubeqos.cri.client import CriClient
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import class_of
from kubeqos.errors import InputError

DEFAULT_ENDPOINT = "unix:///run/kubeqos/runtime.sock"
SHORT_ID = 13
T = TypeVar("T")

endpoint_option = click.option(
    "--endpoint",
    default=DEFAULT_ENDPOINT,
    show_default=True,
    envvar="CONTAINER_RUNTIME_ENDPOINT",
    help="Socket of the runtime.",
)


@click.group(name="runtime", invoke_without_command=True)
@click.option("--machine", "machine_file", metavar="NAME|FILE", help="Machine to simulate; this one if left out.")
@click.option("--classes", "classes_file", type=click.Path(), help="QoS-class resources to offer (YAML).")
@click.option("--listen", default=DEFAULT_ENDPOINT, show_default=True, help="Socket to serve on.")
@click.option("--cgroup-root", type=click.Path(path_type=Path), help="Folder that shows every cgroup value written.")
@click.option("--name", default="simulated", show_default=True, help="Name of the node; container ids follow from it.")
@click.option("--latency", multiple=True, metavar="METHOD=TIME[-TIME]", help="Slow calls, such as '*=2ms-10ms'.")
@click.option(
    "--fault", multiple=True, metavar="METHOD=CODE[@SHARE]", help="Failing calls: 'PullImage=UNAVAILABLE@5%'."
)
@click.option("--seed", default=0, help="Seed of the faults.")
@click.pass_context
def command(
    context: click.Context,
    machine_file: str | None,
    classes_file: str | None,
    listen: str,
    cgroup_root: Path | None,
    name: str,
    latency: tuple[str, ...],
    fault: tuple[str, ...],
    seed: int,
) -> None:
    """Run a simulated container runtime, or inspect a running one."""
    if context.invoked_subcommand is not None:
        return
    # Looking into a runtime does not pay for loading a simulated one.
    from kubeqos.cri.simulated.service import Settings, serve

    settings = Settings(listen, machine_file, classes_file, cgroup_root, name, latency, fault, seed)
    asyncio.run(serve(settings, lambda text: click.echo(text, err=True)))


# ---- Looking into a runtime


def _ask(endpoint: str, question: Callable[[CriClient], Awaitable[T]]) -> T:
    async def ask() -> T:
        async with CriClient(endpoint) as client:
            return await question(client)

    return asyncio.run(ask())


@command.command()
@endpoint_option
@click.option("-a", "--all", "everything", is_flag=True, help="Also containers that are not running.")
@output_option
def ps(endpoint: str, everything: bool, form: str) -> None:
    """List containers with their pods and classes."""
    rows = _ask(endpoint, lambda client: _containers(client, everything))
    if form != "table":
        emit(rows, form)
        return
    headers = ("container", "name", "pod", "namespace", "state", "attempt", "classes")
    click.echo(table(headers, [[_short(row["id"]), *(row[key] for key in headers[1:])] for row in rows]))


async def _containers(client: CriClient, everything: bool) -> list[dict[str, Any]]:
    running = cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
    sandboxes = {sandbox.id: sandbox for sandbox in await client.list_pod_sandboxes()}
    rows = []
    for container in await client.list_containers(None if everything else running):
        sandbox = sandboxes.get(container.pod_sandbox_id, cri.PodSandbox())
        found = await _container_classes(client, container.id)
        rows.append(
            {
                "id": container.id,
                "name": container.metadata.name,
                "pod": sandbox.metadata.name,
                "namespace": sandbox.metadata.namespace,
                "state": cri.ContainerState.Name(container.state).removeprefix("CONTAINER_").capitalize(),
                "attempt": container.metadata.attempt,
                "classes": ", ".join(f"{resource}={cls}" for resource, cls in found),
            }
        )
    return rows


@command.command()
@endpoint_option
@click.argument("identity", metavar="ID")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), default="yaml", show_default=True)
def inspect(endpoint: str, identity: str, form: str) -> None:
    """Show everything about a container or sandbox; the beginning of its id will do."""
    emit(_ask(endpoint, lambda client: _inspect(client, identity)), form)


async def _inspect(client: CriClient, identity: str) -> dict[str, Any]:
    containers = await client.list_containers(cri.ContainerFilter(id=identity))
    if len(containers) == 1:
        return _plain(await client.container_status(containers[0].id, verbose=True))
    sandboxes = await client.list_pod_sandboxes(cri.PodSandboxFilter(id=identity))
    if len(sandboxes) == 1:
        return _plain(await client.pod_sandbox_status(sandboxes[0].id, verbose=True))
    raise InputError(
        f"no container or sandbox {identity!r}, or more than one",
        where=client.endpoint,
        remedy="`kubeqos runtime ps --all` lists them",
    )


def _plain(message: Message) -> dict[str, Any]:
    """A status as plain data, with the runtime's own information unpacked from its JSON text."""
    out: dict[str, Any] = json_format.MessageToDict(message)
    for key, text in out.get("info", {}).items():
        if text.startswith(("{", "[")):
            out["info"][key] = decode_json(text)
    return out


@command.command()
@endpoint_option
@output_option
def classes(endpoint: str, form: str) -> None:
    """List the QoS-class resources of a runtime: level, classes, capacity and how many containers or pods use them."""
    rows = _ask(endpoint, _classes)
    if form != "table":
        emit(rows, form)
    elif not rows:
        click.echo(f"{endpoint} offers no QoS-class resources", err=True)
    else:
        headers = ("resource", "level", "class", "capacity", "assigned", "mutable")
        shown = [row | {"mutable": str(row["mutable"]).lower()} for row in rows]
        click.echo(table(headers, [[row[key] for key in headers] for row in shown]))


async def _classes(client: CriClient) -> list[dict[str, Any]]:
    info = (await client.status()).status.resources
    assigned = await _assigned(client) if info.ByteSize() else Counter()
    return [
        {
            "resource": resource.name,
            "level": level,
            "class": cls.name,
            "capacity": cls.capacity or "unlimited",
            "assigned": assigned[resource.name, cls.name],
            "mutable": resource.mutable,
        }
        for level, resources in (("pod", info.pod_qos_resources), ("container", info.container_qos_resources))
        for resource in resources
        for cls in resource.classes
    ]


async def _assigned(client: CriClient) -> Counter[tuple[str, str]]:
    """How many live sandboxes and containers have each class, implicit defaults included."""
    counts: Counter[tuple[str, str]] = Counter()
    ready = cri.PodSandboxFilter(state=cri.PodSandboxStateValue(state=cri.SANDBOX_READY))
    for sandbox in await client.list_pod_sandboxes(ready):
        counts.update(await _sandbox_classes(client, sandbox.id))
    for container in await client.list_containers():
        if container.state != cri.CONTAINER_EXITED:
            counts.update(await _container_classes(client, container.id))
    return counts


async def _sandbox_classes(client: CriClient, sandbox_id: str) -> list[tuple[str, str]]:
    with _may_be_gone():
        status = (await client.pod_sandbox_status(sandbox_id)).status
        return [(resource.name, class_of(resource)) for resource in status.qos_resources]
    return []


async def _container_classes(client: CriClient, container_id: str) -> list[tuple[str, str]]:
    with _may_be_gone():
        status = (await client.container_status(container_id)).status
        return [(resource.name, class_of(resource)) for resource in status.resources.qos_resources]
    return []


@contextlib.contextmanager
def _may_be_gone() -> Iterator[None]:
    """Between a list and a look at its items some of them end."""
    try:
        yield
    except CallError as error:
        if error.code is not Code.NOT_FOUND:
            raise


def _short(identity: str) -> str:
    return identity[:SHORT_ID]
