"""What a Job needs: pods to make, pods to end, and the status that counts every finished pod exactly once. Pure.

A pod carries a finalizer until it is counted. Its uid is written into `status.uncountedTerminatedPods` first, then its
finalizer is taken off, and when that is seen the uid becomes a number: whoever stops in between begins again where it
was. How a job ends is written twice, too: as FailureTarget or SuccessCriteriaMet while its last pods stop, as Failed or
Complete when none is left. The loop is `jobcontroller`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kubeqos.client.resources import JOBS, PODS
from kubeqos.codec import JsonObject
from kubeqos.controllers.actions import Create, Delete, Patch, Tell, change, deletion
from kubeqos.controllers.batch.jobpods import (
    FINALIZER,
    INDEX,
    INDEX_FAILURES,
    INDEX_IGNORED,
    failures_of,
    finished_at,
    format_indexes,
    index_of,
    is_tracked,
    parse_indexes,
    restarts,
    verdict,
)
from kubeqos.controllers.podstate import (
    condition,
    is_active,
    is_going,
    is_ready,
    is_terminal,
    phase,
    with_condition,
)
from kubeqos.controllers.workloads.replicas import BURST, pod_from_template
from kubeqos.model.timestamps import seconds_of, timestamp

MANAGED_BY = "kubernetes.io/job-controller"
BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10.0, 600.0
CLOCK_SKEW_SECONDS = 60.0  # between a node and us, that is nothing to wonder about
UNCOUNTED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to do about a job, in this order, and when to look again though nothing has changed."""

    status: Patch | None = None
    release: Sequence[Patch] = ()
    delete: Sequence[Delete] = ()
    create: Sequence[Create] = ()
    tell: Sequence[Tell] = ()
    look_again: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ends."""

    failed: bool
    reason: str
    message: str


def is_finished(job: JsonObject) -> bool:
    return any((condition(job, type) or {}).get("status") == "True" for type in ("Complete", "Failed"))


@dataclass
class Tally:
    """A job's pods, sorted and counted."""

    job: JsonObject
    pods: list[JsonObject]
    active: list[JsonObject] = field(default_factory=list)
    terminating: list[JsonObject] = field(default_factory=list)
    succeeded: list[JsonObject] = field(default_factory=list)
    failed: list[JsonObject] = field(default_factory=list)

    def __post_init__(self) -> None:
        spec, status = self.job["spec"], self.job.get("status") or {}
        self.indexed = spec.get("completionMode") == "Indexed"
        self.completions: int | None = spec.get("completions")
        only_failed = spec.get("podReplacementPolicy") == "Failed"
        for pod in self.pods:
            if is_active(pod):
                self.active.append(pod)
            elif phase(pod) == "Succeeded":
                self.succeeded.append(pod)
            elif phase(pod) == "Failed" or not only_failed:
                self.failed.append(pod)  # a pod that is made to stop has failed, unless only the stopped are replaced
            if is_going(pod) and not is_terminal(pod):
                self.terminating.append(pod)
        waiting = status.get("uncountedTerminatedPods") or {}
        self.waiting_succeeded: list[str] = list(waiting.get("succeeded") or ())
        self.waiting_failed: list[str] = list(waiting.get("failed") or ())
        known = {*self.waiting_succeeded, *self.waiting_failed}
        self.new_succeeded = [p for p in self.succeeded if is_tracked(p) and p["metadata"]["uid"] not in known]
        fresh = [p for p in self.failed if is_tracked(p) and p["metadata"]["uid"] not in known]
        self.new_failed = [p for p in fresh if verdict(self.job, p).action != "Ignore"]
        self.ignored = [p for p in fresh if verdict(self.job, p).action == "Ignore"]
        self._count(status)

    def _count(self, status: JsonObject) -> None:
        self.done = parse_indexes(status.get("completedIndexes") or "", self.completions or 0)
        self.failed_indexes: set[int] = set()
        self.failed_count = status.get("failed", 0) + len(self.waiting_failed) + len(self.new_failed)
        self.succeeded_count = status.get("succeeded", 0) + len(self.waiting_succeeded) + len(self.new_succeeded)
        if not self.indexed:
            return
        most = self.completions or 0
        self.done |= {i for p in self.succeeded if is_tracked(p) and (i := index_of(p)) is not None and i < most}
        self.succeeded_count = len(self.done)
        limit = self.job["spec"].get("backoffLimitPerIndex")
        if limit is not None:
            self.failed_indexes = parse_indexes(status.get("failedIndexes") or "", most)
            for pod in self.new_failed:
                index = index_of(pod)
                over = failures_of(pod) >= limit or verdict(self.job, pod).action == "FailIndex"
                if over and index is not None and index < most:
                    self.failed_indexes.add(index)
            self.failed_indexes -= self.done

    def give_up(self) -> None:
        """The job has failed: pods that have not ended count as failed, whatever becomes of them."""
        known = {*self.waiting_succeeded, *self.waiting_failed, *(p["metadata"]["uid"] for p in self.new_failed)}
        left = {p["metadata"]["uid"]: p for p in (*self.active, *self.terminating) if is_tracked(p)}
        self.new_failed += [pod for uid, pod in left.items() if uid not in known]

    @property
    def all_counted(self) -> bool:
        """Every finished pod is counted, and no pod is left that has to stop."""
        waiting = self.waiting_succeeded or self.waiting_failed or self.new_failed or self.ignored
        return not (waiting or self.new_succeeded or self.active or self.terminating)


