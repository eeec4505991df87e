"""How every command that talks to a cluster is told which one: kubectl's flags, spelled as kubectl spells them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from kubeqos.client.light import LightApi

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster and the part of it a command looks at."""

    api: LightApi
    namespace: str
    all_namespaces: bool
    selector: str

    def path(self, resource: str, name: str = "", group: str = "/api/v1") -> str:
        """The URL path of a namespaced collection or object."""
        scope = "" if self.all_namespaces and not name else f"/namespaces/{self.namespace}"
        return f"{group}{scope}/{resource}" + (f"/{name}" if name else "")

    def items(self, resource: str, group: str = "/api/v1") -> list[dict[str, Any]]:
        """The objects of a collection, selected as the command line says."""
        query = {"labelSelector": self.selector} if self.selector else {}
        return self.api.items(self.path(resource, group=group), **query)


def cluster_options(command: _F) -> _F:
    """Add `--kubeconfig`, `--context`, `-n`, `-A` and `-l`; the command gets one `target`."""

    def opened(
        *words: Any,
        kubeconfig: Path | None,
        context: str | None,
        namespace: str | None,
        all_namespaces: bool,
        selector: str,
        **more: Any,
    ) -> Any:
        api = LightApi.from_kubeconfig(kubeconfig, context)
        return command(*words, target=Target(api, namespace or api.namespace, all_namespaces, selector), **more)

    opened.__doc__ = command.__doc__
    opened.__name__ = getattr(command, "__name__", "command")
    wrapped: Any = opened
    for option in (
        click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use."),
        click.option("--context", help="The context of the kubeconfig to use."),
        click.option("-n", "--namespace", help="The namespace to look at."),
        click.option("-A", "--all-namespaces", is_flag=True, help="Look at all namespaces."),
        click.option("-l", "--selector", default="", help="Only objects with these labels."),
    ):
        wrapped = option(wrapped)
    wrapped.__click_params__ += getattr(command, "__click_params__", [])
    return wrapped  # type: ignore[no-any-return]
