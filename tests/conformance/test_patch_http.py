"""Replay recorded patches and server-side apply scripts through HTTP."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest

from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.registry.objects import renderer
from kubeqos.apiserver.requests import resolve
from kubeqos.codec import decode_json, encode_json, encode_json_sorted
from kubeqos.store import Put
from tests.apiserver.live import Answer, LiveServer
from tests.conformance.differences import DIFFERENCES
from tests.conformance.recorded import cases

Case = dict[str, Any]
SINGLE = [case for case in cases("patch") if case["kind"] != "apply-script"]
SCRIPTS = [case for case in cases("patch") if case["kind"] == "apply-script"]
STRIPPED = ("uid", "creationTimestamp", "resourceVersion", "managedFields")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def stripped(obj: Case) -> Case:
    metadata = {k: v for k, v in obj["metadata"].items() if k not in STRIPPED}
    return {**obj, "metadata": metadata}


def timeless(value: Any, want: Any) -> Any:
    if want == "<time>" and isinstance(value, str) and TIME.fullmatch(value):
        return want
    if isinstance(value, dict) and isinstance(want, dict):
        return {k: timeless(v, want.get(k)) for k, v in value.items()}
    if isinstance(value, list) and isinstance(want, list):
        return [timeless(v, w) for v, w in zip(value, [*want, *[None] * len(value)], strict=False)]
    return value


def ensure_namespace(live: LiveServer, name: str) -> None:
    if name and live.call("GET", f"/api/v1/namespaces/{name}").code == 404:
        assert live.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201


def put_directly(live: LiveServer, kind: Kind, namespace: str, obj: Case) -> None:
    """Store an object as it was recorded, past every check."""
    obj = decode_json(encode_json(obj).replace(b'"<time>"', b'"2024-01-01T00:00:00Z"'))
    obj = {**obj, "metadata": {**obj["metadata"], "uid": "u", "creationTimestamp": "2024-01-01T00:00:00Z"}}

    async def commit() -> None:
        await live.server.store.commit([Put(kind.key(namespace, obj["metadata"]["name"]), renderer(kind, obj))])

    live.run(commit())


def check(answer: Answer, case: Case, base: Case | None = None) -> str | None:
    """What differs from the recording; None when nothing does."""
    if case["code"] == 500:
        assert ("patch", "code 500") in DIFFERENCES
        return None if answer.code == 400 else f"code {answer.code} instead of 400"
    if answer.code != case["code"]:
        return f"code {answer.code} instead of {case['code']}: {answer.body}"
    if case["code"] < 300:
        want = base if case.get("unchanged") else case.get("result")
        got = timeless(stripped(answer.body), want)
        if got["kind"] == "ResourceQuota" and want is not None:
            assert ("patch", "resourcequotas status") in DIFFERENCES
            got, want = ({k: v for k, v in obj.items() if k != "status"} for obj in (got, want))
        return None if want is None or got == want else f"got  {encode_json(got)!r}\nwant {encode_json(want)!r}"
    body = answer.body
    first = body["message"].partition("\n")[0]
    wanted = case["message"].partition("\n")[0]
    if "<object>" in wanted:
        wanted, first = wanted.partition("<object>")[0], first[: len(wanted.partition("<object>")[0])]
    return None if first == wanted or sorted(first) == sorted(wanted) else f"got  {first}\nwant {wanted}"


@pytest.mark.parametrize("start", range(0, len(SINGLE), 40))
def test_recorded_patches(live: LiveServer, start: int) -> None:
    wrong = []
    for number, case in enumerate(SINGLE[start : start + 40], start):
        url = urlsplit(case["path"])
        route = resolve("PATCH", url.path, {})
        assert route is not None
        ensure_namespace(live, route.namespace)
        put_directly(live, route.kind, route.namespace, case["base"])
        path = case["path"] + ("&" if url.query else "?") + "dryRun=All"
        body = encode_json(case["patch"])
        answer = live.call("PATCH", path, body, {"Content-Type": case["contentType"]})
        problem = check(answer, case, case["base"])
        if problem:
            wrong.append(f"{number} {case['kind']} {case['type']} {body!r}\n{problem}")
    assert not wrong, f"{len(wrong)} differ:\n" + "\n\n".join(wrong[:8])


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_recorded_apply_scripts(live: LiveServer, number: int) -> None:
    for index, step in enumerate(SCRIPTS[number]["steps"]):
        route = resolve(step["method"], urlsplit(step["path"]).path, {})
        assert route is not None
        ensure_namespace(live, route.namespace)
        headers = {"User-Agent": "Python-urllib/3", "Content-Type": step.get("contentType") or "application/json"}
        answer = live.call(step["method"], step["path"], encode_json(step["body"]) if "body" in step else None, headers)
        problem = check(answer, step)
        assert problem is None, f"step {index}: {step['path']}\n{problem}"
        if "managers" in step and answer.code < 300:
            found = answer.body["metadata"].get("managedFields") or []
            got = [[m["manager"], m["operation"], m["fieldsV1"]] for m in found]
            assert sorted(map(encode_json_sorted, got)) == sorted(map(encode_json_sorted, step["managers"])), index
