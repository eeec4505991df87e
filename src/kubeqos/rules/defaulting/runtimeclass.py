"""What a RuntimeClass adds to the pods that name it: its overhead, where such pods can run, and who runs them.

Called by admission on creates. A pod that says something else than its class is refused by the caller, in these words.
The handler is written down on the pod: scheduler, node and whoever explains them then speak of the same one, also when
the RuntimeClass is gone or made anew with another (KEP-3008, Beta: integration with RuntimeClasses).
"""

from __future__ import annotations

from typing import Any

from kubeqos.model.annotations.wellknown import RUNTIME_HANDLER_ANNOTATION
from kubeqos.model.objects import PodView

Raw = dict[str, Any]
DEFAULT_HANDLER = ""


def handler_of(pod: PodView) -> str | None:
    """The runtime handler of a pod; None where the API server has not said which one its RuntimeClass names."""
    if not pod.spec.runtime_class_name:
        return DEFAULT_HANDLER
    return pod.metadata.annotations.get(RUNTIME_HANDLER_ANNOTATION)


def write_handler(metadata: Raw, handler: str | None) -> None:
    """Let a pod say which handler runs it; without one nobody may claim any."""
    annotations = dict(metadata.get("annotations") or {})
    if annotations.get(RUNTIME_HANDLER_ANNOTATION) == handler:
        return
    if handler is None:
        del annotations[RUNTIME_HANDLER_ANNOTATION]
    else:
        annotations[RUNTIME_HANDLER_ANNOTATION] = handler
    metadata["annotations"] = annotations
    if not annotations:
        del metadata["annotations"]


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
