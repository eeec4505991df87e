"""Pods that nobody will end: finished ones beyond a threshold, those of nodes that are gone, volume claims in use.

Decisions on values first, the two loops (`PodSweeper`, `ClaimProtection`) below.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from kubeqos.client import Change, PatchType
from kubeqos.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PODS
from kubeqos.codec import JsonObject, decode_json, typed_decoder
from kubeqos.controllers.actions import Action, change, deletion
from kubeqos.controllers.cache import Meta, meta_of
from kubeqos.controllers.controller import Controller, split
from kubeqos.controllers.podstate import condition, is_going, is_terminal
from kubeqos.model.objects import PodView
from kubeqos.model.timestamps import timestamp
from kubeqos.rules.storage import mounted_claims

PROTECTION = "kubernetes.io/pvc-protection"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
SWEEP = "sweep"


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str | None = None


class _Status(msgspec.Struct, frozen=True):
    phase: str | None = None
    reason: str | None = None


class _Stamped(Meta, frozen=True, rename="camel"):
    creation_timestamp: str | None = None


class PodBrief(msgspec.Struct, frozen=True):
    """As much of a pod as a walk over all of them needs."""

    metadata: _Stamped = _Stamped()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def node(self) -> str:
        """Where it is bound to; empty while it is not."""
        return self.spec.node_name or ""

    @property
    def ended(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")


brief = typed_decoder(PodBrief)


def surplus(pods: Iterable[PodBrief], threshold: int) -> list[PodBrief]:
    """Finished pods beyond the threshold: evicted ones first, then the oldest."""
    ended = [pod for pod in pods if pod.ended and not pod.metadata.deletion_timestamp]
    ended.sort(key=lambda p: (p.status.reason != "Evicted", p.metadata.creation_timestamp or "", p.metadata.name))
    return ended[: max(0, len(ended) - threshold)] if threshold > 0 else []


def stranded(pods: Iterable[PodBrief], nodes: Collection[str]) -> dict[str, list[PodBrief]]:
    """Pods bound to nodes that do not exist, by node."""
    found: dict[str, list[PodBrief]] = {}
    for pod in pods:
        if pod.node and pod.node not in nodes:
            found.setdefault(pod.node, []).append(pod)
    return found


def unserved(pods: Iterable[PodBrief], out_of_service: Collection[str]) -> list[PodBrief]:
    """Pods that are to end and that no node agent will end: never bound, or bound to a node declared dead."""
    return [pod for pod in pods if pod.metadata.deletion_timestamp and (not pod.node or pod.node in out_of_service)]


def removal(pod: JsonObject, because: str, now: float, *, disrupted: bool) -> list[Action]:
    """Delete a pod without waiting for an agent; one that had not finished is first recorded as failed."""
    actions: list[Action] = []
    if disrupted and not is_terminal(pod):
        message = f"PodGC: {because}"
        target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message}
        status = {"phase": "Failed", "conditions": [{**target, "lastTransitionTime": timestamp(now)}]}
        actions.append(
            change(
                PODS, pod, {"status": status}, because, subresource="status", checked=False, type=PatchType.STRATEGIC
            )
        )
    return [*actions, deletion(PODS, pod, because, grace_seconds=0)]


class PodSweeper(Controller):
    """Walks over all pods now and then."""

    name = "podgc"
    workers = 1

    def watch(self) -> None:
        self.pods = self.follow(PODS, lambda seen: ())
        self.nodes = self.follow(NODES, self._node_changed)
        self._missing_since: dict[str, float] = {}
        self.queue.add(SWEEP)

    def _node_changed(self, seen: Change) -> Iterable[str]:
        if seen.new is None:
            self._missing_since[seen.key] = time.monotonic()
            self.queue.add_after(SWEEP, self.context.settings.orphan_quarantine_seconds)
        return ()

    async def reconcile(self, key: str) -> float | None:
        settings = self.context.settings
        pods = [brief(raw) for raw in self.pods.raws()]
        for pod in surplus(pods, settings.terminated_pod_threshold):
            await self._remove(pod, f"more than {settings.terminated_pod_threshold} finished pods", disrupted=False)
        dead = {node["metadata"]["name"] for node in self.nodes.all() if _out_of_service(node)}
        for pod in unserved(pods, dead):
            why = "node is out of service" if pod.node else "it was never bound"
            await self._remove(pod, why, disrupted=bool(pod.node))
        again = await self._remove_stranded(pods)
        return min(settings.pod_sweep_period_seconds, again)

    async def _remove_stranded(self, pods: list[PodBrief]) -> float:
        """Not at once: a node may register after the pods that are bound to it became known here."""
        now, quarantine = time.monotonic(), self.context.settings.orphan_quarantine_seconds
        found = stranded(pods, {node["metadata"]["name"] for node in self.nodes.all()})
        self._missing_since = {node: self._missing_since.get(node, now) for node in found}
        again = quarantine if found else float("inf")
        for node, bound in found.items():
            left = self._missing_since[node] + quarantine - now
            if left > 0:
                again = min(again, left)
            elif await self.context.live(NODES, node) is None:
                for pod in bound:
                    await self._remove(pod, "node no longer exists", disrupted=True)
        return max(again, 0.05)

    async def _remove(self, pod: PodBrief, because: str, *, disrupted: bool) -> None:
        found = self.pods.get(pod.key, pod.metadata.uid)
        if found is not None:
            await self.context.perform(removal(found, because, self.context.clock(), disrupted=disrupted))


def _out_of_service(node: JsonObject) -> bool:
    ready = condition(node, "Ready") or {}
    taints = (node.get("spec") or {}).get("taints") or ()
    return ready.get("status") != "True" and any(taint.get("key") == OUT_OF_SERVICE for taint in taints)


# -- volume claims ---------------------------------------------------------------------------------------------


def claims_of(pod: JsonObject) -> set[str]:
    """The volume claims that a pod uses, by name; also those that are made for it alone."""
    return {one.claim for one in mounted_claims(PodView.of(pod))}


def uses(pod: JsonObject, claim: str) -> bool:
    """Whether a pod that has a node and has not finished uses a volume claim."""
    return bool((pod.get("spec") or {}).get("nodeName")) and not is_terminal(pod) and claim in claims_of(pod)


def released(claim: JsonObject, pods: Iterable[JsonObject]) -> list[Action]:
    """Take the protection off a volume claim that is to go and that nobody uses."""
    metadata = claim["metadata"]
    finalizers = metadata.get("finalizers") or []
    if not is_going(claim) or PROTECTION not in finalizers or any(uses(pod, metadata["name"]) for pod in pods):
        return []
    patch = {"metadata": {"finalizers": [found for found in finalizers if found != PROTECTION]}}
    return [change(PERSISTENT_VOLUME_CLAIMS, claim, patch, "no pod uses it")]


def _mounts_claims(raw: bytes) -> bool:
    return b'"persistentVolumeClaim"' in raw or b'"ephemeral"' in raw


class ClaimProtection(Controller):
    """Lets a volume claim go when the last pod that uses it has."""

    name = "pvcprotection"

    def watch(self) -> None:
        self.claims = self.follow(PERSISTENT_VOLUME_CLAIMS, self._claim_changed)
        self.pods = self.follow(PODS, self._pod_changed)

    def _claim_changed(self, seen: Change) -> Iterable[str]:
        if seen.new is not None and meta_of(seen.new).deletion_timestamp:
            yield seen.key

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        raw = seen.old if seen.new is None else seen.new
        if raw is None or not _mounts_claims(raw) or (seen.new is not None and not brief(raw).ended):
            return
        pod = seen.object()
        for claim in claims_of(pod):
            yield f"{pod['metadata']['namespace']}/{claim}"

    async def reconcile(self, key: str) -> float | None:
        claim, (namespace, _) = self.claims.get(key), split(key)
        if claim is None or not released(claim, self.pods.in_namespace(namespace)):
            return None
        listing = await self.context.api.list(PODS, namespace)  # the cache may be behind; this cannot be undone
        found: list[Any] = [decode_json(raw) for raw in listing.items]
        await self.context.perform(released(claim, found))
        return None
