"""`kubeqos runtime`: run a simulated container runtime, or look into any CRI runtime.

Without a subcommand it serves a simulated machine until it is interrupted; `ps`, `inspect` and `classes` ask
a runtime (containerd, CRI-O, the relay or a simulated one) at its endpoint.
"""

from __future__ import annotations

from pathlib import Path

import click

from kubeqos.cli.output import emit, output_option, table

DEFAULT_ENDPOINT = "unix:///run/kubeqos/runtime.sock"
SHORT_ID = 13

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
    import asyncio
    import sys

    from kubeqos import logs
    from kubeqos.cri.simulated.service import Settings, serve

    logs.to_stream(sys.stdout)
    settings = Settings(listen, machine_file, classes_file, cgroup_root, name, latency, fault, seed)
    asyncio.run(serve(settings, lambda text: click.echo(text, err=True)))


# ---- Looking into a runtime


@command.command()
@endpoint_option
@click.option("-a", "--all", "everything", is_flag=True, help="Also containers that are not running.")
@output_option
def ps(endpoint: str, everything: bool, form: str) -> None:
    """List containers with their pods and classes."""
    from kubeqos.cli.parts import asking

    rows = asking.ask(endpoint, lambda client: asking.containers(client, everything))
    if form != "table":
        emit(rows, form)
        return
    headers = ("container", "name", "pod", "namespace", "state", "attempt", "classes")
    click.echo(table(headers, [[_short(row["id"]), *(row[key] for key in headers[1:])] for row in rows]))


@command.command()
@endpoint_option
@click.argument("identity", metavar="ID")
@click.option("-o", "--output", "form", type=click.Choice(["json", "yaml"]), default="yaml", show_default=True)
def inspect(endpoint: str, identity: str, form: str) -> None:
    """Show everything about a container or sandbox; the beginning of its id will do."""
    from kubeqos.cli.parts import asking

    emit(asking.ask(endpoint, lambda client: asking.inspected(client, identity)), form)


@command.command()
@endpoint_option
@output_option
def classes(endpoint: str, form: str) -> None:
    """List the QoS-class resources of a runtime: level, classes, capacity and how many containers or pods use them."""
    from kubeqos.cli.parts import asking

    rows = asking.ask(endpoint, asking.classes)
    if form != "table":
        emit(rows, form)
    elif not rows:
        click.echo(f"{endpoint} offers no QoS-class resources", err=True)
    else:
        headers = ("resource", "level", "class", "capacity", "assigned", "mutable")
        shown = [row | {"mutable": str(row["mutable"]).lower()} for row in rows]
        click.echo(table(headers, [[row[key] for key in headers] for row in shown]))


def _short(identity: str) -> str:
    return identity[:SHORT_ID]
