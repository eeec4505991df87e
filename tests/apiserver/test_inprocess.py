"""The in-process client: the same answers, rules and events as over a socket."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeqos.apiserver.auth import Identity
from kubeqos.apiserver.inprocess import in_process_api
from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.errors import ApiError
from kubeqos.client.informer import Informer
from kubeqos.client.resources import CONFIG_MAPS

ADMIN = Identity("admin", groups=("system:masters",))


async def test_objects_are_written_read_and_watched(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path, port=0)) as server:
        api = in_process_api(server.application, ADMIN)
        informer = Informer(api, CONFIG_MAPS, namespace="default")
        following = asyncio.create_task(informer.run())
        await asyncio.wait_for(informer.synced.wait(), 5)
        made = await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}}, "default")
        assert (await api.get(CONFIG_MAPS, "a", "default"))["data"] == {"k": "v"}
        async with asyncio.timeout(5):
            while informer.get("default/a") is None:
                await asyncio.sleep(0.01)
        await api.delete(CONFIG_MAPS, "a", "default", uid=made["metadata"]["uid"])
        async with asyncio.timeout(5):
            while informer.get("default/a") is not None:
                await asyncio.sleep(0.01)
        following.cancel()


async def test_refusals_are_the_same_status(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path, port=0)) as server:
        nobody = in_process_api(server.application, Identity("nobody"))
        with pytest.raises(ApiError) as forbidden:
            await nobody.get(CONFIG_MAPS, "a", "default")
        assert (forbidden.value.status, forbidden.value.reason) == (403, "Forbidden")
        admin = in_process_api(server.application, ADMIN)
        with pytest.raises(ApiError) as missing:
            await admin.get(CONFIG_MAPS, "a", "default")
        assert missing.value.message == 'configmaps "a" not found'
