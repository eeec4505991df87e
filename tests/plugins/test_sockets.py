"""Calls to plugins end in an answer or in an error that names the plugin's failure, never in the end of the caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty

from kubeqos.plugins.health import PATH as HEALTH
from kubeqos.plugins.health import examine
from kubeqos.plugins.sockets import MISSES, Deadline, PluginCallError, call, dial, insist, listening

PATH = "/test.Plugin/Hang"


@asynccontextmanager
async def a_plugin_that_hangs(tmp_path: Path) -> AsyncIterator[tuple[Path, asyncio.Event]]:
    asked = asyncio.Event()

    async def hang(request: object, context: object) -> object:
        asked.set()
        await asyncio.Event().wait()
        return Empty()

    def install(server: grpc.aio.Server) -> None:
        how = grpc.unary_unary_rpc_method_handler(
            hang, request_deserializer=Empty.FromString, response_serializer=Empty.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Plugin", {"Hang": how}),))

    socket = tmp_path / "plugin.sock"
    async with listening(socket, install):
        yield socket, asked


async def test_a_connection_closed_during_a_call_is_a_failed_call(tmp_path: Path) -> None:
    async with a_plugin_that_hangs(tmp_path) as (socket, asked):
        channel = dial(socket)
        calling = asyncio.create_task(call(channel, PATH, Empty(), Empty, seconds=30))
        await asked.wait()
        await channel.close()
        with pytest.raises(PluginCallError, match="Hang: the connection was closed") as caught:
            await calling
        assert caught.value.unreachable
        assert not calling.cancelled()


async def test_a_caller_that_is_told_to_end_ends(tmp_path: Path) -> None:
    async with a_plugin_that_hangs(tmp_path) as (socket, asked):
        channel = dial(socket)
        calling = asyncio.create_task(call(channel, PATH, Empty(), Empty, seconds=30))
        await asked.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(channel, PATH, Empty(), Empty, seconds=30), 0.2)
        await channel.close()


# ---- Late


class Call:
    """What can be given up."""

    def __init__(self) -> None:
        self.given_up = asyncio.Event()

    def cancel(self) -> None:
        self.given_up.set()


async def test_time_in_which_this_process_did_not_run_is_not_the_peers() -> None:
    one = Call()
    deadline = Deadline(one, 0.2)
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 - the event loop is held up
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not deadline.passed and not one.given_up.is_set()
    await one.given_up.wait()
    assert deadline.passed


@pytest.mark.parametrize("misses", range(MISSES + 1))
async def test_several_questions_in_a_row_make_a_peer_silent(misses: int) -> None:
    put: list[int] = []

    async def question() -> str:
        put.append(1)
        if len(put) <= misses:
            raise PluginCallError(PATH, grpc.StatusCode.DEADLINE_EXCEEDED, "", 1)
        return "here"

    if misses < MISSES:
        assert await insist(question) == "here" and len(put) == misses + 1
    else:
        with pytest.raises(PluginCallError, match="Hang: no answer in 1 s"):
            await insist(question)
        assert len(put) == MISSES


async def test_who_refuses_is_asked_once() -> None:
    put: list[int] = []

    async def question() -> None:
        put.append(1)
        raise PluginCallError(PATH, grpc.StatusCode.UNAVAILABLE, "nobody listens", 1)

    with pytest.raises(PluginCallError, match="nobody listens"):
        await insist(question)
    assert len(put) == 1


async def test_a_peer_is_examined_several_times_before_it_is_called_silent(tmp_path: Path) -> None:
    async def check(_request: bytes, _context: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    service, _, method = HEALTH.removeprefix("/").partition("/")

    def install(server: grpc.aio.Server) -> None:
        handler = grpc.unary_unary_rpc_method_handler(check)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    async with listening(tmp_path / "plugin.sock", install), dial(tmp_path / "plugin.sock") as channel:
        assert await examine(channel, 0.1) == f"no answer in 0.1 s, {MISSES} times in a row"
