"""`kubeqos simulate fit`: manifests against a copy of the cluster, or against node manifests alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeqos.cli.connection import Target
from kubeqos.cli.output import table
from kubeqos.cli.rehearse.claimed import claimed_now, volumes_now
from kubeqos.errors import InputError
from kubeqos.manifests import Manifest, read
from kubeqos.scheduler.reading.claims import Claimed
from kubeqos.scheduler.reading.snapshot import snapshot
from kubeqos.scheduler.reading.storage import VolumeIndex
from kubeqos.simulation.rehearsal import Rehearsed, rehearse_pods
from kubeqos.views.fitting import claims_of, pods_of

_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def rehearsed(target: Target, files: Sequence[str], node_files: Sequence[str]) -> list[Rehearsed]:
    """The answer for every pod that the manifests would make."""
    manifests = read(files)
    priorities: list[dict[str, Any]] = []
    claimed: Claimed = {}
    volumes: VolumeIndex | None = None
    if node_files:
        nodes, pods, namespace = _offline(read(node_files))
        claimed = claims_of(manifests, namespace)
    else:
        nodes, pods = target.reader.items("/api/v1/nodes"), target.reader.items("/api/v1/pods")
        priorities = target.reader.items(_PRIORITIES)
        namespace = target.namespace
        claimed, volumes = claimed_now(target), volumes_now(target)
    cluster, _ = snapshot(nodes, pods, claimed, volumes)
    asked = pods_of(manifests, priorities, namespace, claimed, volumes)
    if not asked:
        raise InputError("no pods found", where=", ".join(files), remedy="give a Pod or a workload with a pod template")
    return rehearse_pods(cluster, asked)


def _offline(manifests: list[Manifest]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """Nodes, and the pods that run on them, from files."""
    found: dict[str, list[dict[str, Any]]] = {"Node": [], "Pod": []}
    for number, manifest in enumerate(manifests):
        if manifest.kind not in found:
            raise InputError(f"--nodes takes nodes and their pods, not a {manifest.kind}", where=manifest.source)
        metadata = {"namespace": "default", "uid": f"given-{number}", **(manifest.raw.get("metadata") or {})}
        raw = {**manifest.raw, "metadata": metadata}
        status = raw.get("status") or {}
        if manifest.kind == "Node":
            allocatable = status.get("allocatable") or status.get("capacity") or {}
            raw["status"] = {**status, "allocatable": {"pods": "110", **allocatable}}
        found[manifest.kind].append(raw)
    return found["Node"], found["Pod"], "default"


def as_text(answers: Sequence[Rehearsed], *, wide: bool = False) -> str:
    """Where each would run and whom it would evict, then why the others would not; or why, for each of them."""
    rows = [
        [one.pod, one.node or "<nowhere>", ", ".join(one.evicts), *([one.because] if wide else ())] for one in answers
    ]
    lines = [table(["pod", "would run on", "would evict", *(["because"] if wide else ())], rows)]
    if wide:
        return lines[0]
    refused: dict[str, list[str]] = {}
    for one in answers:
        if not one.fits:
            refused.setdefault(one.because, []).append(one.pod)
    for because, pods in refused.items():
        many = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        lines += ["", f"{pods[0]}{many}: {because}"]
    return "\n".join(lines)
