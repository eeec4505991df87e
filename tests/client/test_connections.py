"""Connections of a process to one server: few, kept, bounded, resumed; and what becomes of a request when one ends."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError, Unreachable
from kubeqos.client.api import Call
from kubeqos.client.credentials import ResumingContext
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.client.transport import pool
from tests.client.test_informer import until

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
EMPTY = b'{"metadata":{"resourceVersion":"1"},"items":[]}'


def whole(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers))
    return lines.encode() + b"\r\n" + body


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[HttpApi]:
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as listener:
        api = HttpApi.to(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        try:
            yield api
        finally:
            await api.close()


class Server:
    """Answers every request with the same; counts its connections."""

    def __init__(self, answer: bytes = whole(EMPTY), pause: float = 0.0) -> None:
        self.answer = answer
        self.pause = pause
        self.heads: list[str] = []
        self.connections = self.together = self.most_together = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if found := re.search(r"content-length: (\d+)", head):
                    await reader.readexactly(int(found[1]))
                self.heads.append(head)
                self.together += 1
                self.most_together = max(self.most_together, self.together)
                await asyncio.sleep(self.pause)
                self.together -= 1
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def test_requests_one_after_the_other_need_one_connection() -> None:
    server = Server()
    async with serving(server) as api:
        for _ in range(20):
            await api.list(PODS)
    assert server.connections == 1


async def test_many_at_once_share_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(pause=0.002)
    async with serving(server) as api:
        api.transport.pool = pool.Pool(api.transport._dial, most=4)
        await asyncio.gather(*(api.list(PODS) for _ in range(200)))
        assert len(server.heads) == 200
        assert server.connections == 4
        assert server.most_together <= 4
        assert api.transport.pool.opened == 4


async def test_requests_are_spread_over_idle_connections() -> None:
    server = Server(pause=0.001)
    async with serving(server) as api:
        await asyncio.gather(*(api.list(PODS) for _ in range(50)))
        idle = list(api.transport.pool._idle)
        assert len(idle) > 1
        for number in range(len(idle)):
            await api.list(PODS)
            assert api.transport.pool._idle[-1] is idle[number]


async def test_after_a_burst_a_few_connections_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SPARE_SECONDS", 0.1)
    server = Server(pause=0.02)
    async with serving(server) as api:
        await asyncio.gather(*(api.list(PODS) for _ in range(30)))
        opened = server.connections
        assert opened > pool.FEW
        await until(lambda: len(api.transport.pool) == pool.FEW)
        await asyncio.gather(*(api.list(PODS) for _ in range(pool.FEW)))
        assert server.connections == opened  # those that stayed are used


async def test_connections_in_use_stay_while_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "SPARE_SECONDS", 0.05)
    server = Server(pause=0.01)
    async with serving(server) as api:

        async def busy() -> None:
            for _ in range(30):
                await api.list(PODS)

        await asyncio.gather(*(busy() for _ in range(10)))
        assert server.connections == 10


async def test_a_request_that_is_given_up_takes_its_connection_along() -> None:
    server = Server(pause=10)
    async with serving(server) as api:
        asking = asyncio.create_task(api.list(PODS))
        await until(lambda: bool(server.heads))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        server.pause = 0
        assert (await api.list(PODS)).items == []
        assert server.connections == 2


async def test_one_who_gives_up_waiting_leaves_the_connection_to_others() -> None:
    server = Server(pause=0.01)
    async with serving(server) as api:
        api.transport.pool = pool.Pool(api.transport._dial, most=1)
        waiting = [asyncio.create_task(api.list(PODS)) for _ in range(6)]
        await until(lambda: bool(server.heads))
        for task in waiting[1:4]:
            task.cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in found) == 3
        assert (await api.list(PODS)).items == []


async def test_a_connection_that_is_closed_while_idle_harms_nobody() -> None:
    server = Server(whole(EMPTY, "200 OK", "connection: close"))
    async with serving(server) as api:
        await api.list(PODS)
        await api.list(PODS)
        assert server.connections == 2


async def test_a_read_that_meets_a_closing_server_is_sent_again_at_once() -> None:
    served = 0

    async def once_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        await reader.readuntil(b"\r\n\r\n")
        served += 1
        writer.write(whole(EMPTY))
        await reader.readuntil(b"\r\n\r\n")
        writer.close()  # the request is on its way while the server gives up the idle connection

    async with serving(once_each) as api:
        await api.list(PODS)
        await api.list(PODS)
        assert served == 2
        with pytest.raises(Unreachable) as error:
            await api.create(PODS, {"metadata": {"name": "a"}}, "default")
        assert error.value.applied  # nobody knows


async def test_connections_are_not_used_after_a_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    async with serving(server) as api:
        await api.list(PODS)
        monkeypatch.setattr(pool, "IDLE_SECONDS", 0.0)
        await api.list(PODS)
        assert server.connections == 2


async def test_silence_has_an_end() -> None:
    server = Server(pause=60)
    async with serving(server) as api:
        api.transport._deadline = 0.05
        with pytest.raises(Unreachable, match="no answer within"):
            await api.create(PODS, {"metadata": {"name": "a"}}, "default")


async def test_a_server_that_is_away_is_asked_again_after_a_pause_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.client.http.FIRST_PAUSE", 0.001)
    pauses: list[float] = []
    sleep, ours = asyncio.sleep, asyncio.get_running_loop()

    async def noted(seconds: float) -> None:
        mine = asyncio.get_running_loop() is ours  # or of a server that other tests share, in its own thread
        if mine:
            pauses.append(seconds)
        await sleep(0 if mine else seconds)

    async with serving(Server()) as api:
        url = api.transport._address.url
    monkeypatch.setattr(pool.asyncio, "sleep", noted)
    api = HttpApi.to(url)
    with pytest.raises(Unreachable, match="cannot connect"):
        await asyncio.gather(*(api.list(PODS) for _ in range(50)))
    dialled = [one for one in pauses if one >= pool.FIRST_PAUSE / 2]
    assert len(dialled) <= 4 * 2  # fifty requests, five tries each, and one try to connect for all of them
    await api.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n" + EMPTY[:16] + b"\r\n%x\r\n" % len(EMPTY[16:])
        + EMPTY[16:] + b"\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + whole(EMPTY),
    ],
)  # fmt: skip
async def test_answers_come_in_every_form_of_http(answer: bytes) -> None:
    server = Server(answer)
    async with serving(server) as api:
        for _ in range(3):
            assert (await api.list(PODS)).resource_version == "1"
    assert server.connections == 1


async def test_a_body_may_end_with_the_connection() -> None:
    async def simple(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + EMPTY)
        await writer.drain()
        writer.close()

    async with serving(simple) as api:
        assert (await api.list(PODS)).resource_version == "1"


async def test_an_old_server_that_keeps_no_connection_is_understood() -> None:
    server = Server(whole(EMPTY).replace(b"HTTP/1.1", b"HTTP/1.0"))
    async with serving(server) as api:
        await api.list(PODS)
        await api.list(PODS)
    assert server.connections == 2


async def test_a_write_is_not_lost_on_a_connection_that_closes_before_it_is_sent() -> None:
    server = Server(whole(b"{}"))
    async with serving(server) as api:
        api.transport.pool = pool.Pool(api.transport._dial, most=1)
        await api.transport.send(Call("GET", "/x"))
        taken = await api.transport.pool.acquire()
        asking = asyncio.create_task(api.create(PODS, {"metadata": {"name": "a"}}, "default"))
        await until(lambda: bool(api.transport.pool._waiting))
        api.transport.pool.release(taken)  # it is given this one, which goes away before it can be used
        taken.abort()
        assert await asking == {}
    assert server.connections == 2


async def test_what_is_not_http_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.client.http.FIRST_PAUSE", 0.001)
    async with serving(Server(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")) as api:
        with pytest.raises(Unreachable, match="not HTTP"):
            await api.list(PODS)


async def test_fairness_names_the_flow_that_it_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.client.http.FIRST_PAUSE", 0.001)
    flow = ("x-kubernetes-pf-prioritylevel-uid: level-1", "x-kubernetes-pf-flowschema-uid: flow-2")
    text = b"Too many requests, please try again later.\n"
    server = Server(whole(text, "429 Too Many Requests", "retry-after: 0", *flow))
    async with serving(server) as api:
        with pytest.raises(ApiError) as error:
            await api.create(PODS, {"kind": "Eviction"}, "default", name="a", subresource="eviction")
    assert (
        error.value.message == "Too many requests, please try again later. (priority level level-1, flow schema flow-2)"
    )
    assert len(server.heads) == 5  # it was not carried out, so it was asked again: that is no answer to an eviction


async def test_a_path_cannot_become_another_request() -> None:
    server = Server(whole(b"{}"))
    async with serving(server) as api:
        await api.transport.send(Call("GET", "/api/v1/x\r\nhost: other\r\n\r\n", {"a": "b\r\nc"}))
    assert server.heads[0].startswith("GET /api/v1/x%0D%0Ahost:%20other%0D%0A%0D%0A?a=b%0D%0Ac HTTP/1.1\r\n")
    assert len(server.heads) == 1


async def test_a_slow_reader_of_a_watch_stops_the_flow() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"%d","resourceVersion":"2"},"pad":"' + b"x" * 4000 + b'"}}\n'
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(10_000):
            one = line.replace(b"%d", str(number).encode())
            writer.write(b"%x\r\n" % len(one) + one + b"\r\n")
            await writer.drain()
            sent += 1
        writer.write(b"0\r\n\r\n")

    async with serving(flood) as api, aclosing(api.watch(PODS, since="1")) as events:
        assert (await anext(events)).metadata().name == "0"
        before = -1
        while before != sent:  # until the kernel's buffers are full, too
            before = sent
            await asyncio.sleep(0.05)
        assert sent < 10_000
        names = [event.metadata().name async for event in events]
        assert names == [str(number) for number in range(1, 10_000)]


# ---- With TLS, to the real server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        yield server


async def test_every_connection_but_the_first_goes_on_with_its_session(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ssl.SSLObject] = []
    wrap = ResumingContext.wrap_bio

    def noted(context: ResumingContext, *words: object, **more: object) -> ssl.SSLObject:
        made.append(wrap(context, *words, **more))
        return made[-1]

    monkeypatch.setattr(ResumingContext, "wrap_bio", noted)
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    await api.list(NODES)
    await asyncio.gather(*(api.list(NODES) for _ in range(100)))
    watch = api.watch(NODES, since=str(server.store.revision))
    watching = asyncio.ensure_future(anext(watch))
    await until(lambda: server.watching.active == 1)
    assert [one.session_reused for one in made] == [False] + [True] * (len(made) - 1)
    assert 2 < len(made) <= pool.MOST + 1
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await api.close()
