"""The ASGI shell: bytes in, `Request`; `Response`, bytes out. One error funnel; no decision about objects is made here.

Raw ASGI on purpose: a router and a request class per call would cost more than a GET does.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeqos.apiserver.auth import Attributes
from kubeqos.apiserver.auth.access import Access, attributes
from kubeqos.apiserver.auth.impersonate import IMPERSONATE
from kubeqos.apiserver.auth.reviews import Reviews
from kubeqos.apiserver.decisions.answers import Decisions
from kubeqos.apiserver.handlers import Handlers
from kubeqos.apiserver.nodes.components import component_statuses
from kubeqos.apiserver.nodes.resourcemetrics import resource_metrics
from kubeqos.apiserver.observe import TEXT, Audit, Health, Metrics, request_kind, version_info
from kubeqos.apiserver.present.discovery import discovery_response
from kubeqos.apiserver.present.negotiation import PROTOBUF, binary, not_available, takes
from kubeqos.apiserver.present.openapi import openapi_response
from kubeqos.apiserver.present.openapi_v2 import openapi_v2_response
from kubeqos.apiserver.present.options import check_timeout
from kubeqos.apiserver.registry.definitions import Catalog
from kubeqos.apiserver.requests import Request, Route, resolve, resolve_added
from kubeqos.codec import encode_json
from kubeqos.logs import logger
from kubeqos.model.kinds import DECISIONS, METRICS
from kubeqos.store import Full, StoreError
from kubeqos.web.asgi import Receive, Scope, Send, read_body, respond, too_large
from kubeqos.web.identity import Identity
from kubeqos.web.messages import JSON, Response, parse_query
from kubeqos.web.status import ApiError, bad_request, method_not_allowed, no_such_resource

MAX_BODY = 3 << 20  # Kubernetes' limit
PEER = "kubeqos.peer"
_NO_CACHE = (b"cache-control", b"no-cache, private")
_JSON_HEADERS = [(b"content-type", b"application/json"), _NO_CACHE]
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
MAX_WARNINGS = 4096  # characters in all, as in Kubernetes
MAX_WARNING = 256  # characters of each, where all of them would be too many
MAX_WARNING_HEADERS = 64  # Python's own HTTP client gives up at a hundred headers

log = logger("kubeqos.apiserver")
Mounted = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass
class Application:
    """What uvicorn calls."""

    handlers: Handlers
    reviews: Reviews
    access: Access
    metrics: Metrics
    health: Health
    decisions: Decisions
    audit: Audit | None = None
    address: str = ""
    mounted: dict[str, Mounted] = field(default_factory=dict)
    """Other applications in this process by the first part of their paths; they say themselves who may ask."""
    _verbs: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self._verbs = self.handlers.table()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.mounted and (other := self.mounted.get(scope["path"].split("/", 2)[1])) is not None:
            await other(scope, receive, send)
            return
        started, clock = time.time(), time.perf_counter()
        headers = _headers(scope["headers"])
        request = Request(
            scope.get("method", "GET"),
            scope["path"],
            parse_query(scope["query_string"]),
            headers.get(b"accept", b"").decode("latin-1"),
            headers.get(b"content-type", b"").decode("latin-1"),
            user_agent=headers.get(b"user-agent", b"").decode("latin-1"),
            protocols=tuple(scope.get("subprotocols", ())),
        )
        kind, inflight = request_kind(request.method), self.metrics.inflight
        inflight[kind] += 1
        brief = True
        try:
            route, response = await self._answer(request, scope.get(PEER), headers, receive)
            if PROTOBUF in request.accept:
                response = binary(response, request.accept)
            if response.stream is not None or response.streams is not None:
                brief = False  # it lasts as long as the client likes: counted as long-running
                inflight[kind] -= 1
            await respond(response, _head(response, request), scope, receive, send)
        finally:
            if brief:
                inflight[kind] -= 1
        seconds = time.perf_counter() - clock
        self.metrics.observe(route, request.method, response.code, seconds, dry_run="dryRun" in request.query)
        if self.audit is not None:
            client = scope.get("client")
            self.audit.record(request, client[0] if client else "", response.code, seconds, started)

    async def _answer(
        self, request: Request, peer: Identity | None, headers: dict[bytes, bytes], receive: Receive
    ) -> tuple[Route | None, Response]:
        try:
            request.identity = self.access.identify(peer, headers)
            if request.method in _WITH_BODY:
                request.body = await _read_body(receive, headers)
        except ApiError as error:
            return None, _failure(error)
        return await self.answer(request)

    async def answer(self, request: Request) -> tuple[Route | None, Response]:
        """The funnel: whatever goes wrong with a request becomes a Status."""
        route: Route | None = None
        try:
            route = resolve(request.method, request.path, request.query)
            if route is None and self.handlers.core.catalog.definitions:
                route = resolve_added(request.method, request.path, request.query, self.handlers.core.catalog)
            if route is None:
                return None, await self._other_path(request)
            self.access.check(request.identity, attributes(route, request.query))
            if "timeout" in request.query and route.verb != "watch" and not route.subresource:
                check_timeout(request.query)
            if request.protocols and route.subresource:
                # A WebSocket begins with GET, but who only may read must not run commands with it.
                self.access.check(request.identity, attributes(msgspec.structs.replace(route, verb="create")))
            return route, await self._dispatch(request, route)
        except ApiError as error:
            return route, _failure(error) if request.method == "GET" else await self._refused(error)
        except RecursionError:
            return route, _failure(bad_request("exceeded max depth"))
        except StoreError as error:
            return route, _unstored(error)
        except Exception:  # a bug of ours: the client learns that, the log learns which
            log.exception("%s %s", request.method, request.path)
            return route, _failure(ApiError(500, "InternalError", "Internal error occurred", details={}))

    async def _refused(self, error: ApiError) -> Response:
        """A write is refused for what writes before it have made of things: that must not be taken back by a crash."""
        try:
            await self.handlers.core.store.durable()
        except StoreError as failure:
            return _unstored(failure)
        return _failure(error)

    async def answer_all(self, requests: Iterable[Request]) -> list[Response]:
        """The answers to many requests at once."""
        answers = await self.handlers.hooks.together(self.answer(request) for request in requests)
        return [response for _, response in answers]

    async def _dispatch(self, request: Request, route: Route) -> Response:
        kind = route.checked() if route.verb != "watch" or not route.watch_path else route.kind
        if kind.deprecated:
            request.warnings.append(kind.deprecated)
        if not kind.stored:
            if kind.kind == "Binding":
                return await self.handlers.bind(request, route)
            if kind.kind == "ComponentStatus":
                return component_statuses(self.handlers.core, self.health, request, route, kind)
            if kind.group == METRICS:
                return await resource_metrics(
                    self.handlers.core, self.handlers.subresources.nodes, request, route, kind
                )
            if kind.group == DECISIONS:
                return await self.decisions.answer(request, route, kind)
            return await self.reviews.create(request, route, kind)
        if route.subresource:
            return await self.handlers.subresource(request, route, kind)
        response: Response = await self._verbs[route.verb](request, route, kind)
        return response

    async def _other_path(self, request: Request) -> Response:
        """Everything that is not a resource: discovery, OpenAPI, health, metrics, version."""
        path = request.path
        self.access.check(request.identity, Attributes(request.method.lower(), path=path))
        health = self.health.respond(path, request.query)
        if health is not None:
            return health  # whatever the method: load balancers like HEAD
        catalog = self.handlers.core.catalog
        found = (
            discovery_response(request, self.address, catalog)
            or openapi_response(request, catalog)
            or openapi_v2_response(request, catalog)
            or await self._page(request, catalog)
        )
        if found is None:
            if path.startswith("/api/") or (path.startswith("/apis/") and path.split("/")[2] in catalog.groups):
                raise no_such_resource()
            return Response(404, b"404 page not found\n", TEXT)
        if request.method != "GET":
            raise method_not_allowed()
        return found

    async def _page(self, request: Request, catalog: Catalog) -> Response | None:
        match request.path.rstrip("/"):
            case "/version":
                if not takes(request.accept, JSON):
                    raise not_available(JSON)
                return Response(200, version_info())
            case "/metrics":
                body = await asyncio.get_running_loop().run_in_executor(None, self.metrics.exposition)
                return Response(200, body, "text/plain; version=0.0.4; charset=utf-8")
            case "":
                return Response(200, encode_json({"paths": _paths(catalog)}))
        return None


def _paths(catalog: Catalog) -> list[str]:
    groups = [f"/apis/{group}/{version}" for group, versions in catalog.groups.items() for version in versions if group]
    others = ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    return ["/api", "/api/v1", "/apis", *groups, *others]


def _headers(raw: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Names are lower case already; only what says whom to act as keeps more than its last value."""
    found: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in found and name.startswith(IMPERSONATE):
            found[name] += b"\n" + value
        else:
            found[name] = value
    return found


