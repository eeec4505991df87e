"""What the scheduler may read is what its role says: the rest it does without, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.api import Api
from kubeqos.client.resources import NODES, PODS, resource_named
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from kubeqos.scheduler.serving import application
from kubeqos.web.identity import Identity
from tests.cluster.test_autoscaler import until

NAME = "system:kube-scheduler"
CLAIMS, VOLUMES = resource_named("PersistentVolumeClaim"), resource_named("PersistentVolume")
CLASSES = resource_named("StorageClass", "storage.k8s.io")
ROLES = resource_named("ClusterRole", "rbac.authorization.k8s.io")
BINDINGS = resource_named("ClusterRoleBinding", "rbac.authorization.k8s.io")


@asynccontextmanager
async def scheduling(server: ApiServer, user: str) -> AsyncIterator[SchedulerService]:
    service = SchedulerService(server.local(Identity.authenticated(user, [])), Scheduler())
    task = asyncio.create_task(service.run())
    try:
        yield service
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0, audit=False)) as server:
        yield server


async def said(service: SchedulerService) -> tuple[int, list[str]]:
    transport = httpx2.ASGITransport(application(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://scheduler") as client:
        answer = await client.get("/readyz")
    return answer.status_code, answer.text.splitlines()


async def ready_node(admin: Api) -> None:
    await admin.create(NODES, {"metadata": {"name": "n1"}})
    untainted = await admin.patch(NODES, "n1", {"spec": {"taints": None}})
    untainted["status"] = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    await admin.update(NODES, untainted, subresource="status")


async def test_with_the_role_of_kube_scheduler_it_works_and_says_what_it_does_without(server: ApiServer) -> None:
    admin = server.local()
    async with scheduling(server, NAME) as service:
        await asyncio.wait_for(service.ready.wait(), 60)
        code, lines = await said(service)
        assert (code, lines[0]) == (200, "ok")
        assert any(
            line.startswith("[!]does without configmaps: pods with claims of cores wait: configmaps is forbidden:")
            for line in lines
        )
        await ready_node(admin)
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await admin.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")

        async def bound() -> bool:
            return (await admin.get(PODS, "p", "default"))["spec"].get("nodeName") == "n1"

        await until("it is bound", bound)


async def test_a_claim_waits_for_its_first_consumer_and_both_say_for_whom(server: ApiServer) -> None:
    """As in `kubeqos up`, where nobody makes volumes: the claim is marked, the pod waits and tells why."""
    admin = server.local()
    lazy = {"provisioner": "maker.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    await admin.create(CLASSES, {"metadata": {"name": "lazy"}, **lazy})
    asks = {"storageClassName": "lazy", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await admin.create(CLAIMS, {"metadata": {"name": "data"}, "spec": asks}, "default")
    await ready_node(admin)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
    async with scheduling(server, NAME) as service:
        await asyncio.wait_for(service.ready.wait(), 60)
        await admin.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")

        async def waits() -> bool:
            return bool((await admin.get(PODS, "p", "default"))["status"].get("conditions"))

        await until("the pod is told", waits)
        [condition] = (await admin.get(PODS, "p", "default"))["status"]["conditions"]
        assert condition["reason"] == "WaitingForVolumes"
        awaited = 'persistentvolumeclaim "data" waits for provisioner "maker.example.com" to make it'
        assert condition["message"] == f"waiting for volumes on node n1: {awaited}"

        async def marked() -> bool:
            annotations = (await admin.get(CLAIMS, "data", "default"))["metadata"].get("annotations") or {}
            return annotations.get("volume.kubernetes.io/selected-node") == "n1"

        await until("the claim is marked", marked)
        made = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v"}}
        volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "lazy"}
        volume |= {"hostPath": {"path": "/data"}}
        await admin.create(VOLUMES, {"metadata": {"name": "v"}, "spec": volume})
        await admin.patch(CLAIMS, "data", made, "default")

        async def bound() -> bool:
            return (await admin.get(PODS, "p", "default"))["spec"].get("nodeName") == "n1"

        await until("it is bound", bound)


async def test_who_may_not_read_pods_waits_and_says_why(server: ApiServer) -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
    admin = server.local()
    await admin.create(ROLES, {"metadata": {"name": "nodes-only"}, "rules": rules})
    subject = {"kind": "User", "name": "blind", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "nodes-only", "apiGroup": "rbac.authorization.k8s.io"}
    await admin.create(BINDINGS, {"metadata": {"name": "blind"}, "subjects": [subject], "roleRef": role})
    async with scheduling(server, "blind") as service:

        async def told() -> bool:
            return any("pods is forbidden" in line for line in (await said(service))[1])

        await until("it is told", told)
        code, lines = await said(service)
        assert code == 500
        assert lines[0].startswith('[-]informer-sync failed: pods: pods is forbidden: User "blind" cannot list')
        rules[0]["resources"].append("pods")
        await admin.update(ROLES, {**await admin.get(ROLES, "nodes-only"), "rules": rules})
        await asyncio.wait_for(service.ready.wait(), 60)
        assert (await said(service))[0] == 200
