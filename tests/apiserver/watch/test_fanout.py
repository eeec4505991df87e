"""Watchers that are served together get exactly what each would have got alone: fast, slow, early and late ones."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.watch import batches, fanout
from kubeqos.apiserver.watch.batches import Batch, frames, wrapped
from kubeqos.apiserver.watch.fanout import FanOuts, Member
from kubeqos.store import Event, Put, Store
from kubeqos.store import watch as watch_module
from tests.apiserver.live import ADMIN_TOKEN, LiveServer

BASE = "/api/v1/namespaces/default/configmaps"


def chunks(raw: bytes) -> Iterator[bytes]:
    """The chunks of an answer, read as RFC 9112 says."""
    while raw:
        size, _, rest = raw.partition(b"\r\n")
        length = int(size, 16)
        assert rest[length : length + 2] == b"\r\n"
        yield rest[:length]
        raw = rest[length + 2 :]


@given(st.lists(st.binary(min_size=1, max_size=60).map(lambda text: text + b"\n")), st.integers(1, 200))
def test_frames_hold_every_line_whole_and_in_order(lines: list[bytes], most: int) -> None:
    made = list(frames(lines, most))
    contents = [list(chunks(frame)) for frame in made]
    assert all(len(content) == 1 for content in contents), "one frame is one chunk"
    assert b"".join(content for (content,) in contents) == b"".join(lines)
    for (content,) in contents:
        assert content.endswith(b"\n")
        assert len(content) <= most or content in lines
    whole = b"".join(lines)
    if lines and len(whole) <= most:
        assert made == [b"%x\r\n%b\r\n" % (len(whole), whole)], "one chunk, as each watcher would be sent it alone"


class Pipe:
    """A connection whose client reads when the test says so; it is full when more than `room` bytes are unread."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.unread = 0
        self.read = b""
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def is_full(self) -> bool:
        return not self._drained.is_set()

    def write(self, framed: bytes) -> None:
        assert not self.is_full, "nobody may write to who does not read"
        self.read += framed
        self.unread += len(framed)
        if self.unread > self.room:
            self._drained.clear()

    async def drained(self) -> None:
        await self._drained.wait()

    def client_reads(self) -> None:
        self.unread = 0
        self._drained.set()


def even(batch: Batch) -> Iterable[bytes]:
    return (wrapped(event.type, event.value) for event in batch.events if event.revision % 2 == 0)


SELECTIONS: dict[str, Any] = {"": Batch.lines, "even": even}


class Client:
    """A watcher in the fan-out, and where it began."""

    def __init__(self, fanouts: FanOuts, after: int, selection: str, room: int) -> None:
        self.after, self.selection, self.pipe = after, selection, Pipe(room)
        self.watch = fanouts.store.watch("/pods/", after)
        member = Member("/pods/", self.watch, self.pipe, selection, SELECTIONS[selection])
        self.task = asyncio.ensure_future(fanouts.serve(member, asyncio.get_running_loop().time() + 60))

    def expected(self, happened: list[Event]) -> bytes:
        own = [event for event in happened if event.revision > self.after]
        return b"".join(SELECTIONS[self.selection](Batch(own)))

    @property
    def got(self) -> bytes:
        return b"".join(chunks(self.pipe.read))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(
            st.just("join"), st.sampled_from(sorted(SELECTIONS)), st.integers(0, 5), st.sampled_from([0, 90, 10**6])
        ),
        st.tuples(st.just("read"), st.integers(0, 9)),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.002])),
    ),
    min_size=5,
    max_size=40,
)


async def write(store: Store, keys: list[str], value: bytes) -> list[Event]:
    """Several writes at once, as concurrent clients make them; other kinds are written in the same transactions."""
    there = [store.get(key) is not None for key in keys]
    revisions = await asyncio.gather(*(store.commit([Put(key, value), Put("/nodes/x", b"1")]) for key in keys))
    return [
        Event("MODIFIED" if existed else "ADDED", key, value, revision, None)
        for key, existed, revision in zip(keys, there, revisions, strict=True)
    ]