# -- the decision ----------------------------------------------------------------------------------------------


def desired(job: JsonObject, pods: Iterable[JsonObject], now: float) -> JobPlan:
    """Everything that a job needs now."""
    spec = job["spec"]
    pods = list(pods)
    if spec.get("managedBy") not in (None, MANAGED_BY):
        return JobPlan()
    if is_going(job):
        return JobPlan(release=[released(pod, "its job is being deleted") for pod in pods if is_tracked(pod)])
    if is_finished(job):
        return _after_the_end(job, pods, now)
    tally = Tally(job, pods)
    started = _started(job, now)
    outcome = _outcome(job, tally, started, now)
    suspended = bool(spec.get("suspend"))
    create: list[Create] = []
    surplus: list[JsonObject] = []
    waits: list[float] = []
    if outcome is not None and outcome.failed:
        tally.give_up()
    if outcome is not None or suspended:
        surplus = tally.active
    else:
        create, surplus, wait = _balanced(job, tally, now)
        deadline = spec.get("activeDeadlineSeconds")
        waits = [wait, started + deadline - now if deadline is not None and started else 0.0]
    written, told = _status(job, tally, outcome, started, now)
    return JobPlan(
        written,
        _releases(tally, surplus),
        [deletion(PODS, pod, outcome.reason if outcome else "more pods than wanted") for pod in surplus],
        create,
        told,
        min((wait for wait in waits if wait > 0), default=None),
    )


def _started(job: JsonObject, now: float) -> float:
    """When the job began; now if it begins now, 0 while it is suspended."""
    if job["spec"].get("suspend"):
        return 0.0
    return seconds_of((job.get("status") or {}).get("startTime") or "") or now


def _after_the_end(job: JsonObject, pods: list[JsonObject], now: float) -> JobPlan:
    """A finished job lets go of its pods, and leaves when its time is over."""
    release = [released(pod, "its job has finished") for pod in pods if is_tracked(pod)]
    ttl = job["spec"].get("ttlSecondsAfterFinished")
    if ttl is None:
        return JobPlan(release=release)
    ends = [found for type in ("Complete", "Failed") if (found := condition(job, type)) is not None]
    left = max(seconds_of(one.get("lastTransitionTime") or "") or now for one in ends) + ttl - now
    if left > 0:
        return JobPlan(release=release, look_again=left)
    gone = deletion(JOBS, job, f"it finished {ttl} s ago", propagation="Foreground")
    return JobPlan(release=release, delete=[gone])


def _releases(tally: Tally, surplus: list[JsonObject]) -> list[Patch]:
    """Pods that are written down as finished, and pods that we end ourselves, which count as nothing else."""
    written = {*tally.waiting_succeeded, *tally.waiting_failed}
    finished = [*tally.new_succeeded, *tally.new_failed]
    counted = [p for p in tally.pods if p["metadata"]["uid"] in written and is_tracked(p)]
    found = [released(pod, "it is counted") for pod in (*counted, *finished)]
    found += [released(pod, "its failure is ignored") for pod in tally.ignored]
    named = {patch.name for patch in found}
    return found + [
        released(pod, "it is not needed") for pod in surplus if is_tracked(pod) and pod["metadata"]["name"] not in named
    ]


def released(pod: JsonObject, because: str) -> Patch:
    left = [one for one in pod["metadata"].get("finalizers") or () if one != FINALIZER]
    return change(PODS, pod, {"metadata": {"finalizers": left or None}}, because, checked=False)


