"""Manifests against a copy of a cluster: where each pod would run, whom it would evict, or why it fits nowhere.

For `kubeqos simulate fit`, `kubeqos classify` and the dashboard's "what if".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kubeqos.errors import InputError
from kubeqos.manifests import Manifest
from kubeqos.model.objects import PodView
from kubeqos.placement.growth.groups import Waiting
from kubeqos.rules.priority import PriorityClasses, resolve_priority
from kubeqos.rules.qos import podqos
from kubeqos.rules.storage import ephemeral_claim
from kubeqos.scheduler.reading.claims import CLAIM_KINDS, Claimed, claimed_in
from kubeqos.scheduler.reading.snapshot import shape_with_claims
from kubeqos.scheduler.reading.storage import CLAIMS, STORAGE_KINDS, VolumeIndex, think_of
from kubeqos.simulation.rehearsal import Rehearsed

MOST_REPLICAS = 10_000
_TEMPLATED = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job", "PodTemplate")


def pods_of(
    manifests: Sequence[Manifest],
    priorities: Iterable[dict[str, Any]],
    namespace: str,
    claimed: Claimed | None = None,
    volumes: VolumeIndex | None = None,
) -> list[Waiting]:
    """Every pod that the manifests would make, with the priority classes and claims of the cluster and their own.

    `volumes` are those of the cluster; those of the manifests are added to them.
    """
    stored = [(one.kind, one.raw) for one in manifests if one.kind in STORAGE_KINDS]
    if volumes is not None or stored:
        volumes = VolumeIndex() if volumes is None else volumes
        think_of(volumes, stored, namespace)
    with_own = {**(claimed or {}), **claims_of(manifests, namespace)}
    own = [manifest.raw for manifest in manifests if manifest.kind == "PriorityClass"]
    classes = PriorityClasses.of([*own, *priorities])
    return [
        pod
        for manifest in manifests
        if manifest.kind not in ("PriorityClass", "Namespace", *CLAIM_KINDS, *STORAGE_KINDS)
        for pod in _pods(manifest, classes, namespace, with_own, volumes)
    ]


def claims_of(manifests: Sequence[Manifest], namespace: str) -> Claimed:
    """The claims, templates, classes and parameters among manifests."""
    return claimed_in(((one.kind, one.raw) for one in manifests if one.kind in CLAIM_KINDS), namespace)


def pod_of(manifest: Manifest) -> PodView:
    """The pod in a manifest, or the pod that a workload's template makes."""
    raw = manifest.raw
    if manifest.kind in _TEMPLATED:
        holder = raw if manifest.kind == "PodTemplate" else raw.get("spec") or {}
        template = holder.get("template") or {}
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        raw = {"metadata": {"name": manifest.name, "annotations": annotations}, "spec": template.get("spec") or {}}
    elif manifest.kind != "Pod":
        raise InputError(
            f"cannot classify a {manifest.kind}",
            where=manifest.source,
            remedy="give a Pod or a workload with a pod template",
        )
    try:
        spec = raw.get("spec") or {}
        podqos.default_requests(spec)
        podqos.default_pod_level(spec)
        return PodView.of(raw)
    except InputError as error:
        where = f"{manifest.source}: {manifest.kind} {manifest.name!r}"
        raise InputError(error.what, where=f"{where}: {error.where}" if error.where else where) from error
    except (AttributeError, TypeError) as error:
        raise InputError(f"{manifest.kind} {manifest.name!r} is not well-formed", where=manifest.source) from error


def _pods(
    manifest: Manifest, classes: PriorityClasses, namespace: str, claimed: Claimed, volumes: VolumeIndex | None
) -> Iterator[Waiting]:
    """The pods of one manifest, as many as it asks for."""
    view = pod_of(_with_priority(manifest, classes))
    home = str((manifest.raw.get("metadata") or {}).get("namespace") or namespace)
    labels = view.metadata.labels or _template(manifest).get("metadata", {}).get("labels") or {}
    raw_labels = {str(key): str(value) for key, value in labels.items()}
    placed = _placed_in(view, home, raw_labels)
    if volumes is not None:
        think_of(volumes, ((CLAIMS, raw) for raw in _ephemeral(placed)), home)
    shape, waits = shape_with_claims(placed, claimed, volumes)
    count = _replicas(manifest)
    for number in range(1, count + 1):
        name = f"{home}/{manifest.name}" + (f"-{number}" if count > 1 else "")
        yield Waiting(f"new:{manifest.kind}:{name}", name, shape, waits)


def _ephemeral(pod: PodView) -> Iterator[dict[str, Any]]:
    """The claims that are made for a pod alone."""
    for volume in pod.spec.volumes:
        if (own := volume.get("ephemeral")) is not None:
            name = ephemeral_claim(pod.metadata.name, volume.get("name", ""))
            metadata = {"name": name, "ownerReferences": [{"uid": pod.metadata.uid}]}
            yield {"metadata": metadata, "spec": (own.get("volumeClaimTemplate") or {}).get("spec") or {}}


def _placed_in(view: PodView, namespace: str, labels: dict[str, str]) -> PodView:
    metadata = msgspec.structs.replace(view.metadata, namespace=namespace, labels=labels)
    return msgspec.structs.replace(view, metadata=metadata)


def _template(manifest: Manifest) -> dict[str, Any]:
    holder = manifest.raw if manifest.kind == "PodTemplate" else manifest.raw.get("spec")
    found = holder.get("template") if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


def _with_priority(manifest: Manifest, classes: PriorityClasses) -> Manifest:
    holder = manifest.raw if manifest.kind == "Pod" else _template(manifest)
    spec = holder.get("spec")
    if isinstance(spec, dict) and ("priorityClassName" in spec or "priority" not in spec):
        wrong = resolve_priority(spec, classes)
        if wrong is not None:
            raise InputError(wrong, where=f"{manifest.source}: {manifest.kind} {manifest.name!r}")
    return manifest


def _replicas(manifest: Manifest) -> int:
    spec = manifest.raw.get("spec")
    count = spec.get("replicas", spec.get("parallelism", 1)) if isinstance(spec, dict) else 1
    if manifest.kind in ("Pod", "PodTemplate", "DaemonSet"):
        return 1
    if not isinstance(count, int) or not 0 <= count <= MOST_REPLICAS:
        raise InputError(
            f"{count!r} replicas",
            where=manifest.source,
            remedy=f"a whole number up to {MOST_REPLICAS} can be rehearsed",
        )
    return count


def plain(one: Rehearsed) -> dict[str, Any]:
    """As data."""
    return {"pod": one.pod, "fits": one.fits, "node": one.node, "evicts": list(one.evicts), "because": one.because}
