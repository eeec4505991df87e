"""The statuses of QOSClass and QOSResource objects follow nodes and pods (KEP-3008, API objects)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.resources import NODES, PODS
from kubeqos.controllers.classstatus import QOS_CLASSES, QOS_RESOURCES, ClassStatusController
from kubeqos.controllers.manager import ControllerManager
from kubeqos.gates import FeatureGates
from kubeqos.stock.definitions import definitions
from tests.controllers.cluster import QUICK

API = "kubeqos.io/v1alpha1"


def pod(name: str, cls: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"qosResources": [{"name": "rdt", "class": cls}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "nodeName": "a"},
    }


async def test_use_of_a_class_is_told_by_its_object(tmp_path: Path) -> None:
    gates = FeatureGates.parse("QOSResources=true")
    async with ApiServer.start(Settings(tmp_path, port=0, gates=gates, definitions=definitions())) as server:
        api = server.local()
        manager = ControllerManager(api, QUICK, controllers=(ClassStatusController,))
        task = asyncio.create_task(manager.run())
        rdt = {"name": "rdt", "mutable": True, "classes": [{"name": "gold", "capacity": 2}, {"name": "silver"}]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
        await api.create(NODES, {**node, "status": {"qosResources": {"containerQoSResources": [rdt]}}})
        for cls in ("gold", "platinum"):
            spec = {"resource": "rdt", "class": cls, "level": "container"}
            await api.create(
                QOS_CLASSES, {"apiVersion": API, "kind": "QOSClass", "metadata": {"name": cls}, "spec": spec}
            )
        spec = {"resource": "rdt", "level": "container"}
        await api.create(
            QOS_RESOURCES, {"apiVersion": API, "kind": "QOSResource", "metadata": {"name": "rdt"}, "spec": spec}
        )
        await api.create(PODS, pod("one", "gold"), "default")

        async def says(resource: Any, name: str, **wanted: Any) -> None:
            async with asyncio.timeout(60):
                while (await api.get(resource, name)).get("status") != wanted:  # noqa: ASYNC110 - the server is asked
                    await asyncio.sleep(0.02)

        await says(QOS_CLASSES, "gold", nodes=1, capacity=2, used=1)
        await says(QOS_RESOURCES, "rdt", nodes=1, used=1, classes=["gold", "silver"])
        await says(QOS_CLASSES, "platinum", nodes=0, used=0)
        await api.delete(PODS, "one", "default", grace_seconds=0)
        await says(QOS_CLASSES, "gold", nodes=1, capacity=2, used=0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
