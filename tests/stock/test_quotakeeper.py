"""Crowds of pods at class quotas, by several keepers on one server: few writes, exact, refused for room alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kubeqos.client.http import HttpApi
from kubeqos.errors import InputError
from kubeqos.model.timestamps import timestamp
from kubeqos.stock.cluster import PODS, QUOTAS, Cluster
from kubeqos.stock.quotakeeper import QuotaKeeper
from tests.apiserver.live import live_server
from tests.qrm.harness import until
from tests.stock.control.replicas import prepared
from tests.stock.test_classquota import BY_OLDER_CONTROLLERS, counted, pod

TEAM = "crowd"
REPLICAS = 3


class Counting(HttpApi):
    """Counts the writes that were sent."""

    writes = 0

    async def update(self, *args: Any, **kwargs: Any) -> Any:
        self.writes += 1
        return await super().update(*args, **kwargs)


@asynccontextmanager
async def keepers(folder: Path, **quotas: int) -> AsyncIterator[tuple[Counting, list[QuotaKeeper]]]:
    """As many as there are replicas, each with its own copies, in a namespace with these quotas of gold."""
    with live_server(folder) as live:
        api = Counting.from_kubeconfig(live.kubeconfig)
        assert isinstance(api, Counting)
        await prepared(api, TEAM)
        for name, gold in quotas.items():
            classes = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": gold}]}]}
            raw = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "QOSClassQuota", "metadata": {"name": name}}
            await api.create(QUOTAS, {**raw, "spec": {"qosResources": classes}}, TEAM)
        clusters = [Cluster(api) for _ in range(REPLICAS)]
        following = [asyncio.create_task(cluster.run()) for cluster in clusters]
        try:
            for cluster in clusters:
                await until("known", lambda cluster=cluster: len(cluster.quotas) == len(quotas))
            yield api, [QuotaKeeper(cluster) for cluster in clusters]
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
            await api.close()


async def crowd(who: list[QuotaKeeper], name: str, size: int) -> list[str | None]:
    """Each pod asks another replica than the one before it, all at once."""
    asking = (who[number % len(who)].charge(TEAM, pod(f"{name}{number}")) for number in range(size))
    return await asyncio.gather(*asking)


async def used(api: HttpApi, name: str) -> tuple[int, int]:
    """How much is counted, and for how many pods it is reserved."""
    raw = await api.get(QUOTAS, name, TEAM)
    return counted(raw)["gold"], len(raw["status"]["reserved"])


async def test_a_crowd_at_one_replica_costs_a_few_writes(tmp_path: Path) -> None:
    async with keepers(tmp_path, q=70) as (api, who):
        answers = await crowd(who[:1], "p", 100)
        assert answers.count(None) == 70
        assert all("exceeded quota: q" in answer for answer in answers if answer)
        assert await used(api, "q") == (70, 70)
        assert api.writes <= 4, "one for the first count, one for the crowd, and what a late copy costs"


async def test_replicas_refuse_for_want_of_room_alone_and_give_back_what_a_second_quota_refused(tmp_path: Path) -> None:
    async with keepers(tmp_path, first=80, second=50) as (api, who):
        answers = await crowd(who, "p", 120)
        assert answers.count(None) == 50
        assert all("exceeded quota: " in answer for answer in answers if answer), "never for a conflict"
        assert await used(api, "first") == await used(api, "second") == (50, 50), "what was in vain is given back"
        await who[0].count(TEAM, "second", [f"p{number}" for number, answer in enumerate(answers) if not answer][:10])
        assert await used(api, "second") == (40, 40)
        # Replicas whose copies may not know of it yet ask the server before they refuse.
        again = await crowd(who, "again", REPLICAS * 4)
        assert again.count(None) == 10
        assert await used(api, "second") == (50, 50)


async def test_a_pod_that_cannot_be_read_is_in_nobodys_way(tmp_path: Path) -> None:
    async with keepers(tmp_path, q=5) as (api, who):
        bad = pod("bad")
        bad["metadata"]["annotations"]["qos.kubeqos.io/container.c0"] = "gold"
        told = await asyncio.gather(who[0].charge(TEAM, bad), crowd(who[:1], "p", 5), return_exceptions=True)
        assert isinstance(told[0], InputError)
        assert told[1] == [None] * 5
        assert await who[0].charge(TEAM, pod("probe"), dry_run=True) is not None
        await api.delete(QUOTAS, "q", TEAM)
        assert await who[1].charge(TEAM, pod("free")) is None, "a quota that is gone has nothing to say"


async def test_of_a_dry_run_nothing_is_kept(tmp_path: Path) -> None:
    async with keepers(tmp_path, q=1) as (api, who):
        probes = [who[0].charge(TEAM, pod(f"probe{number}"), dry_run=True) for number in range(5)]
        assert await asyncio.gather(*probes) == [None] * 5
        assert await who[0].charge(TEAM, pod("real")) is None
        assert await used(api, "q") == (1, 1)


async def test_pods_that_were_seen_stored_are_counted_and_noted_no_longer(tmp_path: Path) -> None:
    async with keepers(tmp_path, q=50) as (api, who):
        assert await crowd(who[:1], "p", 5) == [None] * 5
        for number in range(4):
            who[0].saw(TEAM, f"p{number}")
        before = api.writes
        assert await who[0].charge(TEAM, pod("next")) is None
        assert await used(api, "q") == (6, 2), "they went with the write that was made anyway"
        assert api.writes == before + 1
        who[0].saw(TEAM, "next")
        patience = await who[0].confirm(TEAM, 60.0)
        assert patience is not None
        assert 50.0 < patience <= 60.0
        assert await used(api, "q") == (6, 2), "there may be another write soon"
        assert await who[0].confirm(TEAM, 0.0) is None
        assert await used(api, "q") == (6, 1)
        assert await who[0].confirm(TEAM, 0.0) is None
        assert api.writes == before + 2, "nothing is left to say"


async def test_a_pod_that_came_past_the_webhooks_is_counted_when_it_is_seen(tmp_path: Path) -> None:
    async with keepers(tmp_path, q=50) as (api, who):
        assert await who[0].charge(TEAM, pod("a")) is None
        raw = pod("past")
        del raw["metadata"]["uid"], raw["status"]
        raw["spec"]["containers"][0]["image"] = "app:1"
        stored = await api.create(PODS, raw, TEAM)
        who[0].saw(TEAM, stored["metadata"]["uid"])
        await who[0].confirm(TEAM, 0.0)
        assert await used(api, "q") == (2, 1)


async def test_what_an_older_controller_reserved_counts_on(tmp_path: Path) -> None:
    async with keepers(tmp_path, q=4) as (api, who):
        assert await who[0].charge(TEAM, pod("a")) is None
        raw = await api.get(QUOTAS, "q", TEAM)
        now = timestamp(time.time())
        raw["status"]["reserved"] = {"a": BY_OLDER_CONTROLLERS | {"at": now}, "b": BY_OLDER_CONTROLLERS | {"at": now}}
        await api.update(QUOTAS, raw, subresource="status")
        await who[1].count(TEAM, "q")
        assert await used(api, "q") == (4, 2)
        assert "exceeded quota: q" in (await who[2].charge(TEAM, pod("c")) or "")
        await who[1].count(TEAM, "q", gone=["a"])
        assert await who[2].charge(TEAM, pod("c")) is None
        assert await used(api, "q") == (3, 2)
