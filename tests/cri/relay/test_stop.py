"""Stopping the relay: calls under way end as they would have, new ones are refused, and there is an end to waiting."""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.proto.cri_pb2_grpc import RuntimeServiceStub
from kubeqos.cri.relay import server
from kubeqos.cri.relay.gate import gate_path
from kubeqos.cri.relay.http2 import GOAWAY, HEADERS, PREFACE, SETTINGS
from kubeqos.cri.relay.server import Relay
from kubeqos.cri.simulated.faults import Fault, Latency
from tests.cri.relay.processes import Pod, RelayProcess, connect
from tests.cri.relay.test_proxy import REQUEST, raw
from tests.cri.relay.test_simulated import World, world

__all__ = ["world"]
SECOND_NS = 10**9


class Caller(threading.Thread):
    """Calls without pause until the relay is gone; every call is answered or was never begun."""

    def __init__(self, socket: Path, call: Callable[[RuntimeServiceStub, int], Any]) -> None:
        super().__init__()
        self.socket = socket
        self.call = call
        self.answers: list[Any] = []
        self.refusal = ""

    def run(self) -> None:
        with connect(self.socket) as stub:
            for number in itertools.count():
                try:
                    self.answers.append(self.call(stub, number))
                except grpc.RpcError as error:
                    self.refusal = str(error.details())
                    return


@pytest.mark.containerd
def test_a_relay_that_is_told_to_stop_under_load_drops_no_call(relay: RelayProcess, containerd):
    """SIGTERM while commands run in a container (passed through), containers are created (handled) and others ask."""
    with connect(containerd.socket) as direct, Pod(direct, containerd.cgroup_parent) as pod:
        container = pod.start(pod.create())
        slow = cri.ExecSyncRequest(container_id=container, cmd=["sh", "-c", "sleep 2; echo done"], timeout=20)

        def create(stub: RuntimeServiceStub, number: int) -> str:
            return pod.through(stub).create(f"c{number}", cpu_class="silver")

        creator = Caller(relay.socket, create)
        commands = [Caller(relay.socket, lambda stub, _: stub.ExecSync(slow, timeout=30).stdout) for _ in range(4)]
        askers = [
            Caller(relay.socket, lambda stub, _: stub.Version(cri.VersionRequest(), timeout=30)) for _ in range(3)
        ]
        callers = [creator, *commands, *askers]
        for caller in callers:
            caller.start()
        time.sleep(1.0)
        assert relay.process is not None
        relay.process.send_signal(signal.SIGTERM)
        for caller in callers:
            caller.join()
        assert relay.process.wait(20) == 0
        for caller in callers:
            assert caller.answers
            # Not "Socket closed" or "reset by peer": what had begun was answered, what had not found nobody.
            assert "failed to connect" in caller.refusal
        assert [command.answers for command in commands] == [[b"done\n"]] * 4
        assert not relay.socket.exists() and not gate_path(relay.socket).exists()
        assert "calls were cut off" not in relay.log.read_text()
        there = direct.ListContainers(cri.ListContainersRequest(), timeout=10).containers
        assert {item.id for item in there if item.pod_sandbox_id == pod.id} == {container, *creator.answers}
        relay.start()
        with connect(relay.socket) as stub:
            for created in creator.answers:
                assert pod.through(stub).container_status(created)["cpu-class"] == "silver"


async def test_new_calls_on_an_old_connection_are_refused_while_old_ones_finish(world: World):
    world.faults.latency["Version"] = Latency(SECOND_NS, SECOND_NS)
    channel = grpc.aio.insecure_channel(f"unix:{world.settings.listen}")
    version = channel.unary_unary("/runtime.v1.RuntimeService/Version")
    under_way = asyncio.ensure_future(version(b"", timeout=20))
    await asyncio.sleep(0.3)
    closing = asyncio.create_task(world.relay.close())
    await asyncio.sleep(0.2)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await version(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert cri.VersionResponse.FromString(await under_way).runtime_name
    await closing
    await channel.close()
    world.relay = await Relay.start(world.settings)


async def frames_until(reader: asyncio.StreamReader, wanted: int) -> bytes:
    """The payload of the next frame of a kind; what comes before it is left out."""
    while True:
        head = await reader.readexactly(9)
        payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
        if head[3] == wanted:
            return payload


async def test_a_call_begun_before_the_goodbye_was_read_finds_an_open_connection(world: World):
    """It learns from the goodbye that it was not taken, not from a broken pipe that it may have been lost."""
    reader, writer = await asyncio.open_unix_connection(str(world.settings.listen))
    writer.write(PREFACE)
    await frames_until(reader, SETTINGS)
    closing = asyncio.create_task(world.relay.close())
    assert await frames_until(reader, GOAWAY) == bytes(8)  # no stream was taken, no error
    writer.write(raw(HEADERS, 0x5, 1, REQUEST))
    await writer.drain()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await reader.readexactly(1)
    assert not closing.done()
    writer.close()
    await closing
    world.relay = await Relay.start(world.settings)


async def test_a_client_that_does_not_hang_up_is_left(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "PARTING_SECONDS", 0.1)
    reader, writer = await asyncio.open_unix_connection(str(world.settings.listen))
    writer.write(PREFACE)
    await frames_until(reader, SETTINGS)
    await world.relay.close()
    await frames_until(reader, GOAWAY)
    assert (await reader.read())[3] == GOAWAY  # the last word; then the end
    writer.close()
    world.relay = await Relay.start(world.settings)


async def test_a_stream_without_end_is_ended(world: World):
    """The kubelet listens to events for ever; nobody waits for that."""
    channel = grpc.aio.insecure_channel(f"unix:{world.settings.listen}")
    stream = channel.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(b"")
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0.3)
    await world.relay.close()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await reading
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == "the relay is stopping"
    await channel.close()
    world.relay = await Relay.start(world.settings)


async def test_a_call_that_never_ends_is_cut_off_after_the_grace(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "STOP_SECONDS", 0.3)
    world.faults.fault["Version"] = Fault(None)
    world.faults.fault["StopContainer"] = Fault(None)
    channel = grpc.aio.insecure_channel(f"unix:{world.settings.listen}")
    hanging = [channel.unary_unary(f"/runtime.v1.RuntimeService/{name}")(b"") for name in ("Version", "StopContainer")]
    tasks = [asyncio.ensure_future(call) for call in hanging]
    await asyncio.sleep(0.3)
    await world.relay.close()
    for task in tasks:
        with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
            await task
    await channel.close()
    world.relay = await Relay.start(world.settings)