# -- how it ends -----------------------------------------------------------------------------------------------


def _outcome(job: JsonObject, tally: Tally, started: float, now: float) -> Outcome | None:
    """How the job ends, if it does: what was decided before stands."""
    for type, failed in (("SuccessCriteriaMet", False), ("FailureTarget", True)):
        found = condition(job, type)
        if found is not None and found.get("status") == "True":
            return Outcome(failed, found.get("reason", ""), found.get("message", ""))
    return _failure(job, tally, started, now) or _success(job, tally)


def _failure(job: JsonObject, tally: Tally, started: float, now: float) -> Outcome | None:
    spec = job["spec"]
    for pod in tally.failed:
        found = verdict(job, pod)
        if found.action == "FailJob":
            return Outcome(True, "PodFailurePolicy", found.because)
    if tally.failed_count > spec.get("backoffLimit", 6) or _restarted_too_often(job, tally):
        return Outcome(True, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and started and now - started >= deadline:
        return Outcome(True, "DeadlineExceeded", "Job was active longer than specified deadline")
    most = spec.get("maxFailedIndexes")
    if most is not None and len(tally.failed_indexes) > most:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return Outcome(True, "MaxFailedIndexesExceeded", message)
    if tally.failed_indexes and len(tally.failed_indexes) + len(tally.done) >= (tally.completions or 0):
        return Outcome(True, "FailedIndexes", "Job has failed indexes")
    return None


def _restarted_too_often(job: JsonObject, tally: Tally) -> bool:
    """Containers that are started again inside their pods count against the limit, too."""
    if (job["spec"].get("template") or {}).get("spec", {}).get("restartPolicy") != "OnFailure":
        return False
    limit = job["spec"].get("backoffLimit", 6)
    count = sum(restarts(pod) for pod in tally.pods if phase(pod) in ("Running", "Pending"))
    return count > 0 if limit == 0 else count >= limit


def _success(job: JsonObject, tally: Tally) -> Outcome | None:
    matched = _policy_met(job, tally) if tally.indexed else None
    if matched is not None:
        return Outcome(False, "SuccessPolicy", f"Matched rules at index {matched}")
    if job["spec"].get("suspend") and not tally.succeeded_count:
        return None
    if tally.completions is None:
        reached = tally.succeeded_count > 0 and not tally.active
    else:
        reached = tally.succeeded_count >= tally.completions and (not tally.active or tally.completions > 0)
    if not reached:
        return None
    return Outcome(False, "CompletionsReached", "Reached expected number of succeeded pods")


def _policy_met(job: JsonObject, tally: Tally) -> int | None:
    """The first rule of the success policy that is fulfilled."""
    for place, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or ()):
        named, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = parse_indexes(named, tally.completions or 0) if named else None
        have = tally.done if wanted is None else tally.done & wanted
        needed = count if count is not None else len(wanted or ())
        if needed and len(have) >= needed:
            return place
    return None


# -- pods to make and to end -----------------------------------------------------------------------------------


def _balanced(job: JsonObject, tally: Tally, now: float) -> tuple[list[Create], list[JsonObject], float]:
    """Pods to make, pods to end, and how long to wait before failed ones are replaced."""
    spec = job["spec"]
    parallelism = spec.get("parallelism", 1)
    if tally.completions is None:
        wanted = len(tally.active) if tally.succeeded_count else parallelism
    else:
        left = tally.completions - tally.succeeded_count - len(tally.failed_indexes)
        wanted = max(0, min(left, parallelism))
    surplus = _surplus(tally, len(tally.active) - wanted)
    if surplus:
        return [], surplus[:BURST], 0.0
    stopping = len(tally.terminating) if spec.get("podReplacementPolicy") == "Failed" else 0
    missing = min(wanted - stopping - len(tally.active), BURST)
    if missing <= 0:
        return [], [], 0.0
    because = f"{len(tally.active)} active of {wanted} wanted"
    if not tally.indexed:
        wait = _backoff(tally.failed, tally.succeeded, job, now)
        return ([], [], wait) if wait else ([Create(PODS, job_pod(job), because)] * missing, [], 0.0)
    return _indexed_creates(job, tally, missing, because, now)


