"""The client against servers that are away, slow, restarted or old."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kubeqos.cri.client import CriClient, grpc_target
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import METHODS, VERSION
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.faults import Fault, Faults
from kubeqos.cri.simulated.runtime import HANDLERS
from kubeqos.errors import ConfigurationError, InputError
from kubeqos.model.hardware.named import tiny2
from tests.cri.pods import container, pod

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def endpoint(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/cri.sock"


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("it did not happen in ten seconds")


@contextlib.asynccontextmanager
async def watching(client: CriClient) -> AsyncIterator[list[tuple[str, int]]]:
    """The events of a client, collected while the block runs."""
    seen: list[tuple[str, int]] = []

    async def watch() -> None:
        async for event in client.events():
            seen.append((event.container_id, event.container_event_type))  # noqa: PERF401 - read while it grows

    task = asyncio.create_task(watch())
    await asyncio.sleep(0.2)
    try:
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_runtime_that_is_away_is_one_clear_error(endpoint: str) -> None:
    async with CriClient(endpoint) as client:
        with pytest.raises(CallError) as away:
            await client.version()
    assert (away.value.code, away.value.method, away.value.endpoint) == (Code.UNAVAILABLE, "Version", endpoint)
    assert isinstance(away.value.__cause__, grpc.aio.AioRpcError)
    assert "check that the runtime runs" in away.value.lines()[-1]


async def test_a_call_that_hangs_ends_at_its_deadline(endpoint: str) -> None:
    runtime = SimulatedRuntime(tiny2(), faults=Faults(fault={"Version": Fault(None)}))
    async with serving(runtime, endpoint), CriClient(endpoint) as client:
        with pytest.raises(CallError) as late:
            await client.call(VERSION, cri.VersionRequest(), timeout=0.2)
        assert late.value.code is Code.DEADLINE_EXCEEDED
        assert (await client.status()).status.conditions, "other calls are not held up"


async def test_the_connection_heals_after_a_restart(endpoint: str) -> None:
    async with CriClient(endpoint) as client:
        async with serving(SimulatedRuntime(tiny2()), endpoint):
            assert await client.version()
        with pytest.raises(CallError):
            await client.version()
        async with serving(SimulatedRuntime(tiny2()), endpoint):
            for _ in range(200):
                try:
                    assert await client.version()
                    return
                except CallError:
                    await asyncio.sleep(0.05)
    raise AssertionError("the client did not reconnect")


async def test_events_that_were_missed_during_an_outage_are_found(endpoint: str) -> None:
    runtime = SimulatedRuntime(tiny2(), logs=False)
    config = pod()
    async with CriClient(endpoint) as client:
        async with contextlib.AsyncExitStack() as first_life:
            await first_life.enter_async_context(serving(runtime, endpoint))
            sandbox = await runtime.run_pod_sandbox(config)
            old = await runtime.create_container(sandbox, container("old"), config)
            watch = watching(client)
            seen = await watch.__aenter__()
            await runtime.start_container(old)
            await until(lambda: (old, cri.CONTAINER_STARTED_EVENT) in seen)
        new = await runtime.create_container(sandbox, container("new", ["true"]), config)
        await runtime.start_container(new)
        await runtime.remove_container(old)
        async with serving(runtime, endpoint):
            await until(lambda: (new, cri.CONTAINER_STOPPED_EVENT) in seen)
            await until(lambda: (old, cri.CONTAINER_DELETED_EVENT) in seen)
            await watch.__aexit__(None, None, None)
    assert [kind for which, kind in seen if which == old] == [
        cri.CONTAINER_STARTED_EVENT,
        cri.CONTAINER_STOPPED_EVENT,
        cri.CONTAINER_DELETED_EVENT,
    ]
    assert [kind for which, kind in seen if which == new] == [
        cri.CONTAINER_CREATED_EVENT,
        cri.CONTAINER_STARTED_EVENT,
        cri.CONTAINER_STOPPED_EVENT,
    ]


async def test_a_silent_stream_is_opened_anew_and_nothing_is_lost_or_told_twice(endpoint: str) -> None:
    runtime = SimulatedRuntime(tiny2(), logs=False)
    async with (
        serving(runtime, endpoint),
        CriClient(endpoint, silence_seconds=0.02) as client,
        watching(client) as seen,
    ):
        sandboxes = []
        for number in range(20):
            sandboxes.append(await runtime.run_pod_sandbox(pod(f"p{number}")))
            await asyncio.sleep(0.03)
        await until(lambda: len(seen) >= 40)
    stages = (cri.CONTAINER_CREATED_EVENT, cri.CONTAINER_STARTED_EVENT)
    assert seen == [(sandbox, kind) for sandbox in sandboxes for kind in stages]


async def test_a_peer_that_is_no_runtime_ends_the_events(endpoint: str) -> None:
    server = grpc.aio.server()
    server.add_insecure_port(grpc_target(endpoint))
    await server.start()
    try:
        async with CriClient(endpoint) as client:
            with pytest.raises(CallError) as wrong:
                await asyncio.wait_for(anext(client.events()), 10)
    finally:
        await server.stop(None)
    assert wrong.value.code is Code.UNIMPLEMENTED
    assert "is it a CRI v1 runtime?" in wrong.value.lines()[-1]


async def test_streamed_events_carry_statuses(endpoint: str) -> None:
    runtime = SimulatedRuntime(tiny2(), logs=False)
    async with serving(runtime, endpoint), CriClient(endpoint) as client:
        events = client.events()
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.2)
        sandbox = await runtime.run_pod_sandbox(pod("told"))
        event = await asyncio.wait_for(waiting, 10)
        await events.aclose()  # type: ignore[attr-defined]
    assert (event.container_id, event.pod_sandbox_status.metadata.name) == (sandbox, "told")


async def test_several_subscribers_see_the_same(endpoint: str) -> None:
    runtime = SimulatedRuntime(tiny2(), logs=False)
    async with (
        serving(runtime, endpoint),
        CriClient(endpoint) as one,
        CriClient(endpoint) as two,
        watching(one) as first,
        watching(two) as second,
    ):
        sandbox = await runtime.run_pod_sandbox(pod())
        await until(lambda: len(first) >= 2 and len(second) >= 2)
    assert first == second == [(sandbox, cri.CONTAINER_CREATED_EVENT), (sandbox, cri.CONTAINER_STARTED_EVENT)]


async def test_a_peer_sees_localhost_as_the_authority(endpoint: str) -> None:
    """Other servers refuse a percent-encoded socket path there."""
    authorities: list[str] = []

    def version(_request: bytes, context: Any) -> bytes:
        authorities.append(context._rpc_event.call_details.host.decode())
        return b""

    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.unary_unary_rpc_method_handler(version)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(VERSION.service, {"Version": handler}),))
    server.add_insecure_port(grpc_target(endpoint))
    server.start()
    try:
        async with CriClient(endpoint) as client:
            await client.version()
    finally:
        server.stop(None)
    assert authorities == ["localhost"]


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        ("unix:///run/containerd/containerd.sock", "unix:/run/containerd/containerd.sock"),
        ("unix:/run/x.sock", "unix:/run/x.sock"),
        ("/run/x.sock", "unix:/run/x.sock"),
        ("127.0.0.1:3735", "127.0.0.1:3735"),
    ],
)
async def test_endpoints_are_read_as_users_write_them(endpoint: str, target: str) -> None:
    assert grpc_target(endpoint) == target


@pytest.mark.parametrize("endpoint", ["containerd.sock", "unix://relative.sock", ""])
async def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(InputError, match="is not an address"):
        grpc_target(endpoint)


async def test_a_server_takes_over_a_dead_socket_but_never_a_live_one(endpoint: str) -> None:
    path = Path(endpoint.removeprefix("unix://"))
    async with serving(SimulatedRuntime(tiny2()), endpoint):
        with pytest.raises(ConfigurationError, match="another server is listening"):
            async with serving(SimulatedRuntime(tiny2()), endpoint):
                pass
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serving(SimulatedRuntime(tiny2()), endpoint), CriClient(endpoint) as client:
        assert await client.version()


async def test_a_file_that_is_no_socket_is_left_alone(endpoint: str) -> None:
    path = Path(endpoint.removeprefix("unix://"))
    path.write_text("precious")
    with pytest.raises(ConfigurationError, match="is not a socket"):
        async with serving(SimulatedRuntime(tiny2()), endpoint):
            pass
    assert path.read_text() == "precious"


async def test_every_call_of_the_interface_has_a_deadline_and_a_simulation() -> None:
    assert all(method.deadline_seconds > 0 for method in METHODS)
    assert {method.name for method in METHODS} == set(HANDLERS)
    declared = {
        (service.full_name, method.name)
        for service in cri.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    used = {(method.service, method.name) for method in METHODS}
    assert declared - used == {("runtime.v1.RuntimeService", "GetContainerEvents")}
