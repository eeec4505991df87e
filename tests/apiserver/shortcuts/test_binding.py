"""Bindings: what is put into a pod's bytes is what the long way would have stored, and it refuses the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.apiserver.local import LocalTransport
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.apiserver.shortcuts.binding import plain_binding, spliced
from kubeqos.client.api import Answer, Call
from kubeqos.codec import decode_json, encode_json
from kubeqos.gates import FeatureGates
from kubeqos.scheduler.effects import Bind, PodKey
from kubeqos.scheduler.service import binding_of
from kubeqos.web.identity import Identity
from tests.placement.strategies import pods

ADMIN = Identity("admin", groups=("system:masters", "system:authenticated"))
NOW = 1_800_000_000.0
SHORT, LONG = "short", "long"


def pod(name: str = "web", **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "app:1"}
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [container]}}


def binding(name: str = "web", node: str = "n1", **metadata: Any) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


class TwoWays:
    """Two namespaces with the same history; in one of them an option keeps every binding on the long way."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._transport = LocalTransport(server.application, ADMIN)

    async def start(self) -> TwoWays:
        for name in (SHORT, LONG):
            await self._send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return self

    async def _send(self, method: str, path: str, body: Any, query: dict[str, str] | None = None) -> Answer:
        raw = body if isinstance(body, bytes) else encode_json(body)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return await self._transport.send(Call(method, path, query or {}, raw, kind))

    async def same(self, method: str, below: str, body: Any, *, uid: bool = False) -> Answer:
        """Do it in both namespaces, and get the same answer."""
        answers = []
        for namespace in (SHORT, LONG):
            query = {"fieldValidation": "Warn"} if namespace == LONG and below.endswith("/binding") else None
            if uid:
                body["metadata"]["uid"] = self.stored(namespace)["metadata"]["uid"]
            answers.append(await self._send(method, f"/api/v1/namespaces/{namespace}/{below}", body, query))
        assert answers[0].status == answers[1].status
        assert plain(answers[0].body) == plain(answers[1].body)
        return answers[0]

    def value(self, namespace: str, name: str = "web") -> bytes:
        found = self.server.store.get(f"/registry/core/pods/{namespace}/{name}")
        assert found is not None
        assert f'"resourceVersion":"{found.revision}"'.encode() in found.value
        return found.value

    def stored(self, namespace: str, name: str = "web") -> dict[str, Any]:
        found: dict[str, Any] = decode_json(self.value(namespace, name))
        return found

    def is_short(self, body: Any, name: str = "web") -> bool:
        """Whether this binding of this pod would take the short way."""
        read = plain_binding(Request("POST", "", content_type="application/json", body=encode_json(body)), name)
        return read is not None and spliced(self.value(SHORT, name), read, NOW) is not None

    def agree(self, name: str = "web") -> None:
        assert plain(self.value(SHORT, name)) == plain(self.value(LONG, name))


def plain(value: bytes) -> bytes:
    """An object's text, with its order, without what differs between any two objects."""
    raw = decode_json(value)
    metadata = raw.get("metadata") or {}
    for name in ("uid", "creationTimestamp", "resourceVersion", "namespace"):
        metadata.pop(name, None)
    for owner in metadata.get("managedFields") or ():
        owner.pop("time", None)
    for condition in (raw.get("status") or {}).get("conditions") or () if raw.get("kind") == "Pod" else ():
        condition["lastTransitionTime"] = bool(condition["lastTransitionTime"])
    (raw.get("details") or {}).pop("uid", None)
    if "message" in raw:
        raw["message"] = raw["message"].replace(SHORT, LONG)
    return encode_json(raw)


Steps = Callable[[TwoWays], Awaitable[None]]


async def both(folder: Path, steps: Steps) -> None:
    gates = FeatureGates.parse("QOSResources=true")
    async with ApiServer.start(Settings(folder / "data", port=0, gates=gates)) as server:
        server.core.clock = lambda: NOW
        await steps(await TwoWays(server).start())


