"""Many coroutines run in one task do what a task for each would."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from kubeqos.apiserver.shortcuts.batching import run_together


async def test_they_begin_in_order_wait_together_and_return_in_order() -> None:
    began: list[int] = []
    doors = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def one(number: int) -> int:
        began.append(number)
        return number + int(await doors[number])

    work = asyncio.ensure_future(run_together(one(number) for number in range(3)))
    await asyncio.sleep(0)
    assert began == [0, 1, 2] and not work.done()
    for number in (2, 0, 1):
        doors[number].set_result(10 * number)
    assert await work == [0, 11, 22]


async def test_who_gives_way_or_waits_twice_is_carried_on() -> None:
    async def polite(number: int) -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        return number

    async def at_once() -> int:
        return 7

    assert await run_together([polite(1), at_once(), polite(2)]) == [1, 7, 2]


async def test_a_failure_is_told_to_who_waits_for_it() -> None:
    door: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def careful() -> str:
        try:
            await door
        except OSError as error:
            return str(error)
        return "fine"

    work = asyncio.ensure_future(run_together([careful(), careful()]))
    await asyncio.sleep(0)
    door.set_exception(OSError("disk"))
    assert await work == ["disk", "disk"]


async def test_when_it_is_cancelled_all_are() -> None:
    ended: list[int] = []

    async def endless(number: int) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(number)

    work = asyncio.ensure_future(run_together([endless(0), endless(1)]))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended == [0, 1]


async def test_asyncio_still_marks_a_future_as_awaited_the_way_batching_takes_it() -> None:
    """The one private habit of asyncio that batching leans on. If this fails, `batching._taken` must follow asyncio."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def waits() -> int:
        return await future

    first, second = waits(), waits()
    assert first.send(None) is future, "a coroutine no longer hands the future that it awaits to whoever runs it"
    assert future._asyncio_future_blocking is True, "asyncio no longer marks a future that a coroutine awaits"
    future._asyncio_future_blocking = False
    assert second.send(None) is future, "a future that was taken can no longer be awaited by another coroutine"
    future.set_result(7)
    for one in (first, second):
        with pytest.raises(StopIteration) as done:
            one.send(None)
        assert done.value.value == 7


async def test_what_waits_for_anything_but_a_future_is_told() -> None:
    class Odd:
        def __await__(self) -> Generator[str, None, None]:
            yield "odd"

    async def odd() -> None:
        await Odd()

    with pytest.raises(TypeError, match="a request waits for 'odd', which is not a future"):
        await run_together([odd()])
