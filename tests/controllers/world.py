"""A deployment, its ReplicaSets and its pods as values: what controllers decide is done at once, in any order.

Time stands still; whatever is slow in a cluster (a status that is behind, a pod that terminates, a controller that
has not looked yet) is a step that has not been taken.
"""

from __future__ import annotations

from typing import Any

from kubeqos.client.resources import DEPLOYMENTS, REPLICA_SETS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, Delete, Patch, Tell
from kubeqos.controllers.podstate import is_active, is_going, is_ready
from kubeqos.controllers.workloads import deployments, replicas
from kubeqos.controllers.workloads.deploymentstatus import status
from kubeqos.model.timestamps import timestamp

NOW = 1_800_000_000.0


def merge(target: JsonObject, patch: JsonObject) -> JsonObject:
    """RFC 7386."""
    merged = dict(target)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = merge(merged.get(key) or {}, value)
        else:
            merged[key] = value
    return merged


class World:
    """One deployment and what became of it."""

    def __init__(self, size: int, **spec: Any) -> None:
        self._made = 0
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}
        body = {"replicas": size, "selector": {"matchLabels": {"app": "web"}}, "template": template, **spec}
        head = {"apiVersion": "apps/v1", "kind": "Deployment"}
        self.deployment = self._stamp({**head, "metadata": {"name": "web", "namespace": "ns"}, "spec": body})
        self.sets: dict[str, JsonObject] = {}
        self.pods: dict[str, JsonObject] = {}

    def _stamp(self, obj: JsonObject) -> JsonObject:
        self._made += 1
        metadata = dict(obj["metadata"])
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{self._made}")
        metadata.update(uid=f"uid-{self._made:04}", generation=1, creationTimestamp=timestamp(NOW + self._made))
        return {**obj, "metadata": metadata}

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Create():
                    made = self._stamp(action.body)
                    table = self.sets if action.resource is REPLICA_SETS else self.pods
                    table.setdefault(made["metadata"]["name"], made)
                case Delete():
                    self._delete(action)
                case Patch():
                    self._change(action)
                case Tell():
                    pass

    def _delete(self, action: Delete) -> None:
        if action.resource is REPLICA_SETS:
            self.sets.pop(action.name)
        elif action.name in self.pods:
            self.pods[action.name]["metadata"]["deletionTimestamp"] = timestamp(NOW)

    def _change(self, action: Patch) -> None:
        if action.resource is DEPLOYMENTS:
            self.deployment = merge(self.deployment, action.patch)
            return
        table = self.sets if action.resource is REPLICA_SETS else self.pods
        changed = merge(table[action.name], action.patch)
        if "spec" in action.patch:
            changed["metadata"]["generation"] += 1
        table[action.name] = changed

    # what controllers do when they look

    def look_at_deployment(self) -> bool:
        """Until there is nothing left to decide; whether there was anything."""
        busy = False
        for _ in range(20):
            found = deployments.sort_sets(self.deployment, self.sets.values())
            actions = deployments.desired(self.deployment, found, list(self.pods.values()))
            if not actions:
                break
            self.perform(actions)
            busy = True
        else:
            raise AssertionError(f"the deployment never comes to rest: {actions}")
        found = deployments.sort_sets(self.deployment, self.sets.values())
        write = status(self.deployment, found, NOW).write
        self.perform([write] if write else [])
        return busy

    def look_at_set(self, name: str) -> bool:
        """One ReplicaSet; whether there was anything to do."""
        plan = replicas.desired(self.sets[name], self.pods_of(name), self.pods.values(), NOW)
        self.perform([*plan.create, *plan.delete])
        write = replicas.standing(self.sets[name], REPLICA_SETS, self.pods_of(name), None, NOW).write
        self.perform([write] if write else [])
        return bool(plan.create or plan.delete or write)

    def pods_of(self, name: str) -> list[JsonObject]:
        uid = self.sets[name]["metadata"]["uid"]
        return [p for p in self.pods.values() if p["metadata"]["ownerReferences"][0]["uid"] == uid]

    # what happens to pods

    def becomes_ready(self, name: str) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(NOW)}
        self.pods[name]["status"] = {"phase": "Running", "conditions": [ready]}

    def fails(self, name: str) -> None:
        self.pods[name]["status"] = {"phase": "Failed", "reason": "Evicted"}

    def ends(self, name: str) -> None:
        del self.pods[name]

    def set_image(self, image: str) -> None:
        containers = [{"name": "c", "image": image}]
        self._edit({"template": {"spec": {"containers": containers}}})

    def scale(self, size: int) -> None:
        self._edit({"replicas": size})

    def _edit(self, spec: JsonObject) -> None:
        self.deployment = merge(self.deployment, {"spec": spec})
        self.deployment["metadata"]["generation"] += 1

    # what there is

    @property
    def active(self) -> list[str]:
        return [name for name, pod in self.pods.items() if is_active(pod)]

    @property
    def available(self) -> int:
        return sum(is_active(pod) and is_ready(pod) for pod in self.pods.values())

    @property
    def asked(self) -> int:
        return sum(replicas.wanted(each) for each in self.sets.values())

    def settle(self) -> None:
        """Everybody looks and every pod does well, until nothing changes."""
        for _ in range(200):
            busy = self.look_at_deployment()
            for name in list(self.sets):
                busy |= name in self.sets and self.look_at_set(name)
            for name, pod in list(self.pods.items()):
                if is_going(pod):
                    self.ends(name)
                    busy = True
                elif is_active(pod) and not is_ready(pod):
                    self.becomes_ready(name)
                    busy = True
            if not busy:
                return
        raise AssertionError("it never settles")
