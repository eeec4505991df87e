"""EndpointSlices that mirror the Endpoints which somebody wrote for a service without a selector. Pure.

Who reads slices alone finds such a service by them. A subset has one slice of each family of its addresses, however
many stand in it; where nobody does, there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal

from kubeqos.client.resources import ENDPOINT_SLICES
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Action, Tell, deletion
from kubeqos.controllers.services.endpoints import Endpoints, Port, Ports, identity
from kubeqos.controllers.services.slices import (
    MANAGED_BY,
    SERVICE_NAME,
    TRIGGER,
    Draft,
    Keeping,
    annotations_of,
    labels_of,
    of_other_types,
    ports_of,
    unhinted,
    written,
)
from kubeqos.controllers.services.subsets import LEADER, Offer, known_offers, packed, unversioned
from kubeqos.model.names import parse_ip

PER_SUBSET = 1000
OURS = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
Family = Literal["IPv4", "IPv6"]
FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
_MARK = "\0"  # in no name
_NOT_COPIED = (TRIGGER, "kubectl.kubernetes.io/last-applied-configuration")


def is_open(service: JsonObject | None) -> bool:
    """Whether a service leaves it to somebody's Endpoints where it leads: also one that is a name elsewhere."""
    return service is not None and not (service.get("spec") or {}).get("selector")


def desired(service: JsonObject | None, endpoints: JsonObject | None, slices: Sequence[JsonObject]) -> list[Action]:
    """What brings the slices that mirror Endpoints to what stands in those."""
    if endpoints is None or not is_open(service) or _is_left_out(endpoints):
        return [deletion(ENDPOINT_SLICES, one, "there is nothing to mirror") for one in slices]
    keeping = Keeping(endpoints, _labels(endpoints), _annotations(endpoints), made_anew=True)
    wanted, actions = _mirrored(endpoints)
    for family in FAMILIES:
        have = [one for one in slices if one["addressType"] == family]
        actions += written(keeping, family, *_planned(keeping, wanted[family], have))
    return actions + of_other_types(slices, FAMILIES)


def _is_left_out(endpoints: JsonObject) -> bool:
    """By its writer's wish, or because it is the lock of an elected leader."""
    return labels_of(endpoints).get(SKIP) == "true" or LEADER in annotations_of(endpoints)


# -- who is mirrored -----------------------------------------------------------------------------------------------


def _mirrored(endpoints: JsonObject) -> tuple[dict[Family, dict[Ports, Endpoints]], list[Action]]:
    """Endpoints by their family and ports; and what is told of addresses that were left out."""
    found: dict[Family, dict[Ports, Endpoints]] = {family: {} for family in FAMILIES}
    unreadable = left_out = 0
    for subset in packed(_offers(endpoints)):
        ports, count = tuple(sorted(map(_unmarked, ports_of(subset)))), 0
        for address, ready in _addresses(subset):
            read = _endpoint(address, ready) if count < PER_SUBSET else None
            if read is not None:
                family, endpoint = read
                found[family].setdefault(ports, {})[identity(endpoint)] = endpoint
                count += 1
            else:
                left_out += 1
                unreadable += count < PER_SUBSET
    cut = {family: {ports: dict(islice(here.items(), PER_SUBSET)) for ports, here in by_ports.items()}
           for family, by_ports in found.items()}  # fmt: skip
    return cut, _told(endpoints, unreadable, left_out)


def _offers(endpoints: JsonObject) -> Iterator[Offer]:
    """What stands in the subsets. Kubernetes tells ports with an application protocol apart by the subset that they
    stand in, and others not: which ports share a slice follows from that.
    """
    for number, subset in enumerate(endpoints.get("subsets") or ()):
        for port, address, ready in known_offers([subset]):
            yield (_marked(port, number) if port and port[3] else port), address, ready


def _marked(port: Port, number: int) -> Port:
    name, protocol, target, application = port
    return name, protocol, target, f"{application}{_MARK}{number}"


def _unmarked(port: Port) -> Port:
    name, protocol, target, application = port
    return name, protocol, target, application.partition(_MARK)[0]


def _addresses(subset: JsonObject) -> Iterable[tuple[JsonObject, bool]]:
    """Those that are ready first: they are the last to be left out."""
    yield from ((one, True) for one in subset.get("addresses") or ())
    yield from ((one, False) for one in subset.get("notReadyAddresses") or ())


def _endpoint(address: JsonObject, ready: bool) -> tuple[Family, JsonObject] | None:
    ip = parse_ip(address["ip"])
    if ip is None:
        return None
    ip = getattr(ip, "ipv4_mapped", None) or ip
    found: JsonObject = {"addresses": [str(ip)], "conditions": {"ready": ready}}
    found |= {key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)}
    return ("IPv6" if ip.version == 6 else "IPv4"), found


def _told(endpoints: JsonObject, unreadable: int, left_out: int) -> list[Action]:
    found: list[Action] = []
    if unreadable:
        text = f"Skipped {unreadable} invalid IP addresses when mirroring to EndpointSlices"
        found.append(Tell(endpoints, "InvalidIPAddress", text, "Warning"))
    if left_out > unreadable:
        most = f"A max of {PER_SUBSET} addresses can be mirrored to EndpointSlices per Endpoints subset."
        text = f"{most} {left_out} addresses were skipped"
        found.append(Tell(endpoints, "TooManyAddressesToMirror", text, "Warning"))
    return found


# -- where they stand ----------------------------------------------------------------------------------------------


def _planned(
    keeping: Keeping, wanted: Mapping[Ports, Endpoints], slices: Sequence[JsonObject]
) -> tuple[list[Draft], list[JsonObject]]:
    """One slice for each set of ports, and the slices that are to spare."""
    drafts = []
    spare = [one for one in slices if ports_of(one) not in wanted]
    for ports, endpoints in wanted.items():
        same = [one for one in slices if ports_of(one) == ports]
        spare += same[1:]
        if same and _is_right(keeping, same[0], endpoints):
            drafts.append(Draft(ports, same[0]["endpoints"], same[0], is_touched=False))
        else:
            drafts.append(Draft(ports, list(endpoints.values()), same[0] if same else None))
    return drafts, spare


def _is_right(keeping: Keeping, slice_: JsonObject, wanted: Endpoints) -> bool:
    had = slice_.get("endpoints") or ()
    return (
        {identity(one): unversioned(unhinted(one)) for one in had}
        == {key: unversioned(one) for key, one in wanted.items()}
        and labels_of(slice_) == keeping.labels
        and annotations_of(slice_) == keeping.annotations
        and not _had_another_owner(slice_, keeping.owner["metadata"])
    )


def _had_another_owner(slice_: JsonObject, owner: JsonObject) -> bool:
    """Older Endpoints of this name: who collects what they left behind would collect the slice."""
    owners = slice_["metadata"].get("ownerReferences") or ()
    older = (one for one in owners if (one["kind"], one["name"]) == ("Endpoints", owner["name"]))
    return any(one["uid"] != owner["uid"] for one in older)


def _labels(endpoints: JsonObject) -> dict[str, str]:
    return {**labels_of(endpoints), SERVICE_NAME: endpoints["metadata"]["name"], MANAGED_BY: OURS}


def _annotations(endpoints: JsonObject) -> dict[str, str | None]:
    return {key: value for key, value in annotations_of(endpoints).items() if key not in _NOT_COPIED}