async def _read_body(receive: Receive, headers: dict[bytes, bytes]) -> bytes:
    body = await read_body(receive, MAX_BODY)
    return _inflated(body) if headers.get(b"content-encoding") == b"gzip" else body


def _inflated(body: bytes) -> bytes:
    inflater = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        out = inflater.decompress(body, MAX_BODY + 1)
    except zlib.error as error:
        raise bad_request(f"the body of the request is not gzip: {error}") from error
    if len(out) > MAX_BODY:
        raise too_large(MAX_BODY)
    if not inflater.eof:
        raise bad_request("the body of the request is not gzip: unexpected end")
    return out


def _unstored(error: StoreError) -> Response:
    log.error("store: %s", error)
    if isinstance(error, Full):
        # Nothing of it was done, and it may be sent again. Without Retry-After: kubectl would not say why it waits.
        return _failure(ApiError(429, "TooManyRequests", f"{error.what}: {error.remedy}", details={}))
    return _failure(ApiError(500, "InternalError", f"Internal error occurred: {error}", details={}))


def _failure(error: ApiError) -> Response:
    response = Response(error.code, encode_json(error.body()))
    if error.retry_after is not None:
        response.headers.append((b"retry-after", str(error.retry_after).encode()))
    return response


def _head(response: Response, request: Request) -> list[tuple[bytes, bytes]]:
    if response.content_type == "application/json":
        headers = [*_JSON_HEADERS, *response.headers]
    elif response.content_type:
        headers = [(b"content-type", response.content_type.encode()), *response.headers]
    else:
        headers = list(response.headers)
    if request.warnings:
        headers += _warnings(request.warnings)
    return headers


def _warnings(texts: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """Each warning once. Where they are too long together each is cut, and what does not fit is left out."""
    texts = list(dict.fromkeys(texts))
    longest = MAX_WARNING if sum(map(len, texts)) > MAX_WARNINGS else MAX_WARNINGS
    room = MAX_WARNINGS
    for text in texts[:MAX_WARNING_HEADERS]:
        if room <= 0:
            return
        room -= min(len(text), longest)
        yield _warning(text[:longest])


def _warning(text: str) -> tuple[bytes, bytes]:
    """A Warning header; a header cannot carry control characters."""
    safe = _CONTROL.sub(" ", text).replace("\\", "\\\\").replace('"', '\\"')
    return b"warning", f'299 - "{safe}"'.encode("utf-8", "replace")
