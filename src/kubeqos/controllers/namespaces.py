"""Namespaces: every one has its default service account; one that is deleted is emptied, then let go.

Emptying deletes every object of every namespaced kind that the server has, by its own account: CRDs' as well. What has
finalizers or a grace period stays for a while: the namespace's conditions say what is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kubeqos.client import ApiError, Change, Resource
from kubeqos.client.discovery import beyond, discovered
from kubeqos.client.resources import NAMESPACES, SERVICE_ACCOUNTS, stored_resources
from kubeqos.codec import JsonObject, decode_json
from kubeqos.controllers.actions import Action, Create, change, deletion
from kubeqos.controllers.controller import Controller, itself, split
from kubeqos.controllers.podstate import is_going, with_condition
from kubeqos.model.timestamps import seconds_of

FINALIZER = "kubernetes"


@dataclass(slots=True)
class Contents:
    """What a namespace still holds."""

    objects: dict[Resource, list[JsonObject]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not any(self.objects.values())

    def counts(self) -> dict[str, int]:
        """Objects left, by `resource.group`."""
        found = {_qualified(resource): len(objects) for resource, objects in self.objects.items()}
        return {name: count for name, count in sorted(found.items()) if count}

    def finalizers(self) -> Mapping[str, int]:
        held = (obj for objects in self.objects.values() for obj in objects)
        return Counter(each for obj in held for each in obj["metadata"].get("finalizers") or ())


def _qualified(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


def emptied(contents: Contents) -> list[Action]:
    """Delete what is not on its way out yet."""
    return [
        deletion(resource, obj, "its namespace is being deleted", propagation="Background")
        for resource, objects in contents.objects.items()
        for obj in objects
        if not is_going(obj)
    ]


def told(namespace: JsonObject, contents: Contents, now: float) -> list[Action]:
    """The conditions that tell an administrator what a namespace waits for."""
    before = (namespace.get("status") or {}).get("conditions") or []
    counts, finalizers = contents.counts(), contents.finalizers()
    left = ", ".join(f"{name} has {count} resource instances" for name, count in counts.items())
    held = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
    after = before
    for type, so, reasons, messages in (
        (
            "NamespaceContentRemaining",
            bool(counts),
            ("ContentRemoved", "SomeResourcesRemain"),
            ("All content successfully removed", f"Some resources are remaining: {left}"),
        ),
        (
            "NamespaceFinalizersRemaining",
            bool(finalizers),
            ("ContentHasNoFinalizers", "SomeFinalizersRemain"),
            (
                "All content-preserving finalizers finished",
                f"Some content in the namespace has finalizers remaining: {held}",
            ),
        ),
    ):
        after = _said(after, type, so, reasons[so], messages[so], now)
    if after == before:
        return []
    return [change(NAMESPACES, namespace, {"status": {"conditions": after}}, left or "empty", subresource="status")]


def _said(conditions: list[JsonObject], type: str, so: bool, reason: str, message: str, now: float) -> list[JsonObject]:
    known = next((found for found in conditions if found["type"] == type), None)
    if known and (known.get("reason"), known.get("message")) == (reason, message):
        return conditions
    return with_condition(conditions, type, "True" if so else "False", reason, message, now)


class NamespaceController(Controller):
    """Empties namespaces that are being deleted."""

    name = "namespace"

    def watch(self) -> None:
        # Two versions of a kind may have nothing in common (claims of devices): ours are emptied one by one.
        self.resources = stored_resources(namespaced=True)
        self.namespaces = self.follow(NAMESPACES, self._concerned)

    def _concerned(self, seen: Change) -> Iterable[str]:
        if seen.new is not None and b'"deletionTimestamp"' in seen.new:
            yield seen.key

    async def reconcile(self, key: str) -> float | None:
        namespace = self.namespaces.get(key)
        if namespace is None or not is_going(namespace):
            return None
        finalizers = (namespace.get("spec") or {}).get("finalizers") or []
        if FINALIZER not in finalizers:
            return None
        for action in emptied(await self._contents(key)):
            await self.context.do(action)
        contents = await self._contents(key)
        if not contents.empty:
            await self.context.perform(told(namespace, contents, self.context.clock()))
            # Pods stop in their own time; the longer that takes the less often it is worth a look.
            since = seconds_of(namespace["metadata"]["deletionTimestamp"]) or self.context.clock()
            return min(max((self.context.clock() - since) / 4, 0.25), 10.0)
        namespace["spec"] = {"finalizers": [each for each in finalizers if each != FINALIZER]}
        try:
            await self.context.api.update(NAMESPACES, namespace, subresource="finalize")
        except ApiError as error:
            if not error.not_found:  # an earlier turn has done it, and the news is on its way
                raise
        return None

    async def _contents(self, namespace: str) -> Contents:
        """As the server has it now: what a cache missed would be left behind."""
        found = Contents()
        # A server that cannot say what it has may have something: then nothing is let go.
        others = beyond(self.resources, await discovered(self.context.api))
        for resource in [*self.resources, *(one for one in others if one.namespaced)]:
            try:
                listing = await self.context.api.list(resource, namespace)
            except ApiError as error:
                if error.not_served:  # a kind of ours that this server has not, or its CRD went meanwhile
                    continue
                raise
            found.objects[resource] = [decode_json(raw) for raw in listing.items]
        return found


class ServiceAccountController(Controller):
    """Keeps the service account `default` in every namespace."""

    name = "serviceaccount"
    workers = 1

    def watch(self) -> None:
        self.namespaces = self.follow(NAMESPACES, itself)
        self.accounts = self.follow(SERVICE_ACCOUNTS, lambda seen: [split(seen.key)[0]] if seen.new is None else [])

    async def reconcile(self, key: str) -> float | None:
        await self.context.perform(accounts_of(self.namespaces.get(key), self.accounts.get(f"{key}/default")))
        return None


def accounts_of(namespace: JsonObject | None, account: JsonObject | None) -> list[Action]:
    """Pods that name no account run as `default`."""
    if namespace is None or is_going(namespace) or account is not None:
        return []
    metadata = {"name": "default", "namespace": namespace["metadata"]["name"]}
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    return [Create(SERVICE_ACCOUNTS, body, "every namespace has one")]