async def play(store: Store, script: list[tuple[Any, ...]]) -> None:
    together = FanOuts(store)
    clients: list[Client] = []
    happened: list[Event] = []
    for number, step in enumerate(script):
        match step:
            case ("write", count):
                happened += await write(store, [f"/pods/{each}" for each in range(count)], b'{"n":"%d"}' % number)
            case ("join", selection, ago, room):
                clients.append(Client(together, max(0, store.revision - ago), selection, room))
            case ("read", which) if clients:
                clients[which % len(clients)].pipe.client_reads()
            case ("leave", which) if clients:
                gone = clients.pop(which % len(clients))
                gone.task.cancel()
                assert gone.expected(happened).startswith(gone.got)
            case ("wait", seconds):
                await asyncio.sleep(seconds)
    async with asyncio.timeout(60):
        while any(client.got != client.expected(happened) for client in clients):
            for client in clients:
                assert client.expected(happened).startswith(client.got), "in order, each event once, none left out"
                client.pipe.client_reads()
            await asyncio.sleep(0.001)
    await store.close()
    async with asyncio.timeout(60):
        await asyncio.gather(*(client.task for client in clients))
    await asyncio.sleep(0)
    assert together.by_prefix == {}, "a fan-out without members is gone"
    assert together.joined == 0


