"""Keys are worked on once per reason, by one worker at a time, and failures come back."""

from __future__ import annotations

import asyncio

import pytest

from kubeqos.client import WorkQueue


def no_failures(key: str, error: Exception, delay: float) -> None:
    raise AssertionError(f"{key}: {error!r}")


async def test_a_key_added_often_is_handed_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(3):
        queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert len(queue) == 0


async def test_a_key_added_during_its_work_comes_again_afterwards_and_not_before() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


async def test_delays_double_until_success_and_are_bounded() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=0.5, longest_delay=3)
    assert [queue.retry("a") for _ in range(5)] == [0.5, 1, 2, 3, 3]
    queue.forget("a")
    assert queue.retry("a") == 0.5
    assert queue.retry("b") == 0.5
    queue.close()


async def test_the_earliest_wish_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("a", 3600)
    queue.add_after("a", 0.001)
    queue.add_after("a", 3600)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.close()


async def test_workers_never_share_a_key_and_miss_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue(first_delay=0.0001)
    wanted = dict.fromkeys("abcdef", 0)  # what the world says
    reached = dict.fromkeys("abcdef", -1)  # what the workers saw last
    busy: set[str] = set()
    failures: list[str] = []

    async def reconcile(key: str) -> float | None:
        assert key not in busy
        busy.add(key)
        try:
            saw = wanted[key]
            await asyncio.sleep(0)
            if saw % 5 == 3:
                wanted[key] += 1
                raise RuntimeError("not this time")
            reached[key] = saw
        finally:
            busy.discard(key)
        return None

    def failed(key: str, error: Exception, delay: float) -> None:
        failures.append(key)

    working = asyncio.create_task(queue.work(reconcile, workers=4, failed=failed))
    for number in range(300):
        key = "abcdef"[number * 7 % 6]
        wanted[key] += 1
        queue.add(key)
        if number % 3 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(60):
        while reached != wanted:  # noqa: ASYNC110 - level-triggered: there is no last event to wait for
            await asyncio.sleep(0.001)
    assert failures
    queue.close()
    await working


async def test_a_worker_may_ask_to_see_a_key_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    visits = 0

    async def reconcile(key: str) -> float | None:
        nonlocal visits
        visits += 1
        if visits == 3:
            queue.close()
        return 0.001

    queue.add("a")
    await asyncio.wait_for(queue.work(reconcile, failed=no_failures), 5)
    assert visits == 3


@pytest.mark.parametrize("woken", [False, True])
async def test_a_cancelled_getter_does_not_swallow_a_key(woken: bool) -> None:
    queue: WorkQueue[str] = WorkQueue()
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    if woken:
        queue.add("a")
    first.cancel()
    if not woken:
        queue.add("a")
    assert await asyncio.wait_for(second, 5) == "a"


async def test_closing_lets_every_worker_go() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*waiting) == [None, None, None]
    queue.add("a")
    assert await queue.get() is None
