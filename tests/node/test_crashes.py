"""The agent dies at every boundary of a scripted day, and the next one takes over as if nothing had happened.

A crash stops the agent between any two effects, calls to the runtime and status writes; ledger and runtime stay as they
are. Afterwards no container was started twice, no CPU has two owners, nothing is leaked, and what ran runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Method, Request, Response
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.clock import NS
from kubeqos.cri.simulated.state import State
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.managers.cpu import EXCLUSIVE_ANNOTATION
from tests.node.pods import container, pod, resources
from tests.node.test_admission import OFFERS, guaranteed
from tests.node.test_changes import changed
from tests.node.world import World

CHANGING = {
    "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer",
    "RemoveContainer", "UpdateContainerResources",
}  # fmt: skip


class Crash(BaseException):
    """The agent is gone."""


class FragileRuntime(SimulatedRuntime):
    """Tells before and after every call that changes something, and counts what was started."""

    boundary: Callable[[str, object], None]
    starts: Counter[tuple[str, str, int]]

    async def call(
        self, method: Method[Request, Response], request: Request, *, timeout: float | None = None
    ) -> Response:
        if method.name in CHANGING:
            self.boundary("call", method.name)
        answer = await super().call(method, request, timeout=timeout)
        if method.name == "StartContainer":
            started = self.core.containers[cast(cri.StartContainerRequest, request).container_id]
            uid = self.core.sandboxes[started.sandbox_id].config.metadata.uid
            self.starts[uid, started.name, started.config.metadata.attempt] += 1
        if method.name in CHANGING:
            self.boundary("answered", method.name)
        return answer


class FragileWorld(World):
    """A node whose agent dies at one boundary and is started again."""

    def __init__(self, folder: Path, crash_at: int | None) -> None:
        super().__init__(folder, offers=OFFERS, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0))
        self.runtime = FragileRuntime(self.machine, OFFERS, clock=self.clock, logs=False)
        self.runtime.starts = Counter()
        self.crash_at = crash_at
        self.passed = 0
        self.crashed = False
        self.boundary = self.runtime.boundary = self._count

    def _count(self, _when: str, _what: object) -> None:
        self.passed += 1
        if self.passed == self.crash_at:
            self.crashed = True
            self.agent.abort()
            raise Crash

    async def do(self, act: Callable[[], Awaitable[Any] | None]) -> None:
        """Let something happen; if the agent dies of it, start another."""
        try:
            with contextlib.suppress(Crash):
                done = act()
                if done is not None:
                    await done
            await self.settle()
        except Crash:
            pass
        if self.crashed:
            self.crashed = False
            await self.halt()
            self.check_ownership()
            await self.boot()
        self.check_ownership()

    async def halt(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Crash):
            await self._task

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.do(lambda: self.clock.advance(1))

    def check_ownership(self) -> None:
        """In the runtime itself: nobody runs on CPUs that a running container owns."""
        owners: list[tuple[str, CpuSet, bool]] = []
        for one in self.runtime.core.containers.values():
            if one.state is State.RUNNING:
                uid = self.runtime.core.sandboxes[one.sandbox_id].config.metadata.uid
                exclusive = EXCLUSIVE_ANNOTATION in one.config.annotations
                owners.append((uid, CpuSet.parse(one.resources.cpuset_cpus), exclusive))
        for uid, cpus, exclusive in owners:
            for other, theirs, _ in owners:
                assert not (exclusive and other != uid and cpus & theirs), f"{uid} and {other} share {cpus & theirs}"


def gold(name: str, **fields: Any) -> dict[str, Any]:
    return container(name, resources={"qosResources": [{"name": "rdt", "class": "gold"}]}, **fields)


async def live_a_day(node: FragileWorld) -> dict[str, str]:
    """Pods of every kind come, change and go; returns what became of them."""
    web = pod("web", container(resources={"requests": {"cpu": "1"}}), container("helper"), uid="web")
    init = container("setup", command=["sh", "-c", "sleep 2"], resources=resources(cpu="2", memory="1Gi"))
    owner = pod("owner", guaranteed("2"), uid="owner", initContainers=[init])
    sidecar = container("proxy", restartPolicy="Always")
    job = pod(
        "job", container(command=["sh", "-c", "sleep 4"]), uid="job", restartPolicy="Never", initContainers=[sidecar]
    )
    classy = pod("classy", gold("main"), uid="classy", qosResources=[{"name": "network", "class": "fast"}])
    late = pod("late", guaranteed("4"), uid="late")
    hooks = {"preStop": {"exec": {"command": ["sleep", "1"]}}}
    ready = {"exec": {"command": ["true"]}, "periodSeconds": 5}
    hooked = pod("hooked", container(lifecycle=hooks, readinessProbe=ready), uid="hooked")
    for raw in (web, owner, job, classy, hooked):
        await node.do(lambda raw=raw: cast(None, node.pods.set(raw) and None))  # type: ignore[misc]
    await node.pass_time(5)
    kept = {name: one.id for name, one in node.running("web").items()}
    await node.do(lambda: cast(None, node.pods.set(changed(web, {"requests": {"cpu": "2"}})) and None))
    await node.do(lambda: node.pods.end("owner", node.clock.now_ns() / NS))
    await node.pass_time(3)
    await node.do(lambda: cast(None, node.pods.set(late) and None))
    await node.pass_time(6)
    await node.do(lambda: node.pods.end("classy", node.clock.now_ns() / NS, 1))
    await node.do(lambda: node.pods.end("hooked", node.clock.now_ns() / NS, 10))
    await node.pass_time(4)
    assert {name: one.id for name, one in node.running("web").items()} == kept, "containers did not run on"
    assert node.running("web")["main"].resources.cpu_shares == 2048
    return {uid: raw.get("status", {}).get("phase", "") for uid, raw in node.pods.pods.items()}


async def end_of_day(node: FragileWorld) -> None:
    for uid in list(node.pods.pods):
        await node.do(lambda uid=uid: node.pods.end(uid, node.clock.now_ns() / NS, 1))  # type: ignore[misc]
    await node.pass_time(6)
    await node.pass_time(12)
    assert not node.pods.pods and not node.runtime.core.sandboxes and not node.runtime.core.containers
    agent = node.agent
    assert agent.cpus is not None and not agent.cpus.owned, "CPUs are leaked"
    assert agent.classes is not None and not agent.classes.used(), "class slots are leaked"
    assert not agent.admission.entries and not agent.core.pods
    assert agent.validate() == []


async def whole_day(folder: Path, crash_at: int | None) -> FragileWorld:
    node = FragileWorld(folder, crash_at)
    await node.boot()
    try:
        phases = await live_a_day(node)
        assert phases == {"web": "Running", "late": "Running", "job": "Succeeded"}
        node.validate()
        await end_of_day(node)
    finally:
        await node.halt()
    return node


EXPECTED_STARTS = {
    ("web", "main", 0): 1, ("web", "helper", 0): 1, ("owner", "setup", 0): 1, ("owner", "main", 0): 1,
    ("job", "proxy", 0): 1, ("job", "main", 0): 1, ("classy", "main", 0): 1, ("late", "main", 0): 1,
    ("hooked", "main", 0): 1,
}  # fmt: skip


async def test_a_day_without_crashes(tmp_path: Path) -> None:
    node = await whole_day(tmp_path, None)
    assert node.runtime.starts == EXPECTED_STARTS
    assert node.passed >= 300, f"only {node.passed} boundaries: the day is too short to prove anything"


@pytest.mark.slow
async def test_a_crash_at_every_boundary_changes_nothing(tmp_path: Path) -> None:
    total = (await whole_day(tmp_path / "whole", None)).passed
    for crash_at in range(1, total + 1):
        node = await whole_day(tmp_path / str(crash_at), crash_at)
        assert node.runtime.starts == EXPECTED_STARTS, f"crash at boundary {crash_at}"
