"""`kubeqos podresources NODE`: what the Pod Resources API of a node says, through the API server or from its socket."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit, output_option, table
from kubeqos.client.errors import ApiError
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.quantity import Format, Quantity

CALL_SECONDS = 5.0
Raw = Mapping[str, Any]


@click.command("podresources")
@asks()
@click.option("--socket", type=click.Path(path_type=Path), help="Ask this socket of a kubelet or node agent instead.")
@output_option
@click.argument("node", callback=names.plain("node"), required=False, shell_complete=names.complete("node"))
def command(target: Target, socket: Path | None, form: str, node: str | None) -> None:
    """Show which CPUs of their own, NUMA memory and plugins' resources the containers of a NODE have.

    The same as monitoring agents read from the Pod Resources API of a node, and below it what the node could hand out
    if it were empty, by NUMA node.
    """
    if (node is None) == (socket is None):
        raise click.UsageError("name a node, or a socket with --socket")
    found = _from_socket(socket) if socket is not None else _from_node(target, str(node))
    if form != "table":
        emit(found, form)
    else:
        click.echo(as_text(found))


def _from_node(target: Target, node: str) -> dict[str, Any]:
    target.api.get(f"/api/v1/nodes/{node}")  # says NotFound by the name of the node
    try:
        return target.api.get(f"/api/v1/nodes/{node}/proxy/podresources")
    except ApiError as error:
        if not error.not_found:
            raise
        raise InputError(
            f"node {node} does not answer this: no kubeqos node agent runs there",
            remedy="on the node itself, pass --socket /var/lib/kubelet/pod-resources/kubelet.sock",
        ) from error


def _from_socket(socket: Path) -> dict[str, Any]:
    import asyncio

    from kubeqos.node.server.podresources import SERVICE, plain
    from kubeqos.node.server.proto import podresources_pb2 as pb
    from kubeqos.plugins.sockets import call, dial

    if not socket.exists():
        remedy = "a kubelet has it at /var/lib/kubelet/pod-resources/kubelet.sock"
        raise InputError("there is no such socket", where=str(socket), remedy=remedy)

    async def ask() -> dict[str, Any]:
        async with dial(socket) as channel:
            path, everything = f"/{SERVICE}/List", pb.ListPodResourcesRequest()
            listed = await call(channel, path, everything, pb.ListPodResourcesResponse, seconds=CALL_SECONDS)
            path, empty = f"/{SERVICE}/GetAllocatableResources", pb.AllocatableResourcesRequest()
            node = await call(channel, path, empty, pb.AllocatableResourcesResponse, seconds=CALL_SECONDS)
        return {"pods": plain(listed)["podResources"], "allocatable": plain(node)}

    return asyncio.run(ask())


def as_text(found: Raw) -> str:
    """The pods, then the node, as a person reads them."""
    pods = table(("pod", "container", "own cpus", "memory", "resources"), _pod_rows(found["pods"]))
    node = found["allocatable"]
    cpus = _cpus(node)
    able = [f"the node could hand out {len(cpus)} CPUs ({cpus})" if cpus else "the node hands out no CPUs"]
    if rows := [*_node_rows(node)]:
        able.append(table(("resource", "capacity", "allocatable", "by NUMA node"), rows))
    return "\n".join([pods if found["pods"] else "no pod runs there", "", *able])


def _pod_rows(pods: Iterable[Raw]) -> Iterator[tuple[str, ...]]:
    for pod in pods:
        name = f"{pod['namespace']}/{pod['name']}"
        if pod.get("cpuIds") or pod.get("memory"):
            yield name, "the pod as a whole", str(_cpus(pod)), _memory(pod), ""
        for one in pod["containers"]:
            resources = ", ".join(_resource(each) for each in one.get("resources") or ())
            yield name, one["name"], str(_cpus(one)), _memory(one), resources


def _node_rows(node: Raw) -> Iterator[tuple[str, ...]]:
    told = {one["resourceName"] for one in node.get("resources") or ()}
    for one in node.get("resources") or ():
        name = one["resourceName"]
        amounts = (one[f"aggregated{what}Quantity"] for what in ("Capacity", "Allocatable"))
        spread = _spread(name, one.get("topologyAwareAllocatableQuantityList") or ())
        yield (name, *(_amount(name, amount) for amount in amounts), spread)
    for kind in sorted({one["memoryType"] for one in node.get("memory") or ()} - told):
        blocks = [one for one in node["memory"] if one["memoryType"] == kind]
        total = sum(int(one["size"]) for one in blocks)
        spread = ", ".join(f"{_numa(one)}: {_amount(kind, int(one['size']))}" for one in blocks)
        yield kind, "", _amount(kind, total), spread


def _cpus(raw: Raw) -> CpuSet:
    return CpuSet.from_ids(int(cpu) for cpu in raw.get("cpuIds") or ())


def _memory(raw: Raw) -> str:
    return ", ".join(
        f"{'' if one['memoryType'] == 'memory' else one['memoryType'] + ' '}{_amount('memory', int(one['size']))}"
        f" of NUMA {_numa(one)}"
        for one in raw.get("memory") or ()
    )


def _numa(block: Raw) -> str:
    """The NUMA nodes of a block of memory; node 0 is left out of the JSON of some."""
    nodes = (block.get("topology") or {}).get("nodes") or ()
    return str(CpuSet.from_ids(int(one.get("ID", 0)) for one in nodes))


def _resource(one: Raw) -> str:
    name = one["resourceName"]
    spread = _spread(name, one.get("topologyAwareQuantityList") or ())
    return f"{name}={_amount(name, one['aggregatedQuantity'])}" + (f" (NUMA {spread})" if spread else "")


def _spread(name: str, parts: Iterable[Raw]) -> str:
    return ", ".join(f"{one.get('node', 0)}: {_amount(name, one['resourceValue'])}" for one in parts)


def _amount(name: str, amount: float) -> str:
    """Bytes as people write them, everything else as a number."""
    if name == "memory" or name.startswith("hugepages-"):
        return str(Quantity.from_int(int(amount), Format.BINARY_SI))
    return f"{amount:g}"
