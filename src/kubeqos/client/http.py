"""The API over HTTP: TLS and credentials from a kubeconfig, retries only where repeating cannot do harm."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import NoReturn

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from kubeqos.client.api import JSON, Answer, Call, TransportApi
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.kubeconfig import load
from kubeqos.errors import ConfigurationError

ATTEMPTS = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
ANSWER_SECONDS = 30.0
SILENCE_SECONDS = 120.0  # a watch that is silent for longer has lost its server: bookmarks come every minute
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
BUSY = frozenset({429, 503, 504})
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class HttpTransport:
    """Requests to one server over a pool of connections."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def send(self, call: Call) -> Answer:
        """Repeats what was never sent, and what only reads; everything else is tried once."""
        pause = FIRST_PAUSE
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = await self._client.request(
                    call.method, call.path, params=call.query, content=call.body or None, headers=headers(call)
                )
            except httpx2.RequestError as error:
                if attempt == ATTEMPTS or not (call.method == "GET" or isinstance(error, NOT_SENT)):
                    self._unreachable(call, error)
            else:
                wait = retry_after(call, response)
                if wait is None or attempt == ATTEMPTS:
                    return Answer(response.status_code, response.content)
                pause = max(pause, wait)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, LONGEST_PAUSE)
        raise AssertionError("the last attempt returns or raises")

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Not repeated: who watches knows where to go on."""
        timeout = httpx2.Timeout(ANSWER_SECONDS, read=SILENCE_SECONDS)
        try:
            async with self._client.stream(
                call.method, call.path, params=call.query, headers=headers(call), timeout=timeout
            ) as response:
                if response.status_code >= 400:
                    raise ApiError.of(response.status_code, await response.aread())
                async for piece in response.aiter_bytes():
                    yield piece
        except httpx2.RequestError as error:
            self._unreachable(call, error)

    async def close(self) -> None:
        await self._client.aclose()

    def _unreachable(self, call: Call, error: httpx2.RequestError) -> NoReturn:
        where = f"{call.method} {str(self._client.base_url).rstrip('/')}{call.path}"
        said = str(error) or type(error).__name__
        if isinstance(error, NOT_SENT):
            raise Unreachable(f"cannot connect to the API server: {said}", where=where, applied=False) from error
        raise Unreachable(
            f"the API server did not answer: {said}", where=where, applied=call.method != "GET"
        ) from error


class HttpApi(TransportApi):
    """`Api` over HTTP."""

    def __init__(self, client: httpx2.AsyncClient, namespace: str = "default") -> None:
        super().__init__(HttpTransport(client))
        self.namespace = namespace

    @classmethod
    def from_kubeconfig(cls, path: Path | None = None, context: str | None = None) -> HttpApi:
        """As the kubeconfig says; `namespace` is the context's."""
        config = load(path, context)
        return cls(connect(config), config.namespace)

    @classmethod
    def to(cls, url: str, *, token: str = "", verify: ssl.SSLContext | bool = True) -> HttpApi:
        """To a known address, for example a test server's."""
        credentials = {"authorization": f"Bearer {token}"} if token else {}
        return cls(client_for(url, verify, None, credentials))


def connect(config: SingleConfig) -> httpx2.AsyncClient:
    """A connection pool with the kubeconfig's certificates and credentials."""
    user = config.user or User()
    try:
        verify = verify_cluster(config.cluster, user, config.abs_file)
        return client_for(config.cluster.server, verify, user_auth(user), {})
    except (ConfigError, OSError, ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"kubeconfig: the credentials cannot be used: {error}",
            where=f"context {config.context_name}",
            remedy="check the certificate and key entries of this context",
        ) from error


def client_for(
    url: str, verify: ssl.SSLContext | bool, auth: httpx2.Auth | None, credentials: dict[str, str]
) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=url,
        verify=verify,
        auth=auth,
        headers={"user-agent": "kubeqos", **credentials},
        # To connect too, as client-go: with less, a crowd that comes to a busy server at once gives up and begins anew.
        timeout=ANSWER_SECONDS,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
        trust_env=httpx2.URL(url).host not in LOOPBACK,  # a proxy is no way to one's own machine
    )


def headers(call: Call) -> dict[str, str]:
    return {"accept": JSON, "content-type": call.content_type} if call.body else {"accept": JSON}


def retry_after(call: Call, response: httpx2.Response) -> float | None:
    """Seconds to wait before asking again; None when the answer stands.

    429 with Retry-After is said before a request is carried out, except by an eviction, whose answer it is.
    """
    status, told = response.status_code, response.headers.get("retry-after", "")
    evicting = call.path.endswith("/eviction")
    if (status in BUSY and call.method == "GET") or (status == 429 and told and not evicting):
        return min(float(told), LONGEST_PAUSE) if told.isdigit() else 0.0
    return None
