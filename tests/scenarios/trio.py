"""API, scheduler and node in one process and in virtual time: admission on a dictionary, the scheduler's core, the real
agent on the simulated runtime. The scheduler hears of every write at once; the node hears, and is heard, when a test
says so, so that every order of events can be tried."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

from kubeqos.codec import encode_json
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.simulated.state import State
from kubeqos.gates import FeatureGates
from kubeqos.node.api import nodestatus
from kubeqos.rules.offline import Answer, Offline
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Bind
from tests.node.world import World

GATES = FeatureGates.parse("QOSResources=true")
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


Limits = dict[str, dict[str, int | None]]


def quota_of(pod: Limits | None = None, **resources: dict[str, int | None]) -> dict[str, Any]:
    """A quota of container-level classes, and of `pod`-level ones; None is a class without limit."""

    def listed(of: Limits) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "classes": [
                    {"name": cls} | ({} if most is None else {"capacity": most}) for cls, most in all_of.items()
                ],
            }
            for name, all_of in of.items()
        ]

    levels = {"container": listed(resources)} | ({} if pod is None else {"pod": listed(pod)})
    spec = {"qosResources": levels}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "classes"}, "spec": spec}


class Trio:
    """One namespace, one scheduler, one node."""

    def __init__(self, folder: Path, offers: Iterable[Advertisement]) -> None:
        self.api = Offline(GATES)
        self.world = World(folder, offers=offers)
        self.scheduler = Scheduler()
        self.now = 0.0
        self.leaving: set[str] = set()
        self.offers_changed = 0
        self.bound_under: dict[str, int] = {}
        """How often the offers had changed when a pod was bound."""

    async def __aenter__(self) -> Trio:
        self.api.apply(deepcopy(NODE))
        await self.world.boot()
        self._show_node()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.world.halt()
        await self.world.runtime.close()

    # ---- What users do

    def create(self, name: str, pod: dict[str, str] | None = None, **classes: str) -> Answer:
        """A pod of one container with these classes, and `pod` for the whole of it."""
        asked, wide = (
            [{"name": resource, "class": cls} for resource, cls in of.items()] for of in (classes, pod or {})
        )
        container = {"name": "main", "image": "example.org/app:1", "resources": {"qosResources": asked}}
        spec = {"containers": [container], "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
        spec |= {"qosResources": wide} if wide else {}
        answer = self.api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
        if answer.ok:
            self.pod(name)["metadata"]["generation"] = 1
            self._see(name)
        return answer

    def resize(self, name: str, **classes: str) -> Answer:
        wanted = deepcopy(self.pod(name))
        own = wanted["spec"]["containers"][0].get("resources", {}).get("qosResources", ())
        for one in (*own, *wanted["spec"].get("qosResources", ())):
            one["class"] = classes.get(one["name"], one["class"])
        before = self.pod(name)["spec"]
        answer = self.api.update(wanted, "pods", subresource="resize")
        if answer.ok:
            stored = self.pod(name)
            stored["metadata"] = {**stored["metadata"]}
            stored["metadata"]["generation"] += stored["spec"] != before
            self._see(name)
        return answer

    def delete(self, name: str) -> None:
        if "nodeName" in self.pod(name)["spec"]:
            self.leaving.add(name)
        else:
            self._gone(name)

    def pod(self, name: str) -> dict[str, Any]:
        found = self.api.get("pods", "default", name)
        assert found is not None
        return found

    def pods(self) -> list[dict[str, Any]]:
        return [raw for (resource, _, _), raw in self.api.objects.items() if resource == "pods"]

    # ---- What happens by itself

    def schedule(self) -> list[str]:
        """Bind what the scheduler finds a place for."""
        self.now += 1
        bound = []
        for effect in self.scheduler.step(self.now):
            if isinstance(effect, Bind):
                stored = self.pod(effect.pod.name)
                stored["spec"] = {**stored["spec"], "nodeName": effect.node}
                self.bound_under[effect.pod.name] = self.offers_changed
                self._see(effect.pod.name)
                bound.append(effect.pod.name)
        return bound

    async def node_hears(self) -> None:
        """The node sees the pods as they are stored, and acts."""
        known = self.world.pods.pods
        for raw in self.pods():
            uid, name = raw["metadata"]["uid"], raw["metadata"]["name"]
            if "nodeName" not in raw["spec"]:
                continue
            if uid not in known or known[uid]["spec"] != raw["spec"]:
                marks = {
                    key: known[uid]["metadata"][key] for key in _MARKS if uid in known and key in known[uid]["metadata"]
                }
                self.world.pods.set(deepcopy({**raw, "metadata": {**raw["metadata"], **marks}}))
            if name in self.leaving and "deletionTimestamp" not in known[uid]["metadata"]:
                self.world.pods.end(uid, self.world.agent.now(), 1)
        await self.world.settle()

    async def passes(self, seconds: float) -> None:
        await self.world.advance(seconds)

    def node_is_heard(self) -> None:
        """What the node says of its pods is stored."""
        known = self.world.pods.pods
        for raw in self.pods():
            uid, name = raw["metadata"]["uid"], raw["metadata"]["name"]
            if uid in known and known[uid].get("status"):
                told = {**deepcopy(raw), "status": {**raw["status"], **deepcopy(known[uid]["status"])}}
                answer = self.api.update(told, "pods", subresource="status")
                assert answer.ok, answer.line
                self._see(name)
            elif name in self.leaving and uid not in known:
                self._gone(name)

    async def offer(self, offers: Iterable[Advertisement]) -> None:
        """The node's classes change, and the node and the scheduler know."""
        self.world.runtime.set_offers(offers)
        await self.world.agent.refresh_runtime()
        self.offers_changed += 1
        self._show_node()
        await self.world.settle()

    async def restart_node(self) -> None:
        await self.world.halt()
        await self.world.boot()

    def restart_scheduler(self) -> None:
        self.scheduler = Scheduler()
        self._show_node()
        for raw in self.pods():
            self._see(raw["metadata"]["name"])

    async def comes_to_rest(self) -> None:
        for _ in range(3):
            self.schedule()
            await self.node_hears()
            await self.passes(3)
            self.node_is_heard()

    # ---- What is so

    def really_in(self) -> Counter[tuple[str, str]]:
        """Containers and sandboxes that the runtime holds in each class that somebody asked for."""
        core = self.world.runtime.core
        alive = [one.classes for one in core.containers.values() if one.state in (State.CREATED, State.RUNNING)]
        alive += [one.classes for one in core.sandboxes.values() if one.ready]
        return Counter(pair for one in alive for pair in one.items())

    def refused(self) -> list[str]:
        """Pods that the node sent away although its classes were the same when they were bound."""
        return [
            f"{raw['metadata']['name']}: {status.get('message')}"
            for raw in self.world.pods.pods.values()
            if (status := raw.get("status") or {}).get("reason") == "QOSResourcesUnavailable"
            and self.bound_under[raw["metadata"]["name"]] == self.offers_changed
        ]

    def quota_use(self) -> dict[tuple[str, str], int]:
        [governed] = self.api.ledger.quotas("default")
        return {(name, cls): used for (_, name, cls), used in governed.classes_used.items()}

    # ---- Telling the scheduler

    def _show_node(self) -> None:
        assert self.world.agent.classes is not None
        raw = {
            **NODE,
            "status": {
                "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
                "qosResources": nodestatus.qos_resources(self.world.agent.classes.catalog),
            },
        }
        self.scheduler.node_changed(encode_json(raw), "n1", self.now)

    def _see(self, name: str) -> None:
        raw = self.pod(name)
        self.scheduler.pod_changed(encode_json(raw), raw["metadata"]["uid"], self.now)

    def _gone(self, name: str) -> None:
        uid = self.pod(name)["metadata"]["uid"]
        assert self.api.delete("pods", "default", name).ok
        self.leaving.discard(name)
        self.scheduler.pod_changed(None, uid, self.now)


_MARKS = ("deletionTimestamp", "deletionGracePeriodSeconds")


def run(loop: asyncio.AbstractEventLoop, work: Any) -> Any:
    return loop.run_until_complete(work)
