"""Events: one object per story, repeats counted, callers never held up."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator

import pytest

from kubeqos.client import EventRecorder
from kubeqos.client.eventlimits import BURST, RATE
from kubeqos.client.events import QUEUED
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import EVENTS
from kubeqos.codec import JsonObject, decode_json
from tests.client.server import TinyServer
from tests.client.test_informer import until

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
    for number in range(20):
        recorder.record(POD, "FailedScheduling", f"0/{number} nodes are available")
        await recorder.flushed()
    recorder.record(POD, "FailedScheduling", "0/3 nodes are available")
    recorder.record(POD, "Pulled", "image is present")
    await recorder.flushed()
    counts = {event["message"]: event["count"] for event in await stored(api)}
    assert len(counts) == 12
    assert counts["(combined from similar events): 0/19 nodes are available"] == 10
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


class Timer:
    """Seconds that pass when a test says so."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_one_object_is_not_told_about_without_end(api: HttpApi, server: TinyServer) -> None:
    """Kubernetes' numbers: 25 at once, and then one every five minutes; what is not written is still counted."""
    timer = Timer()
    recorder = EventRecorder(api, "scheduler", timer=timer)
    task = asyncio.create_task(recorder.run())
    for _ in range(60):
        recorder.record(POD, "BackOff", "restarting")
        await recorder.flushed()
    assert len(server.requests) == 25
    recorder.record({"kind": "Node", "name": "n1"}, "NodeReady", "ready")
    await recorder.flushed()
    assert len(server.requests) == 26
    timer.now += 300
    for _ in range(2):
        recorder.record(POD, "BackOff", "restarting")
        await recorder.flushed()
    [event] = await stored(api)
    assert event["count"] == 61
    task.cancel()


async def test_a_burst_of_events_is_cut_and_warnings_go_first(api: HttpApi, server: TinyServer) -> None:
    timer = Timer()
    recorder = EventRecorder(api, "scheduler", timer=timer)
    for number in range(10_000):
        pod = {**POD, "metadata": {"name": f"web-{number}", "namespace": "shop"}}
        recorder.record(pod, "Scheduled", "to n1")
    recorder.record(POD, "FailedScheduling", "0/3 nodes are available", "Warning")
    assert recorder.result.dropped == 9001  # one made room for the warning
    task = asyncio.create_task(recorder.run())
    await until(lambda: recorder.result.written >= 500)
    found = await stored(api)
    assert len(found) == 500
    assert "FailedScheduling" in {event["reason"] for event in found}
    await asyncio.sleep(0.05)
    assert recorder.result.written == 500
    timer.now += 1
    await until(lambda: recorder.result.written >= 600)
    task.cancel()
    assert (await asyncio.gather(task, return_exceptions=True))[0] is not None


def test_events_that_are_left_out_cost_less_than_the_bindings() -> None:
    """Ten thousand pods in seven seconds, as they come from a scheduler that binds 1,500 a second."""
    assert BURST + 7 * RATE + QUEUED < 10_000 / 4
