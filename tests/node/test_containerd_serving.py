"""Logs, exec and usage of real containers on real containerd."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeqos.codec import decode_json
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.pressure.imagegc import ImageGcSettings
from kubeqos.node.run import serve_node
from kubeqos.node.server.endpoint import NodeServer
from tests.cri.containerd import Containerd
from tests.cri.images import BUSYBOX_IMAGE, PAUSE_IMAGE
from tests.node.pods import pod
from tests.node.test_containerd import SLEEP, RealNode, busybox, real_node
from tests.node.test_live import until

pytestmark = pytest.mark.containerd


class Client:
    """The client's end of an exec."""

    protocol = "v5.channel.k8s.io"

    def __init__(self, *inputs: bytes) -> None:
        self._inputs = list(inputs)
        self.streams: dict[int, bytes] = {}

    async def receive(self) -> bytes | None:
        if self._inputs:
            return self._inputs.pop(0)
        await asyncio.Event().wait()
        return None

    async def send(self, data: bytes) -> None:
        self.streams[data[0]] = self.streams.get(data[0], b"") + data[1:]


async def run(server: NodeServer, *command: str, inputs: tuple[bytes, ...] = (), **flags: str) -> Client:
    client = Client(*inputs)
    query = {"command": list(command), "output": ["1"], "error": ["1"], **{k: [v] for k, v in flags.items()}}
    async with asyncio.timeout(60):
        await server.stream("exec/default/web/main", query, client)
    return client


async def text_of(server: NodeServer, **query: str) -> str:
    answer = await server.logs("default", "web", "main", {key: [value] for key, value in query.items()})
    assert answer.stream is not None
    return b"".join([chunk async for chunk in answer.stream]).decode()


@pytest.mark.proves("probes-and-hooks")
async def test_logs_exec_and_usage_of_a_real_container(containerd: Containerd, tmp_path: Path) -> None:
    async with real_node(containerd, tmp_path) as node, serve_node(node.agent) as services:
        uid = node.pods.set(pod("web", busybox("main", f"echo out; echo err >&2; {SLEEP}"), hostNetwork=True))
        await node.running(uid)
        await check_logs(services.server)
        await check_exec(services.server)
        await check_usage(node, services.server, uid)
        pinned = decode_json((await services.server.get("pinned", {})).body)["containers"]
        assert pinned["default/web/main"]["by"] == "kernel"


async def test_unused_images_go_and_the_image_of_sandboxes_stays(containerd: Containerd, tmp_path: Path) -> None:
    """containerd 1.6 does not pin it; without it no pod would start any more."""
    extra = "kubeqos.test/unused:1"
    containerd.add_image(extra, ["true"])
    at_once = ServiceSettings(images=ImageGcSettings(1, 0, minimum_age_seconds=0), housekeeping_seconds=0.1)
    async with real_node(containerd, tmp_path) as node, serve_node(node.agent, at_once) as services:
        uid = node.pods.set(pod("web", busybox("main", SLEEP), hostNetwork=True))
        await node.running(uid)
        services.housekeeper._images_due = 0.0

        async def tags() -> set[str]:
            return {tag for one in await node.agent.runtime.list_images() for tag in one.repo_tags}

        async def collected() -> bool:
            return not any(tag.endswith(extra) for tag in await tags())

        await until("the unused image is removed", collected)
        assert {PAUSE_IMAGE, BUSYBOX_IMAGE} <= await tags()
        assert services.housekeeper.freed.images["space"] >= 1


async def check_logs(server: NodeServer) -> None:
    async def written() -> bool:
        return sorted((await text_of(server)).split()) == ["err", "out"]

    await until("the log is written", written)
    assert len((await text_of(server, tailLines="1")).split()) == 1
    assert await text_of(server, stream="Stderr") == "err\n"


async def check_exec(server: NodeServer) -> None:
    done = await run(server, "sh", "-c", "echo hello; echo oops >&2; exit 5")
    assert (done.streams[1], done.streams[2]) == (b"hello\n", b"oops\n")
    status = decode_json(done.streams[3])
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "5"}]
    done = await run(server, "true")
    assert decode_json(done.streams[3])["status"] == "Success"
    typed = await run(server, "sh", "-c", "read line; echo got $line", inputs=(b"\x00words\n",), input="1")
    assert typed.streams[1] == b"got words\n"
    piece = bytes(range(256)) * 1000
    piped = await run(server, "cat", inputs=(b"\x00" + piece, b"\x00" + piece, b"\xff\x00"), input="1")
    assert piped.streams[1] == piece * 2, "the command saw the end of its input"
    assert decode_json(piped.streams[3])["status"] == "Success"
    inputs = (b'\x04{"Width":71,"Height":17}', b"\x00words\n")
    on_terminal = await run(server, "sh", "-c", "read line; echo got $line", inputs=inputs, input="1", tty="1")
    assert on_terminal.streams[1].endswith(b"got words\r\n") and 2 not in on_terminal.streams


async def check_usage(node: RealNode, server: NodeServer, uid: str) -> None:
    async def measured() -> Any:
        found = await server.housekeeper.latest()
        return found if found is not None and uid in found.pods else None

    sample = await until("the pod is measured", measured)
    used = sample.pods[uid]
    assert (used.namespace, used.name) == ("default", "web")
    assert 0 < (used.memory_working_set or 0) < 64 << 20
    (only,) = used.containers
    assert only.name == "main" and (only.cpu.core_ns or 0) > 0 and only.logs is not None and only.logs[0] > 0
    memory: Any = sample.levels["memory.available"]
    assert 0 < memory.available < memory.capacity
    assert sample.levels["nodefs.available"].capacity > 0 and sample.levels["pid.available"].available > 0
    summary = await server.summary()
    assert summary["node"]["memory"]["workingSetBytes"] > 0 and summary["pods"][0]["podRef"]["uid"] == uid
