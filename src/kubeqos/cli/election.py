"""The flags of parts that may run in replicas, of which one works: `kubeqos scheduler`, `kubeqos controllers`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The Lease that says which replica works."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def leader_elect(lease: str) -> Callable[[Command], Command]:
    """`--leader-elect`, and the name of the lease and of its namespace."""
    several = click.option(
        "--leader-elect/--no-leader-elect",
        default=False,
        show_default=True,
        help="Work only while holding a lease: run several, one works.",
    )
    name = click.option(
        "--leader-elect-resource-name",
        "lease",
        default=lease,
        show_default=True,
        help="The lease.",
    )
    namespace = click.option(
        "--leader-elect-resource-namespace",
        "lease_namespace",
        default="kube-system",
        show_default=True,
        help="Where it is.",
    )
    return lambda command: several(name(namespace(command)))
