"""The API over HTTP: what a request looks like, who we are in it, and what is asked again.

Repeated is only what cannot do harm: what was never sent, what only reads, and what the server says it did not carry
out. Connections are kept by `pool`; a watch has one of its own.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, urlencode

from kubeqos.client.api import JSON, Answer, Call, TransportApi
from kubeqos.client.credentials import Credentials
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.kubeconfig import Cluster, Config, User, load
from kubeqos.client.transport.address import address_of
from kubeqos.client.transport.connection import Connection, Idle, NoAnswer, Reply, Unsent
from kubeqos.client.transport.dialing import NotSent, dial
from kubeqos.client.transport.pool import MOST, Lost, Pool
from kubeqos.errors import ConfigurationError

ATTEMPTS = 5
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
ANSWER_SECONDS = 30.0  # to connect too, as client-go: with less, a crowd at a busy server gives up and begins anew
SILENCE_SECONDS = 120.0  # a watch that is silent for longer has lost its server: bookmarks come every minute
BUSY = frozenset({429, 503, 504})
FLOW = (b"x-kubernetes-pf-prioritylevel-uid", b"x-kubernetes-pf-flowschema-uid")
_is_plain = re.compile(r"[!-~]*").fullmatch


class HttpTransport:
    """Requests to one server."""

    def __init__(self, config: Config, tls: ssl.SSLContext | None = None, *, deadline: float = ANSWER_SECONDS) -> None:
        cluster = config.cluster
        self._deadline = deadline
        self._address = address_of(cluster.server, cluster.tls_server_name, cluster.proxy_url)
        self._credentials = Credentials(config, tls)
        self._renewing = asyncio.Lock()
        self._said = self._head()
        self.pool = Pool(self._dial)

    # ---- Requests

    async def send(self, call: Call) -> Answer:
        """Repeats what was never sent, and what only reads; everything else is tried once."""
        pause, attempt, refused = FIRST_PAUSE, 0, False
        while True:
            attempt += 1
            try:
                reply = await self._ask(call)
                if reply.status == 401 and not refused and await self._renew(refused=True):
                    refused = True
                    continue
            except (NotSent, NoAnswer) as error:
                if attempt == ATTEMPTS or not (call.method == "GET" or isinstance(error, NotSent)):
                    self._unreachable(call, error)
            else:
                wait = retry_after(call, reply)
                if wait is None or attempt == ATTEMPTS:
                    return Answer(reply.status, reply.body if reply.status != 429 else _with_flow(reply))
                pause = max(pause, wait)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, LONGEST_PAUSE)

    async def send_all(self, calls: Sequence[Call]) -> list[Answer | Unreachable]:
        """Many at once: as many workers as there are connections, which is less than a task for each."""
        found: list[Answer | Unreachable] = [None] * len(calls)  # type: ignore[list-item]
        rest = iter(range(len(calls)))
        workers = min(len(calls), MOST)
        await asyncio.gather(*(self._work_off(calls, rest, found) for _ in range(workers)))
        return found

    async def _work_off(self, calls: Sequence[Call], rest: Iterator[int], found: list[Answer | Unreachable]) -> None:
        for number in rest:
            try:
                found[number] = await self.send(calls[number])
            except Unreachable as error:
                found[number] = error

    async def _ask(self, call: Call) -> Reply:
        """Once, on any connection. One that the server had closed meanwhile counts only if writing could harm."""
        if self._credentials.asks_program or self._credentials.due:
            await self._renew()
        request = self._request(call)
        while True:
            connection = await self.pool.acquire()
            try:
                reply = await connection.ask(request, self._deadline)
            except (Idle, Unsent) as error:
                self.pool.drop(connection)
                if call.method == "GET" or isinstance(error, Unsent):
                    continue
                raise
            except BaseException:
                self.pool.drop(connection)
                raise
            self.pool.release(connection)
            return reply

    # ---- Watches

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Not repeated: who watches knows where to go on."""
        connection: Connection | None = None
        try:
            if self._credentials.asks_program or self._credentials.due:
                await self._renew()
            connection = await self._dial(lambda _: None)
            answer = await connection.follow(self._request(call), self._deadline, SILENCE_SECONDS)
            if isinstance(answer, Reply):
                if answer.status == 401:
                    await self._renew(refused=True)  # for the next one
                raise ApiError.of(answer.status, answer.body)
            async with aclosing(answer) as pieces:
                async for piece in pieces:
                    yield piece
        except (NotSent, NoAnswer) as error:
            self._unreachable(call, error)
        finally:
            if connection is not None:
                connection.abort()

    async def close(self) -> None:
        await self.pool.close()

    # ---- How we appear

    def _request(self, call: Call) -> bytes:
        path = call.path if _is_plain(call.path) else quote(call.path, safe="/:%~")
        query = f"?{urlencode(call.query)}" if call.query else ""
        line = f"{call.method} {self._address.base}{path}{query} HTTP/1.1\r\n{self._said}"
        body = call.body
        if body:
            return f"{line}content-type: {call.content_type}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
        return f"{line}\r\n".encode() if call.method == "GET" else f"{line}content-length: 0\r\n\r\n".encode()

    def _head(self) -> str:
        said = (("host", self._address.authority), ("user-agent", "kubeqos"), ("accept", JSON))
        return "".join(f"{name}: {value}\r\n" for name, value in (*said, *self._credentials.headers))

    async def _dial(self, lost: Lost) -> Connection:
        if self._credentials.asks_program:
            await self._renew()
        return await dial(self._address, self._credentials.tls, self._deadline, lost)

    async def _renew(self, *, refused: bool = False) -> bool:
        """Whether we appear differently from now on. A program may take its time, and is run once for all who wait.

        What was wrong from the start is said as it is. Later, a file that is being replaced or a program that fails for
        a moment must not end a component: with what we have we go on, without it we try again.
        """
        before = self._said
        async with self._renewing:
            if self._said != before:
                return True  # somebody else has done it
            tls = self._credentials.tls
            try:
                changed = await asyncio.to_thread(self._credentials.renew, refused=refused)
            except ConfigurationError as error:
                if not self.pool.opened:
                    raise
                if self._credentials.asks_program:
                    raise NotSent(error.what) from error
                return False
            self._said = self._head()
            if self._credentials.tls is not tls:
                self.pool.retire()
            return changed

    def _unreachable(self, call: Call, error: Exception) -> NoReturn:
        where = f"{call.method} {self._address.url}{call.path}"
        if isinstance(error, NotSent):
            raise Unreachable(f"cannot connect to the API server: {error}", where=where, applied=False) from error
        raise Unreachable(
            f"the API server did not answer: {error}", where=where, applied=call.method != "GET"
        ) from error


