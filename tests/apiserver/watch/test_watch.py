"""What etcd promises of a watch, held by ours: ordered, unique, atomic, resumable, bookmarkable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.local import LOCAL, LocalTransport
from kubeqos.apiserver.registry.kinds import kind_named
from kubeqos.apiserver.registry.upkeep.eventexpiry import expired, sweep
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError, TransportApi
from kubeqos.client.api import Call
from kubeqos.client.resources import Resource
from kubeqos.codec import decode_json

MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as found:
        yield found


def named(name: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": data}


async def collect(api: TransportApi, since: str, seconds: int = 2) -> list[tuple[str, str, int]]:
    events = [event async for event in api.watch(MAPS, "default", since=since, seconds=seconds)]
    return [(e.type, e.metadata().name, int(e.metadata().resource_version)) for e in events]


async def test_everybody_sees_everything_once_and_in_order(server: ApiServer) -> None:
    api = server.local()
    start = (await api.list(MAPS, "default")).resource_version
    watchers = [asyncio.ensure_future(collect(api, start)) for _ in range(20)]
    await asyncio.sleep(0.05)

    async def life(name: str) -> None:
        await api.create(MAPS, named(name), "default")
        for number in range(3):
            await api.patch(MAPS, name, {"data": {"n": str(number)}}, "default")
        await api.delete(MAPS, name, "default")

    await asyncio.gather(*(life(f"m{number}") for number in range(25)))
    seen = await asyncio.gather(*watchers)
    changes = [[event for event in events if event[0] != "BOOKMARK"] for events in seen]
    assert all(found == changes[0] for found in changes)
    revisions = [revision for _, _, revision in changes[0]]
    assert revisions == sorted(set(revisions))
    assert len(revisions) == 25 * 5
    for number in range(25):
        types = [kind for kind, name, _ in changes[0] if name == f"m{number}"]
        assert types == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]


async def test_a_watch_resumes_where_it_was(server: ApiServer) -> None:
    api = server.local()
    start = (await api.list(MAPS, "default")).resource_version
    for number in range(6):
        await api.create(MAPS, named(f"m{number}"), "default")
    whole = [event for event in await collect(api, start, 1) if event[0] != "BOOKMARK"]
    for position in range(6):
        rest = [e for e in await collect(api, str(whole[position][2]), 1) if e[0] != "BOOKMARK"]
        assert rest == whole[position + 1 :]


async def test_a_watch_that_begins_with_the_state_misses_nothing_that_happens_meanwhile(server: ApiServer) -> None:
    """sendInitialEvents: objects, one bookmark that ends them, then changes; together they are what a list shows."""
    api, transport = server.local(), LocalTransport(server.application, LOCAL)
    path = "/api/v1/namespaces/default/configmaps"

    async def write(worker: int) -> None:
        for number in range(30):
            await api.create(MAPS, named(f"w{worker}-{number}"), "default")
            if number % 3 == 0:
                await api.delete(MAPS, f"w{worker}-{number}", "default")

    async def follow(wait: float) -> tuple[set[str], int]:
        await asyncio.sleep(wait)
        query = {"watch": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "3",
                 "resourceVersionMatch": "NotOlderThan"}  # fmt: skip
        chunks = [chunk async for chunk in transport.stream(Call("GET", path, query))]
        known: set[str] = set()
        ends = 0
        for line in b"".join(chunks).splitlines():
            event = decode_json(line)
            metadata = event["object"]["metadata"]
            if event["type"] == "BOOKMARK":
                ends += (metadata.get("annotations") or {}).get("k8s.io/initial-events-end") == "true"
            elif event["type"] == "DELETED":
                known.remove(metadata["name"])
            else:
                assert metadata["name"] not in known, "no arrival twice"
                known.add(metadata["name"])
        return known, ends

    followers = [asyncio.ensure_future(follow(number * 0.01)) for number in range(10)]
    await asyncio.gather(*(write(worker) for worker in range(4)))
    there = {decode_json(item)["metadata"]["name"] for item in (await api.list(MAPS, "default")).items}
    for known, ends in await asyncio.gather(*followers):
        assert known == there
        assert ends == 1


async def test_a_bookmark_is_a_place_to_resume_from(server: ApiServer) -> None:
    api = server.local()
    start = (await api.list(MAPS, "default")).resource_version
    await api.create(MAPS, named("before"), "default")
    events = await collect(api, start, 1)
    kind, _, revision = events[-1]
    assert kind == "BOOKMARK"
    await api.create(MAPS, named("after"), "default")
    assert [(k, n) for k, n, _ in await collect(api, str(revision), 1) if k != "BOOKMARK"] == [("ADDED", "after")]


async def test_forgotten_history_is_an_error_event(server: ApiServer) -> None:
    api = server.local()
    start = (await api.list(MAPS, "default")).resource_version
    await api.create(MAPS, named("m"), "default")
    server.store.compact(server.store.revision)
    with pytest.raises(ApiError, match="too old resource version") as refused:
        await collect(api, start, 1)
    assert refused.value.expired


async def test_a_departing_object_is_shown_as_it_last_matched(server: ApiServer) -> None:
    api = server.local()
    start = (await api.list(MAPS, "default")).resource_version
    labelled = {"metadata": {"name": "m", "labels": {"a": "b"}}}
    await api.create(MAPS, labelled, "default")
    left = await api.patch(MAPS, "m", {"metadata": {"labels": {"a": "c"}}}, "default")
    events = [e async for e in api.watch(MAPS, "default", since=start, labels="a=b", seconds=1) if e.type != "BOOKMARK"]
    assert [event.type for event in events] == ["ADDED", "DELETED"]
    gone = decode_json(events[1].object)
    assert gone["metadata"]["labels"] == {"a": "b"}
    assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


async def test_old_events_leave(server: ApiServer) -> None:
    api = server.local()
    body = {"involvedObject": {"namespace": "default"}, "metadata": {"name": "e"}}
    await api.create(EVENTS, body, "default")
    prefix = kind_named("Event").prefix
    assert await sweep(server.store, prefix, server.core.clock() + 60) == 0
    assert await sweep(server.store, prefix, server.core.clock() + 3700) == 1
    with pytest.raises(ApiError, match='events "e" not found'):
        await api.get(EVENTS, "e", "default")


async def test_of_a_flood_of_events_the_newest_stay(server: ApiServer) -> None:
    api = server.local()
    for number in range(5):
        body = {"involvedObject": {"namespace": "default"}, "metadata": {"name": f"e{number}"}}
        await api.create(EVENTS, body, "default")
    await api.patch(EVENTS, "e0", {"count": 2}, "default")  # reported again: news once more
    items = server.store.range(kind_named("Event").prefix).items
    gone = {decode_json(stored.value)["metadata"]["name"] for stored in expired(items, server.core.clock(), most=3)}
    assert gone == {"e1", "e2"}
