"""What a running scheduler tells about itself over HTTP: health, metrics, and the story of a pod."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from kubeqos.scheduler.service import SchedulerService
from kubeqos.web import health as serving


def application(service: SchedulerService, more: Sequence[BaseRoute] = ()) -> Starlette:
    """`more` is what a scheduler of this kind answers, too."""

    async def story(request: Request) -> Response:
        return JSONResponse({"story": service.story(request.path_params["uid"])})

    return serving.application(
        service.ready,
        service.metrics.registry,
        [Route("/debug/pods/{uid}", story), *more],
        lagging=service.feed.lagging,
        missing=service.feed.unreadable,
    )
