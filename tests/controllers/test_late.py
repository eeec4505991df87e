"""Controllers that come when the process knows everything already, as after a restart of `kubeqos up`."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import SharedInformers
from kubeqos.client.resources import NODES, PODS
from kubeqos.controllers.classstatus import ClassStatusController
from kubeqos.controllers.manager import CONTROLLERS, ControllerManager

EVERY = (*CONTROLLERS, ClassStatusController)


async def test_they_hear_of_what_is_known_when_all_they_look_at_is_there(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        api = server.local()
        await api.create(NODES, {"metadata": {"name": "n"}})
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        await api.create(PODS, pod, "default")
        every = ControllerManager(api, controllers=EVERY).context.caches  # of which kinds they look at
        informers = SharedInformers(api)
        following = asyncio.create_task(informers.run())
        for resource in every:
            await asyncio.wait_for(informers.of(resource).synced.wait(), 60)
        manager = ControllerManager(api, controllers=EVERY, informers=informers)
        assert not manager.controller("nodelifecycle").queue.idle
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
