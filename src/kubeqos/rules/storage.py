"""Claims, volumes, storage classes and what CSI drivers say: which volume a claim could have. Pure.

Asked by the scheduler for claims that wait for their first consumer, and by the volume controller for all others. The
claims that a pod mounts are told here too, for these and for the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from kubeqos.model.objects import LabelSelectorView, NodeSelectorTerm, NodeSelectorView, ObjectMeta, PodView, View
from kubeqos.model.quantity import Quantity
from kubeqos.model.selectors import LabelSelector

Topology = tuple[tuple[str, tuple[str, ...]], ...]
"""Label keys with the values that are allowed, all of which a node must have."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_NOBODY = ("", "kubernetes.io/no-provisioner")
_NO_META = ObjectMeta()


class _Resources(View, frozen=True, kw_only=True):
    requests: dict[str, Quantity] = msgspec.field(default_factory=dict)


class _ClaimSpec(View, frozen=True, kw_only=True):
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str = "Filesystem"
    access_modes: tuple[str, ...] = ()
    resources: _Resources = _Resources()
    selector: dict[str, Any] | None = None
    volume_attributes_class_name: str | None = None


class _Phase(View, frozen=True, kw_only=True):
    phase: str = ""


class ClaimView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = _NO_META
    spec: _ClaimSpec = _ClaimSpec()
    status: _Phase = _Phase()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def class_name(self) -> str:
        return _class_of(self.metadata, self.spec.storage_class_name)

    @property
    def is_bound(self) -> bool:
        """Whether claim and volume agree on each other, as their controller says."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def size(self) -> int:
        asked = self.spec.resources.requests.get("storage")
        return asked.value() if asked is not None else 0


class _ClaimRef(View, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _NodeAffinity(View, frozen=True, kw_only=True):
    required: NodeSelectorView | None = None


class _Csi(View, frozen=True, kw_only=True):
    driver: str = ""


class _VolumeSpec(View, frozen=True, kw_only=True):
    storage_class_name: str | None = None
    capacity: dict[str, Quantity] = msgspec.field(default_factory=dict)
    volume_mode: str = "Filesystem"
    access_modes: tuple[str, ...] = ()
    claim_ref: _ClaimRef | None = None
    node_affinity: _NodeAffinity | None = None
    volume_attributes_class_name: str | None = None
    csi: _Csi | None = None


class VolumeView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = _NO_META
    spec: _VolumeSpec = _VolumeSpec()
    status: _Phase = _Phase()

    @property
    def size(self) -> int:
        has = self.spec.capacity.get("storage")
        return has.value() if has is not None else 0

    def terms(self) -> tuple[NodeSelectorTerm, ...] | None:
        """From which nodes it can be reached; None: from all."""
        required = self.spec.node_affinity.required if self.spec.node_affinity is not None else None
        return tuple(required.node_selector_terms) if required is not None else None

    def could_serve(self, claim: ClaimView) -> bool:
        """Whether it is large enough, of the right kind, and nobody else's."""
        return (
            (self.spec.claim_ref is None or self.is_meant_for(claim))
            and self.size >= claim.size
            and self.spec.volume_mode == claim.spec.volume_mode
            and (self.spec.volume_attributes_class_name or "") == (claim.spec.volume_attributes_class_name or "")
            and self.metadata.deletion_timestamp is None
        )

    def is_meant_for(self, claim: ClaimView) -> bool:
        """Whether it names the claim, by name or as this very one."""
        ref = self.spec.claim_ref
        if ref is None or (ref.namespace, ref.name) != (claim.metadata.namespace, claim.metadata.name):
            return False
        return ref.uid in ("", claim.metadata.uid)

    def is_free_for(self, claim: ClaimView) -> bool:
        """Whether it is offered to claims of this class that mount in this way."""
        return (
            self.status.phase == "Available"
            and _class_of(self.metadata, self.spec.storage_class_name) == claim.class_name
            and set(claim.spec.access_modes) <= set(self.spec.access_modes)
        )


class _TopologyExpression(View, frozen=True, kw_only=True):
    key: str = ""
    values: tuple[str, ...] = ()


class _TopologyTerm(View, frozen=True, kw_only=True):
    match_label_expressions: tuple[_TopologyExpression, ...] = ()


class ClassView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = _NO_META
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[_TopologyTerm, ...] = ()

    @property
    def makes_volumes(self) -> bool:
        return self.provisioner not in _NOBODY

    @property
    def waits_for_consumer(self) -> bool:
        return self.volume_binding_mode == "WaitForFirstConsumer"

    def topologies(self) -> tuple[Topology, ...]:
        return tuple(
            tuple((one.key, tuple(one.values)) for one in term.match_label_expressions)
            for term in self.allowed_topologies
        )


class _Allocatable(View, frozen=True, kw_only=True):
    count: int | None = None


class _NodeDriver(View, frozen=True, kw_only=True):
    name: str = ""
    allocatable: _Allocatable | None = None


class _CsiNodeSpec(View, frozen=True, kw_only=True):
    drivers: tuple[_NodeDriver, ...] = ()


class CsiNodeView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = _NO_META
    spec: _CsiNodeSpec = _CsiNodeSpec()

    def limits(self) -> dict[str, int]:
        """How many volumes each driver can attach there, as far as it says."""
        said = ((one.name, one.allocatable.count) for one in self.spec.drivers if one.allocatable is not None)
        return {name: count for name, count in said if count is not None}


class _CsiDriverSpec(View, frozen=True, kw_only=True):
    storage_capacity: bool = False


class CsiDriverView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = _NO_META
    spec: _CsiDriverSpec = _CsiDriverSpec()


class CapacityView(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = _NO_META
    storage_class_name: str = ""
    node_topology: LabelSelectorView | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    def holds(self, size: int) -> bool:
        """Whether a volume of this size can be made there."""
        most = self.maximum_volume_size or self.capacity
        return most is not None and most.value() >= size


class MountedClaim(NamedTuple):
    """A volume of a pod that stands for a claim."""

    volume: str
    claim: str
    own: bool
    """Whether the claim is made for this pod alone (a generic ephemeral volume)."""


def mounted_claims(pod: PodView) -> Iterator[MountedClaim]:
    """The volume claims of a pod, in the order of its volumes."""
    for volume in pod.spec.volumes:
        name = volume.get("name", "")
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            yield MountedClaim(name, claim.get("claimName", ""), False)
        elif volume.get("ephemeral") is not None:
            yield MountedClaim(name, ephemeral_claim(pod.metadata.name, name), True)


def ephemeral_claim(pod: str, volume: str) -> str:
    """What the claim of a pod's generic ephemeral volume is called."""
    return f"{pod}-{volume}"


def _class_of(metadata: ObjectMeta, named: str | None) -> str:
    return metadata.annotations.get(_OLD_CLASS, named or "")


def free_volumes(claim: ClaimView, volumes: Iterable[VolumeView]) -> list[VolumeView]:
    """The volumes that a claim could have, the smallest first; one that is meant for it comes before all."""
    wanted = LabelSelector.of(claim.spec.selector) if claim.spec.selector is not None else None
    found = []
    for volume in volumes:
        if not volume.could_serve(claim):
            continue
        if volume.is_meant_for(claim):
            return [volume]
        if volume.is_free_for(claim) and (wanted is None or wanted.matches(volume.metadata.labels)):
            found.append(volume)
    return sorted(found, key=lambda volume: volume.size)
