"""The relay's wire, in front of a real gRPC server: what passes through, passes unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.relay.hpack import encode
from kubeqos.cri.relay.http2 import CONTINUATION, DATA, GOAWAY, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS
from kubeqos.cri.relay.proxy import CallDenied, Hooks, MessageReader, Session, frame
from kubeqos.cri.status import FAILED_PRECONDITION
from kubeqos.errors import RemoteError

LIMITS = [("grpc.max_receive_message_length", 1 << 25), ("grpc.max_send_message_length", 1 << 25)]


class Everything(grpc.GenericRpcHandler):
    """A server with methods of every kind, named by what they do."""

    def __init__(self) -> None:
        self.called, self.cancelled = asyncio.Event(), asyncio.Event()

    def service(self, details):
        name = details.method.rsplit("/", 1)[-1].removeprefix("Handled").removeprefix("Patched")
        kind = {"Many": grpc.unary_stream_rpc_method_handler, "Chat": grpc.stream_stream_rpc_method_handler}
        method = getattr(self, name, None)
        return kind.get(name, grpc.unary_unary_rpc_method_handler)(method) if method else None

    async def Shout(self, request, context):
        return request

    async def Echo(self, request, context):
        return request

    async def Metadata(self, request, context):
        sent = sorted((k, v) for k, v in context.invocation_metadata() if k.startswith("x-"))
        await context.send_initial_metadata((("x-initial", "1"), ("x-bytes-bin", b"\0\xff")))
        context.set_trailing_metadata((("x-trailing", "2"), ("x-bytes-bin", b"\1\2")))
        return repr((sent, context.time_remaining() is not None and context.time_remaining() < 100)).encode()

    async def Fail(self, request, context):
        context.set_trailing_metadata((("x-why", "because"), ("grpc-status-details-bin", b"\x08\x05")))
        await context.abort(grpc.StatusCode.NOT_FOUND, "100% ünknown\nline")

    async def Many(self, request, context):
        for number in range(50):
            yield request * 2000 + bytes([number])

    async def Chat(self, requests, context):
        async for request in requests:
            yield request[::-1]

    async def Slow(self, request, context):
        self.called.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b""


async def passing(message, forward):
    return await forward(message)


async def refusing(message, forward):
    raise CallDenied(FAILED_PRECONDITION, "no: 100% ünpossible")


async def shouting(message, forward):
    return (await forward(b"<" + message + b">")).upper()


HOOKS = Hooks(
    patches={b"/x/PatchedMany": lambda m: m + b"!", b"/x/PatchedEcho": lambda m: m + b"!"},
    handlers={
        **{f"/x/Handled{name}".encode(): passing for name in ("Echo", "Metadata", "Fail", "Slow")},
        b"/x/Refuse": refusing,
        b"/x/Shout": shouting,
    },
)


class Bench:
    """A server, a relay in front of it, and a channel to each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.handler = Everything()
        self.sessions: set[Session] = set()

    async def start_server(self) -> None:
        self.server = grpc.aio.server(options=LIMITS)
        self.server.add_generic_rpc_handlers((self.handler,))
        self.server.add_insecure_port(f"unix:{self.folder}/s.sock")
        await self.server.start()

    async def start_relay(self) -> None:
        loop = asyncio.get_running_loop()
        self.relay = await loop.create_unix_server(
            lambda: Session(f"{self.folder}/s.sock", HOOKS, self.sessions).client, f"{self.folder}/r.sock"
        )

    def channel(self, name: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(f"unix:{self.folder}/{name}.sock", options=LIMITS)


@pytest.fixture
async def bench(folder: Path) -> AsyncIterator[Bench]:
    bench = Bench(folder)
    await bench.start_server()
    await bench.start_relay()
    yield bench
    bench.relay.close()
    await bench.server.stop(0)


async def outcome(channel: grpc.aio.Channel, method: str, request: bytes = b"hello", **named):
    """Everything that a client can see of a unary call."""
    call = channel.unary_unary(f"/x/{method}")(request, metadata=(("x-sent", "yes"),), **named)
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call
    answer = await call if await call.code() is grpc.StatusCode.OK else None
    hidden = ("user-agent",)
    initial = [pair for pair in await call.initial_metadata() if pair[0] not in hidden]
    return answer, await call.code(), await call.details(), initial, list(await call.trailing_metadata())


@pytest.mark.parametrize("method", ["Echo", "Metadata", "Fail", "NoSuchMethod"])
@pytest.mark.parametrize("kind", ["", "Handled"])
async def test_a_call_looks_the_same_with_and_without_the_relay(bench: Bench, method: str, kind: str):
    async with bench.channel("s") as direct, bench.channel("r") as relayed:
        expected = await outcome(direct, method, timeout=60)
        assert await outcome(relayed, kind + method, timeout=60) == expected


@pytest.mark.parametrize("size", [0, 1, 16_379, 16_384, 65_535, 70_000, 1 << 20, 5_000_000])
@pytest.mark.parametrize("method", ["Echo", "HandledEcho"])
async def test_messages_of_any_size_pass_the_windows(bench: Bench, method: str, size: int):
    async with bench.channel("r") as channel:
        message = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert await channel.unary_unary(f"/x/{method}")(message, timeout=30) == message


async def test_streams_pass_in_order_and_can_be_patched(bench: Bench):
    async with bench.channel("r") as channel:
        expected = [b"ab" * 2000 + bytes([number]) for number in range(50)]
        assert [m async for m in channel.unary_stream("/x/Many")(b"ab")] == expected
        patched = [m async for m in channel.unary_stream("/x/PatchedMany")(b"ab")]
        assert patched == [message + b"!" for message in expected]


async def test_both_sides_talk_at_once(bench: Bench):
    async with bench.channel("r") as channel:
        chat = channel.stream_stream("/x/Chat")()
        for text in (b"abc", b"x" * 100_000, b""):
            await chat.write(text)
            assert await chat.read() == text[::-1]
        await chat.done_writing()
        assert await chat.read() is grpc.aio.EOF


async def test_many_calls_at_once(bench: Bench):
    async with bench.channel("r") as channel:
        calls = [channel.unary_unary("/x/Shout" if n % 2 else "/x/Echo")(f"m{n}".encode()) for n in range(300)]
        answers = await asyncio.gather(*calls)
    assert answers == [f"<M{n}>".encode() if n % 2 else f"m{n}".encode() for n in range(300)]


async def test_large_and_small_calls_share_the_windows_fairly(bench: Bench):
    """Sixty calls of mixed sizes and kinds at once on one connection: none is lost, mixed up or starved."""
    sizes = [random.Random(7).choice([3, 900, 20_000, 70_000, 400_000]) for _ in range(60)]
    async with bench.channel("r") as channel:
        calls = []
        for number, size in enumerate(sizes):
            method = ("Echo", "HandledEcho", "PatchedEcho")[number % 3]
            calls.append(channel.unary_unary(f"/x/{method}")(bytes([number]) * size, timeout=60))
        answers = await asyncio.gather(*calls)
    for number, size in enumerate(sizes):
        assert answers[number] == bytes([number]) * size + (b"!" if number % 3 == 2 else b"")


async def test_clients_that_come_and_go_leave_no_connection_behind(bench: Bench):
    async def visit() -> None:
        async with bench.channel("r") as channel:
            await channel.unary_unary("/x/Echo")(b"hello")

    await visit()
    await asyncio.sleep(0.3)
    before = _sockets()
    for _ in range(10):
        await visit()
    async with asyncio.timeout(60):
        while _sockets() > before:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _sockets() -> int:
    """How many sockets this process has open. Other threads close some while they are counted."""
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += "socket" in os.readlink(f"/proc/self/fd/{descriptor}")
    return found


async def test_a_handler_edits_and_refuses(bench: Bench):
    async with bench.channel("r") as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/x/Refuse")(b"x")
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "no: 100% ünpossible"


@pytest.mark.parametrize("method", ["Slow", "HandledSlow"])
async def test_a_deadline_ends_the_call_at_the_runtime_too(bench: Bench, method: str):
    async with bench.channel("r") as channel:
        async with asyncio.timeout(60):
            while not bench.handler.called.is_set():  # on a busy machine it may be over before the runtime hears of it
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary(f"/x/{method}")(b"", timeout=0.3)
                assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            await bench.handler.cancelled.wait()


@pytest.mark.parametrize("method", ["Slow", "HandledSlow"])
async def test_a_cancelled_call_is_cancelled_at_the_runtime(bench: Bench, method: str):
    async with bench.channel("r") as channel:
        call = channel.unary_unary(f"/x/{method}")(b"")
        async with asyncio.timeout(60):
            await bench.handler.called.wait()
            call.cancel()
            await bench.handler.cancelled.wait()


async def test_a_client_that_says_goodbye_keeps_its_calls(bench: Bench):
    """GOAWAY of a client speaks of the server's streams; its own calls go on."""
    seen = await exchange(
        bench,
        PREFACE + raw(HEADERS, 0x4, 1, REQUEST) + raw(GOAWAY, 0, 0, bytes(8)),
        raw(DATA, 0x1, 1, frame(b"last words")),
    )
    assert b"".join(payload for kind, payload in seen if kind == DATA) == frame(b"last words")


async def test_compressed_messages_are_understood(bench: Bench):
    options = [("grpc.default_compression_algorithm", grpc.Compression.Gzip)]
    async with grpc.aio.insecure_channel(f"unix:{bench.folder}/r.sock", options=options) as channel:
        for method in ("Echo", "HandledEcho"):
            assert await channel.unary_unary(f"/x/{method}")(b"a" * 5000) == b"a" * 5000
        assert await channel.unary_unary("/x/PatchedEcho")(b"a" * 5000) == b"a" * 5000 + b"!"


async def test_a_runtime_that_is_away_and_comes_back(bench: Bench):
    async with bench.channel("r") as channel:
        assert await channel.unary_unary("/x/Echo")(b"1") == b"1"
        await bench.server.stop(0)
        for method in ("Echo", "HandledEcho"):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(f"/x/{method}")(b"2", timeout=10)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "container runtime" in caught.value.details()
        await bench.start_server()
        for method in ("Echo", "HandledEcho"):
            assert await channel.unary_unary(f"/x/{method}")(b"3", timeout=10) == b"3"


async def test_calls_under_way_fail_when_the_runtime_goes(bench: Bench):
    async with bench.channel("r") as channel:
        calls = [channel.unary_unary(f"/x/{method}")(b"", timeout=20) for method in ("Slow", "HandledSlow")]
        await asyncio.sleep(0.3)
        await bench.server.stop(0)
        codes = [await call.code() for call in calls]
        assert set(codes) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


# ---- what a client may do wrong, frame by frame


def raw(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


async def exchange(bench: Bench, *frames: bytes) -> list[tuple[int, bytes]]:
    """Send raw bytes, return the (kind, payload) of what comes back until the relay closes or is silent."""
    reader, writer = await asyncio.open_unix_connection(f"{bench.folder}/r.sock")
    writer.write(b"".join(frames))
    seen = []
    with contextlib.suppress(TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        while True:
            async with asyncio.timeout(0.5):
                head = await reader.readexactly(9)
                seen.append((head[3], await reader.readexactly(int.from_bytes(head[:3], "big"))))
    writer.close()
    return seen


REQUEST = encode(
    (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/x/Echo"),
        (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    )
)


async def test_split_headers_padding_and_pings_are_fine(bench: Bench):
    pieces = b"".join(
        (
            PREFACE,
            raw(SETTINGS, 0, 0, b""),
            raw(PING, 0, 0, b"12345678"),
            raw(HEADERS, 0x20, 1, b"\0\0\0\0\1" + REQUEST[:7]),
            raw(CONTINUATION, 0x4, 1, REQUEST[7:]),
            raw(DATA, 0x1 | 0x8, 1, b"\3" + frame(b"padded") + b"\0\0\0"),
        )
    )
    seen = await exchange(bench, *(pieces[i : i + 5] for i in range(0, len(pieces), 5)))
    assert (PING, b"12345678") in seen
    assert b"".join(payload for kind, payload in seen if kind == DATA) == frame(b"padded")


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE + raw(HEADERS, 0x4, 2, REQUEST),
        PREFACE + raw(HEADERS, 0x4, 1, b"\xff\xff\xff\xff\xff\xff"),
        PREFACE + raw(HEADERS, 0, 1, REQUEST) + raw(PING, 0, 0, b"12345678"),
        PREFACE + raw(CONTINUATION, 0, 1, b""),
        PREFACE + raw(SETTINGS, 0, 0, b"odd"),
        PREFACE + raw(DATA, 0, 0, b"")[:3].replace(b"\0\0\0", b"\xff\xff\xff") + b"\0\0\0\0\0\0",
        PREFACE + raw(HEADERS, 0x4, 1, REQUEST) + raw(DATA, 0x8, 1, b"\x09ab"),
    ],
)
async def test_a_broken_client_is_sent_away_and_others_live_on(bench: Bench, bad: bytes):
    assert GOAWAY in [kind for kind, _ in await exchange(bench, bad)]
    async with bench.channel("r") as channel:
        assert await channel.unary_unary("/x/Echo")(b"still here") == b"still here"


async def test_data_of_a_reset_stream_is_ignored(bench: Bench):
    frames = PREFACE + raw(HEADERS, 0x4, 1, REQUEST) + raw(RST_STREAM, 0, 1, b"\0\0\0\x08") + raw(DATA, 0, 1, b"late")
    assert GOAWAY not in [kind for kind, _ in await exchange(bench, frames)]


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 400))
@settings(max_examples=100)
def test_messages_are_cut_out_however_they_arrive(messages: list[bytes], size: int):
    reader = MessageReader()
    wire = b"".join(frame(message) for message in messages)
    out = [m for i in range(0, len(wire), size) for m in reader.feed(wire[i : i + size])]
    assert out == messages


def test_a_message_beyond_the_limit_is_refused():
    with pytest.raises(RemoteError, match="larger than the limit"):
        MessageReader().feed(b"\0\xff\xff\xff\xff")
