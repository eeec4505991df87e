"""What the relay would be on a gRPC library: every call passed on as bytes by grpcio. Run by `bench.relay`, to compare.

`python -m bench.grpcproxy LISTEN RUNTIME` takes every call as a stream, as a proxy must that knows no methods; with
`--unary` it is told that all calls are unary, which is the best that the library can do.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc
import uvloop

OPTIONS = [("grpc.default_authority", "localhost")]


class PassOn(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Hands every call to the runtime."""

    def __init__(self, channel: grpc.aio.Channel, *, unary: bool) -> None:
        self.channel = channel
        self.unary = unary

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = details.method
        if self.unary:
            call = self.channel.unary_unary(method, bytes, bytes)

            async def one(request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
                try:
                    answer: bytes = await call(request, timeout=context.time_remaining())
                except grpc.aio.AioRpcError as error:
                    await context.abort(error.code(), error.details() or "")
                return answer

            return grpc.unary_unary_rpc_method_handler(one)
        stream = self.channel.stream_stream(method, bytes, bytes)

        async def many(
            requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            try:
                async for answer in stream(requests, timeout=context.time_remaining()):
                    yield answer
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "")

        return grpc.stream_stream_rpc_method_handler(many)


async def serve(listen: str, runtime: str, *, unary: bool) -> None:
    async with grpc.aio.insecure_channel(f"unix:{runtime}", options=OPTIONS) as channel:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((PassOn(channel, unary=unary),))
        server.add_insecure_port(f"unix:{listen}")
        await server.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1], sys.argv[2], unary="--unary" in sys.argv[3:]))
