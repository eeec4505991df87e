"""A part that works for an API server, as a process of its own: `kubeqos scheduler`, `kubeqos controllers`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import click
from starlette.applications import Starlette

from kubeqos import logs
from kubeqos.client.http import HttpApi
from kubeqos.web.health import served


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
