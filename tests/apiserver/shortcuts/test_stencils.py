"""Stencils: a pod stamped from a template is the pod that the long way would have made."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.hooks import Hooks
from kubeqos.apiserver.local import LocalTransport
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.apiserver.shortcuts.eventstencils import EventStencils, event_outline
from kubeqos.apiserver.shortcuts.podstencils import template
from kubeqos.apiserver.shortcuts.stamping import Stamping
from kubeqos.client.api import Answer, Call
from kubeqos.client.events import EventRecorder
from kubeqos.codec import decode_json, encode_json
from kubeqos.web.identity import Identity
from tests.placement.strategies import pods

ADMIN = Identity("admin", groups=("system:masters", "system:authenticated"))
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


class Two:
    """Two servers with the same history; the second has no shortcuts."""

    def __init__(self, first: ApiServer, second: ApiServer) -> None:
        self.servers = (first, second)
        second.application.handlers.hooks = Hooks()
        self.transports = [LocalTransport(server.application, ADMIN) for server in self.servers]
        self.now = time.time()
        for server in self.servers:  # a second that ends between the two answers is no difference between them
            server.application.handlers.core.clock = lambda: self.now

    async def send(self, method: str, path: str, body: Any) -> tuple[Answer, Answer]:
        self.now = time.time()
        raw = body if isinstance(body, bytes) else encode_json(body)
        first, second = [await each.send(Call(method, path, body=raw)) for each in self.transports]
        return first, second


def plain(answer: Answer) -> tuple[int, bytes]:
    """An answer without what differs between any two servers; its text, because the order of fields is part of it."""
    body = decode_json(answer.body)
    metadata = body.get("metadata") or {}
    for name in ("uid", "creationTimestamp", "resourceVersion"):
        metadata.pop(name, None)
    (body.get("details") or {}).pop("uid", None)
    for owner in metadata.get("managedFields") or ():
        owner.pop("time", None)
    return answer.status, encode_json(body)


async def same(two: Two, method: str, path: str, body: Any) -> Answer:
    first, second = await two.send(method, path, body)
    assert plain(first) == plain(second)
    return first


async def servers(folder: Path, steps: Any) -> None:
    async with (
        ApiServer.start(Settings(folder / "a", port=0)) as first,
        ApiServer.start(Settings(folder / "b", port=0)) as second,
    ):
        await steps(Two(first, second))


async def test_the_third_pod_is_stamped_and_equal(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        for name in ("one", "two", "three", "four"):
            answer = await same(two, "POST", PODS, pod(name))
            assert answer.status == 201
        assert (await same(two, "POST", PODS, pod("two"))).status == 409
        assert (await same(two, "POST", PODS, pod("Not A Name"))).status == 422
        assert (await same(two, "POST", PODS.replace("default", "nowhere"), pod("one"))).status == 404

    await servers(tmp_path, steps)


async def test_what_admission_looks_at_makes_the_stencil_stale(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        await same(two, "POST", PODS, pod("before"))
        await same(two, "POST", PODS, pod("just-before"))
        limits = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}
        await same(two, "POST", "/api/v1/namespaces/default/limitranges", limits)
        after = decode_json((await same(two, "POST", PODS, pod("after"))).body)
        assert after["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "2"}
        urgent = {"metadata": {"name": "urgent"}, "value": 7, "globalDefault": True}
        await same(two, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
        assert decode_json((await same(two, "POST", PODS, pod("later"))).body)["spec"]["priority"] == 7
        await same(two, "DELETE", "/api/v1/namespaces/default/limitranges/l", {})
        last = decode_json((await same(two, "POST", PODS, pod("last"))).body)
        assert "limits" not in last["spec"]["containers"][0]["resources"]

    await servers(tmp_path, steps)


async def test_quota_is_decided_for_every_pod(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2", "requests.cpu": "10"}}}
        await same(two, "POST", "/api/v1/namespaces/default/resourcequotas", quota)
        codes = [(await same(two, "POST", PODS, pod(f"p{n}"))).status for n in range(4)]
        assert codes == [201, 201, 403, 403]
        for transport in two.transports:
            found = await transport.send(Call("GET", "/api/v1/namespaces/default/resourcequotas/q"))
            assert decode_json(found.body)["status"]["used"] == {"pods": "2", "requests.cpu": "2"}

    await servers(tmp_path, steps)


@settings(max_examples=20, deadline=None)
@given(raws=st.lists(pods(), min_size=1, max_size=4))
def test_any_pod_is_stamped_as_the_long_way_makes_it(
    tmp_path_factory: pytest.TempPathFactory, raws: list[dict[str, Any]]
) -> None:
    async def steps(two: Two) -> None:
        for number, raw in enumerate(raws):
            for copy in range(3):
                metadata = {**(raw.get("metadata") or {}), "name": f"p-{number}-{copy}"}
                await same(two, "POST", PODS, {**raw, "metadata": metadata})

    asyncio.run(servers(tmp_path_factory.mktemp("stencils"), steps))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"metadata":{"name":"a"}}', "a"),
        (b'{"kind": "Pod", "metadata": {"labels": {"name": "not-me"}, "name": "me"}}', "me"),
        (b'{"metadata":{"annotations":{"x":"{\\"name\\":\\"no\\"}"},"name":"me"}}', "me"),
        (b'{"metadata":{"annotations":{"x":"}"},"name":"me"}}', "me"),
        (b'{"metadata":{"ownerReferences":[{"name":"owner"}],"name":"me"}}', "me"),
        (b'{"metadata":{"generateName":"a-"}}', None),
        (b'{"metadata":{"name":"a\\u0062"}}', None),
        (b'{"metadata":{"name":"Upper"}}', None),
        (b"[]", None),
    ],
)
def test_the_name_is_cut_out_of_the_metadata_alone(body: bytes, name: str | None) -> None:
    found = template(body)
    assert (found.name.decode() if found else None) == name


# -- events ------------------------------------------------------------------------------------------------------------


def event(name: str, message: str = "assigned", count: Any = 1, **fields: Any) -> dict[str, Any]:
    """An event as `client.events` writes it."""
    subject = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": name, "uid": f"uid-of-{name}"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.17", "namespace": "default"},
        "involvedObject": subject,
        "type": "Normal",
        "reason": "Scheduled",
        "message": message,
        "source": {"component": "default-scheduler"},
        "reportingComponent": "default-scheduler",
        "reportingInstance": "",
        "firstTimestamp": "2026-11-15T07:07:08Z",
        "lastTimestamp": "2026-11-15T07:07:09Z",
        "count": count,
    } | fields


def is_known(two: Two, raw: Any) -> bool:
    """Whether the first server would stamp this event."""
    server = two.servers[0]
    body = encode_json(raw)
    request = Request("POST", EVENTS, content_type="application/json", body=body, user_agent="kubeqos")
    outline = event_outline(request, "default", "kubeqos", server.chain.version)
    stamping = server.application.handlers.hooks.create["Event"]
    assert isinstance(stamping, Stamping)
    assert isinstance(stamping.stencils, EventStencils)
    return outline is not None and stamping.stencils.get(outline) is not None


async def test_the_third_event_is_stamped_and_equal(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        for name in ("one", "two", "three"):
            assert (await same(two, "POST", EVENTS, event(name))).status == 201
        other = event("four", 'say "100% \u00e9\ufdd03"', 7, lastTimestamp="2027-01-01T00:00:00Z")
        assert is_known(two, other)
        assert (await same(two, "POST", EVENTS, other)).status == 201
        assert (await same(two, "POST", EVENTS, event("two"))).status == 409
        moved = event("five")
        assert (await same(two, "POST", EVENTS.replace("default", "nowhere"), moved)).status == 400
        moved["metadata"]["namespace"] = moved["involvedObject"]["namespace"] = "nowhere"
        assert (await same(two, "POST", EVENTS.replace("default", "nowhere"), moved)).status == 404

    await servers(tmp_path, steps)


async def test_the_order_of_an_events_fields_does_not_matter(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        for name in ("one", "two"):
            await same(two, "POST", EVENTS, event(name))
        fields = list(event("x"))
        for number in range(1, len(fields)):
            raw = event(f"e{number}")
            other = {key: raw[key] for key in (*fields[number:], *fields[:number])}
            other["involvedObject"] = dict(reversed(raw["involvedObject"].items()))
            assert is_known(two, other)
            assert (await same(two, "POST", EVENTS, other)).status == 201

    await servers(tmp_path, steps)


async def test_an_event_that_may_be_refused_is_never_stamped(tmp_path: Path) -> None:
    odd = {
        "count": event("odd", count=2**31),
        "fraction": event("odd", count=1.5),
        "no count": event("odd", count=0),
        "message": event("odd", ""),
        "no time": event("odd", firstTimestamp="yesterday"),
        "another time": event("odd", firstTimestamp="2026-11-15T08:07:08+01:00"),
        "another day": event("odd", firstTimestamp="2026-02-30T08:07:08Z"),
        "name": event("odd", metadata={"name": "Not A Name", "namespace": "default"}),
        "unknown field": event("odd", madeUp=1),
        "about nobody": event("odd", involvedObject={"kind": "Pod", "namespace": "default", "name": ""}),
        "about another namespace": event("odd", involvedObject={"kind": "Pod", "namespace": "other", "name": "odd"}),
    }

    async def steps(two: Two) -> None:
        for name in ("one", "two"):
            await same(two, "POST", EVENTS, event(name))
        for why, raw in odd.items():
            assert not is_known(two, raw), why
            await same(two, "POST", EVENTS, raw)
            await same(two, "DELETE", f"{EVENTS}/odd.17", {})
        twice = encode_json(event("twice")).replace(b'"reason"', b'"reason":"Other","reason"')
        assert (await same(two, "POST", EVENTS, twice)).status == 201

    await servers(tmp_path, steps)


@settings(max_examples=25, deadline=None)
@given(
    raws=st.lists(
        st.builds(
            event,
            st.sampled_from(["a", "b.c", "d-e"]),
            st.text(max_size=12) | st.sampled_from(["\ufdd02", '"\ufdd00"', "%b"]),
            st.integers(-1, 3),
            reason=st.sampled_from(["Scheduled", "Killing", "\ufdd00", '"\ufdd03"', "%d%%"]),
            source=st.sampled_from([{"component": "x"}, {"component": "x", "host": "n1"}, {}]),
        ),
        min_size=3,
        max_size=12,
    )
)
def test_any_event_is_stamped_as_the_long_way_makes_it(
    tmp_path_factory: pytest.TempPathFactory, raws: list[dict[str, Any]]
) -> None:
    async def steps(two: Two) -> None:
        for number, raw in enumerate(raws):
            raw["metadata"]["name"] = f"e{number}"
            await same(two, "POST", EVENTS, raw)

    asyncio.run(servers(tmp_path_factory.mktemp("events"), steps))


async def test_what_our_recorder_writes_has_an_outline(tmp_path: Path) -> None:
    async def steps(two: Two) -> None:
        server = two.servers[0]
        recorder = EventRecorder(server.local(), "default-scheduler")
        for about in ("one", "two", "three"):
            metadata = {"name": about, "namespace": "default", "uid": about}
            recorder.record({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, "Scheduled", f"assigned {about}")
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(recorder.run())
            await recorder.flushed()
            running.cancel()
        for stored in server.store.range("/registry/core/events/default/").items:
            raw = decode_json(stored.value)
            again = {name: raw[name] for name in event("x")}
            again["metadata"] = {"name": "again.1", "namespace": "default"}
            assert is_known(two, again)

    await servers(tmp_path, steps)
