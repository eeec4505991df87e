"""The local copy follows the server through cuts, restarts and forgotten history, and announces each change once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kubeqos.client import Change, Informer, informer
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS
from kubeqos.store import Store
from tests.client.server import TinyServer
from tests.client.test_api import pod


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(informer, "LONGEST_PAUSE", 0.01)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the condition is about another process's view
            await asyncio.sleep(0.002)


@asynccontextmanager
async def following(api: HttpApi) -> AsyncIterator[tuple[Informer, list[Change]]]:
    followed, changes = Informer(api, PODS, namespace="default"), []
    followed.on_change(changes.append)
    task = asyncio.create_task(followed.run())
    await followed.synced.wait()
    yield followed, changes
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def kinds(changes: list[Change]) -> list[tuple[str, str]]:
    def kind(change: Change) -> str:
        return "gone" if change.new is None else "new" if change.old is None else "changed"

    return [(kind(change), change.key.removeprefix("default/")) for change in changes]


async def test_it_starts_with_what_is_there_and_follows(api: HttpApi) -> None:
    await api.create(PODS, pod("a"))
    async with following(api) as (pods, changes):
        assert kinds(changes) == [("new", "a")]
        await api.create(PODS, pod("b"))
        await api.patch(PODS, "a", {"spec": {"x": 1}}, "default")
        await api.delete(PODS, "a", "default")
        await until(lambda: len(changes) == 4)
        assert kinds(changes)[1:] == [("new", "b"), ("changed", "a"), ("gone", "a")]
        assert changes[2].object()["spec"] == {"x": 1}
        assert "spec" not in (changes[2].previous() or {})
        assert [key for key, _ in pods] == ["default/b"]
        assert isinstance(pods.get("default/b"), bytes)
        assert pods.object("default/b")["metadata"]["name"] == "b"  # type: ignore[index]
        late: list[Change] = []
        pods.on_change(late.append)
        assert kinds(late) == [("new", "b")]


async def test_a_cut_watch_goes_on_where_it_stopped(api: HttpApi, server: TinyServer) -> None:
    async with following(api) as (_, changes):
        for name in "abc":
            await api.create(PODS, pod(name))
            await until(lambda: bool(server.watches))
            server.cut_watches()
        await until(lambda: len(changes) == 3)
        assert kinds(changes) == [("new", "a"), ("new", "b"), ("new", "c")]
        lists = [r for r in server.requests if r.startswith("GET")]
        assert len(lists) > 3  # watched again and again


async def test_forgotten_history_is_bridged_by_a_new_list(api: HttpApi, server: TinyServer) -> None:
    for name in "abc":
        await api.create(PODS, pod(name))
    async with following(api) as (pods, changes):
        await until(lambda: bool(server.watches))
        server.refuse_watches = True
        server.cut_watches()
        await api.delete(PODS, "a", "default")
        await api.delete(PODS, "b", "default")
        await api.create(PODS, pod("b"))  # a namesake
        await api.patch(PODS, "c", {"spec": {}}, "default")
        await api.create(PODS, pod("d"))
        server.store.compact(server.store.revision)
        server.refuse_watches = False
        await until(lambda: len(changes) >= 8)
        # "c" and "d" come in order of their keys; nothing that stayed the same is announced again
        assert kinds(changes)[3:] == [("gone", "a"), ("gone", "b"), ("new", "b"), ("changed", "c"), ("new", "d")]
        assert len(pods) == 3


async def test_a_server_that_lost_its_memory_is_listed_anew(api: HttpApi, server: TinyServer, tmp_path: Path) -> None:
    for name in "abc":
        await api.create(PODS, pod(name))
    async with following(api) as (pods, changes):
        old, server.store = server.store, Store.open(tmp_path / "restored.db")
        await api.create(PODS, pod("d"))
        await old.close()  # ends the watches
        await until(lambda: [key for key, _ in pods] == ["default/d"])
        assert set(kinds(changes)[3:]) == {("gone", "a"), ("gone", "b"), ("gone", "c"), ("new", "d")}


async def test_trouble_is_waited_out(api: HttpApi, server: TinyServer) -> None:
    await api.create(PODS, pod("a"))
    server.troubles = [(500, {}), (403, {}), (500, {})]
    async with following(api) as (pods, changes):
        assert len(pods) == 1
        server.troubles = [(500, {}), (500, {})]
        server.cut_watches()
        await until(lambda: not server.troubles)
        await api.create(PODS, pod("b"))
        await until(lambda: len(changes) == 2)


@pytest.mark.parametrize("seed", range(3))
async def test_after_any_weather_the_copy_is_exact(api: HttpApi, server: TinyServer, seed: int) -> None:
    chance = random.Random(seed)
    replayed: dict[str, bytes] = {}

    def replay(change: Change) -> None:
        assert (change.old is None) == (change.key not in replayed), "announced twice, or not at all"
        if change.new is None:
            del replayed[change.key]
        else:
            replayed[change.key] = change.new

    async with following(api) as (pods, _):
        pods.on_change(replay)
        names: set[str] = set()
        for number in range(120):
            name = f"p{chance.randrange(8)}"
            if name not in names:
                await api.create(PODS, pod(name))
                names.add(name)
            elif chance.random() < 0.4:
                await api.delete(PODS, name, "default")
                names.discard(name)
            else:
                await api.patch(PODS, name, {"spec": {"n": number}}, "default")
            if chance.random() < 0.1:
                server.cut_watches()
            if chance.random() < 0.05:
                server.store.compact(server.store.revision)
        expected = {f"default/{item.key.rpartition('/')[2]}": item.value for item in server.store.range("/api").items}
        await until(lambda: dict(pods) == expected)
        assert replayed == expected


async def test_a_broken_handler_is_not_hidden(api: HttpApi) -> None:
    await api.create(PODS, pod("a"))
    followed = Informer(api, PODS, namespace="default")

    def broken(change: Change) -> None:
        raise ZeroDivisionError

    followed.on_change(broken)
    with pytest.raises(ZeroDivisionError):
        await followed.run()


async def test_a_kind_that_is_not_served_is_empty_until_it_is(api: HttpApi, server: TinyServer) -> None:
    await api.create(PODS, pod("a"))
    server.troubles = [(404, {})] * 3
    async with following(api) as (pods, changes):
        assert not pods.served
        assert len(pods) == 0
        await until(lambda: len(changes) == 1)
        assert pods.served
        assert kinds(changes) == [("new", "a")]
