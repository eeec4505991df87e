"""A node's heartbeat: seen by others as long as the agent lives, whatever its clock does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.resources import LEASES, NODES
from kubeqos.clock import NS, WallClock
from kubeqos.node.api.registration import LEASE_NAMESPACE, Registration


class SetClock(WallClock):
    """A clock on a wall that somebody sets."""

    now = 1_800_000_000.0

    def now_ns(self) -> int:
        return round(self.now * NS)


def status(_known: list[Any], stamp: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": stamp}
    return {"capacity": {}, "allocatable": {}, "conditions": [ready]}


async def test_a_clock_that_is_set_back_does_not_silence_the_node(tmp_path: Path) -> None:
    clock = SetClock()
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        api = server.local()
        kept = Registration(api, "n1", clock, lease_seconds=40, taints=[])

        async def beat() -> tuple[str, str]:
            await kept.keep({}, {}, status)
            lease, node = await api.get(LEASES, "n1", LEASE_NAMESPACE), await api.get(NODES, "n1")
            return lease["spec"]["renewTime"], node["status"]["conditions"][0]["lastHeartbeatTime"]

        first = await beat()
        clock.now += 2
        assert await beat() == first  # nothing has changed, and it is not time yet
        clock.now -= 3600
        lease, heartbeat = await beat()
        assert lease != first[0] and heartbeat != first[1]
        clock.now += 11
        assert (await beat())[0] != lease


class Followed:
    """The API, with what others see of the node after each write."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.seen: list[tuple[bool, str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def patch(self, kind: Any, *words: Any, **more: Any) -> Any:
        answer = await self._api.patch(kind, *words, **more)
        if kind is NODES:
            node = await self._api.get(NODES, "n1")
            told = (node["metadata"].get("annotations") or {}).get("plugins", "")
            self.seen.append(("x.io/link" in (node["status"].get("allocatable") or {}), told))
        return answer


async def test_a_resource_that_leaves_is_gone_before_its_plugin_is_said_to_be_down_no_more(tmp_path: Path) -> None:
    """Or pods would be sent for it between the two writes: the scheduler would see a plugin that is well."""
    amounts = {"x.io/link": "4"}

    def said(known: list[Any], stamp: str) -> dict[str, Any]:
        return {**status(known, stamp), "capacity": dict(amounts), "allocatable": dict(amounts)}

    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        api = Followed(server.local())
        kept = Registration(api, "n1", SetClock(), lease_seconds=40, taints=[])  # type: ignore[arg-type]
        await kept.keep({}, {"plugins": "well"}, said)
        await kept.keep({}, {"plugins": "down"}, said)
        assert (True, "down") in api.seen
        api.seen.clear()
        amounts.clear()
        await kept.keep({}, {"plugins": "well"}, said)
        assert api.seen == [(False, "down"), (False, "well")]
        amounts["x.io/link"] = "4"
        await kept.keep({}, {"plugins": "new"}, said)
        assert api.seen[2:] == [(False, "new"), (True, "new")]
