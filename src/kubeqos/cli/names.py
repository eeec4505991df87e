"""Completing names from the cluster: nodes, pods, quotas, classes, namespaces, contexts.

Attached to arguments and options of the commands; asked by the shell through click and by kubectl through
`kubectl_complete-qos`. A cluster that cannot be reached completes nothing and says nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from kubeqos.errors import KubeqosError

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Named = Iterable[tuple[str, str]]


SPELLINGS = {
    "node": ("no", "node", "nodes"),
    "pod": ("po", "pod", "pods"),
    "quota": ("quota", "resourcequota", "resourcequotas"),
}
"""How people write the kinds that our commands speak of."""


def plain(kind: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Takes an object's name alone or as kubectl prints it: `web` or `pod/web`."""

    def read(_context: click.Context, _parameter: click.Parameter, said: str | None) -> str | None:
        if said is None:
            return None
        spelling, slash, name = said.rpartition("/")
        if not name or (slash and spelling.lower() not in SPELLINGS[kind]):
            raise click.BadParameter(f"{said!r} is no name of a {kind}: write NAME or {kind}/NAME")
        return name

    return read


def complete(kind: str) -> Completer:
    """A completer of names of this kind."""

    def completer(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            found = sorted(_SOURCES[kind](context.params))
        except (KubeqosError, OSError):
            return []
        return [CompletionItem(name, help=about or None) for name, about in found if name.startswith(incomplete)]

    return completer


def complete_described(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names for `describe KIND`."""
    kind = str(context.params.get("kind") or "")
    source = "quota" if "quota" in kind else "pod" if kind.startswith("po") else "node"
    return complete(source)(context, parameter, incomplete)


def _api(given: dict[str, Any]) -> Any:
    from kubeqos.client.light import LightApi

    return LightApi.from_kubeconfig(given.get("kubeconfig"), given.get("context"))


def _nodes(given: dict[str, Any]) -> Named:
    for raw in _api(given).items("/api/v1/nodes"):
        allocatable = (raw.get("status") or {}).get("allocatable") or {}
        yield raw["metadata"]["name"], f"cpu {allocatable['cpu']}" if "cpu" in allocatable else ""


def _pods(given: dict[str, Any]) -> Named:
    api = _api(given)
    for raw in api.items(f"/api/v1/namespaces/{given.get('namespace') or api.namespace}/pods"):
        yield raw["metadata"]["name"], (raw.get("status") or {}).get("phase") or ""


def _quotas(given: dict[str, Any]) -> Named:
    api = _api(given)
    for raw in api.items(f"/api/v1/namespaces/{given.get('namespace') or api.namespace}/resourcequotas"):
        yield raw["metadata"]["name"], ", ".join((raw.get("spec") or {}).get("scopes") or ())


def _classes(given: dict[str, Any]) -> Named:
    """QoS-class resources and the classes they have."""
    found: dict[str, list[str]] = {}
    for raw in _api(given).items("/api/v1/nodes"):
        offered = (raw.get("status") or {}).get("qosResources") or {}
        for kind in (*(offered.get("podQoSResources") or ()), *(offered.get("containerQoSResources") or ())):
            known = found.setdefault(kind["name"], [])
            known += [one["name"] for one in kind.get("classes") or () if one["name"] not in known]
    return [(name, ", ".join(classes)) for name, classes in found.items()]


def _namespaces(given: dict[str, Any]) -> Named:
    return [(raw["metadata"]["name"], "") for raw in _api(given).items("/api/v1/namespaces")]


def _contexts(given: dict[str, Any]) -> Named:
    from kubeqos.client.kubeconfig import files, merged

    path: Path | None = given.get("kubeconfig")
    for entry in merged(files(path, os.environ)).get("contexts") or ():
        yield entry["name"], (entry.get("context") or {}).get("cluster") or ""


_SOURCES: dict[str, Callable[[dict[str, Any]], Named]] = {
    "node": _nodes,
    "pod": _pods,
    "quota": _quotas,
    "class": _classes,
    "namespace": _namespaces,
    "context": _contexts,
}