def _indexed_creates(
    job: JsonObject, tally: Tally, missing: int, because: str, now: float
) -> tuple[list[Create], list[JsonObject], float]:
    per_index = job["spec"].get("backoffLimitPerIndex") is not None
    if not per_index and (wait := _backoff(tally.failed, tally.succeeded, job, now)):
        return [], [], wait
    busy = {index_of(pod) for pod in tally.active} | tally.done | tally.failed_indexes
    if job["spec"].get("podReplacementPolicy") == "Failed":
        busy |= {index_of(pod) for pod in tally.terminating}
    create: list[Create] = []
    waits: list[float] = []
    for index in (one for one in range(tally.completions or 0) if one not in busy):
        if len(create) == missing:
            break
        before = [pod for pod in tally.failed if index_of(pod) == index]
        wait = _backoff(before, [], job, now) if per_index else 0.0
        if wait:
            waits.append(wait)
        else:
            create.append(Create(PODS, job_pod(job, index, before), because))
    return create, [], min(waits, default=0.0)


def _surplus(tally: Tally, count: int) -> list[JsonObject]:
    """Pods to end: those whose index is done, is none, or is worked on twice; then those that have got least far."""
    found: list[JsonObject] = []
    seen: set[int] = set()
    for pod in sorted(tally.active, key=_progress, reverse=True) if tally.indexed else ():
        index = index_of(pod)
        if index is None or index in seen or index in tally.done or index >= (tally.completions or 0):
            found.append(pod)
        else:
            seen.add(index)
    rest = [pod for pod in sorted(tally.active, key=_progress) if pod not in found]
    return found + rest[: max(0, count - len(found))]


def _progress(pod: JsonObject) -> tuple[bool, bool, bool, float]:
    bound = bool((pod.get("spec") or {}).get("nodeName"))
    born = seconds_of(pod["metadata"].get("creationTimestamp") or "") or 0.0
    return bound, phase(pod) == "Running", is_ready(pod), -born


def _backoff(failed: list[JsonObject], succeeded: list[JsonObject], job: JsonObject, now: float) -> float:
    """Seconds before failed pods are replaced: twice as long after each failure since the last success."""
    last_success = max(map(finished_at, succeeded), default=0.0)
    times = [finished_at(pod) for pod in failed if verdict(job, pod).action != "Ignore"]
    since = [moment for moment in times if moment > last_success]
    if not since:
        return 0.0
    delay = min(BACKOFF_SECONDS * 2.0 ** min(len(since) - 1, 30), LONGEST_BACKOFF_SECONDS)
    wait = max(since) + delay - now
    # A failure that lies more than a little in the future: a clock was set back. Nobody waits until it has caught up.
    return wait if 0.0 < wait <= delay + CLOCK_SKEW_SECONDS else 0.0


def job_pod(job: JsonObject, index: int | None = None, failed: Sequence[JsonObject] = ()) -> JsonObject:
    """A new pod of a job; one that works on an index is told so in every way there is."""
    pod = pod_from_template(job)
    metadata = pod["metadata"]
    metadata["finalizers"] = [*(metadata.get("finalizers") or ()), FINALIZER]
    if index is None:
        return pod
    name = job["metadata"]["name"]
    metadata["generateName"] = f"{name}-{index}-"
    metadata["annotations"] = {**(metadata.get("annotations") or {}), INDEX: str(index)}
    metadata["labels"] = {**(metadata.get("labels") or {}), INDEX: str(index)}
    if job["spec"].get("backoffLimitPerIndex") is not None:
        metadata["annotations"] |= _failure_counts(job, failed)
    spec = pod["spec"] = {**pod["spec"], "hostname": f"{name}-{index}"}
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    for kind in ("initContainers", "containers"):
        if kind in spec:
            spec[kind] = [
                _with_variable(one, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}) for one in spec[kind]
            ]
    return pod


def _failure_counts(job: JsonObject, failed: Sequence[JsonObject]) -> dict[str, str]:
    """How often an index has failed, carried from pod to pod."""
    counted = [pod for pod in failed if verdict(job, pod).action != "Ignore"]
    ignored = [pod for pod in failed if verdict(job, pod).action == "Ignore"]
    found = {INDEX_FAILURES: str(max((failures_of(pod) + 1 for pod in counted), default=0))}
    if ignored:
        found[INDEX_IGNORED] = str(max(failures_of(pod, INDEX_IGNORED) + 1 for pod in ignored))
    return found


def _with_variable(container: JsonObject, variable: JsonObject) -> JsonObject:
    environment = container.get("env") or []
    if any(one.get("name") == variable["name"] for one in environment):
        return container
    return {**container, "env": [*environment, variable]}


