"""The dashboard's routes: who asks, what is answered, in which headers. One ASGI application for both homes.

Every answer forbids what the page does not need: no inline script, no frame, no other origin, no referrer. Whatever is
not a GET must come from the page itself: the cookie is `SameSite=Strict`, the body is JSON, and the `Origin` is ours.
"""

from __future__ import annotations

import mimetypes
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import TypeVar

import msgspec

from kubeqos.client.errors import ApiError as ClientError
from kubeqos.codec import encode_json
from kubeqos.dashboard.answers import Answers, NotFound
from kubeqos.dashboard.present.data import (
    CompareQuestion,
    Data,
    LoginQuestion,
    Problem,
    SessionData,
    WhatIfQuestion,
    schema,
)
from kubeqos.dashboard.sessions import SESSION_SECONDS, Session, Sessions
from kubeqos.dashboard.stream import follow
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.web.asgi import Receive, Scope, Send, read_body, respond
from kubeqos.web.identity import ANONYMOUS, Identity
from kubeqos.web.messages import JSON, Query, Response, parse_query
from kubeqos.web.status import ApiError

PREFIX = "/dashboard"
MAX_BODY = 1 << 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
_FRESH = (b"cache-control", b"no-store")
_STATIC = (b"cache-control", b"no-cache")
T = TypeVar("T", bound=Data)
Identify = Callable[[Scope, Mapping[bytes, bytes]], Identity]

log = logger("kubeqos.dashboard")


class HttpRefusal(KubeqosError):
    """A request that is not answered, with its code."""

    def __init__(self, code: int, what: str, remedy: str = "") -> None:
        super().__init__(what, remedy=remedy or None)
        self.code = code


