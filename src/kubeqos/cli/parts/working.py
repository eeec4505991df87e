"""A part that works for an API server, as a process of its own: `kubeqos scheduler`, `kubeqos controllers`."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import click
from starlette.applications import Starlette

from kubeqos import logs
from kubeqos.cli.election import LeaseName
from kubeqos.client.http import HttpApi
from kubeqos.client.leadership import Leadership
from kubeqos.errors import StateError
from kubeqos.web.health import served


async def led(
    api: HttpApi, lease: LeaseName, ready: asyncio.Event, part: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Run the part once this replica leads. One that waits is ready: it has nothing to do.

    A leader that loses its lease ends as a process, so that it leads again without anything that it knew before.
    """
    begun = False

    async def once() -> None:
        nonlocal begun
        if begun:
            what = f"lost the lease {lease}: this process knows what was before and does not lead again"
            raise StateError(what, remedy="start it again, as its supervisor does")
        begun = True
        ready.clear()
        await part()

    ready.set()
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    await Leadership(api, lease.name, lease.namespace, identity).run(once)


async def work(
    api: HttpApi, part: Coroutine[Any, Any, None], tells: Starlette, address: str, port: int, banner: str
) -> None:
    """Run the part until a signal says to end; `tells` answers on the port, unless that is 0."""
    logs.to_stream(sys.stdout)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(api.close)
        running = asyncio.create_task(part)
        stack.callback(running.cancel)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, running.cancel)
        if port:
            await stack.enter_async_context(served(tells, address, port))
        click.echo(banner, err=True)
        with suppress(asyncio.CancelledError):
            await running