# -- the status ------------------------------------------------------------------------------------------------


def _status(
    job: JsonObject, tally: Tally, outcome: Outcome | None, started: float, now: float
) -> tuple[Patch | None, list[Tell]]:
    """The status as it should be, and what is worth telling about it."""
    before = job.get("status") or {}
    after: JsonObject = {
        "startTime": timestamp(started) if started else None,
        "active": len(tally.active) or None,
        "ready": sum(map(is_ready, tally.active)),
        "terminating": len(tally.terminating),
        **_counters(before, tally),
    }
    conditions, told = _conditions(job, tally, outcome, now)
    after["conditions"] = conditions or None
    if any(one["type"] == "Complete" for one in conditions):
        after["completionTime"] = timestamp(now)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    if not changed:
        return None, []
    why = f"{len(tally.active)} active, {tally.succeeded_count} succeeded, {tally.failed_count} failed"
    patch = {"status": {**changed, "uncountedTerminatedPods": _replaced(before, after)}}
    return change(JOBS, job, patch, why, subresource="status"), told


def _replaced(before: JsonObject, after: JsonObject) -> JsonObject:
    """A merge patch of the uncounted pods: what is no longer there has to be said."""
    old, new = before.get("uncountedTerminatedPods") or {}, after["uncountedTerminatedPods"]
    return {name: new.get(name) for name in ("succeeded", "failed") if name in old or name in new}


def _counters(before: JsonObject, tally: Tally) -> JsonObject:
    """Pods that were let go of become numbers; those that have finished since are written down by their uids."""
    tracked = {pod["metadata"]["uid"] for pod in tally.pods if is_tracked(pod)}
    waiting: JsonObject = {}
    numbers: JsonObject = {}
    for name, known, fresh in (
        ("succeeded", tally.waiting_succeeded, [] if tally.indexed else tally.new_succeeded),
        ("failed", tally.waiting_failed, tally.new_failed),
    ):
        left = [uid for uid in known if uid in tracked]
        numbers[name] = before.get(name, 0) + len(known) - len(left) or None
        if written := left + [pod["metadata"]["uid"] for pod in fresh[:UNCOUNTED_AT_ONCE]]:
            waiting[name] = written
    found = {**numbers, "uncountedTerminatedPods": waiting}
    if tally.indexed:
        found.update(succeeded=len(tally.done) or None, completedIndexes=format_indexes(tally.done) or None)
        if tally.job["spec"].get("backoffLimitPerIndex") is not None:
            found["failedIndexes"] = format_indexes(tally.failed_indexes)
    return found


def _conditions(
    job: JsonObject, tally: Tally, outcome: Outcome | None, now: float
) -> tuple[list[JsonObject], list[Tell]]:
    found: list[JsonObject] = list((job.get("status") or {}).get("conditions") or ())
    if outcome is not None:
        return _ending(job, found, tally, outcome, now)
    was = condition(job, "Suspended")
    if job["spec"].get("suspend"):
        if was is None or was.get("status") != "True":
            found = _said(found, "Suspended", "True", "JobSuspended", "Job suspended", now)
            return found, [Tell(job, "Suspended", "Job suspended")]
    elif was is not None and was.get("status") == "True":
        found = _said(found, "Suspended", "False", "JobResumed", "Job resumed", now)
        return found, [Tell(job, "Resumed", "Job resumed")]
    return found, []


def _said(found: list[JsonObject], type: str, status: str, reason: str, message: str, now: float) -> list[JsonObject]:
    """With one condition set; a job's tell, too, when they were looked at."""
    return with_condition(found, type, status, reason, message, now, stamps={"lastProbeTime": timestamp(now)})


def _ending(
    job: JsonObject, found: list[JsonObject], tally: Tally, outcome: Outcome, now: float
) -> tuple[list[JsonObject], list[Tell]]:
    """First that it ends, then that it has ended."""
    interim, final = ("FailureTarget", "Failed") if outcome.failed else ("SuccessCriteriaMet", "Complete")
    if condition(job, interim) is None:
        found = _said(found, interim, "True", outcome.reason, outcome.message, now)
    if not tally.all_counted:
        return found, []
    found = _said(found, final, "True", outcome.reason, outcome.message, now)
    if outcome.failed:
        return found, [Tell(job, outcome.reason, outcome.message, "Warning")]
    return found, [Tell(job, "Completed", "Job completed")]