@pytest.mark.parametrize(
    "annotations",
    [None, {"kubeqos.io/placement": "best of 3"}, {"mine": "changed", "kubeqos.io/placement": 'say "% é"'}],
)
@pytest.mark.parametrize("known", [{}, {"annotations": {"mine": "kept", "other": "x"}, "labels": {"a": "b"}}])
async def test_an_ordinary_binding_takes_the_short_way(
    tmp_path: Path, known: dict[str, Any], annotations: dict[str, str] | None
) -> None:
    async def steps(two: TwoWays) -> None:
        await two.same("POST", "pods", pod(**known))
        body = binding()
        body["metadata"] |= {"uid": ""} | ({"annotations": annotations} if annotations else {})
        uid = two.stored(SHORT)["metadata"]["uid"]
        assert two.is_short(binding(uid=uid))
        assert (await two.same("POST", "pods/web/binding", body, uid=True)).status == 201
        two.agree()
        bound = two.stored(SHORT)
        assert bound["spec"]["nodeName"] == "n1"
        assert {"type": "PodScheduled", "status": "True"}.items() <= bound["status"]["conditions"][0].items()
        assert bound["metadata"].get("annotations", {}) == {**known.get("annotations", {}), **(annotations or {})}

    await both(tmp_path, steps)


def test_the_scheduler_binds_the_short_way() -> None:
    bind = Bind(PodKey("7d1c7b1e", "default", "web"), "n1", "best of the nodes that fit, with 233 points")
    request = Request("POST", "", content_type="application/json", body=encode_json(binding_of(bind)))
    assert plain_binding(request, "web") is not None


async def test_a_pod_that_had_to_wait_changes_its_condition(tmp_path: Path) -> None:
    async def steps(two: TwoWays) -> None:
        await two.same("POST", "pods", pod())
        waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
        nominated = {"conditions": [waits], "nominatedNodeName": "n2"}
        await two.same("PATCH", "pods/web/status", {"status": nominated})
        assert two.is_short(binding())
        await two.same("POST", "pods/web/binding", binding())
        two.agree()
        assert [c["status"] for c in two.stored(SHORT)["status"]["conditions"]] == ["True"]

    await both(tmp_path, steps)


async def test_the_same_bindings_are_refused(tmp_path: Path) -> None:
    async def steps(two: TwoWays) -> None:
        assert (await two.same("POST", "pods/web/binding", binding())).status == 404
        await two.same("POST", "pods", pod())
        refused = {
            "another pod's uid": binding(uid="7d1c7b1e-0000-4000-8000-000000000000"),
            "another pod's name": binding("other"),
            "no node": binding(node=""),
            "not a node": {**binding(), "target": {"kind": "Minion", "name": "n1"}},
            "not a key": binding(annotations={"no/such/key": "x"}),
            "too long": binding(annotations={"long": "x" * (256 << 10)}),
            "not a binding": {**binding(), "kind": "Pod"},
            "not an object": b"[]",
            "not JSON": b"{",
        }
        for why, body in refused.items():
            answer = await two.same("POST", "pods/web/binding", body)
            assert answer.status >= 400, why
            assert "nodeName" not in two.stored(SHORT)["spec"], why
        assert (await two.same("POST", "pods/web/binding", binding())).status == 201
        assert (await two.same("POST", "pods/web/binding", binding(node="n2"))).status == 409
        two.agree()

    await both(tmp_path, steps)


async def test_a_pod_that_is_gated_or_going_is_not_bound(tmp_path: Path) -> None:
    async def steps(two: TwoWays) -> None:
        gated = pod("gated")
        gated["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        going = pod("going", finalizers=["example.com/wait"])
        for raw in (gated, going):
            await two.same("POST", "pods", raw)
        await two.same("DELETE", "pods/going", {})
        for name in ("gated", "going"):
            assert (await two.same("POST", f"pods/{name}/binding", binding(name))).status == 409
            two.agree(name)

    await both(tmp_path, steps)


async def test_a_body_in_another_form_says_the_same(tmp_path: Path) -> None:
    forms = (
        b'{"target":{"name":"n1"},"metadata":{"name":"%s"}}',
        b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s"},"target":{"name":"n0","name":"n1"}}',
        b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"%s","x":1},"target":{"name":"\\u006e1"}}',
    )

    async def steps(two: TwoWays) -> None:
        for number, form in enumerate(forms):
            name = f"p{number}"
            await two.same("POST", "pods", pod(name))
            body = form % name.encode()
            assert plain_binding(Request("POST", "", content_type="application/json", body=body), name) is None
            assert (await two.same("POST", f"pods/{name}/binding", body)).status == 201
            two.agree(name)
            assert two.stored(SHORT, name)["spec"]["nodeName"] == "n1"

    await both(tmp_path, steps)


