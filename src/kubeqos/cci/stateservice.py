"""Where drivers read their state back: the manager's own small service.

A driver is "responsible for reading the state from the kubelet on startup" (KEP-3675, Feature Enablement); the SDK
does it on every registration.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc.aio

from kubeqos.cci.proto import ccistate_pb2 as pb
from kubeqos.cci.store import Store
from kubeqos.plugins.sockets import call, dial, listening, services

SERVICE = "kubeqos.cci.v1alpha1.CCIState"
SOCKET_NAME = "cci.sock"
METHODS: tuple[tuple[str, type[Any], type[Any]], ...] = (("Holdings", pb.HoldingsRequest, pb.HoldingsResponse),)
READ_SECONDS = 2.0


def serve_state(store: Store, path: Path) -> AbstractAsyncContextManager[grpc.aio.Server]:
    """Serve a store's holdings for the duration of a block."""

    def install(server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers((services(SERVICE, _Servicer(store), METHODS),))

    return listening(path, install)


async def read_state(path: Path, driver: str) -> pb.HoldingsResponse:
    """What a driver's containers hold; `RemoteError` when the manager is away."""
    channel = dial(path)
    try:
        request = pb.HoldingsRequest(driver=driver)
        answer: pb.HoldingsResponse = await call(
            channel, f"/{SERVICE}/Holdings", request, pb.HoldingsResponse, seconds=READ_SECONDS
        )
        return answer
    finally:
        await channel.close(None)


class _Servicer:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def Holdings(self, request: pb.HoldingsRequest, context: Any) -> pb.HoldingsResponse:
        found = [
            pb.Holding(
                namespace=holding.namespace,
                claim_uid=holding.claim_uid,
                claim_name=holding.claim_name,
                pod=entry.pod,
                container=entry.container,
                container_id=entry.container_id,
                resource_handle=holding.parameters.handle(),
                groups=[pb.Group(cpuset=str(each.cpus), exclusive=each.exclusive) for each in holding.sets],
            )
            for entry in self.store.entries.values()
            for holding in entry.holdings
            if holding.driver == request.driver
        ]
        return pb.HoldingsResponse(holdings=found, available_cpus=str(self.store.available_resources()))
