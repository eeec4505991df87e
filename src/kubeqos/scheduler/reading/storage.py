"""What a pod's volume claims need (as kube-scheduler reads them): claim → volume or class → where it can be. Pure.

Claims, volumes and classes come as informers see them. What this scheduler has asked for and the server has not
confirmed yet stands beside them: a volume that is promised to one claim is not free for the next.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from kubeqos.codec import encode_json
from kubeqos.model.objects import LabelSelectorView, ObjectMeta, PodView, View
from kubeqos.placement.findings import VOLUMES as WAITS
from kubeqos.placement.storage.filters import ZONES
from kubeqos.placement.storage.needs import FreeVolume, Topology, UnboundClaim, VolumeNeed, VolumePlan
from kubeqos.rules.storage import (
    CapacityView,
    ClaimView,
    ClassView,
    CsiDriverView,
    CsiNodeView,
    VolumeView,
    free_volumes,
    mounted_claims,
)

SELECTED_NODE = "volume.kubernetes.io/selected-node"
CLAIMS, VOLUMES, CLASSES = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"
NODES, DRIVERS, CAPACITIES = "CSINode", "CSIDriver", "CSIStorageCapacity"
_CLUSTER_WIDE = (VOLUMES, CLASSES, NODES, DRIVERS)
_VIEWS: dict[str, type[View]] = {
    CLAIMS: ClaimView,
    VOLUMES: VolumeView,
    CLASSES: ClassView,
    NODES: CsiNodeView,
    DRIVERS: CsiDriverView,
    CAPACITIES: CapacityView,
}
_encode = msgspec.json.Encoder(order="deterministic").encode
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class VolumeState:
    """What is known of a pod's volume claims."""

    need: VolumeNeed | None = None
    waits: str = ""
    """What stands in the way of a decision, in words."""
    claims: tuple[str, ...] = ()
    """All of them, `namespace/name`."""

    @property
    def awaited(self) -> frozenset[Hashable]:
        """What the pod waits for while they are in the way: one of them changes, or a volume or class comes."""
        return frozenset({WAITS, *((WAITS, key) for key in self.claims)})


NO_VOLUMES = VolumeState()


