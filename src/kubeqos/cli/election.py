"""The flags of parts that may run in replicas, of which one works: `kubeqos scheduler`, `kubeqos controllers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
LEASE_NAMESPACE = "kube-system"


def leader_elect(lease: str) -> Callable[[Command], Command]:
    """`--leader-elect`, and the name of the lease."""
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
        help=f"The lease in {LEASE_NAMESPACE}.",
    )
    return lambda command: several(name(command))
