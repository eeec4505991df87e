"""PodDisruptionBudgets: how many pods may be disrupted now. Function and loop.

The eviction subresource takes from `disruptionsAllowed` and notes the pod in `disruptedPods`; this controller counts
anew. A noted pod counts as gone until it is, or until two minutes have passed without it going.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kubeqos.client import Change
from kubeqos.client.resources import (
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
)
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Patch, change
from kubeqos.controllers.cache import meta_of
from kubeqos.controllers.controller import Controller, itself
from kubeqos.controllers.podstate import condition, controller_of, is_active, is_going, is_ready, with_condition
from kubeqos.controllers.workloads.replicas import wanted
from kubeqos.controllers.workloads.rollout import scaled
from kubeqos.model.selectors import LabelSelector
from kubeqos.model.timestamps import seconds_of

DISRUPTION_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A status to write, if it differs, and when a noted disruption runs out."""

    write: Patch | None
    look_again: float | None = None


def expected(budget: JsonObject, pods: list[JsonObject], scales: Mapping[str, int]) -> tuple[int, int]:
    """How many pods there should be, and how many of them must be healthy.

    A share, and a bound on unavailability, are of what the pods' controllers want (`scales`, by controller uid), since
    a pod that is missing counts as unavailable; a plain minimum is of the pods that are there.
    """
    spec = budget.get("spec") or {}
    unavailable, minimum = spec.get("maxUnavailable"), spec.get("minAvailable")
    if unavailable is not None:
        count = _wanted(pods, scales)
        return count, max(0, count - scaled(unavailable, count, up=True))
    if isinstance(minimum, str):
        count = _wanted(pods, scales)
        return count, scaled(minimum, count, up=True)
    return len(pods), int(minimum or 0)


def _wanted(pods: list[JsonObject], scales: Mapping[str, int]) -> int:
    managers = {(controller_of(pod) or {}).get("uid", "") for pod in pods}
    return sum(scales[uid] for uid in managers if uid in scales)


def standing(budget: JsonObject, pods: Iterable[JsonObject], scales: Mapping[str, int], now: float) -> Standing:
    """The status as it should be."""
    before = budget.get("status") or {}
    counted = [pod for pod in pods if is_active(pod)]
    disrupted = _still_disrupted(before.get("disruptedPods") or {}, counted, now)
    healthy = sum(is_ready(pod) and pod["metadata"]["name"] not in disrupted for pod in counted)
    count, needed = expected(budget, counted, scales)
    allowed = max(0, healthy - needed) if count > 0 else 0
    enough = ("True", "SufficientPods") if allowed else ("False", "InsufficientPods")
    known = condition(budget, "DisruptionAllowed") or {}
    conditions = before.get("conditions") or []
    if (known.get("status"), known.get("reason")) != enough:
        conditions = with_condition(conditions, "DisruptionAllowed", *enough, "", now)
    after: JsonObject = {
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": needed,
        "expectedPods": count,
        "observedGeneration": budget["metadata"].get("generation", 0),
        "conditions": conditions,
    }
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    gone = {name: None for name in before.get("disruptedPods") or {} if name not in disrupted}
    if gone:  # in a merge patch null takes an entry out, and the whole map once nothing is left in it
        changed["disruptedPods"] = gone if disrupted else None
    look_again = min((end - now for end in disrupted.values()), default=None)
    if not changed:
        return Standing(None, look_again)
    why = f"{healthy} of {count} pods are healthy, {needed} must be"
    return Standing(change(POD_DISRUPTION_BUDGETS, budget, {"status": changed}, why, subresource="status"), look_again)


def _still_disrupted(noted: Mapping[str, str], pods: list[JsonObject], now: float) -> dict[str, float]:
    """The pods that are about to go, and until when that is believed."""
    there = {pod["metadata"]["name"] for pod in pods}
    ends = {name: (seconds_of(when) or 0.0) + DISRUPTION_SECONDS for name, when in noted.items()}
    return {name: end for name, end in ends.items() if name in there and end > now}


class DisruptionController(Controller):
    name = "disruption"

    def watch(self) -> None:
        self.budgets = self.follow(POD_DISRUPTION_BUDGETS, itself)
        self.pods = self.follow(PODS, self._pod_changed)
        self.deployments = self.follow(DEPLOYMENTS, self._scale_changed)
        self.replica_sets = self.follow(REPLICA_SETS, self._scale_changed)
        self.replication_controllers = self.follow(REPLICATION_CONTROLLERS, self._scale_changed)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        for raw in (seen.old, seen.new):
            if raw is not None:
                meta = meta_of(raw)
                yield from self._budgets_of(meta.namespace, meta.labels)

    def _scale_changed(self, seen: Change) -> Iterable[str]:
        namespace = meta_of(seen.old if seen.new is None else seen.new).namespace
        return [f"{namespace}/{budget['metadata']['name']}" for budget in self.budgets.in_namespace(namespace)]

    def _budgets_of(self, namespace: str, labels: Mapping[str, str] | None) -> Iterable[str]:
        for budget in self.budgets.in_namespace(namespace):
            if selects(budget, labels):
                yield f"{namespace}/{budget['metadata']['name']}"

    async def reconcile(self, key: str) -> float | None:
        budget = self.budgets.get(key)
        if budget is None or is_going(budget):
            return None
        namespace = budget["metadata"]["namespace"]
        pods = [p for p in self.pods.in_namespace(namespace) if selects(budget, p["metadata"].get("labels"))]
        stands = standing(budget, pods, self._scales(pods), self.context.clock())
        if stands.write is not None:
            await self.context.do(stands.write)
        return stands.look_again

    def _scales(self, pods: Iterable[JsonObject]) -> dict[str, int]:
        """What the controllers of the pods want, by uid; a deployment speaks for its ReplicaSets.

        A ReplicaSet of a deployment in the middle of a rollout is one of several: each pod's controller is then given
        the deployment's number once.
        """
        found: dict[str, int] = {}
        counted: set[str] = set()
        for pod in pods:
            manager = controller_of(pod)
            if manager is None or manager["uid"] in found:
                continue
            key = f"{pod['metadata']['namespace']}/{manager['name']}"
            cache = self.replica_sets if manager["kind"] == "ReplicaSet" else self.replication_controllers
            owner = cache.get(key, manager["uid"])
            if owner is None:
                continue
            above = controller_of(owner)
            key = f"{pod['metadata']['namespace']}/{above['name']}" if above else ""
            top = (self.deployments.get(key, above["uid"]) if above else None) or owner
            found[manager["uid"]] = 0 if top["metadata"]["uid"] in counted else wanted(top)
            counted.add(top["metadata"]["uid"])
        return found


def selects(budget: JsonObject, labels: Mapping[str, str] | None) -> bool:
    """In policy/v1 an empty selector selects every pod of the namespace, a missing one none."""
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and LabelSelector.of(selector).matches(labels)
