"""What a scheduler in a stock cluster answers over HTTP: health, metrics, stories, kube-schedulers' questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kubeqos.client.api import Api
from kubeqos.codec import decode_json
from kubeqos.errors import InputError
from kubeqos.scheduler.feed import Home
from kubeqos.scheduler.service import SchedulerService
from kubeqos.scheduler.serving import application as told_by_schedulers
from kubeqos.stock.cluster import NODE_QOSES
from kubeqos.stock.scheduling.extender import filtered, preempted, prioritized
from kubeqos.stock.scheduling.scheduler import StockScheduler
from kubeqos.stock.scheduling.waking import Waking

VERBS: Mapping[str, Callable[[StockScheduler, Mapping[str, Any]], Any]] = {
    "filter": filtered,
    "prioritize": prioritized,
    "preempt": preempted,
}


def stock_service(api: Api, core: StockScheduler) -> SchedulerService:
    """The scheduler as a running part, on what a stock API server has."""
    home = Home(claiming=(), keeps_decisions=False, reports={NODE_QOSES: core.report_changed})
    return SchedulerService(api, core, home)


def application(service: SchedulerService, core: StockScheduler, waking: Waking) -> Starlette:
    async def answer(request: Request) -> Response:
        verb = VERBS.get(request.path_params["verb"])
        if verb is None:
            return PlainTextResponse(f"extenders answer {', '.join(VERBS)}", status_code=404)
        if not service.ready.is_set():
            return PlainTextResponse("the cluster is not known yet", status_code=503)
        try:
            args = decode_json(await request.body())
            found = verb(core, args)
            if verb is filtered:
                waking.answered(args, found)
            return JSONResponse(found)
        except InputError as error:
            return PlainTextResponse(str(error), status_code=400)

    return told_by_schedulers(service, [Route("/extender/{verb}", answer, methods=["POST"])])
