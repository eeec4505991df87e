"""What a pod's claims need (KEP-3675): pod → claim or template → class and ConfigMap → driver and parameters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kubeqos.model.annotations.computepolicies import ANY_DRIVER, any_policy
from kubeqos.model.objects import PodView
from kubeqos.topology.claims.asks import Wrong
from kubeqos.topology.claims.parameters import CONFIG_KEY
from kubeqos.topology.claims.resolving import (
    CONFIG_MAPS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_CLASSES,
    Key,
    Raw,
    Resolved,
    Unresolved,
    resolve,
)
from kubeqos.topology.claims.serving import ComputeNeed, need_of


@dataclass(frozen=True, slots=True)
class ClaimState:
    """What is known of a pod's claims."""

    drivers: frozenset[str] = frozenset()
    need: ComputeNeed | None = None
    waits: str = ""
    """What stands in the way of a decision, in words."""


NO_CLAIMS = ClaimState()
Claimed = Mapping[Key, Raw | None]
"""Claims, templates, classes and parameters by kind, namespace and name."""
_NO_PARAMETERS: Raw = {"data": {}}


class _Known(dict[Key, Raw | None]):
    """Everything that there is: what is not in it does not exist."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: Key) -> None:
        return None


class ClaimIndex:
    """Claims, templates, classes and parameters as informers see them, and the pods that name them."""

    def __init__(self) -> None:
        self._objects = _Known()
        self._pods: dict[str, PodView] = {}
        self._states: dict[str, ClaimState] = {}
        self._of_devices: set[Key] = set()
        self.served = True
        """Whether the server has claims of cores at all; where it has not, all claims are of devices."""

    def seen(self, kind: str, key: str, raw: dict[str, Any] | None) -> bool:
        """An object `namespace/name` or `name` is as given, or gone; says whether that matters to anybody."""
        namespace, _, name = key.rpartition("/")
        at = kind, namespace, name
        if kind == CONFIG_MAPS and raw is not None:  # of all that people keep in them, parameters of claims stay
            text = (raw.get("data") or {}).get(CONFIG_KEY)
            raw = _NO_PARAMETERS if text is None else {"data": {CONFIG_KEY: text}}
        if self._objects.get(at) == raw:
            return False
        if raw is None:
            del self._objects[at]
        else:
            self._objects[at] = raw
        self._states.clear()
        return True

    def of_devices(self, kind: str, key: str, *, there: bool) -> None:
        """A claim or a template of resource.k8s.io/v1 is there, or is gone."""
        namespace, _, name = key.rpartition("/")
        (self._of_devices.add if there else self._of_devices.discard)((kind, namespace, name))
        self._states.clear()

    def pod_seen(self, uid: str, pod: PodView) -> None:
        """A pod that names claims, or whose annotations give it to whichever driver a node has."""
        self._pods[uid] = pod
        self._states.pop(uid, None)

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._states.pop(uid, None)

    def state(self, uid: str) -> ClaimState:
        """What the pod's claims need, as far as that is known."""
        pod = self._pods.get(uid)
        if pod is None:
            return NO_CLAIMS
        known = self._states.get(uid)
        if known is None:
            known = claim_state(pod, self._objects)
            if known.waits and (devices := self._devices(pod)):
                known = ClaimState(waits=devices)
            self._states[uid] = known
        return known

    def _devices(self, pod: PodView) -> str:
        """The claim of a pod that kube-scheduler has to allocate: a pod is not bound without what it asked for."""
        for named in pod.spec.resource_claims:
            origin, namespace = named.origin, pod.metadata.namespace
            kind = RESOURCE_CLAIMS if origin.resource_claim_name else RESOURCE_CLAIM_TEMPLATES
            name = origin.resource_claim_name or origin.resource_claim_template_name or ""
            at = kind, namespace, name
            if not self.served or (at in self._of_devices and self._objects.get(at) is None):
                what = f'{kind} "{namespace}/{name}" asks for devices (resource.k8s.io/v1)'
                return f"{what}, which this scheduler does not allocate: name kube-scheduler in spec.schedulerName"
        return ""


def claims_of(pod: PodView, objects: Claimed) -> Resolved:
    """A pod's claims, given every object that there is."""
    found = resolve(pod, objects if isinstance(objects, _Known) else _Known(objects))
    assert isinstance(found, dict)  # nothing is left to be fetched
    return found


def claim_state(pod: PodView, objects: Claimed) -> ClaimState:
    """What a pod's claims need, given every object that there is."""
    claims = claims_of(pod, objects)
    policy = any_policy(
        pod.metadata.annotations, [one.name for one in (*pod.spec.init_containers, *pod.spec.containers)]
    )
    drivers = {one.driver for one in claims.values() if not isinstance(one, Unresolved)}
    drivers |= {ANY_DRIVER} if policy else set()
    for one in claims.values():
        if isinstance(one, Unresolved):
            return ClaimState(frozenset(drivers), None, f"waiting for claims: {one.message}")
    need = need_of(pod, claims)
    if isinstance(need, Wrong):
        return ClaimState(frozenset(drivers), None, f"claims that no node can serve: {need}")
    return ClaimState(frozenset(drivers), need)


CLAIM_KINDS = (CONFIG_MAPS, RESOURCE_CLASSES, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)


def claimed_in(objects: Iterable[tuple[str, dict[str, Any]]], namespace: str = "default") -> Claimed:
    """Objects, each with its kind, as `claim_state` takes them; `namespace` is that of those without one."""
    found: dict[Key, Raw | None] = {}
    for kind, raw in objects:
        meta = raw.get("metadata") or {}
        home = "" if kind == RESOURCE_CLASSES else meta.get("namespace") or namespace
        found[kind, home, meta.get("name", "")] = raw
    return found
