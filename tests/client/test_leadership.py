"""Leader election: one leads at a time, another follows when it stops, and who cannot renew stops working."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.api import Api
from kubeqos.client.leadership import Leadership, Seen, Terms, is_free, observed, taken
from kubeqos.client.resources import LEASES
from kubeqos.codec import JsonObject
from tests.client.test_informer import until

QUICK = Terms(lease_seconds=1.0, renew_seconds=0.6, retry_seconds=0.05)


def lease(holder: str, renewed: str = "a", seconds: int = 15) -> JsonObject:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}}


def test_who_may_take_a_lease() -> None:
    seen = observed(Seen(), lease("one"), 100.0)
    assert not is_free(seen, lease("one"), "two", 114.9)
    assert is_free(seen, lease("one"), "two", 115.0), "it was not renewed while we looked"
    assert is_free(seen, lease("one"), "one", 100.0)
    assert is_free(observed(Seen(), lease(""), 1.0), lease(""), "two", 1.0), "given back"
    renewed = observed(seen, lease("one", "b"), 114.0)
    assert not is_free(renewed, lease("one", "b"), "two", 128.9), "by our own clock, from when it changed"
    assert observed(seen, lease("one"), 110.0) is seen


def test_what_is_written_into_a_lease() -> None:
    first = taken({}, "one", Terms(), 0.0)
    assert first["spec"]["leaseTransitions"] == 1
    again = taken(first, "one", Terms(), 60.0)
    assert again["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    assert again["spec"]["renewTime"] == "1970-01-01T00:01:00.000000Z"
    assert taken(again, "two", Terms(), 90.0)["spec"]["leaseTransitions"] == 2


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        yield server.local()


class Replica:
    def __init__(self, api: Api, name: str, working: list[str]) -> None:
        self.leadership = Leadership(api, "part", "default", name, QUICK)
        self._name, self._working = name, working
        self.task = asyncio.create_task(self.leadership.run(self._work))

    async def _work(self) -> None:
        self._working.append(self._name)
        try:
            await asyncio.Event().wait()
        finally:
            self._working.remove(self._name)

    async def stop(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task


async def test_one_works_at_a_time_and_another_follows_at_once(api: Api) -> None:
    working: list[str] = []
    replicas = {name: Replica(api, name, working) for name in ("a", "b", "c")}
    for left in (2, 1, 0):
        await until(lambda: len(working) == 1)
        [leader] = working
        assert replicas[leader].leadership.leads
        await replicas.pop(leader).stop()
        assert working == []
        assert len(replicas) == left
    assert (await api.get(LEASES, "part", "default"))["spec"]["holderIdentity"] == ""


async def test_who_lost_the_lease_stops_working(api: Api) -> None:
    working: list[str] = []
    one = Replica(api, "a", working)
    await until(lambda: working == ["a"])
    stored = await api.get(LEASES, "part", "default")
    stored["spec"] = {**stored["spec"], "holderIdentity": "thief", "renewTime": "2038-01-01T00:00:00.000000Z"}
    await api.patch(LEASES, "part", {"spec": stored["spec"]}, "default")
    await until(lambda: working == [])
    await until(lambda: working == ["a"])  # the thief never renews
    await one.stop()
