"""The autoscaler of `kubeqos up`: simulated nodes come for pods that wait, and go when nobody needs them.

What to do is decided by `placement.growth`, on what the API server says; here nodes are started, drained and stopped. A
node goes after it was unneeded for a while: it is cordoned, its pods are evicted as their PodDisruptionBudgets allow,
and only when they have gone it is stopped. One node at a time is drained; growth is not held up by that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Any

from kubeqos.client import ApiError, Change
from kubeqos.client.resources import NODES, POD_DISRUPTION_BUDGETS, PODS, STORING
from kubeqos.cluster.clusterfile import GroupPlan, NodePlan
from kubeqos.codec import JsonObject
from kubeqos.controllers.controller import Context, Controller
from kubeqos.logs import logger
from kubeqos.model.annotations.wellknown import NODE_GROUP_LABEL
from kubeqos.placement.growth.decision import Decision, decide
from kubeqos.placement.growth.groups import NodeGroup, Occupant
from kubeqos.placement.nodes import NodeFacts
from kubeqos.scheduler.reading.nodegroups import occupants, template_of
from kubeqos.scheduler.reading.snapshot import snapshot
from kubeqos.scheduler.reading.storage import VolumeIndex, volumes_in

log = logger("kubeqos.autoscaler")
LOOK_SECONDS = 2.0
"""How often it looks when nothing changes: time makes nodes unneeded."""
SETTLE_SECONDS = 0.3
_TOO_MANY = 429
Start = Callable[[NodePlan], Awaitable[JsonObject]]
"""Starts a node; the node as it is when pods may come."""
Stop = Callable[[str], Awaitable[None]]


class Autoscaler(Controller):
    """One key for all groups: what is added to one is not needed of another."""

    name = "autoscaler"
    workers = 1

    def __init__(
        self, context: Context, groups: Sequence[GroupPlan], templates: dict[str, NodeFacts], start: Start, stop: Stop
    ) -> None:
        """`templates`: a node of each group, for as long as there is none to look at."""
        self._plans = {group.node.name: group for group in groups}
        self._templates = templates
        self._start = start
        self._stop = stop
        self._unneeded_since: dict[str, float] = {}
        self._draining = ""
        self._started: dict[str, JsonObject] = {}
        """Nodes that our own copies of the cluster may not show yet: who waits for one must not be given another."""
        super().__init__(context)

    def watch(self) -> None:
        self.nodes = self.follow(NODES, self._soon)
        self.pods = self.follow(PODS, self._soon)
        self.budgets = self.follow(POD_DISRUPTION_BUDGETS, self._soon)
        self.storing = {each.kind: self.follow(each, self._soon) for each in STORING}

    def _soon(self, _seen: Change) -> Iterable[Hashable]:
        self.queue.add_after("all", SETTLE_SECONDS)
        return ()

    async def reconcile(self, key: Any) -> float | None:
        nodes, pods = self._newest_nodes(), list(self.pods.all())
        volumes = volumes_in((kind, raw) for kind, cache in self.storing.items() for raw in cache.all())
        here = occupants(pods, self.budgets.all(), volumes)
        found = self._decided(nodes, pods, here, volumes)
        for name, group in found.up.new_nodes.items():
            await self._grow(name, group, found, pods)
        await self._shrink(found, here)
        return LOOK_SECONDS

    def _newest_nodes(self) -> list[JsonObject]:
        """What is copied here, and what was seen of nodes that were just started where that is newer."""
        nodes = {raw["metadata"]["name"]: raw for raw in self.nodes.all()}
        behind = (name for name, raw in self._started.items() if _version(nodes.get(name)) < _version(raw))
        self._started = {name: self._started[name] for name in behind}
        return list((nodes | self._started).values())

    def _decided(
        self, nodes: list[JsonObject], pods: list[JsonObject], here: dict[str, list[Occupant]], volumes: VolumeIndex
    ) -> Decision:
        members: dict[str, list[JsonObject]] = {name: [] for name in self._plans}
        for raw in nodes:
            group = (raw["metadata"].get("labels") or {}).get(NODE_GROUP_LABEL, "")
            if group in members and raw["metadata"]["name"] != self._draining:
                members[group].append(raw)
        for name, own in members.items():
            if own:
                self._templates[name] = template_of(own[0])
        groups = [
            NodeGroup(
                name,
                self._templates[name],
                plan.most,
                plan.least,
                plan.cost,
                tuple(raw["metadata"]["name"] for raw in members[name]),
            )
            for name, plan in self._plans.items()
        ]
        gated = [raw for raw in pods if not (raw.get("spec") or {}).get("schedulingGates")]
        cluster, waiting = snapshot(nodes, gated, volumes=volumes)
        return decide(cluster, waiting, groups, here)

    async def _grow(self, name: str, group: str, found: Decision, pods: list[JsonObject]) -> None:
        plan = self._plans[group]
        log.info("adding a node", node=name, group=group)
        self._started[name] = await self._start(plan.member(name))
        size = sum(one.startswith(f"{group}-") for one in found.up.new_nodes)
        for raw in pods:
            metadata = raw["metadata"]
            if found.up.placed.get(f"{metadata.get('namespace', '')}/{metadata['name']}") == name:
                text = f"pod triggered scale-up: {group} adds {size} (max: {plan.most})"
                self.context.events.record(raw, "TriggeredScaleUp", text)

    # ---- Going

    async def _shrink(self, found: Decision, here: dict[str, list[Occupant]]) -> None:
        now = self.context.clock()
        if self._draining:
            await self._drain(self._draining, here.get(self._draining, []))
            return
        unneeded = {one.node: one for one in found.down.removals}
        self._unneeded_since = {name: self._unneeded_since.get(name, now) for name in unneeded}
        for name, removal in unneeded.items():
            if now - self._unneeded_since[name] >= self._plans[removal.group].idle_seconds:
                self._draining = name
                log.info("draining a node that nobody needs", node=name, group=removal.group)
                await self.context.api.patch(NODES, name, {"spec": {"unschedulable": True}})
                await self._drain(name, here.get(name, []))
                return

    async def _drain(self, name: str, here: Sequence[Occupant]) -> None:
        """Ask every pod to go; the node goes after the last of them."""
        leaving = [one for one in here if not one.daemon]
        for one in leaving:
            namespace, _, pod = one.name.partition("/")
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
            try:
                await self.context.api.create(PODS, body, namespace, name=pod, subresource="eviction")
            except ApiError as error:
                if error.status != _TOO_MANY and not error.not_found:
                    raise
        if not leaving:
            await self._stop(name)
            self._started.pop(name, None)
            self._unneeded_since.pop(name, None)
            self._draining = ""
            log.info("a node that nobody needed is gone", node=name)


def _version(raw: JsonObject | None) -> int:
    return int(raw["metadata"]["resourceVersion"]) if raw is not None else 0
