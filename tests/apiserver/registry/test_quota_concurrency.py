"""A thousand concurrent creates under twenty scoped quotas: no conflict, no leak, no over-admission."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError, TransportApi
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import Resource
from kubeqos.codec import decode_json

PODS = Resource("", "v1", "pods", "Pod")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
SCOPES = (["BestEffort"], ["NotBestEffort"], ["Terminating", "NotBestEffort"], ["NotTerminating"], [])


def pod(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "10m"}} if number % 3 else {}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
    if number % 2:
        spec["activeDeadlineSeconds"] = 60
    return {"metadata": {"name": f"p{number}"}, "spec": spec}


def matches(number: int, scopes: list[str]) -> bool:
    """Whether a quota with these scopes measures pod `number`: what the scopes say, in words of this test."""
    standing = {"BestEffort" if number % 3 == 0 else "NotBestEffort", "Terminating" if number % 2 else "NotTerminating"}
    return set(scopes) <= standing


@contextlib.asynccontextmanager
async def reached(server: ApiServer, how: str) -> AsyncIterator[TransportApi]:
    """The API from inside the process, or over TLS with many connections."""
    if how == "in process":
        yield server.local()
        return
    api = HttpApi.from_kubeconfig(server.kubeconfig)
    try:
        yield api
    finally:
        await api.close()


@pytest.mark.parametrize("how", ["in process", "sockets"])
async def test_nobody_gets_more_than_there_is(tmp_path: Path, how: str) -> None:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server, reached(server, how) as api:
        for number in range(20):
            spec = {"hard": {"pods": str(150 + 10 * number)}, "scopes": SCOPES[number % len(SCOPES)]}
            await api.create(QUOTAS, {"metadata": {"name": f"q{number:02}"}, "spec": spec}, "default")

        async def one(number: int) -> bool:
            try:
                await api.create(PODS, pod(number), "default")
            except ApiError as error:
                assert error.status == 403, error
                assert "exceeded quota: " in error.message
                return False
            return True

        outcomes = await asyncio.gather(*map(one, range(1000)))
        created = [number for number, outcome in enumerate(outcomes) if outcome]
        there = {decode_json(item)["metadata"]["name"] for item in (await api.list(PODS, "default")).items}
        assert there == {f"p{number}" for number in created}
        for number in range(20):
            status = (await api.get(QUOTAS, f"q{number:02}", "default"))["status"]
            measured = sum(matches(n, SCOPES[number % len(SCOPES)]) for n in created)
            assert int(status["used"]["pods"]) == measured <= int(status["hard"]["pods"])
        # Nobody was refused while there was room: the quota without scopes is full.
        everyone = (await api.get(QUOTAS, "q04", "default"))["status"]
        assert everyone["used"] == everyone["hard"]
        await asyncio.gather(*(api.delete(PODS, f"p{number}", "default") for number in created))
        for number in range(20):
            assert (await api.get(QUOTAS, f"q{number:02}", "default"))["status"]["used"] == {"pods": "0"}
