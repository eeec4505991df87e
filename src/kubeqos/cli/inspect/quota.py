"""`kubeqos quota`: quotas as bars, with their scopes and classes."""

from __future__ import annotations

from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, asks
from kubeqos.cli.output import emit, emit_names, is_data, paint, table, wide_output_option
from kubeqos.views.quotas import Limit, limits, scopes

_WIDTH = 20
_NEARLY_FULL = 0.8


@click.command("quota")
@asks("namespace", "all_namespaces", "selector")
@wide_output_option
@click.argument("name", callback=names.plain("quota"), required=False, shell_complete=names.complete("quota"))
def command(target: Target, form: str, name: str | None) -> None:
    """Show how much of each quota is used, or of the one called NAME."""
    found = target.items("resourcequotas") if name is None else [target.reader.get(target.path("resourcequotas", name))]
    if is_data(form):
        emit(found if name is None else found[0], form)
    elif form == "name":
        emit_names(f"resourcequota/{raw['metadata']['name']}" for raw in found)
    elif not found:
        click.echo(target.nothing_found(), err=True)
    else:
        click.echo("\n\n".join(as_text(raw) for raw in found))


def as_text(raw: dict[str, Any]) -> str:
    """One quota: its scopes, then a bar for everything it limits."""
    metadata, within = raw["metadata"], scopes(raw)
    lines = [f"{metadata.get('namespace', '')}/{metadata['name']}" + (f"  [{', '.join(within)}]" if within else "")]
    rows = [[one.resource, bar(one), f"{one.used}/{one.hard}"] for one in limits(raw)]
    if rows:
        lines.append(table(["resource", " ", "used"], rows))
    return "\n".join(lines)


def bar(limit: Limit) -> str:
    """How full, in characters that need no colour: `[#####...............]  25%`."""
    if limit.share is None:
        return " "
    share = min(limit.share, 1.0)
    filled = round(share * _WIDTH)
    drawn = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"
    return paint(drawn, "red" if share >= 1 else "yellow") if share >= _NEARLY_FULL else drawn
