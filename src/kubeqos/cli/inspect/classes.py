"""`kubeqos classes`: every QoS class of the cluster, how much of it there is and how much is taken."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit, emit_names, is_data, table, wide_output_option
from kubeqos.errors import InputError
from kubeqos.model.objects import NodeView, PodView
from kubeqos.rules.qos.classes import Level
from kubeqos.views.usage import ClassUse, class_use, holders

HOLDERS, PLAN, DRAIN = "holders", "plan", "drain"


@click.command("classes")
@asks("selector")
@wide_output_option
@click.argument("resource", required=False, shell_complete=names.complete("class"))
@click.argument("cls", required=False, metavar="[RESOURCE=CLASS | FILE]")
@click.option(
    "--timeout", default=60.0, show_default=True, metavar="SECONDS", help="How long a drain waits for budgets."
)
@click.option("--dry-run", is_flag=True, help="Say whom a drain would evict, and evict nobody.")
def command(target: Target, form: str, resource: str | None, cls: str | None, timeout: float, dry_run: bool) -> None:
    """Show QoS classes: capacity and use over all nodes, or of one RESOURCE.

    `kubeqos classes holders RESOURCE[=CLASS]` tells who holds them: every pod, its node, and how it stands.
    `kubeqos classes plan FILE` tells who would be hurt if the nodes (-l chooses some) had that class file.
    `kubeqos classes drain RESOURCE=CLASS` evicts who holds a class that no longer is on offer, lowest priority first,
    as PodDisruptionBudgets allow.
    """
    if resource == HOLDERS and cls:
        show_holders(target, form, cls)
        return
    if resource == PLAN and cls:
        show_plan(target, form, Path(cls))
        return
    if resource == DRAIN and cls:
        from kubeqos.cli.change.drain import drain

        if target.selector:
            raise InputError(
                "a drain is of the whole cluster", remedy="leave -l out, or cordon nodes and evict yourself"
            )
        drain(target.api, cls, timeout, dry_run=dry_run)
        return
    if cls:
        raise InputError(f"unexpected argument {cls}", remedy=f"say kubeqos classes {HOLDERS} {cls}")
    uses = class_use(target.reader.items("/api/v1/nodes", **target.query), target.reader.items("/api/v1/pods"))
    uses = [use for use in uses if resource in (None, use.resource)]
    if is_data(form):
        emit([_plain(use) for use in uses], form)
    elif form == "name":
        emit_names(sorted({f"{use.resource}={use.cls}" for use in uses}))
    elif not uses:
        click.echo("No QoS classes found." if resource is None else f"No classes of {resource} found.", err=True)
    elif form == "wide":
        click.echo(by_node(uses))
    else:
        click.echo(summed(uses))


def show_holders(target: Target, form: str, wanted: str) -> None:
    """Who holds a class, or any class of a resource."""
    resource, _, cls = wanted.partition("=")
    pods = [PodView.of(raw) for raw in target.reader.items("/api/v1/pods")]
    raws = target.reader.items("/api/v1/nodes", **target.query)
    nodes = {raw["metadata"]["name"]: NodeView.of(raw) for raw in raws}
    found = [one for one in holders(pods, nodes) if one.resource == resource and cls in ("", one.cls)]
    found = [one for one in found if not target.selector or one.node in nodes]
    if is_data(form):
        emit([asdict(one) for one in found], form)
    elif form == "name":
        emit_names(sorted({f"{one.namespace}/{one.pod}" for one in found}))
    elif not found:
        click.echo(f"Nobody holds {wanted}.", err=True)
    else:
        headers = ["class", "level", "node", "namespace", "pod", "priority", "count", "status"]
        rows = [
            [o.cls, o.level, o.node, o.namespace, o.pod, o.priority, o.count, o.standing]
            for o in sorted(found, key=lambda o: (o.cls, o.node, o.namespace, o.pod))
        ]
        click.echo(table(headers, rows))


def show_plan(target: Target, form: str, file: Path) -> None:
    """What a class file would change, and who would be hurt."""
    from kubeqos.cri.enforcing.host import V2
    from kubeqos.cri.providers.config import parse_classes
    from kubeqos.views.classplan import NewResource, plan

    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}") from error
    new = {
        name: NewResource(
            Level(spec.offer.level.value), {one.name: one.capacity for one in spec.offer.classes}, spec.offer.retired
        )
        for name, spec in parse_classes(text, str(file), V2).resources.items()
        if spec.offer.classes  # a provider in a process of its own is asked for its classes on the node
    }
    changes = plan(new, target.reader.items("/api/v1/nodes", **target.query), target.reader.items("/api/v1/pods"))
    if form in ("json", "yaml"):
        emit([asdict(one) for one in changes], form)
    elif form == "name":
        emit_names(sorted({pod for one in changes if one.hurts for pod in one.pods}))
    elif not changes:
        click.echo("Nothing would change.", err=True)
    else:
        headers = ["class", "node", "change", "used", "outcome", *(["pods"] if form == "wide" else [])]
        rows = [
            [f"{o.resource}={o.cls}", o.node, o.change, o.used, o.outcome]
            + ([", ".join(o.pods)] if form == "wide" else [])
            for o in changes
        ]
        click.echo(table(headers, rows))


def summed(uses: list[ClassUse]) -> str:
    """One row per class."""
    rows: dict[tuple[str, str, str], list[ClassUse]] = {}
    for use in uses:
        rows.setdefault((use.resource, use.cls, str(use.level)), []).append(use)
    return table(
        ["resource", "class", "level", "nodes", "capacity", "used", "free"],
        [
            [
                resource,
                cls,
                level,
                len(each),
                *_amounts(sum(u.capacity for u in each), _any_unlimited(each), _used(each)),
            ]
            for (resource, cls, level), each in sorted(rows.items())
        ],
    )


def by_node(uses: list[ClassUse]) -> str:
    """One row per class and node."""
    ordered = sorted(uses, key=lambda use: (use.resource, use.cls, use.node))
    withheld = any(use.not_for for use in uses)
    return table(
        [
            "resource",
            "class",
            "level",
            "mutable",
            "node",
            "capacity",
            "used",
            "free",
            *(["not for"] if withheld else []),
        ],
        [
            [
                u.resource,
                u.cls,
                u.level,
                "Yes" if u.mutable else "No",
                u.node,
                *_amounts(u.capacity, not u.capacity, u.used),
                *([_handlers(u.not_for)] if withheld else []),
            ]
            for u in ordered
        ],
    )


def _handlers(names: tuple[str, ...]) -> str:
    """Runtime handlers; the default one has no name."""
    return ", ".join(name or "<default>" for name in names) or "<nobody>"


def _amounts(capacity: int, unlimited: bool, used: int) -> tuple[str, int, str]:
    if unlimited:
        return "inf", used, "inf"
    return str(capacity), used, str(capacity - used) if used <= capacity else f"over by {used - capacity}"


def _any_unlimited(uses: list[ClassUse]) -> bool:
    return any(use.capacity == 0 for use in uses)


def _used(uses: list[ClassUse]) -> int:
    return sum(use.used for use in uses)


def _plain(use: ClassUse) -> dict[str, object]:
    return {
        "resource": use.resource,
        "class": use.cls,
        "level": str(use.level),
        "node": use.node,
        "mutable": use.mutable,
        "capacity": use.capacity,
        "used": use.used,
        **({"notForHandlers": list(use.not_for)} if use.not_for else {}),
    }
