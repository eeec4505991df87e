"""A simulated runtime that is slow, refuses, or hangs, and the clock that such tests run on."""

from __future__ import annotations

import asyncio

import pytest

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.cri.simulated.faults import Fault, Faults, Latency, parse_faults
from kubeqos.errors import InputError
from kubeqos.model.hardware.named import tiny2
from tests.cri.pods import pod

MS = 1_000_000


def node(faults: Faults) -> tuple[SimulatedRuntime, VirtualClock]:
    clock = VirtualClock()
    return SimulatedRuntime(tiny2(), clock=clock, faults=faults), clock


async def test_a_slow_call_takes_its_time() -> None:
    runtime, clock = node(Faults({"RunPodSandbox": Latency(200 * MS, 200 * MS)}))
    start = clock.now_ns()
    call = asyncio.create_task(runtime.run_pod_sandbox(pod()))
    await clock.advance(0.1)
    assert not call.done()
    await clock.advance(0.1)
    assert await call
    assert runtime.core.sandboxes[await call].created_ns - start == 200 * MS
    await asyncio.wait_for(runtime.version(), 1)


async def test_a_hanging_call_ends_at_its_deadline_and_does_nothing() -> None:
    runtime, clock = node(Faults(fault={"RunPodSandbox": Fault(None)}))
    call = asyncio.create_task(runtime.run_pod_sandbox(pod()))
    await clock.advance(10_000)
    with pytest.raises(CallError) as late:
        await call
    assert late.value.code is Code.DEADLINE_EXCEEDED
    assert not runtime.core.sandboxes


async def test_a_share_of_calls_fails_and_the_seed_says_which() -> None:
    async def failures(seed: int) -> list[bool]:
        runtime, _ = node(Faults(fault={"*": Fault(Code.UNAVAILABLE, 0.3)}, seed=seed))
        outcomes = []
        for _ in range(100):
            try:
                await runtime.version()
                outcomes.append(False)
            except CallError as error:
                assert error.code is Code.UNAVAILABLE
                outcomes.append(True)
        return outcomes

    first = await failures(1)
    assert first == await failures(1)
    assert first != await failures(2)
    assert 15 <= sum(first) <= 45


def test_rules_are_read_from_the_command_line() -> None:
    faults = parse_faults(["*=2ms-10ms", "Status=1s"], ["PullImage=UNAVAILABLE@5%", "Version=HANG"])
    assert faults is not None
    assert faults.latency == {"*": Latency(2 * MS, 10 * MS), "Status": Latency(1000 * MS, 1000 * MS)}
    assert faults.fault == {"PullImage": Fault(Code.UNAVAILABLE, 0.05), "Version": Fault(None)}
    assert parse_faults([], []) is None


@pytest.mark.parametrize(
    ("latency", "fault"),
    [("Strat=1s", ""), ("Status", ""), ("Status=10ms-1ms", ""), ("", "Status=SOMETIMES"), ("", "Status=UNKNOWN@lots")],
)
def test_a_wrong_rule_is_refused(latency: str, fault: str) -> None:
    with pytest.raises(InputError):
        parse_faults([latency] if latency else [], [fault] if fault else [])


async def test_virtual_time_wakes_sleepers_in_order_and_at_their_own_time() -> None:
    clock = VirtualClock(0)
    woken: list[tuple[str, int]] = []

    async def sleeper(name: str, *times: int) -> None:
        for at in times:
            await clock.sleep_until(at)
            woken.append((name, clock.now_ns()))

    tasks = [asyncio.create_task(sleeper("a", 30, 50)), asyncio.create_task(sleeper("b", 10, 40, 40))]
    cancelled = clock.call_at(20, lambda: woken.append(("never", 20)))
    cancelled.cancel()
    await clock.advance(45 / 1e9)
    assert woken == [("b", 10), ("a", 30), ("b", 40), ("b", 40)]
    assert clock.now_ns() == 45
    await clock.advance(1)
    await asyncio.gather(*tasks)
    assert woken[-1] == ("a", 50)
