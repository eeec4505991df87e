"""The Endpoints object of a service, which EndpointSlices replaced and older programs still read. Pure.

Addresses that offer the same ports stand together in a subset. An object holds a thousand of them at most.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from kubeqos.client.resources import resource_named
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Create, Patch, Tell, change
from kubeqos.controllers.podstate import is_going, is_ready
from kubeqos.controllers.services.endpoints import (
    Port,
    addresses_of,
    has_place,
    hostname_of,
    is_headless,
    ports_of_pod,
    published,
    selects,
    target_of,
)
from kubeqos.controllers.services.slices import HEADLESS, TRIGGER, known_port

ENDPOINTS = resource_named("Endpoints")
MANAGED_BY = "endpoints.kubernetes.io/managed-by"
OURS = "endpoint-controller"
LEADER = "control-plane.alpha.kubernetes.io/leader"
"""The annotation of Endpoints that are the lock of an elected leader, and lead nowhere."""
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
CAPACITY = 1000
_KINDS = ("addresses", "notReadyAddresses")
Key = tuple[str, str]
"""Address and uid of the pod: pods of one host's network share an address."""
Offer = tuple[Port | None, JsonObject, bool]
"""A port, or none for a headless service that has none, at an address that is ready or not."""


def desired(
    service: JsonObject, pods: Iterable[JsonObject], existing: JsonObject | None, trigger: str = ""
) -> list[Create | Patch]:
    """What brings the Endpoints of a service to the pods that stand behind it."""
    if not selects(service):
        return []
    every = packed(offer for pod in pods for offer in _offers(service, pod))
    subsets, is_cut = truncated(every)
    because = f"{sum(map(_size, subsets))} addresses"
    annotations = {TRIGGER: trigger or None, OVER_CAPACITY: "truncated" if is_cut else None}
    if existing is None:
        return [Create(ENDPOINTS, _made(service, subsets, annotations), because)]
    if _is_right(service, existing, subsets, is_cut):
        return []
    labels = {**dict.fromkeys(existing["metadata"].get("labels") or ()), **_labels(service)}
    patch = {"metadata": {"labels": labels, "annotations": annotations}, "subsets": subsets or None}
    return [change(ENDPOINTS, existing, patch, because)]


def refused(key: str, written: Create | Patch, existing: JsonObject | None, why: str) -> Tell:
    """What is told of a write that the server did not take."""
    if isinstance(written, Create):
        about, told = written.body, f"Failed to create endpoint for service {key}: {why}"
        return Tell(about, "FailedToCreateEndpoint", told, "Warning")
    return Tell(existing or {}, "FailedToUpdateEndpoint", f"Failed to update endpoint {key}: {why}", "Warning")


# -- who stands together -------------------------------------------------------------------------------------------


def _offers(service: JsonObject, pod: JsonObject) -> Iterator[Offer]:
    if not has_place(pod) or (is_going(pod) and not published(service)):
        return
    address = _address(service, pod)
    if address is None:
        return
    found: JsonObject = {"ip": address, "targetRef": target_of(pod)}
    if node := pod["spec"].get("nodeName"):
        found["nodeName"] = node
    if hostname := hostname_of(service, pod):
        found["hostname"] = hostname
    ready = published(service) or is_ready(pod)
    if service["spec"].get("ports"):
        for port in ports_of_pod(service, pod):
            yield port, found, ready
    elif service["spec"].get("clusterIP") == "None":
        yield None, found, ready


def _address(service: JsonObject, pod: JsonObject) -> str | None:
    """The first of the service's first family. A service of a server that knows no families has that of its address,
    or of the pod's.
    """
    spec, addresses = service["spec"], addresses_of(pod)
    if spec.get("ipFamilies"):
        is_wide = spec["ipFamilies"][0] == "IPv6"
    else:
        is_wide = ":" in (addresses[0] if is_headless(service) else spec["clusterIP"])
    return next((one for one in addresses if (":" in one) == is_wide), None)


