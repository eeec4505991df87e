"""Workloads that come and go: what a cluster of many users sees, in small.

Each user is a coroutine that creates, waits, changes and deletes until it is told to stop. All of it lies in namespaces
of its own, so that the end of the soak can say "everything".
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.informer import Change, Informer
from kubeqos.client.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLASSES,
    RESOURCE_QUOTAS,
    Resource,
)
from kubeqos.codec import encode_json

NAMESPACES_USED = ("web", "batch", "single", "team", "hpc")
PATIENCE_SECONDS = 120.0
RUNNING = b'"phase":"Running"'
QUOTA_PODS, QUOTA_CPU = 30, "12"
GIVEN = {"cpu": "100m", "memory": "64Mi"}
TAINT = {"key": "dedicated", "value": "pools", "effect": "NoSchedule"}
TOLERATED = [{"key": "dedicated", "operator": "Exists"}]


@dataclass(slots=True)
class Tally:
    """What happened so far."""

    started: int = 0
    ended: int = 0
    refused: int = 0
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When a pod was first seen running, and how long after it was first seen."""
    late: list[str] = field(default_factory=list)
    """What a user waited for in vain."""


class Pods:
    """Follows all pods, for those who wait for one and for the tally."""

    def __init__(self, api: HttpApi, tally: Tally) -> None:
        self.informer = Informer(api, PODS)
        self._tally = tally
        self._seen: dict[str, float] = {}
        self._moved = asyncio.Event()
        self.informer.on_change(self._changed)

    def _changed(self, change: Change) -> None:
        if change.old is None:
            self._seen[change.key] = time.monotonic()
        if change.new is None:
            self._tally.ended += 1
            self._seen.pop(change.key, None)
        elif RUNNING in change.new and change.key in self._seen:
            now = time.monotonic()
            self._tally.started += 1
            self._tally.waits.append((now, now - self._seen.pop(change.key)))
        self._moved.set()
        self._moved = asyncio.Event()

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait, but not for ever; what never comes is noted, and the soak fails."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not is_so():
                    await self._moved.wait()
        except TimeoutError:
            self._tally.late.append(what)

    def run(self, *keys: str) -> bool:
        return all(RUNNING in (self.informer.get(key) or b"") for key in keys)

    def gone(self, *keys: str) -> bool:
        return all(self.informer.get(key) is None for key in keys)


