"""Health and metrics over HTTP, on loopback, for the parts that work for an API server: scheduler and controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from kubeqos.web.sockets import answering, listen


def application(
    ready: asyncio.Event,
    registry: CollectorRegistry,
    more: Sequence[BaseRoute] = (),
    lagging: Callable[[], Iterable[str]] = lambda: (),
    missing: Callable[[], Iterable[str]] = lambda: (),
) -> Starlette:
    """What a running part tells of itself; `more` is what only this part has to tell.

    `lagging` is what it waits for before it can work, `missing` what it works without.
    """

    async def live(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def is_ready(_: Request) -> Response:
        if ready.is_set():
            return PlainTextResponse("\n".join(["ok", *(f"[!]does without {text}" for text in missing())]))
        lines = [f"[-]informer-sync failed: {text}" for text in list(lagging()) or ["not synced yet"]]
        return PlainTextResponse("\n".join([*lines, "readyz check failed"]), status_code=500)

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(generate_latest, registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    routes = [Route("/healthz", live), Route("/livez", live), Route("/readyz", is_ready), Route("/metrics", metrics)]
    return Starlette(routes=[*routes, *more])


@asynccontextmanager
async def served(application: Starlette, host: str, port: int) -> AsyncIterator[None]:
    """Answer while the block runs."""
    listener = listen(host, port, "choose another address with --bind-address, --port")
    config = uvicorn.Config(application, log_config=None, log_level="warning", lifespan="off")
    async with answering(config, listener):
        yield
