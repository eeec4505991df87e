"""A simulated machine runs out of memory as a real one does: who is slowed down, and whom the kernel kills."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.cri.simulated.process.memory import NS, Candidate, Memory, runs_out_ns, victim
from kubeqos.model.hardware.named import laptop8
from tests.cri.pods import container, pod

GIB, MIB = 1 << 30, 1 << 20
TOTAL = 16 * GIB


class Machine:
    """A laptop with 16 GiB, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.runtime = SimulatedRuntime(laptop8(), clock=self.clock, logs=False)

    async def start(self, name: str, load: str, adj: int, **resources: Any) -> str:
        config = pod(name, annotations={"simulate.kubeqos.io/load": load})
        sandbox = await self.runtime.run_pod_sandbox(config)
        wanted = container(command=["app"], oom_score_adj=adj, **resources)
        identity = await self.runtime.create_container(sandbox, wanted, config)
        await self.runtime.start_container(identity)
        return identity

    async def status(self, identity: str) -> cri.ContainerStatus:
        self.runtime.core.validate()
        return (await self.runtime.container_status(identity)).status

    async def file(self, identity: str, name: str) -> str:
        return (await self.runtime.exec_sync(identity, ["cat", f"/sys/fs/cgroup/{name}"])).stdout.decode()


async def test_when_memory_is_gone_best_effort_dies_first_and_guaranteed_last() -> None:
    """pod-qos: under memory pressure BestEffort is killed first, then Burstable, then Guaranteed."""
    machine = Machine()
    guaranteed = await machine.start("guaranteed", "memory=6Gi", -997)
    burstable = await machine.start("burstable", "memory=4Gi", 750)
    best_effort = await machine.start("best-effort", "memory=1Gi growth=1Gi/s", 1000)
    await machine.clock.advance(4)
    assert (await machine.status(best_effort)).state == cri.CONTAINER_RUNNING
    await machine.clock.advance(2)
    ended = await machine.status(best_effort)
    assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)
    assert "the node was out of memory" in ended.message and "of 3 containers" in ended.message
    assert ended.finished_at == pytest.approx(machine.clock.now_ns() - 1 * NS, abs=NS // 100)
    late = await machine.start("another", "memory=7Gi", 2)
    assert (await machine.status(burstable)).reason == "OOMKilled"  # 750 of 1000 stand against 7 of 16 GiB
    assert (await machine.status(late)).state == (await machine.status(guaranteed)).state == cri.CONTAINER_RUNNING
    await machine.start("one more", "memory=4Gi", -997)
    assert (await machine.status(late)).reason == "OOMKilled"
    assert (await machine.status(guaranteed)).state == cri.CONTAINER_RUNNING


async def test_who_is_never_killed_outlives_everybody() -> None:
    machine = Machine()
    shielded = await machine.start("shielded", "memory=20Gi", -1000)
    assert (await machine.status(shielded)).state == cri.CONTAINER_RUNNING
    other = await machine.start("other", "memory=1Mi", -997)
    assert (await machine.status(other)).reason == "OOMKilled"


async def test_a_limit_kills_its_container_alone_and_before_the_machine_runs_out() -> None:
    machine = Machine()
    limited = await machine.start("limited", "memory=1Gi growth=1Gi/s", 1000, memory_limit_in_bytes=2 * GIB)
    calm = await machine.start("calm", "memory=12Gi", 1000)
    await machine.clock.advance(5)
    assert (await machine.status(limited)).reason == "OOMKilled" and not (await machine.status(limited)).message
    assert (await machine.status(calm)).state == cri.CONTAINER_RUNNING


async def test_memory_high_slows_growth_and_pressure_rises() -> None:
    machine = Machine()
    free = await machine.start("free", "memory=1Gi growth=100Mi/s", 1000)
    held = await machine.start("held", "memory=1Gi growth=100Mi/s", 500)
    request = cri.UpdateContainerResourcesRequest(container_id=held)
    request.linux.unified["memory.high"] = str(GIB + 100 * MIB)
    machine.runtime._perform(type(machine.runtime.core).update_container_resources, request)
    assert "avg10=0.00" in await machine.file(held, "memory.pressure")
    await machine.clock.advance(11)
    assert int(await machine.file(free, "memory.current")) == GIB + 1100 * MIB
    assert int(await machine.file(held, "memory.current")) == GIB + 200 * MIB  # one second freely, ten at a tenth
    assert (await machine.file(held, "memory.pressure")).splitlines()[0] == (
        "some avg10=56.89 avg60=13.82 avg300=2.95 total=9000000"
    )
    assert "high 1" in await machine.file(held, "memory.events")
    assert "high 0" in await machine.file(free, "memory.events")
    assert (await machine.file(free, "memory.pressure")).splitlines()[0].endswith("total=0")


async def test_a_higher_memory_high_lets_it_go_again() -> None:
    machine = Machine()
    held = await machine.start("held", "memory=1Gi growth=100Mi/s peak=4Gi", 500)
    for high in (GIB, 8 * GIB):
        request = cri.UpdateContainerResourcesRequest(container_id=held)
        request.linux.unified["memory.high"] = str(high)
        machine.runtime._perform(type(machine.runtime.core).update_container_resources, request)
        await machine.clock.advance(10)
    assert int(await machine.file(held, "memory.current")) == GIB + 100 * MIB + 1000 * MIB
    assert (await machine.file(held, "memory.pressure")).splitlines()[0].endswith("total=9000000")


def test_the_kernels_choice() -> None:
    """oom_badness: bytes, and a thousandth of the machine for each point of the adjustment."""
    big = Candidate("big", 4 * GIB, 0, 1)
    small = Candidate("small", 10 * MIB, 300, 2)
    assert victim([big, small], TOTAL) == small
    assert victim([big, Candidate("small", 10 * MIB, 200, 2)], TOTAL) == big
    assert victim([Candidate("x", GIB, -1000, 1)], TOTAL) is None
    assert Candidate("idle", 0, 0, 1).oom_score(TOTAL) == 666 and Candidate("idle", 0, 1000, 1).oom_score(TOTAL) == 1333


MEMORIES = st.builds(
    Memory,
    st.integers(0, 200),
    st.just(0),
    st.integers(0, 50),
    st.none() | st.integers(0, 400),
    st.none() | st.integers(0, 300),
)


@settings(max_examples=300, deadline=None)
@given(MEMORIES, st.integers(0, 500))
def test_memory_passes_a_size_when_it_says_so(memory: Memory, limit: int) -> None:
    due = memory.passes_ns(limit)
    if due is None:
        assert memory.at(10**6 * NS) <= limit
    else:
        assert memory.at(due) > limit and (due == 0 or memory.at(due - 1) <= limit)


@settings(max_examples=200, deadline=None)
@given(st.lists(MEMORIES, min_size=1, max_size=4), st.integers(100, 800))
def test_the_machine_runs_out_when_it_is_said_to(memories: list[Memory], total: int) -> None:
    due = runs_out_ns(memories, total, 0)
    if due is None:
        assert sum(each.at(10**6 * NS) for each in memories) <= total
    else:
        assert sum(each.at(due) for each in memories) > total
        assert due == 0 or sum(each.at(due - 1) for each in memories) <= total


@settings(max_examples=200, deadline=None)
@given(MEMORIES, st.integers(0, 20 * NS), st.integers(0, 20 * NS), st.none() | st.integers(0, 300))
def test_a_new_limit_changes_only_what_comes_after_it(memory: Memory, at_ns: int, later: int, high: int | None) -> None:
    size, stalled = memory.at(at_ns), memory.stalled_at(at_ns)
    memory.limit(at_ns, high)
    assert (memory.at(at_ns), memory.stalled_at(at_ns)) == (size, stalled)
    assert memory.at(at_ns + later) >= size and memory.stalled_at(at_ns + later) >= stalled
