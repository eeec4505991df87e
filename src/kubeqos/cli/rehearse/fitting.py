"""`kubeqos simulate fit`: manifests against a copy of the cluster, or against node manifests alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubeqos.cli.connection import Target
from kubeqos.cli.output import table
from kubeqos.cli.rehearse.classify import pod_of
from kubeqos.cli.rehearse.simulate import snapshot
from kubeqos.errors import InputError
from kubeqos.manifests import Manifest, read
from kubeqos.model.objects import PodView
from kubeqos.placement.shape import compile_shape
from kubeqos.rules.priority import PriorityClasses, resolve_priority
from kubeqos.simulation.rehearsal import Rehearsed, rehearse_pods
from kubeqos.simulation.scaleup import Waiting

_PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
MOST_REPLICAS = 10_000


def rehearsed(target: Target, files: Sequence[str], node_files: Sequence[str]) -> list[Rehearsed]:
    """The answer for every pod that the manifests would make."""
    manifests = read(files)
    priorities = [manifest.raw for manifest in manifests if manifest.kind == "PriorityClass"]
    if node_files:
        nodes, pods, namespace = _offline(read(node_files))
    else:
        nodes, pods = target.api.items("/api/v1/nodes"), target.api.items("/api/v1/pods")
        priorities += target.api.items(_PRIORITIES)
        namespace = target.namespace
    cluster, _ = snapshot(nodes, pods)
    classes = PriorityClasses.of(priorities)
    asked = [
        pod
        for manifest in manifests
        if manifest.kind not in ("PriorityClass", "Namespace")
        for pod in _pods(manifest, classes, namespace)
    ]
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


def _pods(manifest: Manifest, classes: PriorityClasses, namespace: str) -> Iterator[Waiting]:
    """The pods of one manifest, as many as it asks for."""
    view = pod_of(_with_priority(manifest, classes))
    home = str((manifest.raw.get("metadata") or {}).get("namespace") or namespace)
    labels = view.metadata.labels or _template(manifest).get("metadata", {}).get("labels") or {}
    raw_labels = {str(key): str(value) for key, value in labels.items()}
    shape = compile_shape(_placed_in(view, home, raw_labels))
    count = _replicas(manifest)
    for number in range(1, count + 1):
        name = f"{home}/{manifest.name}" + (f"-{number}" if count > 1 else "")
        yield Waiting(f"new:{manifest.kind}:{name}", name, shape)


def _placed_in(view: PodView, namespace: str, labels: dict[str, str]) -> PodView:
    import msgspec

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


def plain(one: Rehearsed) -> dict[str, Any]:
    """As data."""
    return {"pod": one.pod, "fits": one.fits, "node": one.node, "evicts": list(one.evicts), "because": one.because}
