"""Questions that several controllers ask of a pod, and conditions of any object. Pure, over raw objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubeqos.codec import JsonObject
from kubeqos.model.timestamps import seconds_of, timestamp


def phase(pod: JsonObject) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def is_terminal(pod: JsonObject) -> bool:
    return phase(pod) in ("Succeeded", "Failed")


def is_going(obj: JsonObject) -> bool:
    """Whether an object was asked to end."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def is_active(pod: JsonObject) -> bool:
    """Whether a pod counts as a replica: neither finished nor going."""
    return not is_terminal(pod) and not is_going(pod)


def condition(obj: JsonObject, type: str) -> JsonObject | None:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((found for found in conditions if found.get("type") == type), None)


def is_ready(pod: JsonObject) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found.get("status") == "True"


def ready_since(pod: JsonObject) -> float | None:
    """When the pod became ready, 0 when nobody says so; None while it is not."""
    found = condition(pod, "Ready")
    if found is None or found.get("status") != "True":
        return None
    return seconds_of(found.get("lastTransitionTime") or "") or 0.0


def available_in(pod: JsonObject, min_ready_seconds: int, now: float) -> float | None:
    """Seconds until a ready pod counts as available; 0 when it does, None while it is not ready."""
    since = ready_since(pod)
    if since is None:
        return None
    if min_ready_seconds and not since:
        return float(min_ready_seconds)  # nobody says since when: it has to be asked again
    return max(0.0, since + min_ready_seconds - now) if min_ready_seconds else 0.0


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner reference of whoever manages an object."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next((found for found in references if found.get("controller")), None)


def owner_reference(owner: JsonObject) -> JsonObject:
    """How an object names the owner that manages it."""
    metadata = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_condition(
    conditions: Iterable[JsonObject],
    type: str,
    status: str,
    reason: str,
    message: str,
    now: float,
    *,
    stamps: Mapping[str, str] = {},
) -> list[JsonObject]:
    """The conditions with one set; its transition time stays unless its status changes."""
    known = {found["type"]: found for found in conditions}
    before = known.get(type) or {}
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    made = {"type": type, "status": status, **stamps, "lastTransitionTime": since or timestamp(now)}
    known[type] = {**made, "reason": reason, "message": message}
    return list(known.values())
