"""Claims and volumes find each other: what is written until both say so, and a pod that waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.api import Api
from kubeqos.client.resources import EVENTS, PODS, RESOURCE_QUOTAS, STORAGE_CLASSES, resource_named
from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS as CLAIMS
from kubeqos.client.resources import PERSISTENT_VOLUMES as VOLUMES
from kubeqos.codec import decode_json
from kubeqos.controllers.actions import Action, Create, Patch, Tell
from kubeqos.controllers.collector import GarbageCollector
from kubeqos.controllers.manager import ControllerManager
from kubeqos.controllers.nodes.podsweep import ClaimProtection
from kubeqos.controllers.volumes.binding import claim_actions, volume_actions
from kubeqos.controllers.volumes.controller import VolumeBinder
from kubeqos.controllers.volumes.ephemeral import EphemeralVolumes, missing_claims
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.service import SchedulerService
from tests.cluster.test_autoscaler import until
from tests.scheduler.test_feed import ready_node

Raw = dict[str, Any]


def claim(name: str = "c", volume: str = "", cls: str = "slow", size: str = "1Gi", **spec: Any) -> Raw:
    asks = {"accessModes": ["ReadWriteOnce"], "storageClassName": cls, "resources": {"requests": {"storage": size}}}
    meta = {"name": name, "namespace": "default", "uid": f"u-{name}", "resourceVersion": "7"}
    named = {"volumeName": volume} if volume else {}
    return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {**asks, **named, **spec}}


def volume(name: str = "v", size: str = "1Gi", cls: str = "slow", phase: str = "Available", **spec: Any) -> Raw:
    has = {"accessModes": ["ReadWriteOnce"], "storageClassName": cls, "capacity": {"storage": size}}
    meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "9"}
    return {"metadata": meta, "spec": {**has, **spec}, "status": {"phase": phase}}


def storage_class(mode: str = "Immediate", provisioner: str = "maker.example.com") -> Raw:
    return {"metadata": {"name": "slow"}, "provisioner": provisioner, "volumeBindingMode": mode}


def written(actions: list[Action]) -> list[str]:
    """`Kind/name` or `Kind/name/status` of every write, in order."""
    found = []
    for one in actions:
        assert isinstance(one, Patch), one
        found.append("/".join(filter(None, (one.resource.kind, one.name, one.subresource))))
    return found


BOTH = [
    "PersistentVolume/{}",
    "PersistentVolume/{}/status",
    "PersistentVolumeClaim/c",
    "PersistentVolumeClaim/c/status",
]


@pytest.mark.parametrize(
    ("volumes", "chosen"),
    [
        ([volume("large", "8Gi"), volume("small", "2Gi"), volume("tiny", "1Mi")], "small"),
        ([volume("other", cls="fast"), volume("mine")], "mine"),
        ([volume("small"), volume("meant", "8Gi", claimRef={"namespace": "default", "name": "c"})], "meant"),
        ([volume("taken", claimRef={"namespace": "default", "name": "d", "uid": "u-d"}), volume("free")], "free"),
        ([volume("released", phase="Released"), volume("free")], "free"),
        ([volume("reader", accessModes=["ReadOnlyMany"]), volume("writer")], "writer"),
        ([volume("block", volumeMode="Block"), volume("files")], "files"),
    ],
)
def test_which_volume_a_claim_gets(volumes: list[Raw], chosen: str) -> None:
    actions = claim_actions(claim(), volumes, storage_class())
    assert written(actions) == [text.format(chosen) for text in BOTH]
    first, third = actions[0], actions[2]
    assert isinstance(first, Patch)
    assert isinstance(third, Patch)
    assert first.patch["spec"]["claimRef"]["uid"] == "u-c"
    assert third.patch["spec"] == {"volumeName": chosen}
    assert third.patch["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] == "yes"


@pytest.mark.parametrize(
    ("one", "named", "reason"),
    [
        (claim(), storage_class("WaitForFirstConsumer"), "WaitForFirstConsumer"),
        (claim(), storage_class(), "ExternalProvisioning"),
        (claim(), storage_class(provisioner="kubernetes.io/no-provisioner"), "FailedBinding"),
        (claim(cls=""), None, "FailedBinding"),
        (claim(), None, "ProvisioningFailed"),
    ],
)
def test_a_claim_without_a_volume_says_what_it_waits_for(one: Raw, named: Raw | None, reason: str) -> None:
    [told] = claim_actions(one, [], named)
    assert isinstance(told, Tell)
    assert told.reason == reason


def test_what_the_scheduler_chose_is_completed_and_nothing_is_written_twice() -> None:
    lazy, ref = storage_class("WaitForFirstConsumer"), {"namespace": "default", "name": "c", "uid": "u-c"}
    assert written(claim_actions(claim(), [volume(claimRef=ref)], lazy)) == [text.format("v") for text in BOTH[1:]]
    done = claim(volume="v")
    done["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    done["status"] = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    theirs = volume(claimRef=ref, phase="Bound")
    assert claim_actions(done, [theirs], lazy) == []
    assert volume_actions(theirs, done) == []
    [lost] = claim_actions(done, [], lazy)
    assert isinstance(lost, Patch)
    assert lost.patch == {"status": {"phase": "Lost"}}


def test_a_volume_is_available_until_it_is_claimed_and_released_afterwards() -> None:
    ref = {"namespace": "default", "name": "c", "uid": "u-c"}

    def phase(one: Raw, other: Raw | None) -> Any:
        [action] = volume_actions(one, other)
        assert isinstance(action, Patch)
        return action.patch["status"]["phase"]

    assert phase(volume(phase=""), None) == "Available"
    assert phase(volume(claimRef=ref, phase="Bound"), None) == "Released"
    stranger = claim()
    stranger["metadata"]["uid"] = "another"
    assert phase(volume(claimRef=ref, phase="Bound"), stranger) == "Released"


async def test_a_pod_gets_the_volume_that_is_there(tmp_path: Path) -> None:
    """Controller and scheduler together: one claim binds at once, the other where the pod goes."""
    async with (
        ApiServer.start(Settings(tmp_path / "data", port=0, audit=False)) as server,
        asyncio.TaskGroup() as tasks,
    ):
        api = server.local()
        await ready_node(api)
        binder = ControllerManager(api, controllers=(VolumeBinder,))
        scheduler = SchedulerService(api, Scheduler())
        running = [tasks.create_task(binder.run()), tasks.create_task(scheduler.run())]
        nobody = "kubernetes.io/no-provisioner"
        await api.create(
            STORAGE_CLASSES, {**storage_class("WaitForFirstConsumer", nobody), "metadata": {"name": "lazy"}}
        )
        for cls in ("lazy", ""):
            asked = claim(f"c{cls}", cls=cls)
            await api.create(CLAIMS, {"metadata": {"name": f"c{cls}"}, "spec": asked["spec"]}, "default")
            has = {**volume(cls=cls)["spec"], "hostPath": {"path": "/data"}}
            await api.create(VOLUMES, {"metadata": {"name": f"v{cls}"}, "spec": has})
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("c", "clazy")]
        spec = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")

        async def bound() -> bool:
            return (await api.get(PODS, "p", "default"))["spec"].get("nodeName") == "n1"

        await until("it is bound", bound)
        found = [await api.get(CLAIMS, name, "default") for name in ("c", "clazy")]
        assert [(one["spec"]["volumeName"], one["status"]["phase"]) for one in found] == [
            ("v", "Bound"),
            ("vlazy", "Bound"),
        ]
        await api.delete(CLAIMS, "c", "default")
        for task in running:
            task.cancel()


def with_scratch(**meta: Any) -> Raw:
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": claim()["spec"]}
    metadata = {"name": "p", "namespace": "default", "uid": "u-p", **meta}
    spec = {"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}}, {"name": "e", "emptyDir": {}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_an_ephemeral_volume_gets_a_claim_of_its_pod() -> None:
    one = with_scratch()
    [made] = missing_claims(one, {})
    assert isinstance(made, Create)
    assert made.body["metadata"] == {
        "name": "p-tmp",
        "namespace": "default",
        "annotations": {"a": "b"},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "uid": "u-p",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    assert made.body["spec"] == claim()["spec"]
    assert missing_claims(one, {"p-tmp": made.body}) == []
    assert missing_claims(with_scratch(deletionTimestamp="2026-01-01T00:00:00Z"), {}) == []
    [told] = missing_claims(one, {"p-tmp": claim("p-tmp")})
    assert isinstance(told, Tell)
    assert told.message == (
        "ephemeral volume tmp: PVC default/p-tmp was not created for pod default/p (pod is not owner)"
    )


async def settled(manager: ControllerManager) -> bool:
    return manager.idle


async def may_read(api: Api, node: str, name: str) -> bool:
    """Whether a node may read a volume claim, by the server's own word."""
    what = {"verb": "get", "resource": CLAIMS.plural, "namespace": "default", "name": name}
    asked = {"user": f"system:node:{node}", "groups": ["system:nodes"], "resourceAttributes": what}
    review = await api.create(resource_named("SubjectAccessReview", "authorization.k8s.io"), {"spec": asked})
    return bool(review["status"]["allowed"])


