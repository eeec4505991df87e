"""Calls to plugins end in an answer or in an error that names the plugin's failure, never in the end of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty

from kubeqos.plugins.sockets import PluginCallError, call, dial, listening

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
