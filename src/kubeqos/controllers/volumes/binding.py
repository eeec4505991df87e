"""Which volume a claim gets, and what has to be written until both say so. Pure.

A claim of a class that waits for its first consumer is left to the scheduler, which writes its choice into the volume's
`claimRef`; from there on both kinds are completed in the same way: volume, its phase, claim, its phase.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Tell, change
from kubeqos.rules.storage import BIND_COMPLETED, ClaimView, ClassView, VolumeView, free_volumes

_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_EXTERNAL = (
    "Waiting for a volume to be created either by the external provisioner '{}' or manually by the system "
    "administrator. If volume creation is delayed, please verify that the provisioner is running and correctly "
    "registered."
)


def claim_actions(claim: JsonObject, volumes: Iterable[JsonObject], named: JsonObject | None) -> list[Action]:
    """What a claim is missing; `named` is its class, where it exists."""
    view, found = ClaimView.of(claim), {each["metadata"]["name"]: each for each in volumes}
    if view.metadata.deletion_timestamp is not None:
        return []
    if view.spec.volume_name:
        return _named(claim, view, found.get(view.spec.volume_name))
    views = {name: VolumeView.of(raw) for name, raw in found.items()}
    meant = [name for name, volume in views.items() if volume.is_meant_for(view) and volume.could_serve(view)]
    if meant:
        return together(claim, found[min(meant)])
    kind = ClassView.of(named) if named is not None else None
    if kind is not None and kind.waits_for_consumer:
        return [] if view.is_bound else [Tell(claim, "WaitForFirstConsumer", _WAITS)]
    free = free_volumes(view, views.values())
    return together(claim, found[free[0].metadata.name]) if free else [_nothing_there(claim, view, kind)]


_WAITS = "waiting for first consumer to be created before binding"


def _nothing_there(claim: JsonObject, view: ClaimView, kind: ClassView | None) -> Tell:
    if not view.class_name:
        what = "no persistent volumes available for this claim and no storage class is set"
        return Tell(claim, "FailedBinding", what)
    if kind is None:
        what = f'storageclass.storage.k8s.io "{view.class_name}" not found'
        return Tell(claim, "ProvisioningFailed", what, "Warning")
    if not kind.makes_volumes:
        return Tell(claim, "FailedBinding", "no persistent volumes available for this claim")
    return Tell(claim, "ExternalProvisioning", _EXTERNAL.format(kind.provisioner))


def _named(claim: JsonObject, view: ClaimView, volume: JsonObject | None) -> list[Action]:
    """A claim that says which volume it wants, or has."""
    if volume is None:
        return _phase(claim, "Lost", "its volume is gone") if view.is_bound else []
    theirs = VolumeView.of(volume)
    if theirs.spec.claim_ref is not None and not theirs.is_meant_for(view):
        return _phase(claim, "Lost", "its volume is another claim's") if view.is_bound else []
    return together(claim, volume)


def together(claim: JsonObject, volume: JsonObject) -> list[Action]:
    """Everything that is missing until claim and volume are each other's."""
    actions: list[Action] = []
    meta, ref = claim["metadata"], volume["spec"].get("claimRef")
    because = f"it is for claim {meta['namespace']}/{meta['name']}"
    if ref is None or not ref.get("uid"):
        mark = {"metadata": {"annotations": {_BY_CONTROLLER: "yes"}}} if ref is None else {}
        patch = {**mark, "spec": {"claimRef": _reference(claim)}}
        actions.append(change(PERSISTENT_VOLUMES, volume, patch, because))
    actions += _volume_phase(volume, "Bound", because)
    name, marks = volume["metadata"]["name"], meta.get("annotations") or {}
    if claim["spec"].get("volumeName") != name or BIND_COMPLETED not in marks:
        written = {BIND_COMPLETED: "yes", **({} if claim["spec"].get("volumeName") else {_BY_CONTROLLER: "yes"})}
        patch = {"metadata": {"annotations": written}, "spec": {"volumeName": name}}
        actions.append(change(PERSISTENT_VOLUME_CLAIMS, claim, patch, f"volume {name} is for it"))
    spec = volume["spec"]
    has = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec.get("capacity")}
    if any((claim.get("status") or {}).get(key) != value for key, value in has.items()):
        patch = {"status": has}
        told = change(PERSISTENT_VOLUME_CLAIMS, claim, patch, "bound", subresource="status", checked=False)
        actions.append(told)
    return actions


def volume_actions(volume: JsonObject, claim: JsonObject | None) -> list[Action]:
    """What a volume's phase should say; `claim` is the one that it names, if that exists."""
    view = VolumeView.of(volume)
    if view.metadata.deletion_timestamp is not None:
        return []
    ref = view.spec.claim_ref
    if ref is None or (not ref.uid and claim is None):
        return _volume_phase(volume, "Available", "nobody claims it")
    if claim is None or (ref.uid and claim["metadata"]["uid"] != ref.uid):
        return _volume_phase(volume, "Released", "its claim is gone")
    return []  # the claim's own turn brings both together


def _volume_phase(volume: JsonObject, phase: str, because: str) -> list[Action]:
    if (volume.get("status") or {}).get("phase") == phase:
        return []
    patch = {"status": {"phase": phase}}
    return [change(PERSISTENT_VOLUMES, volume, patch, because, subresource="status", checked=False)]


def _phase(claim: JsonObject, phase: str, because: str) -> list[Action]:
    if (claim.get("status") or {}).get("phase") == phase:
        return []
    patch = {"status": {"phase": phase}}
    return [change(PERSISTENT_VOLUME_CLAIMS, claim, patch, because, subresource="status", checked=False)]


def _reference(claim: JsonObject) -> JsonObject:
    meta = claim["metadata"]
    names = {key: meta[key] for key in ("namespace", "name", "uid", "resourceVersion")}
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1", **names}