@dataclass(slots=True)
class Users:
    """Everybody who uses the cluster."""

    api: HttpApi
    pods: Pods
    tally: Tally
    ends: float
    """When to stop, by the monotonic clock."""

    async def prepare(self) -> None:
        """Namespaces, a quota, and what claims refer to."""
        for name in NAMESPACES_USED:
            await self.api.create(NAMESPACES, {"metadata": {"name": name}})
        for node in ("qrm", "cci"):  # the pools and drivers of these are for who asks for them
            await self.api.patch(NODES, node, {"spec": {"taints": [TAINT]}})
        hard = {"pods": str(QUOTA_PODS), "requests.cpu": QUOTA_CPU}
        paying = {"hard": hard, "scopes": ["NotBestEffort"]}
        await self.api.create(RESOURCE_QUOTAS, {"metadata": {"name": "paying"}, "spec": paying}, "team")
        scoped = {"hard": {"pods": str(QUOTA_PODS // 3)}, "scopes": ["BestEffort"]}
        await self.api.create(RESOURCE_QUOTAS, {"metadata": {"name": "best-effort"}, "spec": scoped}, "team")
        driver = {"metadata": {"name": "cores"}, "driverName": "reference.cci.kubeqos.io"}
        await self.api.create(RESOURCE_CLASSES, driver)
        wish = {"cores": ["4"], "cpu attributes": [["EXCLUSIVE"]]}
        body = {"metadata": {"name": "four"}, "data": {"config.json": encode_json(wish).decode()}}
        await self.api.create(CONFIG_MAPS, body, "hpc")
        claim = {"resourceClassName": "cores", "parametersRef": {"kind": "ConfigMap", "name": "four"}}
        template = {"metadata": {"name": "four"}, "spec": {"spec": claim}}
        await self.api.create(RESOURCE_CLAIM_TEMPLATES, template, "hpc")

    def all(self, scale: int) -> list[Coroutine[Any, Any, None]]:
        """Enough of each kind to keep `scale` nodes busy."""
        owners = max(1, scale // 250)
        users = [
            *(self.owner(DEPLOYMENTS, "web", f"web-{n}", 30) for n in range(owners)),
            *(self.owner(REPLICA_SETS, "batch", f"batch-{n}", 40) for n in range(owners)),
            *(self.visitor("single", f"single-{n}", with_classes) for n in range(max(4, scale // 40))),
            *(self.visitor("team", f"team-{n}", small) for n in range(QUOTA_PODS + 10)),
            *(self.visitor("hpc", f"hpc-{n}", with_claim) for n in range(4)),
            *(self.visitor("hpc", f"online-{n}", online) for n in range(4)),
            self.visitor("hpc", "offline", offline),
            self.tenant(),
        ]
        return [self._noted(user) for user in users]

    async def _noted(self, user: Coroutine[Any, Any, None]) -> None:
        """What a user may not meet ends this user and is told at the end; the others go on."""
        try:
            await user
        except (ApiError, Unreachable) as error:
            self.tally.late.append(" ".join(error.lines()))

    def going_on(self) -> bool:
        return time.monotonic() < self.ends

    async def owner(self, resource: Resource, namespace: str, name: str, most: int) -> None:
        """Scales a workload up and down, and now and then rolls out a new version."""
        rng = random.Random(name)
        labels = {"app": name}
        container = {"name": "app", "image": "app:1", "resources": {"requests": GIVEN}}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        await self.api.create(resource, {"metadata": {"name": name}, "spec": spec}, namespace)
        version = 1
        while self.going_on():
            wanted = rng.choice((0, rng.randint(1, most), most))
            patch: dict[str, Any] = {"spec": {"replicas": wanted}}
            if resource is DEPLOYMENTS and rng.random() < 0.2:
                version += 1
                patch["spec"]["template"] = {"spec": {"containers": [{**container, "image": f"app:{version}"}]}}
            await self.api.patch(resource, name, patch, namespace)
            await self.pods.until(f"{name} has {wanted} pods", partial(self._count, name, wanted))
            await asyncio.sleep(rng.uniform(5, 15))

    def _count(self, name: str, wanted: int) -> bool:
        label = f'"app":"{name}"'.encode()
        mine = [raw for _, raw in self.pods.informer if label in raw]
        return len(mine) == wanted and all(RUNNING in raw for raw in mine)

    async def visitor(self, namespace: str, name: str, make: Callable[[random.Random], dict[str, Any]]) -> None:
        """Runs one pod after another."""
        rng = random.Random(name)
        number = 0
        await asyncio.sleep(rng.uniform(0, 10))
        while self.going_on():
            number += 1
            pod = make(rng)
            pod["metadata"] = {**pod.get("metadata", {}), "name": f"{name}-{number}"}
            key = f"{namespace}/{name}-{number}"
            try:
                await self.api.create(PODS, pod, namespace)
            except ApiError as error:
                if "exceeded quota" not in error.message:
                    raise
                self.tally.refused += 1
                await asyncio.sleep(rng.uniform(0.5, 2))
                continue
            await self.pods.until(f"{key} runs", partial(self.pods.run, key))
            await asyncio.sleep(rng.uniform(2, 12))
            await self.api.delete(PODS, f"{name}-{number}", namespace, grace_seconds=rng.choice((1, 2)))
            await self.pods.until(f"{key} is gone", partial(self.pods.gone, key))

    async def tenant(self) -> None:
        """A namespace that is made, filled and deleted as a whole, again and again."""
        number = 0
        while self.going_on():
            number += 1
            name = f"tenant-{number}"
            await self.api.create(NAMESPACES, {"metadata": {"name": name}})
            keys = [f"{name}/p{each}" for each in range(5)]
            for each in range(5):
                await self.api.create(PODS, {**small(random.Random(each)), "metadata": {"name": f"p{each}"}}, name)
            await self.pods.until(f"{name} runs", partial(self.pods.run, *keys))
            await self.api.delete(NAMESPACES, name)
            await self.pods.until(f"{name} is empty", partial(self.pods.gone, *keys))
            await asyncio.sleep(5)


def pod(resources: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "app:1"}
    if resources:
        container["resources"] = resources
    return {"spec": {"containers": [container], **spec}}


def small(rng: random.Random) -> dict[str, Any]:
    """Burstable or BestEffort."""
    cpu = rng.choice(("100m", "400m", "1", None))
    return pod({"requests": {"cpu": cpu, "memory": "32Mi"}} if cpu else None)


def with_classes(rng: random.Random) -> dict[str, Any]:
    """Whole CPUs of its own, and classes that nodes have few of."""
    size = {"cpu": str(rng.randint(1, 4)), "memory": "256Mi"}
    classes = [{"name": "rdt", "class": rng.choice(("gold", "silver", "exclusive"))}]
    if rng.random() < 0.5:
        classes.append({"name": "blockio", "class": rng.choice(("high-prio", "throttled"))})
    resources = {"requests": size, "limits": size, "qosResources": classes}
    return pod(resources, qosResources=[{"name": "network", "class": rng.choice(("fast", "normal", "slow"))}])


def with_claim(_rng: random.Random) -> dict[str, Any]:
    """Four exclusive cores from a compute driver."""
    size = {"cpu": "4", "memory": "256Mi"}
    claims = [{"name": "compute", "source": {"resourceClaimTemplateName": "four"}}]
    resources = {"requests": size, "limits": size, "claims": [{"name": "compute"}]}
    return pod(resources, resourceClaims=claims, tolerations=TOLERATED)


def online(_rng: random.Random) -> dict[str, Any]:
    """A role that the resource plugins of one node know."""
    return with_role("online-micro_service")


def offline(_rng: random.Random) -> dict[str, Any]:
    """One with a small pool."""
    return with_role("ETL")


def with_role(role: str) -> dict[str, Any]:
    selector = {"kubernetes.io/hostname": "qrm"}
    made = pod({"requests": {"cpu": "2"}}, nodeSelector=selector, tolerations=TOLERATED)
    made["metadata"] = {"annotations": {"kubernetes.io/pod-role": role}}
    return made
