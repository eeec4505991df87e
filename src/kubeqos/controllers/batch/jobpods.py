"""What a Job's controller has to know about its pods: their index, when they finished, what its failure policy says,
and sets of indexes as the status writes them (`0-3,7`). Pure; `jobs` decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubeqos.codec import JsonObject
from kubeqos.controllers.podstate import condition, is_going, phase
from kubeqos.model.timestamps import seconds_of

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def is_tracked(pod: JsonObject) -> bool:
    """Whether the pod waits to be counted."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def index_of(pod: JsonObject) -> int | None:
    """The completion index that a pod works on."""
    text = _annotation(pod, INDEX)
    return int(text) if text.isdigit() else None


def failures_of(pod: JsonObject, annotation: str = INDEX_FAILURES) -> int:
    """How often the pod's index had failed when the pod was made."""
    text = _annotation(pod, annotation)
    return int(text) if text.isdigit() else 0


def _annotation(pod: JsonObject, name: str) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(name, ""))


def finished_at(pod: JsonObject) -> float:
    """When the pod finished, by the best source there is."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [((one.get("state") or {}).get("terminated") or {}).get("finishedAt") for one in statuses]
    if ends and all(ends):
        return max(seconds_of(str(end)) or 0.0 for end in ends)
    ready = condition(pod, "Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return seconds_of(ready["lastTransitionTime"]) or 0.0
    metadata = pod["metadata"]
    if is_going(pod):
        return (seconds_of(metadata["deletionTimestamp"]) or 0.0) - int(metadata.get("deletionGracePeriodSeconds", 0))
    return seconds_of(metadata.get("creationTimestamp") or "") or 0.0


def restarts(pod: JsonObject) -> int:
    """How often containers of a pod that still runs were started again."""
    status = pod.get("status") or {}
    statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return sum(int(one.get("restartCount") or 0) for one in statuses)


# -- the failure policy ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the failure policy says about a failed pod: Count, Ignore, FailIndex or FailJob."""

    action: str = "Count"
    because: str = ""


def verdict(job: JsonObject, pod: JsonObject) -> Verdict:
    """The first rule that matches decides; a pod that no rule speaks of counts."""
    policy = (job.get("spec") or {}).get("podFailurePolicy") or {}
    if phase(pod) != "Failed":
        return Verdict()
    name = f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
    for place, rule in enumerate(policy.get("rules") or ()):
        because = _exit_code(rule.get("onExitCodes"), pod) or _condition(rule.get("onPodConditions"), pod)
        if because:
            action = str(rule.get("action", "Count"))
            return Verdict(action, f"{because.format(pod=name)} matching {action} rule at index {place}")
    return Verdict()


def _exit_code(wanted: JsonObject | None, pod: JsonObject) -> str:
    if not wanted:
        return ""
    status = pod.get("status") or {}
    for one in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        code = ((one.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        if not code or wanted.get("containerName") not in (None, one.get("name")):
            continue
        listed = code in (wanted.get("values") or ())
        if listed is (wanted.get("operator") == "In"):
            return f"Container {one.get('name')} for pod {{pod}} failed with exit code {code}"
    return ""


def _condition(wanted: Iterable[JsonObject] | None, pod: JsonObject) -> str:
    for pattern in wanted or ():
        found = condition(pod, str(pattern.get("type")))
        if found is not None and found.get("status") == pattern.get("status", "True"):
            return f"Pod {{pod}} has condition {pattern.get('type')}"
    return ""


# -- sets of indexes -------------------------------------------------------------------------------------------


def parse_indexes(text: str, completions: int) -> set[int]:
    """`0-3,7` as a set; indexes that the job does not have any longer are left out."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), completions - 1) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """A set of indexes as `0-3,7`; two neighbours are written apart, as Kubernetes does."""
    parts: list[str] = []
    run: list[int] = []
    for index in [*sorted(indexes), -1]:
        if run and index != run[-1] + 1:
            parts.append(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)))
            run = []
        run.append(index)
    return ",".join(parts)
