"""A thousand concurrent creates under twenty scoped quotas: no conflict, no leak, no over-admission."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import ApiError
from kubeqos.client.resources import Resource

PODS = Resource("", "v1", "pods", "Pod")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
SCOPES = (["BestEffort"], ["NotBestEffort"], ["Terminating", "NotBestEffort"], ["NotTerminating"], [])


def pod(number: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": "10m"}} if number % 3 else {}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
    if number % 2:
        spec["activeDeadlineSeconds"] = 60
    return {"metadata": {"name": f"p{number}"}, "spec": spec}


async def test_nobody_gets_more_than_there_is(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        api = server.local()
        for number in range(20):
            spec = {"hard": {"pods": str(150 + 10 * number)}, "scopes": SCOPES[number % len(SCOPES)]}
            await api.create(QUOTAS, {"metadata": {"name": f"q{number:02}"}, "spec": spec}, "default")

        async def one(number: int) -> str:
            try:
                await api.create(PODS, pod(number), "default")
            except ApiError as error:
                assert error.status == 403, error
                assert "exceeded quota: " in error.message
                return "refused"
            return "created"

        outcomes = await asyncio.gather(*map(one, range(1000)))
        listing = await api.list(PODS, "default")
        assert len(listing.items) == outcomes.count("created")
        for number in range(20):
            status = (await api.get(QUOTAS, f"q{number:02}", "default"))["status"]
            assert int(status["used"]["pods"]) <= int(status["hard"]["pods"])
        # The tightest quota of each scope is full, or nobody was refused for it: nothing was wasted either.
        everyone = (await api.get(QUOTAS, "q04", "default"))["status"]
        assert int(everyone["used"]["pods"]) == len(listing.items)
        await asyncio.gather(*(api.delete(PODS, f"p{n}", "default") for n, o in enumerate(outcomes) if o == "created"))
        for number in range(20):
            assert (await api.get(QUOTAS, f"q{number:02}", "default"))["status"]["used"] == {"pods": "0"}
