"""Tokens of service accounts in pods' volumes, from a real API server, renewed in virtual time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kubeqos.client.errors import ApiError
from kubeqos.client.http import HttpApi
from kubeqos.clock import NS, VirtualClock
from kubeqos.node.runtime.tokens import Tokens
from kubeqos.node.runtime.volumes import TOKEN, needs, write_all
from kubeqos.plugins.managers import AdmittedPod
from tests.apiserver.live import LiveServer, live_server
from tests.node.runtime.test_volumes import context

SOURCE = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "vault"}}
SPEC = {
    "containers": [{"name": "c", "image": "x"}],
    "volumes": [{"name": "access", "projected": {"sources": [SOURCE]}}],
}


@pytest.fixture
def live(tmp_path: Path):
    with live_server(tmp_path / "data") as live:
        yield live


def admitted(live: LiveServer, name: str, account: str = "default") -> AdmittedPod:
    live.call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    spec = {**SPEC, "serviceAccountName": "default"}
    made = live.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})
    assert made.code == 201, made.body
    raw = {**made.body, "spec": {**made.body["spec"], "serviceAccountName": account}}
    return AdmittedPod.of(raw)


async def test_a_token_is_written_and_renewed_before_it_ends(live: LiveServer, tmp_path: Path) -> None:
    pod, clock = admitted(live, "web"), VirtualClock(time.time_ns())
    api = HttpApi.from_kubeconfig(live.kubeconfig)
    tokens, file = Tokens(api, clock), tmp_path / "pods" / pod.uid / "volumes/kubernetes.io~projected/access/token"
    assert needs(pod) == {(TOKEN, "vault/600")}
    first = await tokens.token(pod, "vault/600")
    write_all(pod, context(tmp_path), {(TOKEN, "vault/600"): {"token": first}})
    assert file.read_bytes() == first and await tokens.token(pod, "vault/600") == first
    keeping = asyncio.create_task(tokens.run(lambda: [pod], context(tmp_path)))
    await clock.advance(420)
    assert file.read_bytes() == first
    await asyncio.sleep(1.1)  # a token of the same second would be the same one
    await clock.advance(120)
    async with asyncio.timeout(30):
        while file.read_bytes() == first:  # noqa: ASYNC110 (the server answers in real time)
            await asyncio.sleep(0.02)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    review["spec"] = {"token": file.read_text(), "audiences": ["vault"]}
    status = live.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review).body["status"]
    assert status["authenticated"] and status["user"]["username"] == "system:serviceaccount:default:default"
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await api.close()
    assert clock.now_ns() > time.time_ns() + 400 * NS


async def test_no_token_for_an_account_that_does_not_exist(live: LiveServer) -> None:
    pod = admitted(live, "web", account="nobody")
    api = HttpApi.from_kubeconfig(live.kubeconfig)
    with pytest.raises(ApiError, match="not found"):
        await Tokens(api, VirtualClock()).token(pod, "/3600")
    await api.close()
