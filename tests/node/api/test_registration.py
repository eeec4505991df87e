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