class HttpApi(TransportApi):
    """`Api` over HTTP."""

    transport: HttpTransport

    def __init__(self, transport: HttpTransport, namespace: str = "default") -> None:
        super().__init__(transport)
        self.namespace = namespace

    @classmethod
    def from_kubeconfig(cls, path: Path | None = None, context: str | None = None) -> HttpApi:
        """As the kubeconfig says; `namespace` is the context's."""
        config = load(path, context)
        return cls(HttpTransport(config), config.namespace)

    @classmethod
    def to(cls, url: str, *, token: str = "", verify: ssl.SSLContext | bool = True) -> HttpApi:
        """To a known address, for example a test server's."""
        config = Config(Cluster(url, insecure_skip_tls_verify=verify is False), User(token=token))
        return cls(HttpTransport(config, verify if isinstance(verify, ssl.SSLContext) else None))


def retry_after(call: Call, reply: Reply) -> float | None:
    """Seconds to wait before asking again; None when the answer stands.

    429 with Retry-After is said before a request is carried out, except by an eviction, whose answer it is: there it
    comes as a Status. Where fairness turned an eviction away, it is a line of text.
    """
    status, told = reply.status, reply.headers.get(b"retry-after", b"")
    evicting = call.path.endswith("/eviction") and reply.body.startswith(b"{")
    if (status in BUSY and call.method == "GET") or (status == 429 and told and not evicting):
        return min(float(told), LONGEST_PAUSE) if told.isdigit() else 0.0
    return None


def _with_flow(reply: Reply) -> bytes:
    """Priority and fairness turned us away: name the level and the flow, which is what an administrator can change."""
    level, flow = (reply.headers.get(name, b"").decode() for name in FLOW)
    if not level or reply.body.startswith(b"{"):
        return reply.body
    return f"{reply.body.decode(errors='replace').strip()} (priority level {level}, flow schema {flow})".encode()
