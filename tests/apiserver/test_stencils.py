"""Stencils: a pod stamped from a template is the pod that the long way would have made."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.auth import Identity
from kubeqos.apiserver.local import LocalTransport
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.apiserver.stencils import Stencils, template
from kubeqos.client.api import Answer, Call
from kubeqos.codec import decode_json, encode_json
from tests.placement.strategies import pods

ADMIN = Identity("admin", groups=("system:masters", "system:authenticated"))
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


class Two:
    """Two servers with the same history; the second has forgotten its stencils before every request."""

    def __init__(self, first: ApiServer, second: ApiServer) -> None:
        self.servers = (first, second)
        self.transports = [LocalTransport(server.application, ADMIN) for server in self.servers]

    async def send(self, method: str, path: str, body: Any) -> tuple[Answer, Answer]:
        self.servers[1].application.handlers.stencils = Stencils()
        raw = body if isinstance(body, bytes) else encode_json(body)
        first, second = [await each.send(Call(method, path, body=raw)) for each in self.transports]
        return first, second


def plain(answer: Answer) -> Any:
    """An answer without what differs between any two servers."""
    body = decode_json(answer.body)
    metadata = body.get("metadata") or {}
    for name in ("uid", "creationTimestamp", "resourceVersion"):
        metadata.pop(name, None)
    (body.get("details") or {}).pop("uid", None)
    for owner in metadata.get("managedFields") or ():
        owner.pop("time", None)
    return answer.status, body


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
