"""The EndpointSlices of a service: who stands in which, and what has to be written. Pure.

Slices are kept as they are as far as they are right, and what is new goes where few are written for it, by the order
of Kubernetes' own controller: into slices that change anyway, fullest first; then all of it into the one unchanged
slice that it fills best; then into new ones. A slice that would go is written anew where another would be made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kubeqos.client.resources import ENDPOINT_SLICES
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Create, change, deletion
from kubeqos.controllers.podstate import is_going, owner_reference
from kubeqos.controllers.services.endpoints import (
    Endpoints,
    Port,
    Ports,
    families,
    identity,
    is_headless,
    selects,
    wanted,
)

PER_SLICE = 100
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
OURS = "endpointslice-controller.k8s.io"
TRIGGER = "endpoints.kubernetes.io/last-change-trigger-time"
HEADLESS = "service.kubernetes.io/headless"
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)


@dataclass
class Draft:
    """A slice as it shall be."""

    ports: Ports
    endpoints: list[JsonObject]
    existing: JsonObject | None = None
    is_touched: bool = True

    def take(self, left: Endpoints) -> None:
        """As many as there is room for."""
        while left and len(self.endpoints) < PER_SLICE:
            self.endpoints.append(left.pop(next(iter(left))))
            self.is_touched = True


@dataclass(frozen=True)
class Keeping:
    """Whose slices they are, and what they say of themselves."""

    owner: JsonObject
    labels: Mapping[str, str]
    annotations: Mapping[str, str | None]
    """None is taken away; what it does not name stays."""
    made_anew: bool = False
    """Who writes one writes all of it: nothing stays of what anybody said of it, nor of another owner."""


def desired(
    service: JsonObject,
    pods: Iterable[JsonObject],
    slices: Iterable[JsonObject],
    nodes: Mapping[str, str],
    trigger: str = "",
) -> list[Action]:
    """What brings the slices of a service to the pods that stand behind it; `nodes` are the zones of all nodes."""
    if not selects(service):
        return []
    pods = list(pods)
    name = service["metadata"]["name"]
    mine = [one for one in slices if kept_for(labels_of(one), OURS) == name and not is_going(one)]
    keeping = Keeping(service, _labels(service), {TRIGGER: trigger or None})
    types = families(service)
    actions: list[Action] = []
    for family in types:
        have = [one for one in mine if one["addressType"] == family]
        drafts, spare, gone = _planned(service, wanted(service, pods, nodes, family), have)
        actions += written(keeping, family, drafts, spare)
        actions += [deletion(ENDPOINT_SLICES, one, "another service of this name had it") for one in gone]
    return actions + of_other_types(mine, types)


def of_other_types(slices: Iterable[JsonObject], types: Collection[str]) -> list[Action]:
    strange = [one for one in slices if one["addressType"] not in types]
    return [deletion(ENDPOINT_SLICES, one, "the service has no such addresses") for one in strange]


def kept_for(labels: Mapping[str, str], manager: str) -> str:
    """The name of the service that a slice with these labels is kept for, if this manager keeps it."""
    return labels.get(SERVICE_NAME, "") if labels.get(MANAGED_BY) == manager else ""


# -- who stands where ----------------------------------------------------------------------------------------------


def _planned(
    service: JsonObject, wanted: Mapping[Ports, Endpoints], slices: Sequence[JsonObject]
) -> tuple[list[Draft], list[JsonObject], list[JsonObject]]:
    """The slices that there shall be; those that are to spare; and those of others, which shall go."""
    owned = [one for one in slices if _is_owned(one, service)]
    others = [one for one in slices if not _is_owned(one, service)]
    spare: list[JsonObject] = []
    drafts: list[Draft] = []
    for ports, endpoints in wanted.items():
        kept, emptied = _packed(service, ports, endpoints, [one for one in owned if ports_of(one) == ports])
        drafts += kept
        spare += emptied
    spare += [one for one in owned if ports_of(one) not in wanted]
    if not drafts:  # an empty slice says that there is a service, and nobody behind it
        if len(spare) == 1 and _is_placeholder(service, spare[0]):
            return [], [], others
        drafts.append(Draft((), []))
    return drafts, spare, others


def _packed(
    service: JsonObject, ports: Ports, endpoints: Endpoints, slices: Iterable[JsonObject]
) -> tuple[list[Draft], list[JsonObject]]:
    """Every endpoint in one slice: where it stood before, or where there is room. And slices with nobody left."""
    drafts: list[Draft] = []
    emptied = []
    left = dict(sorted(endpoints.items()))
    for each in slices:
        had = each.get("endpoints") or []
        kept = [left.pop(identity(one)) for one in had if identity(one) in left]
        if had and not kept:
            emptied.append(each)
        else:
            is_same = list(map(unhinted, kept)) == list(map(unhinted, had)) and not _labels_differ(service, each)
            drafts.append(Draft(ports, kept, each, not is_same))
    for draft in sorted((one for one in drafts if one.is_touched), key=lambda one: -len(one.endpoints)):
        draft.take(left)
    while left:
        draft = _best_filled(drafts, len(left)) or Draft(ports, [])
        draft.take(left)
        if draft.existing is None:
            drafts.append(draft)
    return drafts, emptied


def _best_filled(drafts: Iterable[Draft], count: int) -> Draft | None:
    """The unchanged slice that has the least room of those that have enough."""
    roomy = [one for one in drafts if not one.is_touched and len(one.endpoints) + count <= PER_SLICE]
    return max(roomy, key=lambda one: len(one.endpoints), default=None) if count < PER_SLICE else None


def unhinted(endpoint: JsonObject) -> JsonObject:
    return {key: value for key, value in endpoint.items() if key != "hints"}


def _is_owned(slice_: JsonObject, service: JsonObject) -> bool:
    """Not by an older service of the same name."""
    owners = slice_["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == service["metadata"]["uid"] and one["kind"] == "Service" for one in owners)


def _is_placeholder(service: JsonObject, slice_: JsonObject) -> bool:
    is_empty = not slice_.get("ports") and not slice_.get("endpoints")
    return is_empty and labels_of(slice_) == _labels(service)


# -- what is written -----------------------------------------------------------------------------------------------


def written(keeping: Keeping, family: str, drafts: Sequence[Draft], spare: Sequence[JsonObject]) -> list[Action]:
    """What makes slices of drafts: of those that are there, of those to spare, or new ones."""
    left = list(spare)
    actions: list[Action] = []
    for draft in drafts:
        existing = draft.existing if draft.existing is not None or not left else left.pop(0)
        because = f"{len(draft.endpoints)} endpoints"
        if existing is None:
            # While the owner goes, whoever collects its slices would find new ones for ever.
            if not is_going(keeping.owner):
                actions.append(Create(ENDPOINT_SLICES, _slice(keeping, family, draft), because))
        elif draft.is_touched or draft.endpoints != (existing.get("endpoints") or []):
            actions.append(change(ENDPOINT_SLICES, existing, _patch(keeping, existing, draft), because))
    return actions + [deletion(ENDPOINT_SLICES, one, "nobody is left in it") for one in left]


def _patch(keeping: Keeping, existing: JsonObject, draft: Draft) -> JsonObject:
    metadata: JsonObject = {
        "labels": {**dict.fromkeys(labels_of(existing)), **keeping.labels},
        "annotations": dict(keeping.annotations),
    }
    if keeping.made_anew:
        metadata["annotations"] = {**dict.fromkeys(annotations_of(existing)), **keeping.annotations}
        metadata["ownerReferences"] = [owner_reference(keeping.owner)]
        # Whoever writes all of one that stays names it; one that was to spare is written as a new one would be.
        metadata["generateName"] = None if draft.existing is not None else _prefix(keeping.owner)
    return {"metadata": metadata, "endpoints": draft.endpoints, "ports": [_port(*port) for port in draft.ports]}


def _slice(keeping: Keeping, family: str, draft: Draft) -> JsonObject:
    metadata = keeping.owner["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": _prefix(keeping.owner),
            "namespace": metadata["namespace"],
            "labels": dict(keeping.labels),
            "annotations": {key: value for key, value in keeping.annotations.items() if value is not None},
            "ownerReferences": [owner_reference(keeping.owner)],
        },
        "addressType": family,
        "endpoints": draft.endpoints,
        "ports": [_port(*port) for port in draft.ports],
    }


def _prefix(owner: JsonObject) -> str:
    return f"{owner['metadata']['name']}-"


def _port(name: str, protocol: str, number: int, application: str) -> JsonObject:
    found: JsonObject = {"name": name, "protocol": protocol, "port": number}
    return {**found, "appProtocol": application} if application else found


def ports_of(slice_: JsonObject) -> Ports:
    return tuple(sorted(map(known_port, slice_.get("ports") or ())))


def known_port(port: JsonObject) -> Port:
    protocol = port.get("protocol") or "TCP"
    return port.get("name") or "", protocol, port.get("port") or 0, port.get("appProtocol") or ""


def _labels(service: JsonObject) -> dict[str, str]:
    found = {**_own_labels(service), SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: OURS}
    if is_headless(service):
        found[HEADLESS] = ""
    return found


def _labels_differ(service: JsonObject, slice_: JsonObject) -> bool:
    return _own_labels(service) != _own_labels(slice_)


def _own_labels(obj: JsonObject) -> dict[str, str]:
    return {key: value for key, value in labels_of(obj).items() if key not in _RESERVED}


def labels_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}