class VolumeIndex:
    """Claims, volumes and classes, and the pods that mount claims."""

    def __init__(self) -> None:
        self.unreadable: Mapping[str, str] = {}
        """Of kinds whose objects cannot be read: why."""
        self._objects: dict[str, dict[str, View]] = {kind: {} for kind in _VIEWS}
        self.thought_of: set[str] = set()
        """Claims that are not in the cluster yet (`namespace/name`): their volumes would be chosen with the node."""
        self._pods: dict[str, PodView] = {}
        self._needs: dict[bytes, VolumeNeed] = {}
        self._promised: dict[str, tuple[str, str]] = {}
        """Volumes that were asked for: name → claim, and the uid of the pod."""
        self._asked: dict[str, tuple[str, str]] = {}
        """Claims whose volume was asked to be made: claim → node, and the uid of the pod."""

    # -- what informers see ------------------------------------------------------------------------------------------

    def seen(self, kind: str, key: str, raw: bytes | None) -> bool:
        """An object `namespace/name` or `name` is as given, or gone; says whether it is news."""
        known = self._objects[kind]
        if raw is None:
            return known.pop(key, None) is not None
        view = _VIEWS[kind].read(raw)
        before = known.get(key)
        if before is not None and _revision(view) < _revision(before):
            return False  # older than the answer to what we wrote
        known[key] = view
        return True

    def pod_seen(self, uid: str, pod: PodView) -> None:
        """A pod that mounts claims."""
        self._pods[uid] = pod

    def forget(self, uid: str) -> None:
        """A pod is gone, or what was asked for it was refused."""
        self._pods.pop(uid, None)
        self.give_back(uid)

    def give_back(self, uid: str) -> None:
        """What was asked for a pod is not on its way any more: it was answered, or refused."""
        for table in (self._promised, self._asked):
            for key in [key for key, (_, by) in table.items() if by == uid]:
                del table[key]

    def promise(self, uid: str, plan: VolumePlan, node: str) -> None:
        """Volumes are being asked for on behalf of a pod."""
        self._promised |= {volume: (claim, uid) for claim, volume in plan.bindings}
        self._asked |= dict.fromkeys(plan.provisions, (node, uid))

    def unasked(self, plan: VolumePlan, node: str) -> VolumePlan:
        """What of a plan nobody has asked for yet."""
        bindings = tuple(
            (claim, volume)
            for claim, volume in plan.bindings
            if volume not in self._promised and not self._is_given(claim, volume)
        )
        provisions = tuple(
            key
            for key in plan.provisions
            if key not in self._asked
            and (claim := self._claim(key)) is not None
            and claim.metadata.annotations.get(SELECTED_NODE) != node
        )
        return VolumePlan(bindings, provisions)

    def _is_given(self, key: str, name: str) -> bool:
        """Whether the volume says that it is this claim's, by its uid too."""
        claim, volume = self._claim(key), self._volume(name)
        ref = volume.spec.claim_ref if volume is not None else None
        return claim is not None and ref is not None and ref.uid == claim.metadata.uid

    def limits(self, node: str) -> Mapping[str, int]:
        """How many volumes each CSI driver of a node can attach."""
        found = self._objects[NODES].get(node)
        return found.limits() if isinstance(found, CsiNodeView) else {}

    def reference(self, claim: str) -> dict[str, str]:
        """How a volume names the claim that it belongs to."""
        found = self._claim(claim)
        meta = found.metadata if found is not None else ObjectMeta()
        names = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        return {"kind": CLAIMS, "apiVersion": "v1", **names, "resourceVersion": meta.resource_version}

    def revision(self, volume: str) -> str:
        """The revision of a volume that was looked at."""
        found = self._volume(volume)
        return found.metadata.resource_version if found is not None else ""

    def driver(self, claim: str) -> str:
        """The CSI driver that attaches a claim's volume; empty where there is none, or nobody knows."""
        found = self._claim(claim)
        if found is None:
            return ""
        volume = self._volume(found.spec.volume_name)
        if volume is not None:
            return volume.spec.csi.driver if volume.spec.csi is not None else ""
        named = self._class(found.class_name)
        return named.provisioner if named is not None else ""

    # -- what a pod needs --------------------------------------------------------------------------------------------

    def state(self, uid: str) -> VolumeState:
        """What the pod's claims need, as far as that is known."""
        pod = self._pods.get(uid)
        return NO_VOLUMES if pod is None else self.state_of(pod)

    def state_of(self, pod: PodView) -> VolumeState:
        """The same of a pod that is handed in."""
        claims = tuple(f"{pod.metadata.namespace}/{one.claim}" for one in mounted_claims(pod))
        if not claims:
            return NO_VOLUMES
        if why := self.unreadable.get(CLAIMS):
            return VolumeState(None, _cannot_read("volume claims", why), claims)
        if waits := self._missing(pod) or self._not_bound(claims):
            return VolumeState(None, waits, claims)
        return VolumeState(self._interned(self._need(claims)), "", claims)

    def _missing(self, pod: PodView) -> str:
        """Claims that are not there, or are about to go."""
        namespace = pod.metadata.namespace
        mounted = list(mounted_claims(pod))
        for _, name, own in mounted:
            if not own and self._claim(f"{namespace}/{name}") is None:
                return f'persistentvolumeclaim "{name}" not found'
        for _, name, own in mounted:
            claim = self._claim(f"{namespace}/{name}")
            if claim is None:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            if claim.status.phase == "Lost":
                volume = claim.spec.volume_name
                return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
            if claim.metadata.deletion_timestamp is not None:
                return f'persistentvolumeclaim "{name}" is being deleted'
            if own and all(owner.uid != pod.metadata.uid for owner in claim.metadata.owner_references):
                whose = f"{namespace}/{pod.metadata.name}"
                return f"PVC {namespace}/{name} was not created for pod {whose} (pod is not owner)"
        return ""

    def _not_bound(self, claims: Iterable[str]) -> str:
        """Claims that somebody else has to bind first; those of a class that waits for its first consumer are ours."""
        found = [claim for key in claims if (claim := self._claim(key)) is not None]
        for claim in found:
            if not claim.is_bound and claim.class_name and (why := self.unreadable.get(CLASSES)):
                return _cannot_read("storage classes", why)
            if not claim.is_bound and (claim.spec.volume_name or not self._waits_for_consumer(claim)):
                return "pod has unbound immediate PersistentVolumeClaims"
        for claim in found:
            if why := self.unreadable.get(VOLUMES):
                return _cannot_read("volumes", why)
            if claim.is_bound and self._volume(claim.spec.volume_name) is None:
                return f'persistentvolume "{claim.spec.volume_name}" not found'
        return ""

    def _need(self, claims: Iterable[str]) -> VolumeNeed:
        found = [claim for key in dict.fromkeys(claims) if (claim := self._claim(key)) is not None]
        bound = [volume for claim in found if claim.is_bound and (volume := self._volume(claim.spec.volume_name))]
        unbound = sorted((claim for claim in found if not claim.is_bound), key=lambda claim: claim.size)
        return VolumeNeed(
            affinities=tuple(terms for volume in bound if (terms := volume.terms()) is not None),
            zones=tuple(zone for volume in bound for zone in _zones(volume.metadata)),
            unbound=tuple(map(self._unbound, unbound)),
            once=tuple(sorted(claim.key for claim in found if "ReadWriteOncePod" in claim.spec.access_modes)),
            attached=tuple(sorted((claim.key, driver) for claim in found if (driver := self.driver(claim.key)))),
        )

    def _unbound(self, claim: ClaimView) -> UnboundClaim:
        named = self._class(claim.class_name)
        makes = named is not None and named.makes_volumes
        asked = self._asked.get(claim.key)
        return UnboundClaim(
            key=claim.key,
            volumes=tuple(FreeVolume(volume.metadata.name, volume.terms()) for volume in self._free(claim)),
            provisioner=named.provisioner if named is not None and makes else "",
            topologies=named.topologies() if named is not None else (),
            capacities=self._capacities(named, claim) if named is not None and makes else None,
            selected=asked[0] if asked is not None else claim.metadata.annotations.get(SELECTED_NODE, ""),
        )

    def _free(self, claim: ClaimView) -> list[VolumeView]:
        """The volumes that a claim could have, the smallest first; one that is meant for it comes before all."""
        promised = {name for name, (whose, _) in self._promised.items() if whose != claim.key}
        return free_volumes(claim, (one for one in self._all_volumes() if one.metadata.name not in promised))

    def _capacities(self, named: ClassView, claim: ClaimView) -> tuple[LabelSelectorView, ...] | None:
        """Where a driver that counts its storage has room for the claim."""
        driver = self._objects[DRIVERS].get(named.provisioner)
        if not isinstance(driver, CsiDriverView) or not driver.spec.storage_capacity or not claim.size:
            return None
        objects = self._objects[CAPACITIES].values()
        said = [one for one in objects if isinstance(one, CapacityView) and one.storage_class_name == claim.class_name]
        return tuple(one.node_topology for one in said if one.node_topology is not None and one.holds(claim.size))

    def _interned(self, need: VolumeNeed) -> VolumeNeed:
        """The same object for equal needs."""
        if len(self._needs) > _KEPT:
            self._needs.clear()
        return self._needs.setdefault(_encode(need), need)

    def _waits_for_consumer(self, claim: ClaimView) -> bool:
        named = self._class(claim.class_name)
        if claim.key in self.thought_of:
            return True
        return named is not None and named.waits_for_consumer

    def _claim(self, key: str) -> ClaimView | None:
        found = self._objects[CLAIMS].get(key)
        return found if isinstance(found, ClaimView) else None

    def _volume(self, name: str) -> VolumeView | None:
        found = self._objects[VOLUMES].get(name)
        return found if isinstance(found, VolumeView) else None

    def _class(self, name: str) -> ClassView | None:
        found = self._objects[CLASSES].get(name)
        return found if isinstance(found, ClassView) else None

    def _all_volumes(self) -> Iterator[VolumeView]:
        for name in sorted(self._objects[VOLUMES]):
            if (found := self._volume(name)) is not None:
                yield found

    def waiting_for(self, claims: Iterable[str]) -> str:
        """What is awaited for claims that are being bound, in words."""
        told = []
        for key in claims:
            claim = self._claim(key)
            named = self._class(claim.class_name) if claim is not None else None
            name = key.rpartition("/")[2]
            if claim is None or claim.is_bound:
                continue
            if named is not None and named.makes_volumes and key in self._made():
                told.append(f'persistentvolumeclaim "{name}" waits for provisioner "{named.provisioner}" to make it')
            else:
                told.append(f'persistentvolumeclaim "{name}" waits for a volume controller to bind it')
        return ", ".join(told)

    def _made(self) -> set[str]:
        marked = {
            key
            for key, claim in self._objects[CLAIMS].items()
            if isinstance(claim, ClaimView) and SELECTED_NODE in claim.metadata.annotations
        }
        return marked | set(self._asked)


