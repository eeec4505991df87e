"""What changes a quota's usage without a client's write: a grace period that ends, a batch that the disk refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.admission.chain import Chain
from kubeqos.apiserver.present.options import DeleteOptions
from kubeqos.apiserver.registry.core import Core
from kubeqos.apiserver.registry.deletes import delete
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.upkeep.bootstrap import bootstrap
from kubeqos.apiserver.registry.upkeep.expiry import Expiry
from kubeqos.apiserver.registry.writes import Write, create
from kubeqos.codec import decode_json
from kubeqos.gates import FeatureGates
from kubeqos.store import Store, StoreError
from tests.client.test_informer import until

POD, QUOTA, CONFIG = kind_named("Pod"), kind_named("ResourceQuota"), kind_named("ConfigMap")
START = 1_800_000_000.0


@asynccontextmanager
async def server(path: Path, clock: Callable[[], float], max_bytes: int = 0) -> AsyncIterator[Core]:
    """The API server without its sockets."""
    store = Store.open(path, max_bytes=max_bytes)
    core = Core(store, Chain(store, FeatureGates.default()), clock=clock)
    await bootstrap(core)
    yield core
    await store.close()


async def make(core: Core, kind: Any, body: dict[str, Any]) -> None:
    await create(core, Write(kind, "default"), body)


def used(core: Core) -> dict[str, str]:
    stored = core.store.get(QUOTA.key("default", "q"))
    assert stored is not None
    status: dict[str, str] = decode_json(stored.value)["status"]["used"]
    return status


def quota(**hard: str) -> dict[str, Any]:
    names = {name.replace("_", "/"): amount for name, amount in hard.items()}
    return {"metadata": {"name": "q"}, "spec": {"hard": names}}


def bound_pod(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}}


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_pod_past_its_grace_period_is_no_longer_charged(tmp_path: Path, restarted: bool) -> None:
    now = START
    async with server(tmp_path / "db", lambda: now) as core:
        await make(core, QUOTA, quota(pods="2", count_pods="3"))
        await make(core, POD, bound_pod("hangs"))
        watching = asyncio.create_task(Expiry(core.store, core.admission, lambda: now).run())  # type: ignore[arg-type]
        await delete(core, POD, "default", "hangs", DeleteOptions(grace=30))
        await asyncio.sleep(0.05)
        assert used(core) == {"pods": "1", "count/pods": "1"}, "it is still within its grace period"
        watching.cancel()
        if not restarted:
            now = START + 61
            watching = asyncio.create_task(Expiry(core.store, core.admission, lambda: now).run())  # type: ignore[arg-type]
            await until(lambda: used(core)["pods"] == "0")
            assert used(core)["count/pods"] == "1", "its record still counts"
            await delete(core, POD, "default", "hangs", DeleteOptions(grace=0))
            assert used(core) == {"pods": "0", "count/pods": "0"}
            await until(lambda: not core.admission.ledger.expired)  # type: ignore[attr-defined]
            watching.cancel()
    if restarted:
        now = START + 61
        async with server(tmp_path / "db", lambda: now) as core:
            watching = asyncio.create_task(Expiry(core.store, core.admission, lambda: now).run())  # type: ignore[arg-type]
            await until(lambda: used(core)["pods"] == "0")
            await make(core, POD, bound_pod("b"))
            assert used(core) == {"pods": "1", "count/pods": "2"}
            watching.cancel()


async def test_writes_that_the_disk_refuses_charge_nothing(tmp_path: Path) -> None:
    async with server(tmp_path / "db", lambda: START, max_bytes=600_000) as core:
        await make(core, QUOTA, quota(count_configmaps="3"))
        big = {"metadata": {"name": "big"}, "data": {"x": "x" * 900_000}}
        outcomes = await asyncio.gather(
            make(core, CONFIG, big), make(core, CONFIG, {"metadata": {"name": "small"}}), return_exceptions=True
        )
        assert all(isinstance(outcome, StoreError) for outcome in outcomes), outcomes
        for name in ("a", "b", "c"):
            await make(core, CONFIG, {"metadata": {"name": name}})
        assert used(core) == {"count/configmaps": "3"}


async def test_what_a_full_disk_did_not_take_is_given_back_later(tmp_path: Path) -> None:
    now = START
    async with server(tmp_path / "db", lambda: now, max_bytes=600_000) as core:
        await make(core, QUOTA, quota(pods="2"))
        await make(core, POD, bound_pod("hangs"))
        await delete(core, POD, "default", "hangs", DeleteOptions(grace=30))
        stored = core.store.get(POD.key("default", "hangs"))
        assert stored is not None
        big = {"metadata": {"name": "big"}, "data": {"x": "x" * 900_000}}
        now = START + 61
        outcomes = await asyncio.gather(
            make(core, CONFIG, big),
            core.admission.expire(decode_json(stored.value)),
            return_exceptions=True,  # type: ignore[attr-defined]
        )
        assert all(isinstance(outcome, StoreError) for outcome in outcomes), outcomes
        assert used(core) == {"pods": "1"}
        watching = asyncio.create_task(Expiry(core.store, core.admission, lambda: now).run())  # type: ignore[arg-type]
        await until(lambda: used(core) == {"pods": "0"})
        watching.cancel()


async def test_a_quota_is_counted_while_pods_come_and_go(tmp_path: Path) -> None:
    """Counting takes turns with everybody else, and the sum is still that of the moment when the quota is written."""
    async with server(tmp_path / "db", lambda: START) as core:
        for number in range(600):
            await make(core, POD, bound_pod(f"p{number}"))
        others = 0

        async def churn() -> None:
            nonlocal others
            while True:
                await delete(core, POD, "default", f"p{others}", DeleteOptions(grace=0))
                others += 1
                if others % 3:
                    await make(core, POD, bound_pod(f"n{others}"))

        busy = asyncio.create_task(churn())
        await make(core, QUOTA, quota(pods="10000"))
        at_creation = others
        busy.cancel()
        await asyncio.gather(busy, return_exceptions=True)
        assert at_creation > 0, "nobody else had a turn"
        await make(core, CONFIG, {"metadata": {"name": "after"}})  # everything before it is durable now
        assert used(core) == {"pods": str(len(core.store.range(POD.range_prefix("default")).items))}
