"""What a RuntimeClass adds to the pods that name it: its overhead, and where such pods can run.

Called by admission on creates. A pod that says something else than its class is refused by the caller, in these words.
"""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]


def apply_runtime_class(spec: Raw, runtime_class: Raw) -> str | None:
    """Complete the spec of a pod, in place; the reason why that cannot be done."""
    fixed = (runtime_class.get("overhead") or {}).get("podFixed")
    if fixed and not spec.get("overhead"):
        spec["overhead"] = dict(fixed)
    scheduling = runtime_class.get("scheduling") or {}
    wanted = scheduling.get("nodeSelector") or {}
    have = spec.get("nodeSelector") or {}
    for key, value in wanted.items():
        if have.get(key, value) != value:
            conflict = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}"
            return f"pod rejected: {conflict}; pod.spec.nodeSelector[{key}] = {have[key]}"
    if wanted:
        spec["nodeSelector"] = {**have, **wanted}
    tolerated = scheduling.get("tolerations") or []
    missing = [one for one in tolerated if one not in (spec.get("tolerations") or ())]
    if missing:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *missing]
    return None


def overhead_refusal(overhead: Raw, runtime_class: Raw) -> str | None:
    """Why a pod may not say this about its overhead: its class says something else, or nothing."""
    fixed = (runtime_class.get("overhead") or {}).get("podFixed")
    if not fixed:
        return "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    if fixed != overhead:
        return "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
    return None