@dataclass
class Dashboard:
    """What a server calls for everything below `/dashboard`."""

    answers: Answers
    cluster: str
    """What the page calls the cluster."""
    address: str
    """`https://host:port`, for links."""
    identify: Identify | None = None
    """Who asks for a link, by the credentials of the API; None where links are only printed."""
    clock: Callable[[], float] = time.time
    sessions: Sessions = field(default_factory=lambda: Sessions(lambda: secrets.token_urlsafe(32)))

    def __post_init__(self) -> None:
        self._secure = self.address.startswith("https:")
        # On one host all ports share cookies: two dashboards must not log each other out.
        port = self.address.rpartition(":")[2]
        self._cookie = f"__Host-kubeqos-{port}" if self._secure else f"kubeqos-{port}"
        self._schema = encode_json(schema())

    def link(self, identity: Identity) -> str:
        """An address that logs this identity in, once."""
        return f"{self.address}{PREFIX}/#/login/{self.sessions.link(identity, self.clock())}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = dict(scope["headers"])
        try:
            response = await self._answer(scope, headers, receive)
        except HttpRefusal as error:
            response = _problem(error.code, error)
        except NotFound as error:
            response = _problem(404, error)
        except ApiError as error:  # of the server that identifies
            response = _problem(error.code, error)
        except ClientError as error:
            response = _problem(error.status, error)
        except KubeqosError as error:
            response = _problem(422, error)
        except Exception:  # a bug of ours: the page learns that, the log learns which
            log.exception("%s %s", scope["method"], scope["path"])
            response = _problem(500, KubeqosError("something went wrong inside the dashboard"))
        kind = [(b"content-type", response.content_type.encode())] if response.content_type else []
        await respond(response, [*kind, *HEADERS, *response.headers], scope, receive, send)

    async def _answer(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Response:
        method, path = scope["method"], scope["path"].removeprefix(PREFIX)
        if method not in ("GET", "HEAD", "POST"):
            raise HttpRefusal(405, f"the dashboard does not answer {method}")
        if method == "POST":
            self._from_our_page(headers)
        if not path.startswith("/api/v1/"):
            if method == "POST":
                raise HttpRefusal(405, "this is a page")
            return self._page(path)
        rest, query = path.removeprefix("/api/v1/"), parse_query(scope["query_string"])
        body = await read_body(receive, MAX_BODY) if method == "POST" else b""
        match method, rest:
            case "GET", "schema":
                return Response(200, self._schema, headers=[_FRESH])
            case "POST", "login":
                return self._login(_question(body, LoginQuestion))
            case "POST", "links":
                return self._link(scope, headers)
        token, session = self._session(headers)
        if method == "POST":
            return await self._asked(rest, body, token, session)
        if rest == "stream":
            view = _one(query, "view")
            await self.answers.view(session.identity, view, {})  # what is not there is said at once
            alive = lambda: self.sessions.peek(token, self.clock()) is not None  # noqa: E731
            stream = follow(self.answers, session.identity, view, alive)
            return Response(200, content_type="text/event-stream", headers=[_FRESH], stream=stream)
        return await self._read(rest, query, session)

    async def _read(self, rest: str, query: Query, session: Session) -> Response:
        if rest == "session":
            sight = await self.answers.sight(session.identity)
            who, until, version = session.identity.user, session.expires(), self.answers.version
            return _json(SessionData(user=who, expires=until, cluster=self.cluster, version=version, sees=sight.told()))
        wanted = {name: values[0] for name, values in query.items()}
        return _json(await self.answers.view(session.identity, rest, wanted))

    async def _asked(self, rest: str, body: bytes, token: str, session: Session) -> Response:
        match rest:
            case "logout":
                self.sessions.close(token)
                return Response(204, headers=[_FRESH, self._set_cookie("", 0)], content_type="")
            case "whatif":
                return _json(await self.answers.what_if(session.identity, _question(body, WhatIfQuestion)))
            case "compare":
                return _json(await self.answers.compare(_question(body, CompareQuestion)))
        raise HttpRefusal(404, f"there is no {rest}")

    # ---- Logging in

    def _login(self, question: LoginQuestion) -> Response:
        opened = self.sessions.open(question.code, self.clock())
        if opened is None:
            raise HttpRefusal(
                401,
                "this link is wrong, was used before, or is older than a quarter of an hour",
                "ask for a new one: kubeqos dashboard --link",
            )
        token, _ = opened
        return Response(204, headers=[_FRESH, self._set_cookie(token, int(SESSION_SECONDS))], content_type="")

    def _link(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Response:
        identity = self.identify(scope, headers) if self.identify is not None else ANONYMOUS
        if identity.user == ANONYMOUS.user:
            raise HttpRefusal(401, "links are for users of the API", "ask with the credentials of a kubeconfig")
        return Response(201, encode_json({"link": self.link(identity), "user": identity.user}), headers=[_FRESH])

    def _session(self, headers: Mapping[bytes, bytes]) -> tuple[str, Session]:
        for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            name, _, token = pair.strip().partition("=")
            if name == self._cookie and (session := self.sessions.find(token, self.clock())) is not None:
                return token, session
        raise HttpRefusal(401, "not logged in, or not any more", "ask for a new link: kubeqos dashboard --link")

    def _set_cookie(self, token: str, seconds: int) -> tuple[bytes, bytes]:
        # The prefix __Host- wants the path of the whole host, and TLS.
        place = "Path=/; Secure" if self._secure else f"Path={PREFIX}"
        return b"set-cookie", f"{self._cookie}={token}; {place}; HttpOnly; SameSite=Strict; Max-Age={seconds}".encode()

    def _from_our_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Browsers say where a request comes from; programs that ask for a link say nothing."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        host = headers.get(b"host", b"").decode("latin-1")
        site = headers.get(b"sec-fetch-site", b"none")
        ours = origin in ("", f"https://{host}", f"http://{host}") and site in (b"none", b"same-origin")
        if not ours or not headers.get(b"content-type", b"").startswith(JSON.encode()):
            raise HttpRefusal(403, "this request does not come from the dashboard's own page")

    # ---- The page

    def _page(self, path: str) -> Response:
        if path == "":
            return Response(308, headers=[(b"location", f"{PREFIX}/".encode())], content_type="")
        name = "index.html" if path == "/" else path.removeprefix("/static/")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        if "/" in name or name.startswith("."):
            raise HttpRefusal(404, "there is no such page")
        file = resources.files("kubeqos.dashboard") / "static" / name
        if not file.is_file():
            raise HttpRefusal(404, "there is no such page")
        text = "; charset=utf-8" if kind.startswith("text/") else ""
        return Response(200, file.read_bytes(), f"{kind}{text}", [_STATIC])


def _one(query: Query, name: str) -> str:
    return (query.get(name) or [""])[0]


def _question(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpRefusal(400, f"the question cannot be read: {error}") from error


def _json(data: Data) -> Response:
    return Response(200, msgspec.json.encode(data), headers=[_FRESH])


def _problem(code: int, error: KubeqosError) -> Response:
    told = Problem(error=error.what, where=error.where or "", remedy=error.remedy or "")
    return Response(code, msgspec.json.encode(told), headers=[_FRESH])
