"""A plugin among runtimes: the handshake, every event in both forms, refusals, slowness, and runtimes that restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop
from google.protobuf import json_format

from kubeqos.errors import ConfigurationError, InputError
from kubeqos.nri.events import BY_EVENT, METHODS, PLUGIN_SERVICE
from kubeqos.nri.link import DEADLINE_EXCEEDED, UNIMPLEMENTED, UNKNOWN, NriCallError
from kubeqos.nri.plugin import Plugin, connect, serve
from kubeqos.nri.proto import nri_pb2 as nri
from tests.conformance.recorded import cases
from tests.nri.runtime import Runtime


class Seeing(Plugin):
    """Notes what it is told, pins every container, and refuses those called `bad`."""

    def __init__(self) -> None:
        super().__init__("seeing", "10")
        self.seen: list[str] = []
        self.known: list[tuple[list[str], list[str]]] = []
        self.slow = asyncio.Event()

    async def synchronize(
        self, pods: Sequence[nri.PodSandbox], containers: Sequence[nri.Container]
    ) -> Sequence[nri.ContainerUpdate]:
        self.known.append(([pod.name for pod in pods], [container.name for container in containers]))
        return [nri.ContainerUpdate(container_id=container.id) for container in containers]

    async def create_container(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse:
        if request.container.name == "bad":
            raise InputError("no class is called purple", remedy="ask for gold")
        if request.container.name == "broken":
            raise LookupError("a defect")
        if request.container.name == "slow":
            await self.slow.wait()
        response = nri.CreateContainerResponse()
        response.adjust.linux.resources.cpu.cpus = "2-3"
        response.adjust.env.add(key="BIG", value="x" * len(request.container.name))
        return response

    async def start_container(self, request: nri.StartContainerRequest) -> None:
        self.seen.append(f"start {request.pod.name}/{request.container.name}")

    async def remove_pod_sandbox(self, request: nri.RemovePodSandboxRequest) -> None:
        self.seen.append(f"remove {request.pod.name}")


@asynccontextmanager
async def registered(socket: Path) -> AsyncIterator[tuple[Runtime, Seeing]]:
    plugin = Seeing()
    async with Runtime(socket) as runtime:
        link = await connect(plugin, socket)
        yield runtime, plugin
        link.close()


def created(name: str) -> nri.CreateContainerRequest:
    return nri.CreateContainerRequest(pod=nri.PodSandbox(name="web"), container=nri.Container(name=name))


async def test_the_runtime_is_asked_for_the_events_that_the_plugin_handles(short_path: Path) -> None:
    async with registered(short_path / "nri.sock") as (runtime, _):
        told = await runtime.registered.get()
        assert (told.plugin_name, told.plugin_idx) == ("seeing", "10")
        reply = await runtime.call("Configure", nri.ConfigureRequest(NRI_version="v0.12.2"))
        asked = {event for event in BY_EVENT if reply.events & 1 << (event - 1)}
        assert asked == {nri.CREATE_CONTAINER, nri.START_CONTAINER, nri.REMOVE_POD_SANDBOX}


async def test_an_old_runtime_is_not_asked_for_events_that_it_does_not_know(short_path: Path) -> None:
    class Resizing(Plugin):
        async def update_pod_sandbox(self, request: nri.UpdatePodSandboxRequest) -> None: ...
        async def stop_container(self, request: nri.StopContainerRequest) -> None: ...

    async with Runtime(short_path / "nri.sock") as runtime:
        await connect(Resizing("resizing", "20"), runtime.socket)
        old = await runtime.call("Configure", nri.ConfigureRequest())
        assert old.events == 1 << (nri.STOP_CONTAINER - 1)
        new = await runtime.call("Configure", nri.ConfigureRequest(NRI_version="v0.12.2"))
        assert new.events == old.events | 1 << (nri.UPDATE_POD_SANDBOX - 1)


async def test_what_runs_already_may_come_in_parts(short_path: Path) -> None:
    async with registered(short_path / "nri.sock") as (runtime, plugin):
        pods, containers = [nri.PodSandbox(name="a")], [nri.Container(name="one", id="1")]
        part = nri.SynchronizeRequest(pods=pods, containers=containers, more=True)
        first = await runtime.call("Synchronize", part)
        assert (first.more, list(first.update), plugin.known) == (True, [], [])
        assert not plugin.synchronized.is_set()
        last = await runtime.call("Synchronize", nri.SynchronizeRequest(containers=[nri.Container(name="two", id="2")]))
        assert (last.more, [update.container_id for update in last.update]) == (False, ["1", "2"])
        assert plugin.known == [(["a"], ["one", "two"])]
        assert plugin.synchronized.is_set()


@pytest.mark.parametrize("length", [1, 4000, 4096, 4097, 4166, 2_000_000])
async def test_a_message_of_any_length_arrives(short_path: Path, length: int) -> None:
    async with registered(short_path / "nri.sock") as (runtime, _):
        reply = await runtime.call("CreateContainer", created("x" * length))
        assert reply.adjust.linux.resources.cpu.cpus == "2-3"
        assert len(reply.adjust.env[0].value) == length


async def test_both_forms_of_an_event_reach_the_same_handler(short_path: Path) -> None:
    pod, container = nri.PodSandbox(name="web"), nri.Container(name="main")
    async with registered(short_path / "nri.sock") as (runtime, plugin):
        await runtime.call("StartContainer", nri.StartContainerRequest(pod=pod, container=container))
        old = nri.StateChangeEvent(event=nri.START_CONTAINER, pod=pod, container=container)
        await runtime.call("StateChange", old)
        await runtime.call("StateChange", nri.StateChangeEvent(event=nri.REMOVE_POD_SANDBOX, pod=pod))
        await runtime.call("StateChange", nri.StateChangeEvent(event=nri.STOP_POD_SANDBOX, pod=pod))
        assert plugin.seen == ["start web/main", "start web/main", "remove web"]


@pytest.mark.parametrize("method", sorted(METHODS))
async def test_every_event_is_answered_also_without_a_handler(short_path: Path, method: str) -> None:
    async with Runtime(short_path / "nri.sock") as runtime:
        await connect(Plugin("quiet", "00"), runtime.socket)
        assert await runtime.call(method, METHODS[method].request()) == METHODS[method].response()


class TestRefusals:
    async def test_what_a_handler_objects_to_fails_the_call_with_its_words(self, short_path: Path) -> None:
        async with registered(short_path / "nri.sock") as (runtime, _):
            with pytest.raises(NriCallError, match="no class is called purple") as refused:
                await runtime.call("CreateContainer", created("bad"))
            assert refused.value.code == UNKNOWN

    async def test_a_defect_refuses_its_own_call_and_no_other(self, short_path: Path) -> None:
        async with registered(short_path / "nri.sock") as (runtime, _):
            with pytest.raises(NriCallError, match="CreateContainer failed: LookupError"):
                await runtime.call("CreateContainer", created("broken"))
            assert (await runtime.call("CreateContainer", created("good"))).HasField("adjust")

    async def test_an_unknown_method_or_service_is_unimplemented(self, short_path: Path) -> None:
        async with registered(short_path / "nri.sock") as (runtime, _):
            for service, method in ((PLUGIN_SERVICE, "Levitate"), ("other.Service", "CreateContainer")):
                with pytest.raises(NriCallError) as refused:
                    await runtime.links[-1].call(service, method, nri.Empty(), nri.Empty)
                assert refused.value.code == UNIMPLEMENTED

    async def test_bytes_that_are_no_message_are_refused(self, short_path: Path) -> None:
        async with registered(short_path / "nri.sock") as (runtime, _):
            nonsense = nri.KeyValue(key="\x01" * 40)
            with pytest.raises(NriCallError, match="cannot be read"):
                await runtime.call("CreateContainer", nonsense)

    async def test_who_is_too_slow_is_told_so(self, short_path: Path) -> None:
        async with registered(short_path / "nri.sock") as (runtime, plugin):
            with pytest.raises(NriCallError) as late:
                await runtime.call("CreateContainer", created("slow"), timeout=0.05)
            assert late.value.code == DEADLINE_EXCEEDED
            plugin.slow.set()
            assert (await runtime.call("CreateContainer", created("slow"))).HasField("adjust")

    @pytest.mark.parametrize(("name", "index"), [("a b", "10"), ("", "10"), ("good", "1"), ("good", "100")])
    def test_a_name_that_runtimes_refuse_is_refused_first(self, name: str, index: str) -> None:
        with pytest.raises(ConfigurationError):
            Plugin(name, index)


class TestARuntimeThatGoes:
    async def test_the_plugin_comes_back_and_is_synchronised_again(self, short_path: Path) -> None:
        socket, plugin = short_path / "nri.sock", Seeing()
        serving = asyncio.create_task(serve(plugin, socket))
        for _ in range(3):
            async with Runtime(socket) as runtime:
                async with asyncio.timeout(30):
                    await runtime.registered.get()
                await runtime.call("Synchronize", nri.SynchronizeRequest(pods=[nri.PodSandbox(name="a")]))
            socket.unlink(missing_ok=True)
        assert plugin.known == [(["a"], [])] * 3
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving

    async def test_a_call_that_waits_fails_when_the_peer_goes(self, short_path: Path) -> None:
        async with registered(short_path / "nri.sock") as (runtime, plugin):
            waiting = asyncio.create_task(runtime.call("CreateContainer", created("slow")))
            await asyncio.sleep(0)
            assert plugin.link is not None
            plugin.link.close()
            with pytest.raises(NriCallError, match="ended before the answer"):
                await waiting
            with pytest.raises(NriCallError, match="has ended"):
                await plugin.update([nri.ContainerUpdate(container_id="1")])

    async def test_bytes_that_are_not_nri_end_the_connection(self, short_path: Path) -> None:
        async with Runtime(short_path / "nri.sock") as runtime:
            reader, writer = await asyncio.open_unix_connection(str(runtime.socket))
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b""
            writer.close()


async def test_running_containers_can_be_changed_unasked(short_path: Path) -> None:
    async with registered(short_path / "nri.sock") as (runtime, plugin):
        update = nri.ContainerUpdate(container_id="7")
        update.linux.resources.cpu.cpus = "4-5"
        assert list(await plugin.update([update])) == []
        assert [list(request.update) for request in runtime.updates] == [[update]]


async def test_the_recorded_runtime_gets_the_answers_of_the_recorded_plugin(short_path: Path) -> None:
    """All requests that a real containerd sent to a real plugin, answered by ours with what that one decided."""
    told = [
        (case["dir"], message)
        for case in cases("nri_wire")
        if case.get("kind") == "transcript" and case.get("mux", {}).get("conn") == 1
        for message in case["ttrpc"]
    ]
    requests = [message for direction, message in told if direction == "runtime->plugin"]
    answers = {message["stream"]: message for direction, message in told if direction == "plugin->runtime"}
    assert len(requests) == len(answers) > 20

    class Recorded(Plugin):
        async def create_container(self, request: nri.CreateContainerRequest) -> nri.CreateContainerResponse:
            return decide(nri.CreateContainerResponse())

        async def update_container(self, request: nri.UpdateContainerRequest) -> nri.UpdateContainerResponse:
            return decide(nri.UpdateContainerResponse())

    def decide(reply: Any) -> Any:
        seen = answers[current["stream"]]
        if status := seen["response"].get("status"):
            raise InputError(status["message"])
        json_format.ParseDict(seen["payload"]["json"], reply)
        return reply

    async with Runtime(short_path / "nri.sock") as runtime:
        await connect(Recorded("recorder", "10"), runtime.socket)
        for current in requests:
            method, seen = current["request"]["method"], answers[current["stream"]]
            request = json_format.ParseDict(current["payload"]["json"], getattr(nri, f"{method}Request")())
            if status := seen["response"].get("status"):
                with pytest.raises(NriCallError) as refused:
                    await runtime.call(method, request)
                assert (refused.value.code, refused.value.what) == (status["code"], status["message"])
            elif method != "Configure":  # its answer says which events this plugin handles: fewer than that one did
                reply = await runtime.call(method, request)
                assert json_format.MessageToDict(reply, preserving_proto_field_name=True) == seen["payload"]["json"]


def test_it_works_on_either_event_loop(short_path: Path) -> None:
    uvloop.run(test_running_containers_can_be_changed_unasked(short_path))
