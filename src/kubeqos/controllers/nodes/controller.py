"""The loops around `nodes`: one watches heartbeats and writes conditions and taints, one evicts from tainted nodes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kubeqos.client import Change
from kubeqos.client.resources import LEASES, NODES, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.controller import Controller, itself
from kubeqos.controllers.nodes.lifecycle import evicted, silenced, stay, tainted, unready_pods
from kubeqos.controllers.nodes.podsweep import brief
from kubeqos.controllers.podstate import condition, is_going

LEASE_NAMESPACE = "kube-node-lease"


@dataclass(slots=True)
class Heartbeat:
    """What a node last said and when we heard it, by our own clock."""

    said: tuple[str, ...]
    heard: float


class PodsByNode:
    """Keys of the pods of each node, kept from the pods' changes."""

    def __init__(self) -> None:
        self._node: dict[str, str] = {}
        self._keys: defaultdict[str, set[str]] = defaultdict(set)

    def changed(self, seen: Change) -> str:
        """Follow one change; the pod's node."""
        node = brief(seen.new).node if seen.new is not None else ""
        before = self._node.pop(seen.key, "")
        if before:
            self._keys[before].discard(seen.key)
        if node:
            self._node[seen.key] = node
            self._keys[node].add(seen.key)
        return node or before

    def on(self, node: str) -> list[str]:
        return sorted(self._keys.get(node, ()))


class NodeLifecycle(Controller):
    """Watches leases and statuses; a node that falls silent becomes Unknown, and conditions become taints."""

    name = "nodelifecycle"

    def watch(self) -> None:
        self.heartbeats: dict[str, Heartbeat] = {}
        self.by_node = PodsByNode()
        self.nodes = self.follow(NODES, itself)
        self.leases = self.follow(LEASES, lambda seen: ())
        self.pods = self.follow(PODS, self._pod_changed)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        self.by_node.changed(seen)
        return ()

    async def reconcile(self, key: str) -> float | None:
        node = self.nodes.get(key)
        if node is None:
            self.heartbeats.pop(key, None)
            return None
        now, settings = self.context.clock(), self.context.settings
        ready = condition(node, "Ready")
        grace = settings.node_startup_grace_seconds if ready is None else settings.node_monitor_grace_seconds
        silent = self._silence(node)
        if silent > grace:
            actions = silenced(node, now)
            if actions:
                self.context.metrics.nodes_lost.inc()
                await self.context.perform(actions)
                node = self.nodes.get(key) or node
        await self.context.perform(tainted(node, now))
        if (condition(node, "Ready") or {}).get("status") in ("False", "Unknown"):
            found = (self.pods.get(pod) for pod in self.by_node.on(key))
            await self.context.perform(unready_pods([pod for pod in found if pod is not None], now))
        return max(0.05, min(settings.node_monitor_period_seconds, grace - silent + 0.01 if silent <= grace else 1e9))

    def _silence(self, node: JsonObject) -> float:
        """Seconds since we last heard anything new of a node. While we cannot hear, nobody is silent."""
        name, now = node["metadata"]["name"], time.monotonic()
        lease = self.leases.get(f"{LEASE_NAMESPACE}/{name}") or {}
        beats = [found.get("lastHeartbeatTime") or "" for found in (node.get("status") or {}).get("conditions") or ()]
        said = (node["metadata"]["uid"], str((lease.get("spec") or {}).get("renewTime") or ""), *beats)
        known = self.heartbeats.get(name)
        deaf = self.leases.informer.failures or self.nodes.informer.failures
        if known is None or known.said != said or deaf:
            self.heartbeats[name] = Heartbeat(said, now)
            return 0.0
        return now - known.heard


class TaintEviction(Controller):
    """Deletes pods from nodes whose NoExecute taints they do not, or no longer, tolerate."""

    name = "tainteviction"

    def watch(self) -> None:
        self.by_node = PodsByNode()
        self.nodes = self.follow(NODES, self._node_changed)
        self.pods = self.follow(PODS, self._pod_changed)

    def _pod_changed(self, seen: Change) -> Iterable[str]:
        node = self.by_node.changed(seen)
        if node and seen.new is not None and b'"NoExecute"' in (self.nodes.raw(node) or b""):
            yield seen.key

    def _node_changed(self, seen: Change) -> Iterable[str]:
        if seen.new is not None and b'"NoExecute"' in seen.new:
            yield from self.by_node.on(seen.key)

    async def reconcile(self, key: str) -> float | None:
        pod = self.pods.get(key)
        if pod is None or is_going(pod):
            return None
        node = self.nodes.get((pod.get("spec") or {}).get("nodeName") or "")
        if node is None:
            return None
        now = self.context.clock()
        allowed = stay(pod, (node.get("spec") or {}).get("taints") or (), now)
        if allowed.until is None:
            return None
        if allowed.until > now:
            return allowed.until - now
        await self.context.perform(evicted(pod, allowed.because, now))
        self.context.metrics.evictions.inc()
        return None
