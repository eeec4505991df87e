"""Pod priority: the number behind `priorityClassName`, and who preempts whom.

Called by admission when a pod is created or updated. Two classes are built in and exist in every cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.objects import PriorityClassView

Raw = dict[str, Any]
_PREEMPT = "PreemptLowerPriority"
SYSTEM_CLASSES: Mapping[str, int] = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}


@dataclass(frozen=True, slots=True)
class PriorityClasses:
    """Every PriorityClass by name as (value, preemption policy), and the global default, if there is one."""

    by_name: Mapping[str, tuple[int, str]] = field(
        default_factory=lambda: {name: (value, _PREEMPT) for name, value in SYSTEM_CLASSES.items()}
    )
    default: str = ""

    @staticmethod
    def of(objects: Iterable[Raw]) -> PriorityClasses:
        """Compile the stored classes. Of several global defaults, the one with the lowest value counts."""
        by_name = dict(PriorityClasses().by_name)
        defaults: list[tuple[int, str]] = []
        for raw in objects:
            view = PriorityClassView.of(raw)
            by_name[view.metadata.name] = (view.value, view.preemption_policy)
            if view.global_default:
                defaults.append((view.value, view.metadata.name))
        return PriorityClasses(by_name, min(defaults)[1] if defaults else "")


def resolve_priority(spec: Raw, classes: PriorityClasses) -> str | None:
    """Write priority, class name and preemption policy into the raw spec of a new pod; returns what is wrong."""
    name = spec.get("priorityClassName") or classes.default
    if not name:
        value, policy = 0, _PREEMPT
    elif name in classes.by_name:
        value, policy = classes.by_name[name]
        spec["priorityClassName"] = name
    else:
        return f"no PriorityClass with name {name} was found"
    given = spec.get("priority")
    if given is not None and given != value:
        return _computed(f"integer value of priority ({given})", value)
    spec["priority"] = value
    stated = spec.get("preemptionPolicy")
    if stated is not None and stated != policy:
        return _computed(f"string value of PreemptionPolicy ({stated})", policy)
    spec["preemptionPolicy"] = policy
    return None


def _computed(what: str, value: object) -> str:
    return (
        f"the {what} must not be provided in pod spec; "
        f"priority admission controller computed {value} from the given PriorityClass name"
    )


def keep_priority(spec: Raw, old_spec: Raw) -> None:
    """An update that leaves out what admission once filled in keeps it."""
    for key in ("priority", "preemptionPolicy"):
        if spec.get(key) is None and old_spec.get(key) is not None:
            spec[key] = old_spec[key]
