"""The loop around `daemonsets`: nodes come, change and go, and each that is meant has its pod."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client import ApiError, Change, Unreachable
from kubeqos.client.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.workloads.daemonsets import DaemonNode, FailedPods, Roll, daemon_nodes, desired, standing
from kubeqos.controllers.workloads.replicacontroller import ReplicaController
from kubeqos.controllers.workloads.revisionkeeper import RevisionKeeper
from kubeqos.controllers.workloads.revisions import REVISION_HASH, hash_of, surplus


class DaemonSetController(ReplicaController):
    """Pods are watched, adopted and made as those of a ReplicaSet; where they belong is another question."""

    name = "daemonset"
    resource = DAEMON_SETS

    def watch(self) -> None:
        super().watch()
        self.nodes = self.follow(NODES, self._node_changed)
        self.follow(CONTROLLER_REVISIONS, lambda seen: ())
        self.revisions = RevisionKeeper(self.context, self.resource)
        self._failures: dict[str, FailedPods] = {}

    def _node_changed(self, seen: Change) -> Iterable[str]:
        """Heartbeats do not matter; what selects, taints, comes or goes does."""
        if len(self.owners) and _essence(seen.old) != _essence(seen.new):
            for owner in self.owners.all():
                yield _key(owner)

    async def reconcile(self, key: str) -> float | None:
        owner = self.owners.get(key)
        if owner is None:
            self._refused.discard(key)
            self._failures.pop(key, None)
            return None
        await self._make_sure(key)
        history = await self.revisions.current(owner)
        if history is None or history.update is None:
            return None  # it is going, or another name was asked for: the change of its status comes back here
        now, failures = self.context.clock(), self._failures.setdefault(key, FailedPods())
        nodes = self._nodes(owner, await self._claim_owned(owner))
        roll = Roll.of(owner, nodes, hash_of(history.update))
        plan = desired(owner, nodes, roll, now, failures)
        self._refused.discard(key)
        error = None
        try:
            await self.context.perform(plan.tell)
            await self._delete(owner, plan.delete)
            await self._create(owner, plan.create)
        except Unreachable:
            self._unsure.add(key)
            raise
        except ApiError as refused:
            error = refused
            self._refused.add(key)
        current = self.owners.get(key, owner["metadata"]["uid"])
        if current is None:
            return None
        nodes = self._nodes(current, self._mine(current))
        stands = standing(current, nodes, roll, now)
        if stands.write is not None:
            await self.context.do(stands.write)
        followed = {str((p["metadata"].get("labels") or {}).get(REVISION_HASH)) for p in self._mine(current)}
        await self.context.perform(surplus(current, history, followed))
        if error is not None:
            raise error
        return min((each for each in (stands.look_again, plan.look_again) if each), default=None)

    def _nodes(self, owner: JsonObject, pods: Iterable[JsonObject]) -> list[DaemonNode]:
        return daemon_nodes(owner, self.nodes.all(), pods)


def _essence(raw: bytes | None) -> tuple[object, ...] | None:
    if raw is None:
        return None
    node = decode_json(raw)
    return node["metadata"]["uid"], node["metadata"].get("labels"), node.get("spec")


def _key(owner: JsonObject) -> str:
    return f"{owner['metadata']['namespace']}/{owner['metadata']['name']}"
