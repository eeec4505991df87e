"""How every command that talks to a cluster is told which one: kubectl's flags, spelled as kubectl spells
them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubeqos.cli import names

if TYPE_CHECKING:
    from kubeqos.cli.reader import Reader
    from kubeqos.client.light import LightApi

_F = TypeVar("_F", bound=Callable[..., Any])


class Target:
    """A cluster and the part of it a command looks at. The kubeconfig is read when the cluster is first needed."""

    def __init__(
        self, kubeconfig: Path | None, context: str | None, namespace: str | None, all_namespaces: bool, selector: str
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._namespace = namespace
        self.all_namespaces = all_namespaces
        self.selector = selector

    @cached_property
    def api(self) -> LightApi:
        """The API server."""
        from kubeqos.client.light import LightApi

        return LightApi.from_kubeconfig(self._kubeconfig, self._context)

    @cached_property
    def reader(self) -> Reader:
        """The API server as views see it: the same in both homes."""
        from kubeqos.cli.reader import Reader

        return Reader(self.api)

    @property
    def namespace(self) -> str:
        """The namespace named, or the context's."""
        return self._namespace or self.api.namespace

    def path(self, resource: str, name: str = "", group: str = "/api/v1") -> str:
        """The URL path of a namespaced collection or object."""
        scope = "" if self.all_namespaces and not name else f"/namespaces/{self.namespace}"
        return f"{group}{scope}/{resource}" + (f"/{name}" if name else "")

    def items(self, resource: str, group: str = "/api/v1") -> list[dict[str, Any]]:
        """The objects of a collection, selected as the command line says."""
        return self.reader.items(self.path(resource, group=group), **self.query)

    @property
    def query(self) -> dict[str, str]:
        """The label selector as a query."""
        return {"labelSelector": self.selector} if self.selector else {}

    def nothing_found(self) -> str:
        """What kubectl says of an empty list."""
        return "No resources found" if self.all_namespaces else f"No resources found in {self.namespace} namespace."


_PARTS: dict[str, Callable[[_F], _F]] = {
    "namespace": click.option(
        "-n", "--namespace", help="The namespace to look at.", shell_complete=names.complete("namespace")
    ),
    "all_namespaces": click.option("-A", "--all-namespaces", is_flag=True, help="Look at all namespaces."),
    "selector": click.option("-l", "--selector", default="", help="Only objects with these labels."),
}


def asks(*parts: str) -> Callable[[_F], _F]:
    """Add `--kubeconfig`, `--context` and those of `-n`, `-A` and `-l` that the command heeds; it gets one `target`."""

    def decorated(command: _F) -> _F:
        def opened(*words: Any, kubeconfig: Path | None, context: str | None, **more: Any) -> Any:
            chosen = {part: more.pop(part) for part in parts}
            target = Target(
                kubeconfig,
                context,
                chosen.get("namespace"),
                chosen.get("all_namespaces", False),
                chosen.get("selector", ""),
            )
            return command(*words, target=target, **more)

        opened.__doc__ = command.__doc__
        opened.__name__ = getattr(command, "__name__", "command")
        wrapped: Any = opened
        for option in (
            click.option("--kubeconfig", type=click.Path(path_type=Path), help="The kubeconfig file to use."),
            click.option(
                "--context", help="The context of the kubeconfig to use.", shell_complete=names.complete("context")
            ),
            *(_PARTS[part] for part in parts),
        ):
            wrapped = option(wrapped)
        wrapped.__click_params__ += getattr(command, "__click_params__", [])
        return wrapped  # type: ignore[no-any-return]

    return decorated
