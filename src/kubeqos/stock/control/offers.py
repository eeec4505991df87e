"""From what nodes say they offer (NodeQOS) to what stock parts look at. Pure.

Each class is a label of its node; one with a capacity is an extended resource too, so that the stock scheduler counts
and preempts. Classes that nodes offer and nobody has described get a QOSClass object.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.rules.qos.classobjects import ClassTotal
from kubeqos.stock.names import (
    API_VERSION,
    CLASS,
    COUNTED_DOMAIN,
    MANAGED,
    OFFERED_DOMAIN,
    extended_resource,
    joined,
    node_label,
)

Raw = dict[str, Any]
ENOUGH = "1000000"
"""How many of a class a node has that does not count it, where pods ask for it by number because other nodes do."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a Node should show."""

    resources: Mapping[str, str]
    labels: Mapping[str, str]


def offer_of(node_qos: Raw | None, counted: Collection[tuple[str, str]]) -> Offer:
    """What the node's own report comes to; `counted` are the classes that pods ask for by number."""
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    for one in _classes(node_qos):
        resource, name, capacity = one["resource"], one["class"], one.get("capacity") or 0
        labels[node_label(resource, name)] = "true"
        if capacity or (resource, name) in counted:
            resources[extended_resource(resource, name)] = str(capacity or ENOUGH)
    return Offer(resources, labels)


def label_changes(node: Raw, offer: Offer) -> Raw:
    """The labels to change, None for one that goes; empty where the Node has what it should."""
    return _changes(node["metadata"].get("labels") or {}, offer.labels, OFFERED_DOMAIN)


def status_changes(node: Raw, offer: Offer) -> Raw:
    """The capacities to change. A kubelet that registers anew sets what it does not know to 0."""
    status = node.get("status") or {}
    found = {
        side: _changes(status.get(side) or {}, offer.resources, COUNTED_DOMAIN) for side in ("capacity", "allocatable")
    }
    return {side: changes for side, changes in found.items() if changes}


def _changes(have: Mapping[str, str], want: Mapping[str, str], domain: str) -> Raw:
    gone = {name: None for name in have if name.startswith(domain) and name not in want}
    return {**gone, **{name: value for name, value in want.items() if have.get(name) != value}}


# -- QOSClass objects ----------------------------------------------------------------------------------------------


def totals(node_qoses: Iterable[Raw]) -> dict[tuple[str, str], ClassTotal]:
    """Every class that some node offers."""
    found: dict[tuple[str, str], ClassTotal] = {}
    for one in (each for node_qos in node_qoses for each in _classes(node_qos)):
        total = found.setdefault((one["resource"], one["class"]), ClassTotal(one["level"]))
        capacity, used = one.get("capacity") or 0, one.get("used") or 0
        total.add(capacity=capacity, used=used, mutable=bool(one.get("mutable")))
    return found


def class_object(resource: str, name: str, total: ClassTotal) -> Raw:
    """The QOSClass for a class that nobody has described."""
    spec: Raw = {"resource": resource, "class": name, "level": total.level}
    spec |= {"mutable": total.mutable, "counted": total.counted}
    metadata = {"name": class_object_name(resource, name), "labels": MANAGED}
    return {"apiVersion": API_VERSION, "kind": CLASS, "metadata": metadata, "spec": spec}


def class_object_name(resource: str, name: str) -> str:
    """`rdt.gold`; where an object cannot be called so, in small letters and with a digest."""
    plain = joined(resource, name)
    if re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", plain):
        return plain
    digest = hashlib.sha256(plain.encode()).hexdigest()[:10]
    return f"{re.sub(r'[^a-z0-9]+', '-', plain.lower()).strip('-')}-{digest}"


def _classes(node_qos: Raw | None) -> Iterator[Raw]:
    """The classes of a report that can be used; what it says twice counts once."""
    seen = set()
    for one in ((node_qos or {}).get("status") or {}).get("classes") or ():
        key = one.get("resource"), one.get("class")
        if all(key) and key not in seen:
            seen.add(key)
            yield {"level": "container", **one}
