"""The EndpointSlices of a service: who stands in which, and what has to be written. Pure.

Slices are kept as they are as far as they are right, and what is new goes where few are written for it, by the order
of Kubernetes' own controller: into slices that change anyway, fullest first; then all of it into the one unchanged
slice that it fills best; then into new ones. A slice that would go is written anew where another would be made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    mine = [one for one in slices if leads_to(one) == service["metadata"]["name"] and not is_going(one)]
    types = families(service)
    actions: list[Action] = []
    for family in types:
        have = [one for one in mine if one["addressType"] == family]
        actions += _written(service, family, *_planned(service, wanted(service, pods, nodes, family), have), trigger)
    strange = [one for one in mine if one["addressType"] not in types]
    return actions + [deletion(ENDPOINT_SLICES, one, "the service has no such addresses") for one in strange]


def leads_to(slice_: JsonObject) -> str:
    """The service by whose pods a slice is kept, by name."""
    labels = _labels_of(slice_)
    return str(labels.get(SERVICE_NAME, "")) if labels.get(MANAGED_BY) == OURS else ""


# -- who stands where ----------------------------------------------------------------------------------------------


def _planned(
    service: JsonObject, wanted: Mapping[Ports, Endpoints], slices: Sequence[JsonObject]
) -> tuple[list[Draft], list[JsonObject]]:
    """The slices that there shall be, and those that shall go."""
    owned = [one for one in slices if _is_owned(one, service)]
    going = [one for one in slices if not _is_owned(one, service)]
    drafts: list[Draft] = []
    for ports, endpoints in wanted.items():
        kept, emptied = _packed(service, ports, endpoints, [one for one in owned if _ports_of(one) == ports])
        drafts += kept
        going += emptied
    going += [one for one in owned if _ports_of(one) not in wanted]
    if not drafts:  # an empty slice says that there is a service, and nobody behind it
        if len(going) == 1 and _is_placeholder(service, going[0]):
            return [], []
        drafts.append(Draft((), []))
    return drafts, going


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
            is_same = list(map(_unhinted, kept)) == list(map(_unhinted, had)) and not _labels_differ(service, each)
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


def _unhinted(endpoint: JsonObject) -> JsonObject:
    return {key: value for key, value in endpoint.items() if key != "hints"}


def _is_owned(slice_: JsonObject, service: JsonObject) -> bool:
    """Not by an older service of the same name."""
    owners = slice_["metadata"].get("ownerReferences") or ()
    return any(one["uid"] == service["metadata"]["uid"] and one["kind"] == "Service" for one in owners)


def _is_placeholder(service: JsonObject, slice_: JsonObject) -> bool:
    is_empty = not slice_.get("ports") and not slice_.get("endpoints")
    return is_empty and _labels_of(slice_) == _labels(service)


# -- what is written -----------------------------------------------------------------------------------------------


def _written(
    service: JsonObject, family: str, drafts: Sequence[Draft], going: Sequence[JsonObject], trigger: str
) -> list[Action]:
    spare = [one for one in going if _is_owned(one, service)]
    gone = [one for one in going if not _is_owned(one, service)]
    actions: list[Action] = []
    for draft in drafts:
        existing = draft.existing if draft.existing is not None or not spare else spare.pop(0)
        because = f"{len(draft.endpoints)} endpoints"
        if existing is None:
            # While the service goes, whoever collects its slices would find new ones for ever.
            if not is_going(service):
                actions.append(Create(ENDPOINT_SLICES, _slice(service, family, draft, trigger), because))
        elif draft.is_touched or draft.endpoints != (existing.get("endpoints") or []):
            actions.append(change(ENDPOINT_SLICES, existing, _patch(service, existing, draft, trigger), because))
    return actions + [deletion(ENDPOINT_SLICES, one, "nobody is left in it") for one in (*gone, *spare)]


def _patch(service: JsonObject, existing: JsonObject, draft: Draft, trigger: str) -> JsonObject:
    labels = {**dict.fromkeys(_labels_of(existing)), **_labels(service)}
    metadata: JsonObject = {"labels": labels, "annotations": {TRIGGER: trigger or None}}
    return {"metadata": metadata, "endpoints": draft.endpoints, "ports": [_port(*port) for port in draft.ports]}


def _slice(service: JsonObject, family: str, draft: Draft, trigger: str) -> JsonObject:
    metadata = service["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": _labels(service),
            "annotations": {TRIGGER: trigger} if trigger else {},
            "ownerReferences": [owner_reference(service)],
        },
        "addressType": family,
        "endpoints": draft.endpoints,
        "ports": [_port(*port) for port in draft.ports],
    }


def _port(name: str, protocol: str, number: int, application: str) -> JsonObject:
    found: JsonObject = {"name": name, "protocol": protocol, "port": number}
    return {**found, "appProtocol": application} if application else found


def _ports_of(slice_: JsonObject) -> Ports:
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
    return {key: value for key, value in _labels_of(obj).items() if key not in _RESERVED}


def _labels_of(obj: JsonObject) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}