async def test_quotas_see_nothing_of_a_binding(tmp_path: Path) -> None:
    async def steps(two: TwoWays) -> None:
        hard = {"pods": "1", "requests.cpu": "2"}
        await two.same("POST", "resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        raw = pod()
        raw["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        assert (await two.same("POST", "pods", raw)).status == 201
        before = (await two.same("GET", "resourcequotas/q", b"")).body
        assert (await two.same("POST", "pods/web/binding", binding())).status == 201
        assert (await two.same("GET", "resourcequotas/q", b"")).body == before

    await both(tmp_path, steps)


def shuffled(draw: st.DrawFn, value: Any) -> Any:
    """The same value with the members of all its objects in some order."""
    if not isinstance(value, dict):
        return value
    return {key: shuffled(draw, inner) for key, inner in draw(st.permutations(list(value.items())))}


@st.composite
def any_order(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = shuffled(draw, value)
    return found


ANNOTATED = binding(namespace=SHORT, uid="7d1c", annotations={"a": 'say "é"', "b": "\n"})


@given(body=any_order(ANNOTATED))
def test_the_order_of_a_bindings_fields_does_not_matter(body: dict[str, Any]) -> None:
    raw = encode_json(body)
    found = plain_binding(Request("POST", "", content_type="application/json", body=raw), "web")
    assert found == plain_binding(Request("POST", "", content_type="application/json", body=encode_json(ANNOTATED)), "")
    assert found is not None
    assert found.target.name == "n1"


@settings(max_examples=25)
@given(body=any_order(ANNOTATED), twice=st.sampled_from(["target", "kind", "metadata", "apiVersion"]))
def test_a_binding_that_says_something_twice_is_left_to_the_ordinary_way(body: dict[str, Any], twice: str) -> None:
    """Who reads it gets the last one; the client is to be warned."""
    raw = b"{" + encode_json({twice: body[twice]})[1:-1] + b"," + encode_json(body)[1:]
    assert decode_json(raw) == body
    assert plain_binding(Request("POST", "", content_type="application/json", body=raw), "web") is None


def turned(value: Any) -> Any:
    return dict(reversed(value.items())) if isinstance(value, dict) else value


async def test_bindings_in_every_order_of_their_fields_are_made_alike(tmp_path: Path) -> None:
    async def steps(two: TwoWays) -> None:
        for number, order in enumerate(permutations(binding())):
            name = f"p{number}"
            await two.same("POST", "pods", pod(name))
            raw = binding(name, annotations={"kubeqos.io/placement": "best"})
            body = {key: turned(raw[key]) if number % 2 else raw[key] for key in order}
            assert two.is_short(body, name)
            assert (await two.same("POST", f"pods/{name}/binding", body)).status == 201
            two.agree(name)

    await both(tmp_path, steps)


@settings(max_examples=20, deadline=None)
@given(raws=st.lists(pods(), min_size=1, max_size=3), node=st.text(min_size=1, max_size=8))
def test_any_pod_is_bound_as_the_long_way_does_it(
    tmp_path_factory: pytest.TempPathFactory, raws: list[dict[str, Any]], node: str
) -> None:
    async def steps(two: TwoWays) -> None:
        for number, raw in enumerate(raws):
            name = f"p{number}"
            created = await two.same("POST", "pods", {**raw, "metadata": {**raw.get("metadata", {}), "name": name}})
            bound = await two.same("POST", f"pods/{name}/binding", binding(name, node))
            if created.status == 201:
                two.agree(name)
                assert two.stored(SHORT, name)["spec"].get("nodeName") == (node if bound.status == 201 else None)

    asyncio.run(both(tmp_path_factory.mktemp("bindings"), steps))
