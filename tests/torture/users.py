"""What users do meanwhile, drawn from a seed: they create, scale, resize and delete, and try again when cut off.

What they ask for fits the cluster twice over, so that everything that may exist can run when faults have stopped.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from kubeqos.client import ApiError, Unreachable
from kubeqos.client.api import Api, PatchType
from kubeqos.client.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLASSES,
    RESOURCE_QUOTAS,
)
from kubeqos.codec import decode_json, encode_json
from kubeqos.model.annotations.podmarks import DEDICATED_CORES, QOS_LEVEL_KEY
from tests.torture.plan import Shape

CALM, TIGHT = "calm", "tight"
OWNS = "torture.example/owns"
"""Annotation of pods that own their CPUs by the promise of a resource plugin or of a compute driver."""
CORE = "one-core"
REFERENCE = "reference.cci.kubeqos.io"
QUOTA = {"pods": "5", "requests.cpu": "4"}
GOLD_QUOTA = 2


def container(**resources: Any) -> dict[str, Any]:
    return {"name": "main", "image": "example.org/app:1", "resources": resources}


def shared() -> dict[str, Any]:
    return container(requests={"cpu": "200m", "memory": "64Mi"})


def exclusive(cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": "128Mi"}
    return container(requests=amounts, limits=dict(amounts))


def gold() -> dict[str, Any]:
    return container(requests={"cpu": "100m", "memory": "64Mi"}, qosResources=[{"name": "rdt", "class": "gold"}])


class Users:
    """Everybody who types kubectl."""

    def __init__(self, api: Api, seed: int, shape: Shape) -> None:
        self._api = api
        self._chance = random.Random(f"users {seed}")
        self._shape = shape
        self._number = 0
        self.done = 0
        self.stopped = False

    async def prepare(self) -> None:
        for name in (CALM, TIGHT):
            await self._insist(self._api.create, NAMESPACES, {"metadata": {"name": name}})
        quota = {
            "metadata": {"name": "all"},
            "spec": {
                "hard": QUOTA,
                "qosResources": {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": GOLD_QUOTA}]}]},
            },
        }
        await self._insist(self._api.create, RESOURCE_QUOTAS, quota, TIGHT)
        if "cci" in self._shape.nodes.values():
            await self._prepare_claims()

    async def _prepare_claims(self) -> None:
        """A core of one's own, for everybody who claims it."""
        wanted = {"cores": ["1"], "cpu attributes": [["EXCLUSIVE"]]}
        data = {"config.json": encode_json(wanted).decode()}
        claim = {"resourceClassName": CORE, "parametersRef": {"kind": "ConfigMap", "name": CORE}}
        header = {"metadata": {"name": CORE}}
        await self._insist(self._api.create, RESOURCE_CLASSES, {**header, "driverName": REFERENCE})
        await self._insist(self._api.create, CONFIG_MAPS, {**header, "data": data}, CALM)
        await self._insist(self._api.create, RESOURCE_CLAIM_TEMPLATES, {**header, "spec": {"spec": claim}}, CALM)

    async def work(self) -> None:
        """One thing after the other; several users at once."""
        async with asyncio.TaskGroup() as users:
            for _ in range(3):
                users.create_task(self._one_user())

    async def _one_user(self) -> None:
        chance = self._chance
        actions = [
            self._deploy,
            self._scale,
            self._pod,
            self._pod,
            self._job,
            self._delete_pod,
            self._drop,
            self._crowd,
            self._owner,
        ]
        while not self.stopped and asyncio.get_running_loop().time() < self._shape.seconds:
            try:
                await chance.choice(actions)()
                self.done += 1
            except (ApiError, Unreachable):
                pass  # refused or cut off: what came of it the laws will see
            await asyncio.sleep(chance.uniform(0.5, 12))

    def _name(self, what: str) -> str:
        self._number += 1
        return f"{what}-{self._number}"

    async def _deploy(self) -> None:
        name = self._name("web")
        if self._number > 10 + 2 * len(self._shape.nodes):
            await self._drop()
            return
        kind = self._chance.choice([shared(), shared(), exclusive(1), gold()])
        copies = (
            1 if "limits" in kind["resources"] or "qosResources" in kind["resources"] else self._chance.randint(1, 4)
        )
        spec = {
            "replicas": copies,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [kind], "terminationGracePeriodSeconds": 5},
            },
        }
        await self._api.create(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec}, CALM)

    async def _scale(self) -> None:
        found = await self._some(DEPLOYMENTS, CALM)
        if found is not None and "limits" not in str(found) and "qosResources" not in str(found):
            patch = {"spec": {"replicas": self._chance.randint(0, 4)}}
            await self._api.patch(DEPLOYMENTS, found["metadata"]["name"], patch, CALM, type=PatchType.MERGE)

    async def _drop(self) -> None:
        found = await self._some(DEPLOYMENTS, CALM)
        if found is not None:
            await self._api.delete(DEPLOYMENTS, found["metadata"]["name"], CALM)

    async def _pod(self, namespace: str = "") -> None:
        """One pod: most of them where the quota is tight."""
        kind = self._chance.choice([shared(), exclusive(1), exclusive(2), gold()])
        policy = self._chance.choice(["Always", "Never"])
        spec = {"containers": [kind], "restartPolicy": policy, "terminationGracePeriodSeconds": 5}
        await self._api.create(PODS, {"metadata": {"name": self._name("pod")}, "spec": spec}, namespace or TIGHT)

    async def _crowd(self) -> None:
        """Several at once, more than the quota takes."""
        await asyncio.gather(*(self._pod(TIGHT) for _ in range(4)), return_exceptions=True)

    async def _owner(self) -> None:
        """One pod on each node that has plugins or a driver, which gets a CPU, or a core, of its own from them."""
        nodes = [node for node, kind in self._shape.nodes.items() if kind in ("qrm", "cci")]
        if not nodes:
            await self._pod()
            return
        node = self._chance.choice(nodes)
        kind, one = self._shape.nodes[node], exclusive(1)
        annotations = {OWNS: kind}
        spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 5}
        if kind == "qrm":
            annotations[QOS_LEVEL_KEY] = DEDICATED_CORES
        else:
            one["resources"]["claims"] = [{"name": "core"}]
            spec["resourceClaims"] = [{"name": "core", "source": {"resourceClaimTemplateName": CORE}}]
        metadata = {"name": f"owner-{node}", "annotations": annotations}
        await self._api.create(PODS, {"metadata": metadata, "spec": {**spec, "containers": [one]}}, CALM)

    async def _job(self) -> None:
        one = {**shared(), "command": ["sh", "-c", f"sleep {self._chance.randint(1, 20)}"]}
        template = {"spec": {"containers": [one], "restartPolicy": "Never", "terminationGracePeriodSeconds": 5}}
        spec = {"completions": 2, "parallelism": 2, "backoffLimit": 20, "template": template}
        await self._api.create(JOBS, {"metadata": {"name": self._name("job")}, "spec": spec}, CALM)

    async def _delete_pod(self) -> None:
        found = await self._some(PODS, self._chance.choice([CALM, TIGHT, TIGHT]))
        if found is not None:
            metadata = found["metadata"]
            grace = self._chance.choice([None, None, 1, 0])
            await self._api.delete(PODS, metadata["name"], metadata["namespace"], grace_seconds=grace)

    async def _some(self, resource: Any, namespace: str) -> Any:
        items = (await self._api.list(resource, namespace)).items
        return decode_json(self._chance.choice(items)) if items else None

    async def _insist(self, verb: Any, *arguments: Any) -> None:
        while True:
            try:
                await verb(*arguments)
                return
            except ApiError as error:
                if error.already_exists:
                    return
                await asyncio.sleep(1)
            except Unreachable:
                await asyncio.sleep(1)