def packed(offers: Iterable[Offer]) -> list[JsonObject]:
    """Ports that the same addresses offer, ready or not, in one subset; the order is always the same."""
    addresses: dict[Key, JsonObject] = {}
    by_port: dict[Port | None, dict[Key, bool]] = {}
    for port, address, ready in offers:
        key = (address["ip"], (address.get("targetRef") or {}).get("uid") or "")
        addresses.setdefault(key, address)
        here = by_port.setdefault(port, {})
        here[key] = ready and here.get(key, True)  # not ready once is not ready
    together: dict[frozenset[tuple[Key, bool]], list[Port]] = {}
    for port, keys in by_port.items():
        together.setdefault(frozenset(keys.items()), []).extend([port] if port is not None else [])
    return [
        _subset(ports, [addresses[key] for key, ready in sorted(keys) if ready],
                [addresses[key] for key, ready in sorted(keys) if not ready])
        for ports, keys in sorted((sorted(ports), keys) for keys, ports in together.items())
    ]  # fmt: skip


def _subset(ports: list[Port], ready: list[JsonObject], not_ready: list[JsonObject]) -> JsonObject:
    found = {"addresses": ready, "notReadyAddresses": not_ready, "ports": [_port(*port) for port in ports]}
    return {key: value for key, value in found.items() if value}


def _port(name: str, protocol: str, number: int, application: str) -> JsonObject:
    found = {"name": name, "port": number, "protocol": protocol, "appProtocol": application}
    return {key: value for key, value in found.items() if value}


def truncated(subsets: list[JsonObject]) -> tuple[list[JsonObject], bool]:
    """As many as there is room for, from each subset its share, those that are ready before others; whether some were
    left out.
    """
    ready, others = (sum(len(one.get(kind) or ()) for one in subsets) for kind in _KINDS)
    if ready + others <= CAPACITY:
        return subsets, False
    kind, total, room = ("addresses", ready, CAPACITY) if ready > CAPACITY else (_KINDS[1], others, CAPACITY - ready)
    left, found = room, []
    for one in subsets:
        here = one.get(kind) or []
        kept = here[: min(math.ceil(len(here) / total * room), left)]
        left -= len(kept)
        rest = {key: value for key, value in one.items() if kind != "addresses" or key != "notReadyAddresses"}
        found.append({key: value for key, value in {**rest, kind: kept}.items() if value})
    return found, True


# -- what is written -----------------------------------------------------------------------------------------------


def _made(service: JsonObject, subsets: list[JsonObject], annotations: JsonObject) -> JsonObject:
    metadata: JsonObject = {key: service["metadata"][key] for key in ("name", "namespace")}
    metadata["labels"] = _labels(service)
    metadata["annotations"] = {key: value for key, value in annotations.items() if value}
    body = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata}
    return {**body, "subsets": subsets} if subsets else body


def _labels(service: JsonObject) -> dict[str, str]:
    own = {key: value for key, value in (service["metadata"].get("labels") or {}).items() if key != HEADLESS}
    return {**own, **({HEADLESS: ""} if is_headless(service) else {}), MANAGED_BY: OURS}


def _is_right(service: JsonObject, existing: JsonObject, subsets: list[JsonObject], is_cut: bool) -> bool:
    """Whether nothing has to be written; by the label of headless services alone, nothing is."""
    labels, wanted = dict(existing["metadata"].get("labels") or {}), _labels(service)
    labels.pop(HEADLESS, None)
    wanted.pop(HEADLESS, None)
    told = OVER_CAPACITY in (existing["metadata"].get("annotations") or {})
    return labels == wanted and told == is_cut and _repacked(existing.get("subsets") or ()) == _repacked(subsets)


def _repacked(subsets: Iterable[JsonObject]) -> list[JsonObject]:
    """Whoever wrote them, in the order and the form of ours."""
    return packed((port, unversioned(address), ready) for port, address, ready in known_offers(subsets))


def known_offers(subsets: Iterable[JsonObject]) -> Iterator[Offer]:
    """What `packed` packs, as it stands in subsets."""
    for subset in subsets:
        for kind in _KINDS:
            for address in subset.get(kind) or ():
                for port in subset.get("ports") or (None,):
                    yield known_port(port) if port else None, address, kind == "addresses"


def unversioned(place: JsonObject) -> JsonObject:
    """An address or an endpoint. A pod that changed in nothing that matters here stands as it stood."""
    target = {key: value for key, value in (place.get("targetRef") or {}).items() if key != "resourceVersion"}
    return {**place, "targetRef": target} if target else place


def _size(subset: JsonObject) -> int:
    return sum(len(subset.get(kind) or ()) for kind in _KINDS)
