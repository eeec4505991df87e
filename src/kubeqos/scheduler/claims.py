"""Which compute driver a pod's claims need (KEP-3675): pod → claim or template → ResourceClass → driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kubeqos.model.annotations.computepolicies import ANY_DRIVER

_NO_DRIVERS: frozenset[str] = frozenset()
_BY_POLICY = frozenset({ANY_DRIVER})


class NamedClaim(Protocol):
    """A pod's claim in either of its forms."""

    name: str
    source: dict[str, str]
    resource_claim_name: str | None
    resource_claim_template_name: str | None


class ClaimIndex:
    """Claims, templates and classes as informers see them."""

    def __init__(self) -> None:
        self._class_of_claim: dict[str, str] = {}
        self._class_of_template: dict[str, str] = {}
        self._driver_of_class: dict[str, str] = {}
        self._pods: dict[str, list[tuple[str, str]]] = {}
        self._by_policy: set[str] = set()

    def claim(self, key: str, resource_class: str | None) -> None:
        """A claim `namespace/name` and its class; None when it is gone."""
        _set(self._class_of_claim, key, resource_class)

    def template(self, key: str, resource_class: str | None) -> None:
        _set(self._class_of_template, key, resource_class)

    def resource_class(self, name: str, driver: str | None) -> None:
        _set(self._driver_of_class, name, driver)

    def pod_names(self, uid: str, namespace: str, claims: Iterable[NamedClaim], *, policy: bool = False) -> None:
        """Remember which claims a pod names, and whether an annotation gives it to whichever driver a node has."""
        if policy:
            self._by_policy.add(uid)
        named: list[tuple[str, str]] = []
        for claim in claims:
            existing = claim.source.get("resourceClaimName") or claim.resource_claim_name
            template = claim.source.get("resourceClaimTemplateName") or claim.resource_claim_template_name
            if existing:
                named.append(("claim", f"{namespace}/{existing}"))
            elif template:
                named.append(("template", f"{namespace}/{template}"))
        if named:
            self._pods[uid] = named

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._by_policy.discard(uid)

    def drivers(self, uid: str) -> frozenset[str]:
        """The drivers that the pod's claims need, as far as they are known."""
        named = self._pods.get(uid)
        if not named:
            return _BY_POLICY if uid in self._by_policy else _NO_DRIVERS
        classes = (self._class_of(kind, key) for kind, key in named)
        found = (self._driver_of_class.get(each) for each in classes if each is not None)
        known = frozenset(driver for driver in found if driver is not None)
        return known | _BY_POLICY if uid in self._by_policy else known

    def missing(self, uid: str) -> str | None:
        """What the pod's claims still lack, in words."""
        for kind, key in self._pods.get(uid, ()):
            resource_class = self._class_of(kind, key)
            name = key.partition("/")[2]
            if resource_class is None:
                return f'resource claim "{name}"' if kind == "claim" else f'resource claim template "{name}"'
            if resource_class not in self._driver_of_class:
                return f'resource class "{resource_class}"'
        return None

    def _class_of(self, kind: str, key: str) -> str | None:
        return (self._class_of_claim if kind == "claim" else self._class_of_template).get(key)


def _set(table: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
