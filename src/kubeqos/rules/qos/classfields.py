"""Where an object names QoS classes (KEP-3008): in pods, in templates of pods, in limits, quotas and statuses.

Asked by admission, which refuses, keeps or restores these fields as a whole.
"""

from __future__ import annotations

from typing import Any

from kubeqos.rules.requests import Raw


def class_fields(raw: Raw) -> dict[str, Any]:
    """Every field of KEP-3008 that an object sets, by its path: in pods and their templates, limits and quotas."""
    spec = raw.get("spec") or {}
    found = _fields_of_pod(spec, "spec")
    for index, item in enumerate(spec.get("limits") or ()):
        if item.get("qosResources"):
            found[f"spec.limits[{index}].qosResources"] = item["qosResources"]
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    for holder, path in ((spec, "spec.template"), (raw, "template"), (job, "spec.jobTemplate.spec.template")):
        template = holder.get("template")
        if isinstance(template, dict):
            found |= _fields_of_pod(template.get("spec") or {}, f"{path}.spec")
    return found


def _fields_of_pod(spec: Raw, path: str) -> dict[str, Any]:
    found = {f"{path}.qosResources": spec["qosResources"]} if spec.get("qosResources") else {}
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or ()):
            if asked := (container.get("resources") or {}).get("qosResources"):
                found[f"{path}.{key}[{index}].resources.qosResources"] = asked
    return found


def parts_of_status(raw: Raw) -> list[Raw]:
    """The parts of a status that may name classes."""
    status = raw.get("status") or {}
    return [status, *(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def status_tells_classes(raw: Raw) -> bool:
    return any(part.get("qosResources") for part in parts_of_status(raw))
