"""What happens to objects whose owners are gone or going: background, foreground and orphan deletion. Pure.

Kubernetes' three ways: in the background dependents go after their owner; in the foreground an owner with the
finalizer `foregroundDeletion` waits for the dependents that block it; with the finalizer `orphan` they are let go.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubeqos.client import Resource
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Patch, change, deletion
from kubeqos.controllers.podstate import is_going

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class OwnerState(enum.Enum):
    """How an owner stands."""

    SOLID = "exists"
    WAITING = "waits for its dependents to go first"
    GONE = "does not exist"


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object that names another as its owner."""

    resource: Resource
    object: JsonObject

    def blocks(self, owner_uid: str) -> bool:
        """Whether the owner has to wait for it."""
        references = self.object["metadata"].get("ownerReferences") or ()
        return any(found.get("uid") == owner_uid and found.get("blockOwnerDeletion") for found in references)


def state_of(owner: JsonObject | None) -> OwnerState:
    if owner is None:
        return OwnerState.GONE
    waits = is_going(owner) and FOREGROUND in (owner["metadata"].get("finalizers") or ())
    return OwnerState.WAITING if waits else OwnerState.SOLID


def desired(
    resource: Resource, obj: JsonObject, owners: Mapping[str, OwnerState], dependents: Sequence[Dependent]
) -> list[Action]:
    """What to do about one object, given how its owners stand (by uid) and who depends on it."""
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or []
    if is_going(obj):
        if ORPHAN in finalizers:
            released = [_without(each, metadata["uid"]) for each in dependents]
            return [*released, _unfinalized(resource, obj, ORPHAN, "its dependents are let go")]
        if FOREGROUND in finalizers and not any(each.blocks(metadata["uid"]) for each in dependents):
            return [_unfinalized(resource, obj, FOREGROUND, "nothing that blocks it is left")]
        return []
    references = metadata.get("ownerReferences") or []
    if not references:
        return []
    solid, waiting = ([r for r in references if owners[r["uid"]] is s] for s in (OwnerState.SOLID, OwnerState.WAITING))
    if solid:
        return _only(resource, obj, solid) if len(solid) < len(references) else []
    because = "; ".join(f"{r['kind']} {r['name']} {owners[r['uid']].value}" for r in references)
    propagation = "Foreground" if waiting and dependents else _propagation(finalizers)
    return [deletion(resource, obj, because, propagation=propagation)]


def _propagation(finalizers: Sequence[str]) -> str:
    """A way that was asked for before stays."""
    if ORPHAN in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND in finalizers else "Background"


def _only(resource: Resource, obj: JsonObject, references: list[JsonObject]) -> list[Action]:
    patch = {"metadata": {"ownerReferences": references}}
    return [change(resource, obj, patch, "some of its owners are gone, others are not")]


def _without(dependent: Dependent, uid: str) -> Patch:
    references = dependent.object["metadata"].get("ownerReferences") or ()
    patch = {"metadata": {"ownerReferences": [found for found in references if found.get("uid") != uid]}}
    return change(dependent.resource, dependent.object, patch, "its owner goes without it")


def _unfinalized(resource: Resource, obj: JsonObject, finalizer: str, because: str) -> Patch:
    left = [found for found in obj["metadata"].get("finalizers") or () if found != finalizer]
    return change(resource, obj, {"metadata": {"finalizers": left}}, because)