STORAGE_KINDS = tuple(_VIEWS)


def volumes_in(objects: Iterable[tuple[str, dict[str, Any]]]) -> VolumeIndex:
    """Objects of these kinds, each with its kind, as they are in a cluster."""
    index = VolumeIndex()
    for kind, raw in objects:
        index.seen(kind, _key(kind, raw, "default"), encode_json(raw))
    return index


def think_of(index: VolumeIndex, objects: Iterable[tuple[str, dict[str, Any]]], namespace: str) -> None:
    """Objects that somebody may create: claims among them take the volume that is best for their pod's node."""
    for kind, raw in objects:
        key = _key(kind, raw, namespace)
        meta = {
            **(raw.get("metadata") or {}),
            **({} if kind in _CLUSTER_WIDE else {"namespace": key.partition("/")[0]}),
        }
        phase = {"status": {"phase": "Available"}} if kind == VOLUMES else {}
        if index.seen(kind, key, encode_json({**phase, **raw, "metadata": meta})) and kind == CLAIMS:
            index.thought_of.add(key)


def _key(kind: str, raw: dict[str, Any], namespace: str) -> str:
    meta = raw.get("metadata") or {}
    name = str(meta.get("name", ""))
    return name if kind in _CLUSTER_WIDE else f"{meta.get('namespace') or namespace}/{name}"


def _cannot_read(what: str, why: str) -> str:
    return f"this scheduler cannot read {what} ({why})"


def _zones(metadata: ObjectMeta) -> Topology:
    """What a volume's labels say of zones; several are joined by two underscores."""
    found = ((label, metadata.labels[label]) for label in ZONES if label in metadata.labels)
    return tuple((label, tuple(sorted(text.split("__")))) for label, text in found if text)


def _revision(view: View) -> int:
    text = view.metadata.resource_version  # type: ignore[attr-defined]
    return int(text) if text.isdigit() else 0
