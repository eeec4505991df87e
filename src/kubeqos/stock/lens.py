"""Objects of a stock cluster as those of the embedded home, so that one set of views serves both. Pure.

What a Node says there in annotations and in its status, NodeQOS says here; what pods ask for there by field, they ask
for here by annotation; what a ResourceQuota says of classes is a QOSClassQuota. Called by `cli.reader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubeqos.errors import InputError
from kubeqos.model.annotations.wellknown import MACHINE_ANNOTATION
from kubeqos.stock.asking import asks
from kubeqos.stock.convert import to_fields

Raw = dict[str, Any]
_LISTS = {"pod": "podQoSResources", "container": "containerQoSResources"}


def is_native(node: Mapping[str, Any]) -> bool:
    """Whether a Node says itself what a NodeQOS would say."""
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    return MACHINE_ANNOTATION in annotations or "qosResources" in (node.get("status") or {})


def native_node(node: Raw, report: Mapping[str, Any] | None) -> Raw:
    """A Node with what the agent on it reports."""
    told = (report or {}).get("status") or {}
    if not told:
        return node
    metadata, status = node["metadata"], node.get("status") or {}
    annotations = {**(metadata.get("annotations") or {}), **(told.get("topology") or {})}
    conditions = [*(status.get("conditions") or ()), *(told.get("conditions") or ())]
    offered: dict[str, dict[str, Raw]] = {"pod": {}, "container": {}}
    for one in told.get("classes") or ():
        rows = offered[one["level"]]
        row = rows.setdefault(one["resource"], {"name": one["resource"], "mutable": one.get("mutable", False)})
        cls = {"name": one["class"], **({"capacity": one["capacity"]} if one.get("capacity") else {})}
        row.setdefault("classes", []).append(cls)
    classes = {_LISTS[level]: list(rows.values()) for level, rows in offered.items() if rows}
    return {
        **node,
        "metadata": {**metadata, "annotations": annotations},
        "status": {**status, "conditions": conditions, "qosResources": classes},
    }


def native_pod(pod: Raw) -> Raw:
    """A pod with the classes that its annotations ask for in fields; one that asks for nonsense is shown as it is."""
    if not asks(pod):
        return pod
    try:
        # A list's items do not say what they are.
        [found] = to_fields([{**pod, "kind": "Pod"}])
    except InputError:
        return pod
    return found


def native_quotas(quotas: Iterable[Raw], own: Iterable[Raw]) -> list[Raw]:
    """ResourceQuotas with what the QOSClassQuotas of the same name say of classes, and those that stand alone."""
    found = {_key(one): one for one in quotas}
    for one in own:
        known = found.get(_key(one))
        if known is None:
            found[_key(one)] = {**one, "apiVersion": "v1", "kind": "ResourceQuota"}
            continue
        parts = {part: {**(one.get(part) or {}), **(known.get(part) or {})} for part in ("spec", "status")}
        found[_key(one)] = {**known, **parts}
    return [found[key] for key in sorted(found)]


def _key(raw: Mapping[str, Any]) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]