@pytest.mark.parametrize("log", [8192, 4])
@pytest.mark.parametrize("few", [50, 0])
@settings(max_examples=60, deadline=None)
@given(script=steps)
def test_everybody_gets_their_part_and_nothing_else(log: int, few: int, script: list[tuple[Any, ...]]) -> None:
    """However watchers join, lag, read again and leave; with a short log those who lag continue from the database."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(watch_module, "RECENT_EVENTS", log)
        patch.setattr(watch_module, "PAGE_EVENTS", 3)
        patch.setattr(fanout, "DELIVERING", replace(fanout.DELIVERING, few=few))
        patch.setattr(fanout, "TURN_SECONDS", 0.0)  # everybody else has a turn after every write
        patch.setattr(batches.frames, "__defaults__", (100,))

        async def run() -> None:
            await play(Store.open(Path(directory) / "state.db"), script)

        asyncio.run(run())


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not reached():  # noqa: ASYNC110 - it is other code that gets there
            await asyncio.sleep(0.001)


async def test_one_framing_serves_all_who_stand_at_the_same_place(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "state.db")
    together = FanOuts(store)
    clients = [Client(together, store.revision, "", 10**6) for _ in range(20)]
    written: list[bytes] = []
    for client in clients:
        client.pipe.write = written.append  # type: ignore[assignment, method-assign]
    await asyncio.sleep(0)
    await store.commit([Put("/pods/a", b"{}")])
    await until(lambda: len(written) == 20)
    assert len({id(frame) for frame in written}) == 1
    await store.close()
    await asyncio.gather(*(client.task for client in clients))


async def test_a_mistake_in_one_watch_ends_that_watch_alone(tmp_path: Path) -> None:
    def broken(_: Batch) -> Iterable[bytes]:
        raise ValueError("no such label")

    store = Store.open(tmp_path / "state.db")
    together = FanOuts(store)
    good = Client(together, store.revision, "", 10**6)
    member = Member("/pods/", store.watch("/pods/", store.revision), Pipe(10**6), "broken", broken)
    bad = asyncio.ensure_future(together.serve(member, asyncio.get_running_loop().time() + 60))
    await asyncio.sleep(0)
    await store.commit([Put("/pods/a", b"{}")])
    with pytest.raises(ValueError, match="no such label"):
        await bad
    await store.commit([Put("/pods/b", b"{}")])
    await until(lambda: good.got.count(b"\n") == 2)
    await store.close()
    await good.task


@contextmanager
def watching(live: LiveServer, version: str, query: str = "") -> Iterator[ssl.SSLSocket]:
    raw = socket.create_connection((live.host, live.port), timeout=60)
    with live.tls.wrap_socket(raw, server_hostname="localhost") as tls:
        head = f"GET {BASE}?watch=1&resourceVersion={version}{query} HTTP/1.1\r\nHost: x\r\n"
        tls.sendall(f"{head}Authorization: Bearer {ADMIN_TOKEN}\r\n\r\n".encode())
        yield tls


def names(tls: ssl.SSLSocket, count: int) -> list[str]:
    """Of the next events of a watch, with their types."""
    found: list[str] = []
    lines = tls.makefile("rb")
    while len(found) < count:
        line = lines.readline()
        assert line, f"the watch ended after {found}"
        if line.startswith(b'{"type"'):
            event = json.loads(line)
            found.append(f"{event['type']} {event['object']['metadata']['name']}")
    return found


def test_a_fan_out_over_real_connections(live: LiveServer) -> None:
    """Sixty watchers, some of them with a selector, and one that joins in the middle."""
    version = live.call("GET", BASE).body["metadata"]["resourceVersion"]
    with ExitStack() as stack:
        plain = [stack.enter_context(watching(live, version)) for _ in range(50)]
        selecting = [stack.enter_context(watching(live, version, "&labelSelector=half%3Dyes")) for _ in range(10)]
        for number in range(40):
            if number == 20:
                middle = live.call("GET", BASE).body["metadata"]["resourceVersion"]
                late = stack.enter_context(watching(live, middle))
            labels = {"half": "yes"} if number % 2 else {}
            assert live.call("POST", BASE, {"metadata": {"name": f"c{number}", "labels": labels}}).code == 201
        everything = [f"ADDED c{number}" for number in range(40)]
        for tls in plain:
            assert names(tls, 40) == everything
        for tls in selecting:
            assert names(tls, 20) == everything[1::2]
        assert names(late, 20) == everything[20:]
    for number in range(40):
        live.call("DELETE", f"{BASE}/c{number}")


def test_who_never_reads_is_cut_off_and_the_rest_does_not_notice(
    live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeqos.web.serving.UNREAD_SECONDS", 2.0)
    version = live.call("GET", BASE).body["metadata"]["resourceVersion"]
    with watching(live, version) as slow, watching(live, version) as quick:
        seen: list[str] = []
        reader = threading.Thread(target=lambda: seen.extend(names(quick, 40)))
        reader.start()
        for number in range(40):
            body = {"metadata": {"name": f"b{number}"}, "data": {"a": "x" * 900_000}}
            assert live.call("POST", BASE, body).code == 201
        reader.join(60)
        assert seen == [f"ADDED b{number}" for number in range(40)]
        deadline = time.monotonic() + 60
        while live.server.watching.active > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert live.server.watching.active == 1, "only the one that reads is left"
        got = 0
        with suppress(ConnectionError, ssl.SSLError):  # the server hung up in the middle
            while piece := slow.recv(1 << 20):
                got += len(piece)
        assert got < 40 * 900_000, "only what was on its way by then"
    for number in range(40):
        live.call("DELETE", f"{BASE}/b{number}")


def test_a_watch_served_with_others_ends_in_time_with_a_fresh_bookmark(live: LiveServer) -> None:
    """Fresh: also what happened to others since its last event has been passed."""
    version = live.call("GET", BASE).body["metadata"]["resourceVersion"]
    with watching(live, version, "&timeoutSeconds=3&allowWatchBookmarks=true") as tls:
        live.call("POST", BASE, {"metadata": {"name": "m"}})
        other = live.call("POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}}).body
        answer = b""
        while not answer.endswith(b"0\r\n\r\n"):
            answer += tls.recv(1 << 16)
    content = b"".join(chunks(answer.partition(b"\r\n\r\n")[2].removesuffix(b"0\r\n\r\n")))
    added, bookmark = map(json.loads, content.splitlines())
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "m")
    assert bookmark["type"] == "BOOKMARK"
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(other["metadata"]["resourceVersion"])
    live.call("DELETE", f"{BASE}/m")
    live.call("DELETE", "/api/v1/namespaces/default/secrets/s")
