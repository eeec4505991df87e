"""Who waits for whom on the way in: those who need all that another one needs, and nobody else."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.node.admission.reservations import Reservation, Reservations

PEERS = ("cpu", "memory", "nic", "driver")
peers = st.frozensets(st.sampled_from(PEERS))


@given(peers, peers)
def test_a_pod_waits_only_for_one_that_is_held_up_by_its_own_peers(
    first: frozenset[str], second: frozenset[str]
) -> None:
    waits = Reservation("a", first).goes_before(Reservation("b", second))
    assert waits == (bool(first) and first <= second)
    assert Reservation("a", first).goes_before(Reservation("a", second)), "one pod is one thing at a time"


@given(st.lists(peers, max_size=8), peers)
def test_a_peer_that_hangs_holds_up_exactly_those_who_ask_it(pods: list[frozenset[str]], hung: frozenset[str]) -> None:
    """Everybody enters at once; who asks a peer that hangs never leaves. Everybody else does."""

    async def live() -> None:
        pending, through, order = Reservations(), set[int](), list[int]()

        async def enter(number: int) -> None:
            async with pending.turn(f"pod-{number}", pods[number]) as mine:
                with mine.holding():
                    await asyncio.sleep(0)
                    if pods[number] & hung:
                        await asyncio.Event().wait()
            through.add(number)
            order.append(number)

        tasks = [asyncio.create_task(enter(number)) for number in range(len(pods))]
        for _ in range(4 * len(pods) + 4):
            await asyncio.sleep(0)
        assert through == {number for number, asked in enumerate(pods) if not asked & hung}
        for same in set(pods):
            alike = [number for number in order if pods[number] == same and same]
            assert alike == sorted(alike), "pods of the same peers keep their order"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert pending.validate(()) == []

    asyncio.run(live())


async def test_what_is_reserved_is_undecided_until_it_is_given_back_or_entered() -> None:
    pending = Reservations()
    async with pending.turn("a", frozenset({"cpu"})) as first, pending.turn("b") as second:
        assert pending.undecided(second) == []
        with first.holding():
            [decided] = pending.undecided(second)
            assert pending.undecided(first) == [] and not decided.is_set()
            assert pending.validate({"a"}) == []
            assert pending.validate(()) == ["reserved for [], and ['a'] are being admitted"]
        assert decided.is_set() and pending.undecided(second) == []
