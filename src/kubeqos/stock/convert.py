"""Manifests of the embedded home as those of a stock cluster, and back. Pure; called by `kubeqos convert`.

Pods and whatever has a pod template: the fields `qosResources` become annotations. Quotas and limit ranges: what they
say of classes becomes an object of its own (`QOSClassQuota`, `QOSClassLimits`) of the same name; the rest stays what it
was, and an object of which nothing is left goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kubeqos.codec import copied
from kubeqos.stock.asking import Asked, is_request, read, written
from kubeqos.stock.names import API_VERSION, LIMITS, QUOTA

Raw = dict[str, Any]
_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    **dict.fromkeys(
        ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Job"), ("spec", "template")
    ),
}
"""Where an object keeps a pod."""
_SCOPES = ("scopes", "scopeSelector")


def to_stock(objects: Iterable[Raw]) -> list[Raw]:
    """Objects with fields as objects with annotations and kinds of our own."""
    return [made for raw in objects for made in _to_stock(copied(raw))]


def to_fields(objects: Iterable[Raw]) -> list[Raw]:
    """Objects with annotations and kinds of our own as objects with fields; those that belong together are joined."""
    out: list[Raw] = []
    by_name: dict[tuple[str, str, str], Raw] = {}
    for raw in map(copied, objects):
        native = _native(raw)
        key = (native.get("kind", ""), *_place(native))
        if native.get("kind") in ("ResourceQuota", "LimitRange") and key in by_name:
            _join(by_name[key], native)
            continue
        by_name[key] = native
        out.append(native)
    return out


def _to_stock(raw: Raw) -> Iterator[Raw]:
    kind = raw.get("kind")
    if kind in _TEMPLATES:
        if (pod := _pod_of(raw)) is not None:
            _annotate(pod)
        yield raw
    elif kind == "ResourceQuota":
        yield from _split_quota(raw)
    elif kind == "LimitRange":
        yield from _split_limits(raw)
    else:
        yield raw


def _native(raw: Raw) -> Raw:
    if raw.get("kind") in _TEMPLATES:
        if (pod := _pod_of(raw)) is not None:
            _take_annotations(pod)
        return raw
    if raw.get("apiVersion") == API_VERSION and raw.get("kind") in (QUOTA, LIMITS):
        kind = "ResourceQuota" if raw["kind"] == QUOTA else "LimitRange"
        return {**raw, "apiVersion": "v1", "kind": kind}
    return raw


def _pod_of(raw: Raw) -> Raw | None:
    for key in _TEMPLATES[raw["kind"]]:
        raw = raw.get(key) or {}
    return raw if raw.get("spec") else None


def _containers(pod: Raw) -> list[Raw]:
    return [*(pod["spec"].get("initContainers") or ()), *(pod["spec"].get("containers") or ())]


def _annotate(pod: Raw) -> None:
    asked = Asked(
        _requests(pod["spec"].pop("qosResources", None)),
        {each.get("name", ""): _requests((each.get("resources") or {}).pop("qosResources", None))
         for each in _containers(pod)},
    )  # fmt: skip
    for container in _containers(pod):
        if container.get("resources") == {}:
            del container["resources"]
    if asked:
        metadata = pod.setdefault("metadata", {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **written(asked)}


def _take_annotations(pod: Raw) -> None:
    metadata = pod.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    asked = read(annotations, {each.get("name", "") for each in _containers(pod)})
    if not asked:
        return
    left = {key: value for key, value in annotations.items() if not is_request(key)}
    metadata["annotations"] = left
    if not left:
        del metadata["annotations"]
    if asked.pod:
        pod["spec"]["qosResources"] = _listed(asked.pod)
    for container in _containers(pod):
        if classes := asked.containers.get(container.get("name", "")):
            container["resources"] = {**(container.get("resources") or {}), "qosResources": _listed(classes)}


def _requests(listed: Any) -> dict[str, str]:
    return {one.get("name", ""): one.get("class", "") for one in listed or ()}


def _listed(classes: Mapping[str, str]) -> list[Raw]:
    return [{"name": name, "class": cls} for name, cls in classes.items()]


def _split_quota(raw: Raw) -> Iterator[Raw]:
    spec = raw.get("spec") or {}
    classes = spec.pop("qosResources", None)
    if classes is None or spec.get("hard"):
        yield raw
    if classes is not None:
        # Scopes say which pods are counted, so both halves keep them.
        kept = {name: spec[name] for name in _SCOPES if name in spec}
        yield _own(raw, QUOTA, {**kept, "qosResources": classes})


def _split_limits(raw: Raw) -> Iterator[Raw]:
    items = (raw.get("spec") or {}).get("limits") or []
    classes = [{"type": item.get("type"), "qosResources": item.pop("qosResources")} for item in items
               if "qosResources" in item]  # fmt: skip
    rest = [item for item in items if set(item) - {"type"}]
    if rest or not classes:
        yield {**raw, "spec": {**(raw.get("spec") or {}), "limits": rest or items}}
    if classes:
        yield _own(raw, LIMITS, {"limits": classes})


def _own(raw: Raw, kind: str, spec: Raw) -> Raw:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": copied(raw.get("metadata") or {}), "spec": spec}


def _place(raw: Raw) -> tuple[str, str]:
    metadata = raw.get("metadata") or {}
    return metadata.get("namespace", ""), metadata.get("name", "")


def _join(first: Raw, second: Raw) -> None:
    """Put the halves of a quota or limit range together again."""
    into, spec = first.setdefault("spec", {}), second.get("spec") or {}
    if first["kind"] == "ResourceQuota":
        into.update({name: value for name, value in spec.items() if name not in into})
        return
    for item in spec.get("limits") or ():
        same = next((one for one in into.setdefault("limits", []) if one.get("type") == item.get("type")), None)
        if same is None:
            into["limits"].append(item)
        else:
            same.update({name: value for name, value in item.items() if name not in same})
