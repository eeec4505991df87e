"""`kubeqos story POD`: what its node did for a pod, step by step; `-o playbook` prints it as a test that replays it."""

from __future__ import annotations

import click
import msgspec

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit
from kubeqos.errors import InputError
from kubeqos.model.timestamps import timestamp
from kubeqos.node.pod.journal import Recorded, playbook

FORMS = ("json", "yaml", "playbook")


@click.command("story")
@asks("namespace")
@click.option("-o", "--output", "form", type=click.Choice(FORMS), help="The whole record instead of a story in words.")
@click.argument("name", callback=names.plain("pod"), shell_complete=names.complete("pod"))
def command(target: Target, form: str | None, name: str) -> None:
    """Tell what the node of a pod was told about it, and what it did.

    With `-o playbook` as a test of the pod machine: every stimulus, and the effects that have to follow. Put into
    `tests/node/pod` it replays what happened without a node.
    """
    raw = target.api.get(target.path("pods", name))
    node = (raw.get("spec") or {}).get("nodeName")
    if not node:
        raise InputError(
            f"pod {name} is on no node yet, so no node has a story of it",
            remedy=f"kubeqos why {name} tells why it waits",
        )
    namespace = raw["metadata"].get("namespace", target.namespace)
    told = target.api.get(f"/api/v1/nodes/{node}/proxy/stories/{namespace}/{name}")
    if form in ("json", "yaml"):
        emit(told, form)
        return
    try:
        found = msgspec.convert(told, Recorded)
    except msgspec.ValidationError as error:
        raise InputError(
            f"node {node} tells its stories in another form: {error}",
            remedy="use the same version of kubeqos as the node",
        ) from error
    click.echo(playbook(found) if form == "playbook" else as_text(found), nl=form != "playbook")


def as_text(found: Recorded) -> str:
    """The story as a person reads it."""
    lines = [f"{found.namespace}/{found.name} ({found.uid})"]
    for line in found.lines:
        when, _, what = line.partition(" ")
        seconds, _, fraction = when.partition(".")
        lines.append(f"  {timestamp(float(seconds))[:-1]}.{fraction}Z  {what}")
    return "\n".join(lines)
