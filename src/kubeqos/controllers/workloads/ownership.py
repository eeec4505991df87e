"""Who manages what: a controller adopts what its selector matches and nobody manages, and lets go of what it no longer
matches. Pure; replica sets do so with pods, deployments with replica sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kubeqos.client import Resource
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Patch, change
from kubeqos.controllers.podstate import controller_of, is_going, owner_reference
from kubeqos.model.selectors import LabelSelector


@dataclass(slots=True)
class Ownership:
    """What a controller manages now, and what has to be written to make it so."""

    mine: list[JsonObject] = field(default_factory=list)
    adopt: list[Patch] = field(default_factory=list)
    release: list[Patch] = field(default_factory=list)


def selector_of(owner: JsonObject) -> LabelSelector | None:
    """The selector of a controller; None selects nothing. ReplicationControllers write theirs as plain labels."""
    selector = (owner.get("spec") or {}).get("selector")
    if not selector:
        return None
    if owner["kind"] == "ReplicationController":
        selector = {"matchLabels": selector}
    return LabelSelector.of(selector)


def anybody(owner: JsonObject, obj: JsonObject) -> bool:
    """Whatever the selector matches belongs."""
    return True


def ownership(
    owner: JsonObject,
    resource: Resource,
    candidates: Iterable[JsonObject],
    belongs: Callable[[JsonObject, JsonObject], bool] = anybody,
    finalizer: str = "",
) -> Ownership:
    """Sort the objects that an owner manages or might manage; `belongs` may ask for more than the selector. What it
    manages is held by `finalizer`: in one write, or what is let go of would be held for ever.
    """
    found, selector = Ownership(), selector_of(owner)
    metadata = owner["metadata"]
    for obj in candidates:
        matches = selector is not None and selector.matches(obj["metadata"].get("labels")) and belongs(owner, obj)
        manager = controller_of(obj)
        if manager is not None and manager.get("uid") == metadata["uid"]:
            if matches:
                found.mine.append(obj)
            elif not is_going(owner):
                found.release.append(_released(owner, resource, obj, finalizer))
        elif manager is None and matches and not is_going(obj) and not is_going(owner):
            found.adopt.append(_adopted(owner, resource, obj, finalizer))
    return found


def claimed(owner: JsonObject, objects: Iterable[JsonObject]) -> list[JsonObject]:
    """Those that an owner manages and selects: nothing has to be written to know them."""
    selector, uid = selector_of(owner), owner["metadata"]["uid"]
    return [
        obj
        for obj in objects
        if selector is not None
        and selector.matches(obj["metadata"].get("labels"))
        and (controller_of(obj) or {}).get("uid") == uid
    ]


def _adopted(owner: JsonObject, resource: Resource, obj: JsonObject, finalizer: str) -> Patch:
    references = [*(obj["metadata"].get("ownerReferences") or ()), owner_reference(owner)]
    finalizers = [one for one in (*_finalizers(obj), finalizer) if one]
    why = f"{owner['kind']} {owner['metadata']['name']} selects it and nobody manages it"
    return _owned(resource, obj, references, list(dict.fromkeys(finalizers)), why)


def _released(owner: JsonObject, resource: Resource, obj: JsonObject, finalizer: str) -> Patch:
    uid = owner["metadata"]["uid"]
    references = [found for found in obj["metadata"].get("ownerReferences") or () if found.get("uid") != uid]
    why = f"{owner['kind']} {owner['metadata']['name']} no longer selects it"
    return _owned(resource, obj, references, [one for one in _finalizers(obj) if one != finalizer], why)


def _owned(resource: Resource, obj: JsonObject, references: list[JsonObject], finalizers: list[str], why: str) -> Patch:
    metadata: JsonObject = {"ownerReferences": references}
    if finalizers != _finalizers(obj):
        metadata["finalizers"] = finalizers or None
    return change(resource, obj, {"metadata": metadata}, why)


def _finalizers(obj: JsonObject) -> list[str]:
    return obj["metadata"].get("finalizers") or []
