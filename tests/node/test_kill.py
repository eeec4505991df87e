"""`kubeqos node` on real containerd is killed with SIGKILL, again and again, while pods come and go."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS
from kubeqos.codec import decode_json
from kubeqos.cri.client import CriClient
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.sysfs import read_machine
from tests.apiserver.live import LiveServer, live_server
from tests.cri.containerd import Containerd
from tests.node.api.test_api_outage import containers
from tests.node.pods import resources
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, until

pytestmark = [pytest.mark.containerd, pytest.mark.slow]
KILLS = 8


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api") as live:
        yield live


class NodeProcess:
    def __init__(self, server: LiveServer, containerd: Containerd, folder: Path, root: Path) -> None:
        self._log = folder / "node.log"
        self._words = [
            *(sys.executable, "-m", "kubeqos.cli.main", "node", "--kubeconfig", str(server.kubeconfig)),
            *("--runtime-endpoint", containerd.endpoint, "--node-name", "n1", "--root-dir", str(root)),
            *("--log-dir", str(folder / "logs"), "--cgroup-root", containerd.cgroup_parent, "--port", "0"),
            *("--cpu-manager-policy", "static", "--reserved-cpus", str(read_machine(Path("/sys")).online.first())),
        ]
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._words, stdout=log, stderr=subprocess.STDOUT)

    async def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        await self._process.wait()


async def exclusive_owners(runtime: CriClient) -> dict[str, CpuSet]:
    """By container, from the processes themselves: CPUs of those that were promised some of their own."""
    found = {}
    for one in await runtime.list_containers():
        if one.state != cri.CONTAINER_RUNNING or not one.annotations.get("kubeqos.io/exclusive-cpus"):
            continue
        answer = await runtime.container_status(one.id, verbose=True)
        status = Path(f"/proc/{decode_json(answer.info['info'].encode())['pid']}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("Cpus_allowed_list:"))
        found[one.id] = CpuSet.parse(line.split()[1])
    return found


async def starts(runtime: CriClient) -> dict[str, int]:
    """How many containers of each pod were ever started; a start that the kill cut short has started nothing."""
    found: dict[str, int] = {}
    for one in await runtime.list_containers():
        if (await runtime.container_status(one.id)).status.started_at:
            name = one.labels["io.kubernetes.pod.name"]
            found[name] = found.get(name, 0) + 1
    return found


async def stranded(runtime: CriClient) -> bool:
    """Whether containerd 1.6 lost sight of a task: killed between making it and asking for its process, our agent's
    StartContainer "failed", and the container that was made all the same cannot be removed before containerd restarts.
    """
    messages = [(await runtime.container_status(one.id)).status.message for one in await runtime.list_containers()]
    return any("failed to get task pid" in message for message in messages)


@pytest.mark.proves("restart")
async def test_kill_minus_nine_at_any_moment(
    server: LiveServer, containerd: Containerd, tmp_path: Path, short_path: Path
) -> None:
    """What runs runs on; nothing is started twice; the one free CPU has one owner at most; all goes when asked."""
    chance = random.Random(7)
    node = NodeProcess(server, containerd, tmp_path, short_path)
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    async with CriClient(containerd.endpoint) as runtime:
        await node.start()
        try:
            await api.create(PODS, bound("steady", busybox("main", SLEEP), hostNetwork=True))
            steady: Any = await until("the first pod runs", lambda: containers(api, ["steady"]))
            for number in range(KILLS):
                owner = busybox("main", SLEEP, resources=resources(cpu="1", memory="32Mi"))
                name = f"owner-{number}"
                await api.create(PODS, bound(name, owner, hostNetwork=True))
                await asyncio.sleep(chance.uniform(0.0, 1.2))
                await node.end()
                assert len(await exclusive_owners(runtime)) <= 1
                await node.start()
                await until(f"{name} runs", lambda name=name: containers(api, [name]))
                assert await containers(api, ["steady"]) == steady
                assert await starts(runtime) == {"steady": 1, name: 1}, "something was started twice, or is left"
                await api.delete(PODS, name, "default", grace_seconds=1)
                await asyncio.sleep(chance.uniform(0.0, 0.6))
                await node.end()
                await node.start()

                async def gone(name: str = name) -> bool:
                    return await get_or_none(api, name) is None

                await until(f"{name} goes", gone)
            await api.delete(PODS, "steady", "default", grace_seconds=1)

            async def empty() -> bool:
                return not await runtime.list_pod_sandboxes()

            if await stranded(runtime):
                containerd.crash()
                containerd.start_again()
            await until("nothing is left", empty)
        finally:
            await node.end(signal.SIGTERM)
            await api.close()
            _remove_tiers(containerd)


def _remove_tiers(containerd: Containerd) -> None:
    from kubeqos.node.cgroups.files import CgroupFiles
    from tests.cri.containerd import CGROUPS

    CgroupFiles(CGROUPS).remove(f"{containerd.cgroup_parent}/kubepods")
