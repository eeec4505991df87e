"""Events: one object per story, repeats counted, callers never held up."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest

from kubeqos.client import EventRecorder
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS
from kubeqos.codec import JsonObject, decode_json
from tests.client.server import TinyServer

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "uid": "u1"}}
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Clock:
    now = START

    def __call__(self) -> datetime.datetime:
        self.now += datetime.timedelta(seconds=1)
        return self.now


@pytest.fixture
async def recorder(api: HttpApi) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(api, "scheduler", host="n1", clock=Clock())
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()


async def stored(api: HttpApi, namespace: str = "shop") -> list[JsonObject]:
    return [decode_json(raw) for raw in (await api.list(EVENTS, namespace)).items]


async def test_an_event_tells_what_happened_to_whom(api: HttpApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "FailedScheduling", "0/3 nodes are available", "Warning")
    await recorder.flushed()
    [event] = await stored(api)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "shop",
        "name": "web",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "FailedScheduling", 1)
    assert event["source"] == {"component": "scheduler", "host": "n1"}
    assert event["metadata"]["name"].startswith("web.")


async def test_repeats_are_counted(api: HttpApi, recorder: EventRecorder, server: TinyServer) -> None:
    for _ in range(3):
        recorder.record(POD, "BackOff", "restarting")
        await recorder.flushed()
    for _ in range(50):  # faster than they can be written
        recorder.record(POD, "BackOff", "restarting")
    recorder.record(POD, "BackOff", "another text")
    await recorder.flushed()
    events = {event["message"]: event for event in await stored(api)}
    assert events["restarting"]["count"] == 53
    assert events["restarting"]["firstTimestamp"] == "2026-01-01T00:00:01Z"
    assert events["restarting"]["lastTimestamp"] == "2026-01-01T00:00:53Z"
    assert events["another text"]["count"] == 1
    assert sum(request.startswith("PATCH") for request in server.requests) == 3


async def test_an_expired_event_is_written_anew(api: HttpApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "BackOff", "restarting")
    await recorder.flushed()
    [event] = await stored(api)
    await api.delete(EVENTS, event["metadata"]["name"], "shop")
    recorder.record(POD, "BackOff", "restarting")
    await recorder.flushed()
    assert [event["count"] for event in await stored(api)] == [2]


async def test_cluster_wide_objects_have_their_events_in_default(api: HttpApi, recorder: EventRecorder) -> None:
    recorder.record({"kind": "Node", "name": "n1"}, "NodeReady", "ready")
    await recorder.flushed()
    assert len(await stored(api, "default")) == 1


async def test_a_server_that_refuses_harms_nobody(api: HttpApi, recorder: EventRecorder, server: TinyServer) -> None:
    server.troubles = [(500, {})]
    recorder.record(POD, "A", "lost")
    recorder.record(POD, "B", "kept")
    await recorder.flushed()
    assert [event["reason"] for event in await stored(api)] == ["B"]
    assert (recorder.result.written, recorder.result.dropped, recorder.result.because) == (1, 1, "trouble")


async def test_an_event_carries_annotations_for_machines(api: HttpApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "Evicted", "low on memory", "Warning", annotations={"starved_resource": "memory"})
    recorder.record(POD, "Pulled", "image is present")
    await recorder.flushed()
    found = {one["reason"]: one["metadata"].get("annotations") for one in await stored(api)}
    assert found == {"Evicted": {"starved_resource": "memory"}, "Pulled": None}


async def test_long_messages_are_cut(api: HttpApi, recorder: EventRecorder) -> None:
    recorder.record(POD, "A", "x" * 5000)
    await recorder.flushed()
    assert len((await stored(api))[0]["message"]) == 1024


async def test_many_similar_events_are_combined(api: HttpApi, recorder: EventRecorder) -> None:
    for number in range(30):
        recorder.record(POD, "FailedScheduling", f"0/{number} nodes are available")
        await recorder.flushed()
    recorder.record(POD, "FailedScheduling", "0/3 nodes are available")
    recorder.record(POD, "Pulled", "image is present")
    await recorder.flushed()
    counts = {event["message"]: event["count"] for event in await stored(api)}
    assert len(counts) == 12
    assert counts["(combined from similar events): 0/29 nodes are available"] == 20
    assert counts["0/3 nodes are available"] == 2


async def test_what_was_told_long_ago_is_forgotten(api: HttpApi, recorder: EventRecorder) -> None:
    """A node that lives for a year tells of a million pods."""
    clock = recorder._clock
    assert isinstance(clock, Clock)
    for number in range(3):
        pod = {**POD, "metadata": {**POD["metadata"], "name": f"web-{number}"}}  # type: ignore[dict-item]
        recorder.record(pod, "Started", "Container started")
    clock.now += datetime.timedelta(minutes=5)
    recorder.record(POD, "BackOff", "restarting", "Warning")
    assert len(recorder._series) == 4
    clock.now += datetime.timedelta(minutes=5)
    recorder.record(POD, "BackOff", "restarting", "Warning")
    assert len(recorder._series) == len(recorder._texts) == 1
    await recorder.flushed()
    assert [event["count"] for event in await stored(api) if event["reason"] == "BackOff"] == [2]
