"""Where containers really run: what the kernel says, or the runtime where the process is not one of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.client import Call
from kubeqos.codec import decode_json
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.node.server.pinned import by_kernel
from tests.apiserver.live import LiveServer, live_server
from tests.node.pods import pod
from tests.node.server.test_serving import node, started


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api") as live:
        yield live


async def test_the_runtime_tells_of_simulated_containers(server: LiveServer, tmp_path: Path) -> None:
    async with node(server, tmp_path) as (_agent, _running, api):
        await started(api, pod("web"))
        answer = await api.transport.send(Call("GET", "/api/v1/nodes/n1/proxy/pinned"))
        told = decode_json(answer.body)["containers"]
        assert {name: one["by"] for name, one in told.items()} == {"default/web/main": "runtime"}


def test_the_kernel_tells_of_a_process_of_this_machine(tmp_path: Path) -> None:
    answer = cri.ContainerStatusResponse(info={"info": f'{{"pid": {os.getpid()}, "sandboxID": "x"}}'})
    told = by_kernel(answer, Path("/proc"))
    assert told is not None and told["by"] == "kernel" and told["cpus"]
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name:\tx\nCpus_allowed_list:\t4-7\nMems_allowed_list:\t0\n")
    seven = cri.ContainerStatusResponse(info={"info": '{"pid": 7}'})
    assert by_kernel(seven, tmp_path) == {"cpus": "4-7", "mems": "0", "by": "kernel"}


@pytest.mark.parametrize("info", ["", "{}", '{"pid": 0}', '{"pid": 999999999}', "not JSON", '{"pid": "seven"}'])
def test_a_process_that_is_not_here_is_not_asked(info: str) -> None:
    assert by_kernel(cri.ContainerStatusResponse(info={"info": info}), Path("/proc")) is None
