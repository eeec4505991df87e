"""Many coroutines carried on in one task do what a task for each would."""

from __future__ import annotations

import asyncio

import pytest

from kubeqos.apiserver.shortcuts.batching import carry


async def test_they_begin_in_order_wait_together_and_return_in_order() -> None:
    began: list[int] = []
    doors = [asyncio.get_running_loop().create_future() for _ in range(3)]

    async def one(number: int) -> int:
        began.append(number)
        return number + int(await doors[number])

    work = asyncio.ensure_future(carry(one(number) for number in range(3)))
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

    assert await carry([polite(1), at_once(), polite(2)]) == [1, 7, 2]


async def test_a_failure_is_told_to_who_waits_for_it() -> None:
    door: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def careful() -> str:
        try:
            await door
        except OSError as error:
            return str(error)
        return "fine"

    work = asyncio.ensure_future(carry([careful(), careful()]))
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

    work = asyncio.ensure_future(carry([endless(0), endless(1)]))
    await asyncio.sleep(0)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert ended == [0, 1]
