"""`kubeqos quota`: quotas as bars, with their scopes and classes."""

from __future__ import annotations

from typing import Any

import click

from kubeqos.cli import names
from kubeqos.cli.connection import Target, cluster_options
from kubeqos.cli.output import emit, emit_names, paint, table, wide_output_option
from kubeqos.model.quantity import Quantity

_WIDTH = 20
_NEARLY_FULL = 0.8


@click.command("quota")
@cluster_options
@wide_output_option
@click.argument("name", required=False, shell_complete=names.complete("quota"))
def command(target: Target, form: str, name: str | None) -> None:
    """Show how much of each quota is used, or of the one called NAME."""
    found = target.items("resourcequotas") if name is None else [target.api.get(target.path("resourcequotas", name))]
    if form in ("json", "yaml"):
        emit(found if name is None else found[0], form)
    elif form == "name":
        emit_names(f"resourcequota/{raw['metadata']['name']}" for raw in found)
    elif not found:
        click.echo(target.nothing_found(), err=True)
    else:
        click.echo("\n\n".join(as_text(raw) for raw in found))


def as_text(raw: dict[str, Any]) -> str:
    """One quota: its scopes, then a bar for everything it limits."""
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    lines = [f"{metadata.get('namespace', '')}/{metadata['name']}{_scopes(spec)}"]
    used = status.get("used") or {}
    rows = [
        [resource, bar(used.get(resource, "0"), hard), f"{used.get(resource, '0')}/{hard}"]
        for resource, hard in sorted((status.get("hard") or spec.get("hard") or {}).items())
    ]
    rows += _class_rows(spec.get("qosResources") or {}, status.get("qosResourcesUsage") or {})
    if rows:
        lines.append(table(["resource", " ", "used"], rows))
    return "\n".join(lines)


def _scopes(spec: dict[str, Any]) -> str:
    scopes = list(spec.get("scopes") or ())
    for one in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = f" ({', '.join(one['values'])})" if one.get("values") else ""
        scopes.append(f"{one['scopeName']} {one['operator']}{values}")
    return f"  [{', '.join(scopes)}]" if scopes else ""


def _class_rows(allowed: dict[str, Any], usage: dict[str, Any]) -> list[list[str]]:
    rows = []
    for level in ("pod", "container"):
        used = {
            (resource["name"], cls["name"]): cls.get("capacity", 0)
            for resource in usage.get(level) or ()
            for cls in resource.get("classes") or ()
        }
        for resource in allowed.get(level) or ():
            for cls in resource.get("classes") or ():
                taken = used.get((resource["name"], cls["name"]), 0)
                capacity = cls.get("capacity")
                label = f"{resource['name']}={cls['name']} ({level})"
                if capacity is None:
                    rows.append([label, " ", f"{taken}/inf"])
                else:
                    rows.append([label, bar(str(taken), str(capacity)), f"{taken}/{capacity}"])
    return rows


def bar(used: str, hard: str) -> str:
    """How full, in characters that need no colour: `[#####...............]  25%`."""
    taken, limit = Quantity.parse(used), Quantity.parse(hard)
    share = 1.0 if limit.is_zero else min(taken.nanos / limit.nanos, 1.0)
    filled = round(share * _WIDTH)
    drawn = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {share:4.0%}"
    return paint(drawn, "red" if share >= 1 else "yellow") if share >= _NEARLY_FULL else drawn
