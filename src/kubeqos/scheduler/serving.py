"""Health, metrics and pod stories of a running scheduler over HTTP, on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kubeqos.scheduler.service import SchedulerService


def application(service: SchedulerService) -> Starlette:
    """What the scheduler tells about itself."""

    async def live(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_: Request) -> Response:
        if service.ready.is_set():
            return PlainTextResponse("ok")
        return PlainTextResponse("[-]informer-sync failed: reason withheld\nreadyz check failed", status_code=500)

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(generate_latest, service.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def story(request: Request) -> Response:
        return JSONResponse({"story": service.core.story(request.path_params["uid"])})

    return Starlette(
        routes=[
            Route("/healthz", live),
            Route("/livez", live),
            Route("/readyz", ready),
            Route("/metrics", metrics),
            Route("/debug/pods/{uid}", story),
        ]
    )


@asynccontextmanager
async def served(service: SchedulerService, host: str, port: int) -> AsyncIterator[None]:
    """Answer while the block runs."""
    config = uvicorn.Config(application(service), host=host, port=port, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
