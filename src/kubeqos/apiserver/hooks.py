"""Where faster ways are hung in beside the ordinary one: `handlers` asks here, `shortcuts` registers here.

A hook answers, or declines with None; then the ordinary way answers. It may never answer otherwise than the ordinary
way would: a server without any hook is the same server, only slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from kubeqos.apiserver.registry.writes import Write, Written
from kubeqos.apiserver.requests import Request
from kubeqos.web.messages import Response

T = TypeVar("T")

Create = Callable[[Write, Request], Awaitable[Written | None]]
"""Makes the object that a request asks for."""
Bind = Callable[[Request, str, str], Awaitable[Response | None]]
"""Gives a pod its node; its namespace and its name are those of the path."""


class Together(Protocol):
    """Many requests of one client at once: what all of them return, in their order. None of them may raise."""

    async def __call__(self, work: Iterable[Coroutine[Any, Any, T]], /) -> list[T]: ...


async def in_tasks(work: Iterable[Coroutine[Any, Any, T]], /) -> list[T]:
    """The ordinary way: a task for each."""
    return await asyncio.gather(*work)


@dataclass(slots=True)
class Hooks:
    """The faster ways of one server."""

    create: dict[str, Create] = field(default_factory=dict)
    """By kind."""
    bind: Bind | None = None
    together: Together = in_tasks
