"""The verbs over a real connection: what they send, what they return, what they repeat."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.client import ApiError, PatchType, Unreachable
from kubeqos.client.api import Answer, Call, Submission, TransportApi, lines, metadata_of
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import LEASES, NODES, PODS, RESOURCE_CLAIMS
from tests.client.server import TinyServer


def pod(name: str, **fields: object) -> dict[str, object]:
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "default"}, **fields}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("default"), "/api/v1/namespaces/default/pods"),
        (PODS.path("default", "a", "status"), "/api/v1/namespaces/default/pods/a/status"),
        (NODES.path("", "n1", "status"), "/api/v1/nodes/n1/status"),
        (LEASES.path("kube-node-lease", "n1"), "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"),
        (RESOURCE_CLAIMS.path("a"), "/apis/resource.k8s.io/v1alpha1/namespaces/a/resourceclaims"),
        (PODS.path("../x", "a/b"), "/api/v1/namespaces/..%2Fx/pods/a%2Fb"),
        (NODES.path("", "system:é~ b\n"), "/api/v1/nodes/system:%C3%A9~%20b%0A"),
        (NODES.path("", "n\n"), "/api/v1/nodes/n%0A"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


async def test_create_get_update_patch_delete(api: HttpApi) -> None:
    created = await api.create(PODS, pod("a", spec={"x": 1}))
    assert await api.get(PODS, "a", "default") == created
    updated = await api.update(PODS, {**created, "spec": {"x": 2}})
    assert updated["spec"] == {"x": 2}
    patched = await api.patch(PODS, "a", {"status": {"phase": "Running"}}, "default", type=PatchType.MERGE)
    assert patched["status"] == {"phase": "Running"}
    await api.delete(PODS, "a", "default", grace_seconds=0, uid=created["metadata"]["uid"])
    with pytest.raises(ApiError) as error:
        await api.get(PODS, "a", "default")
    assert error.value.not_found
    assert (error.value.status, error.value.reason) == (404, "NotFound")


async def test_what_is_submitted_is_created_or_refused(api: HttpApi) -> None:
    first, second = await api.submit(PODS, [Submission(pod("a", spec={"x": 1})), Submission(pod("b"))])
    assert (first, second) == (None, None)
    assert (await api.get(PODS, "a", "default"))["spec"] == {"x": 1}
    (twice,) = await api.submit(PODS, [Submission(pod("a"))])
    assert isinstance(twice, ApiError) and twice.already_exists


async def test_a_stale_update_is_a_conflict_and_a_second_create_is_not(api: HttpApi) -> None:
    created = await api.create(PODS, pod("a"))
    await api.update(PODS, created)
    with pytest.raises(ApiError) as stale:
        await api.update(PODS, created)
    assert stale.value.conflict
    with pytest.raises(ApiError) as twice:
        await api.create(PODS, pod("a"))
    assert twice.value.already_exists
    assert not twice.value.conflict


@pytest.mark.parametrize("page", [0, 3, 100])
async def test_a_list_is_whole_however_it_is_paged(api: HttpApi, page: int) -> None:
    for number in range(10):
        await api.create(PODS, pod(f"p{number}"))
    listing = await api.list(PODS, "default", page=page)
    assert [metadata_of(raw).key for raw in listing.items] == [f"default/p{n}" for n in range(10)]
    assert listing.resource_version == "11"


async def test_an_expired_page_starts_over(api: HttpApi, server: TinyServer) -> None:
    for number in range(6):
        await api.create(PODS, pod(f"p{number}"))
    original = server.list

    def forget_history(path: str, query: dict[str, str]) -> object:
        if "continue" in query:
            server.store.compact(server.store.revision)
        elif query:
            asyncio.get_running_loop().create_task(server.bookmark())
        return original(path, query)

    server.list = forget_history  # type: ignore[method-assign]
    listing = await api.list(PODS, "default", page=2)
    assert len(listing.items) == 6
    assert server.requests[-3:] == ["GET /api/v1/namespaces/default/pods"] * 3


async def test_a_watch_carries_every_event(api: HttpApi) -> None:
    created = await api.create(PODS, pod("a"))
    await api.patch(PODS, "a", {"spec": {}}, "default")
    await api.delete(PODS, "a", "default")
    seen = []
    async with aclosing(
        api.watch(PODS, "default", since=str(int(created["metadata"]["resourceVersion"]) - 1))
    ) as events:
        async for event in events:
            seen.append((event.type, event.metadata().key))
            if event.type == "DELETED":
                break
    assert seen == [("ADDED", "default/a"), ("MODIFIED", "default/a"), ("DELETED", "default/a")]


async def test_a_watch_of_forgotten_history_says_so(api: HttpApi, server: TinyServer) -> None:
    await api.create(PODS, pod("a"))
    server.store.compact(server.store.revision)
    with pytest.raises(ApiError) as error:
        await anext(api.watch(PODS, "default", since="1"))
    assert error.value.expired


async def test_reads_are_repeated_while_the_server_is_busy(api: HttpApi, server: TinyServer) -> None:
    await api.create(PODS, pod("a"))
    server.troubles = [(503, {}), (429, {"retry-after": "0"}), (504, {})]
    assert (await api.get(PODS, "a", "default"))["kind"] == "Pod"
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("trouble", "requests"),
    [((503, {}), 1), ((500, {}), 1), ((429, {}), 1), ((429, {"retry-after": "0"}), 2)],
)
async def test_a_write_is_repeated_only_when_it_was_not_carried_out(
    api: HttpApi, server: TinyServer, trouble: tuple[int, dict[str, str]], requests: int
) -> None:
    server.troubles = [trouble]
    try:
        await api.create(PODS, pod("a"))
    except ApiError as error:
        assert error.status == trouble[0]
    assert len(server.requests) == requests


async def test_a_refused_eviction_is_an_answer(api: HttpApi, server: TinyServer) -> None:
    server.troubles = [(429, {"retry-after": "0"})]
    with pytest.raises(ApiError) as error:
        await api.create(PODS, {"kind": "Eviction"}, "default", name="a", subresource="eviction")
    assert error.value.status == 429
    assert server.requests == ["POST /api/v1/namespaces/default/pods/a/eviction"]


async def test_no_server_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.client.http.FIRST_PAUSE", 0.001)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    api = HttpApi.to(url)
    with pytest.raises(Unreachable) as error:
        await api.create(PODS, pod("a"))
    assert error.value.what.startswith("cannot connect to the API server")
    assert error.value.where == f"POST {url}/api/v1/namespaces/default/pods"
    assert not error.value.applied
    await api.close()


async def test_a_write_that_was_cut_off_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    monkeypatch.setattr("kubeqos.client.http.FIRST_PAUSE", 0.001)
    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as listener:
        api = HttpApi.to(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        with pytest.raises(Unreachable) as error:
            await api.create(PODS, pod("a"))
        assert (connections, error.value.applied) == (1, True)
        with pytest.raises(Unreachable) as error:
            await api.get(PODS, "a", "default")
        assert (connections, error.value.applied) == (6, False)
        await api.close()


@pytest.mark.parametrize("page", [b"<html>please log in</html>", b"\xff", b"[]", b"{}", b'{"metadata":3}'])
async def test_a_page_in_place_of_an_answer_is_a_failure(page: bytes) -> None:
    async def portal(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (len(page) + 1))
        writer.write(page + b"\n")
        writer.close()

    async with await asyncio.start_server(portal, "127.0.0.1", 0) as listener:
        api = HttpApi.to(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}")
        with pytest.raises(ApiError):
            await api.list(PODS)
        with pytest.raises(ApiError):
            await anext(api.watch(PODS, since="1"))
        if not page.startswith(b"{"):
            with pytest.raises(ApiError):
                await api.get(PODS, "a", "default")
        await api.close()


async def test_an_answer_that_is_no_status_is_still_an_error() -> None:
    error = ApiError.of(502, b"<html>\nBad Gateway")
    assert (error.status, error.what) == (502, "<html>")
    assert ApiError.of(500, b"\xff").status == 500
    assert ApiError.of(500, b"[]").message == "[]"


@given(st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b" "))), st.data())
async def test_lines_are_put_together_from_any_pieces(content: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in content) + b"half a line"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))

    async def pieces():  # type: ignore[no-untyped-def]
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            yield text[start:end]

    assert [line async for whole in lines(pieces()) for line in whole] == content


class Lines:
    """A transport whose watch says these lines."""

    def __init__(self, *said: bytes) -> None:
        self._said = said

    async def send(self, call: Call) -> Answer:
        raise AssertionError(call)

    async def stream(self, _call: Call) -> AsyncGenerator[bytes, None]:
        for line in self._said:
            yield line + b"\n"

    async def close(self) -> None:
        """Nothing is open."""


async def watched(*said: bytes) -> list[tuple[str, str]]:
    events = TransportApi(Lines(*said)).watch(PODS, since="1")
    return [(event.type, event.metadata().name) async for event in events]


async def test_an_event_means_the_same_in_any_form() -> None:
    forms = (
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}',
        b'{"type": "ADDED", "object": {"metadata": {"name": "a"}}}',
        b'{"object":{"metadata":{"name":"a"}},"type":"ADDED"}',
        b'{"type":"\\u0041DDED","object":{"metadata":{"name":"a"}}}',
    )
    assert await watched(*forms) == [("ADDED", "a")] * len(forms)


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"{}",
        b"{",
        b'{"type":"ADDED","object":{}',
        b'{"type":"ADDED","object":{"metadata":1}}',
        b'{"type":1}',
    ],
)
async def test_a_line_that_is_no_event_is_a_failure(line: bytes) -> None:
    with pytest.raises(ApiError) as error:
        await watched(line)
    assert error.value.status == 502


async def test_an_error_ends_a_watch() -> None:
    with pytest.raises(ApiError) as error:
        await watched(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"gone"}}')
    assert error.value.expired