async def test_a_claim_that_is_refused_is_told_made_later_and_goes_with_its_pod(tmp_path: Path) -> None:
    async with (
        ApiServer.start(Settings(tmp_path / "data", port=0, audit=False)) as server,
        asyncio.TaskGroup() as tasks,
    ):
        api = server.local()
        manager = ControllerManager(api, controllers=(EphemeralVolumes, GarbageCollector, ClaimProtection))
        task = tasks.create_task(manager.run())
        none = {"metadata": {"name": "none"}, "spec": {"hard": {"persistentvolumeclaims": "0"}}}
        await api.create(RESOURCE_QUOTAS, none, "default")
        spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1", **with_scratch()["spec"]}
        await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")

        async def told() -> bool:
            events = [decode_json(raw) for raw in (await api.list(EVENTS, "default")).items]
            return any("exceeded quota: none" in one["message"] for one in events if one["reason"] == "FailedBinding")

        async def claims() -> list[str]:
            return [decode_json(raw)["metadata"]["name"] for raw in (await api.list(CLAIMS, "default")).items]

        async def made() -> bool:
            return await claims() == ["p-tmp"]

        async def gone() -> bool:
            return await claims() == []

        await until("its owner hears of it", told)
        await api.delete(RESOURCE_QUOTAS, "none", "default")
        await until("the claim is made", made)
        assert [await may_read(api, node, "p-tmp") for node in ("n1", "n2")] == [True, False]
        await api.delete(CLAIMS, "p-tmp", "default")
        await until("it was looked at", lambda: settled(manager))
        assert await claims() == ["p-tmp"]  # its pod uses it
        await api.delete(PODS, "p", "default", grace_seconds=0)
        await until("it goes with its pod", gone)
        task.cancel()
