"""The node agent's decisions: stimuli in, effects out. No I/O, no clock, no await.

One `PodRecord` per pod; one method per stimulus; `_move` is the only place that changes a pod's state. After every
stimulus the record says how far everything is (`PodRecord.assess`), the pod's next effects are derived from that and
from what is under way (`node.pod.lifecycle`), and its status is written if it differs from the last one. `story(uid)`
tells what happened to a pod; `validate()` states the invariants and is on in every test. The shell around it is
`node.agent`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kubeqos.model.timestamps import seconds_of
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod import outcomes, preemption
from kubeqos.node.pod.journal import STEPS, Journal, Recorded, Told
from kubeqos.node.pod.lifecycle import Plan, grace_seconds, keep_running, wind_down
from kubeqos.node.pod.observed import Stage
from kubeqos.node.pod.record import ACTIVE, Cause, Ending, PodRecord, PodState
from kubeqos.node.pod.resize import resources_changed
from kubeqos.node.pod.status import TERMINAL, StatusFacts, pod_status, terminations_told
from kubeqos.plugins.managers import AdmittedPod, Refusal

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
SOURCE_ANNOTATION = "kubernetes.io/config.source"

GONE_STORIES = 32
"""Of so many pods that are gone the story is still told: a thousand nodes in one process remember as many each."""


class Core:
    """All pods of one node."""

    def __init__(self, facts: StatusFacts | None = None, *, journal_steps: int = STEPS) -> None:
        """`journal_steps`: of how many steps of each pod a journal is kept; 0 for none."""
        self.facts = facts or StatusFacts()
        self.pods: dict[str, PodRecord] = {}
        self.listed = False
        self.preemptions: Counter[str] = Counter()
        """Pods that made room for a critical one, by what was missing."""
        self.due: float | None = None
        """When something is to be done by itself: a `Tick` is wanted then."""
        self._journal_steps = journal_steps
        self._heard: dict[str, fx.Stimulus] = {}
        """Within a step: what it means to pods other than the one that it is about. Their journals say that."""
        self._wakes: list[tuple[float, str]] = []
        self._now = 0.0
        self._gone: dict[str, Told] = {}
        self._handlers: dict[type, Callable[[Any, float], Iterable[str]]] = {
            fx.PodSet: self._pod_set,
            fx.PodGone: self._pod_gone,
            fx.PodsListed: self._pods_listed,
            fx.Observed: self._observed,
            fx.Evict: self._evict,
            fx.RoomMade: self._room_made,
            fx.Tick: self._tick,
            fx.Done: self._done,
            fx.Failed: self._failed,
        }

    # ---- The one entrance

    def step(self, stimulus: fx.Stimulus, now: float) -> list[fx.Effect]:
        """Take in what happened; returns what is to be done, in order."""
        out: list[fx.Effect] = []
        uids = self._handlers[type(stimulus)](stimulus, now)
        if now < self._now:
            # The clock was set back: what somebody waits for may be an hour away now, so everybody decides again.
            uids = dict.fromkeys([*uids, *self.pods])
        self._now = now
        for uid in uids:
            pod = self.pods.get(uid)
            heard = self._heard.pop(uid, stimulus) if self._heard else stimulus
            if pod is not None:
                pod.assess()
                effects = self._advance(pod, now)
                if pod.journal is not None:
                    pod.journal.note(now, heard, effects)
                out += effects
        self.due = self._next_wake() if self._wakes else None
        return out

    def _next_wake(self) -> float | None:
        while self._wakes:
            at, uid = self._wakes[0]
            pod = self.pods.get(uid)
            if pod is not None and pod.wake == at:
                return at
            heapq.heappop(self._wakes)
        return None

    def story(self, uid: str) -> list[str]:
        """What happened to a pod, oldest first."""
        pod = self.pods.get(uid) or self._gone.get(uid)
        return list(pod.story) if pod is not None else []

    def recorded(self, namespace: str, name: str) -> Recorded | None:
        """The story of the newest pod of this name, with the steps that can be replayed; None when there is none."""
        known = [*self._gone.values(), *map(Told.of, self.pods.values())]
        found = [one for one in known if (one.namespace, one.name) == (namespace, name)]
        return found[-1].recorded() if found else None

    def _meet(self, pod: PodRecord, now: float, how: str) -> PodRecord:
        self.pods[pod.uid] = pod
        if self._journal_steps:
            pod.journal = Journal(self._journal_steps, listed=self.listed, facts=self.facts)
        self._tell(pod, now, how)
        return pod

    # ---- Stimuli

    def _pod_set(self, stimulus: fx.PodSet, now: float) -> Iterable[str]:
        raw = stimulus.raw
        metadata = raw["metadata"]
        uid = metadata["uid"]
        if stimulus.source == "api" and MIRROR_ANNOTATION in (metadata.get("annotations") or {}):
            return ()  # the copy of a static pod: its file decides
        pod = self.pods.get(uid)
        if pod is None:
            pod = self._meet(PodRecord.of(raw, stimulus.source), now, "known")
        else:
            self._described_anew(pod, stimulus, now)
        self._learn_status(pod, now)
        if pod.view.metadata.deletion_timestamp:
            self._end(pod, Cause.DELETED, now)
        return (uid,)

    def _described_anew(self, pod: PodRecord, stimulus: fx.PodSet, now: float) -> None:
        if pod.source == "runtime":
            pod.source, pod.ending = stimulus.source, None
            self._move(pod, PodState.WAITING, now, "the API knows it")
        pod.describe(stimulus.raw)

    def _learn_status(self, pod: PodRecord, now: float) -> None:
        """What an earlier life of this agent wrote."""
        status = pod.raw.get("status") or {}
        if status.get("startTime") and not pod.started_at:
            pod.begin(seconds_of(status["startTime"]) or now)
        if pod.status is None:
            pod.ended = terminations_told(status) | pod.ended
        if status.get("phase") in TERMINAL and pod.state is PodState.WAITING and "managers" not in pod.busy:
            rejected = not status.get("containerStatuses") and status["phase"] == "Failed"
            cause = Cause.REJECTED if rejected else Cause.COMPLETED
            reason, failed = status.get("reason", ""), status["phase"] == "Failed"
            pod.ending = Ending(cause, 0.0, 1, reason, status.get("message", ""), fails=failed)
            pod.status = status
            self._move(pod, PodState.TERMINATING, now, f"was {status['phase']} already")

    def _pod_gone(self, stimulus: fx.PodGone, now: float) -> Iterable[str]:
        pod = self.pods.get(stimulus.uid)
        if pod is None:
            return ()
        pod.gone = True
        self._end(pod, Cause.REMOVED, now)
        return (stimulus.uid,)

    def _pods_listed(self, _stimulus: fx.PodsListed, now: float) -> Iterable[str]:
        self.listed = True
        for pod in list(self.pods.values()):
            if pod.source == "runtime":
                pod.gone = True
                self._end(pod, Cause.REMOVED, now)
        # Who already runs is admitted again before who is new.
        return sorted(self.pods, key=lambda uid: (not self.pods[uid].live, uid))

    def _observed(self, stimulus: fx.Observed, now: float) -> Iterable[str]:
        seen = stimulus.seen
        pod = self.pods.get(seen.uid)
        if pod is None:
            if seen.empty:
                return ()
            metadata = {"uid": seen.uid, "namespace": seen.namespace, "name": seen.name}
            orphan = PodRecord.of({"metadata": metadata, "spec": {"containers": []}}, "runtime", seen)
            pod = self._meet(orphan, now, "found in the runtime")
            if self.listed:
                pod.gone = True
                self._end(pod, Cause.REMOVED, now)
        elif stimulus.since < pod.serial:
            pod.told.append(fx.Look(pod.uid))  # asked before our last own change: ask again
            return (seen.uid,)
        outcomes.observed(pod, seen)
        return (seen.uid,)

    def _evict(self, stimulus: fx.Evict, now: float) -> Iterable[str]:
        pod = self.pods.get(stimulus.uid)
        if pod is None or pod.ending is not None:
            return ()
        grace = grace_seconds(pod, Cause.EVICTED, stimulus.grace_seconds)
        reason, message, condition = stimulus.reason, stimulus.message, stimulus.condition
        self._begin_end(pod, Ending(Cause.EVICTED, now, grace, reason, message, condition, fails=True))
        pod.told.append(fx.Record(pod.uid, "Warning", reason, message, annotations=stimulus.annotations))
        return (stimulus.uid,)

    def _tick(self, _stimulus: fx.Tick, now: float) -> Iterable[str]:
        due = []
        while (at := self._next_wake()) is not None and at <= now:
            due.append(heapq.heappop(self._wakes)[1])
        return dict.fromkeys(due)  # a time that was wished for twice is on the heap twice

    def _done(self, stimulus: fx.Done, now: float) -> Iterable[str]:
        effect = stimulus.effect
        pod = self.pods.get(effect.uid)
        if pod is None:
            return ()
        self._tell(pod, now, f"done: {describe(effect)}")
        result = stimulus.result
        evicted: tuple[str, ...] = ()
        if isinstance(result, fx.Shortage) and pod.state is PodState.WAITING and preemption.peer(pod).is_critical:
            result, evicted = self._make_room(pod, result, now)
            self._heard[pod.uid] = fx.Done(effect, result)
        outcomes.done(pod, effect, result, now)
        if isinstance(effect, fx.Admit) and pod.state is PodState.WAITING:
            self._answered(pod, now)
        if isinstance(effect, fx.Release):
            return (effect.uid, *self._pass_on(effect.uid))
        return (effect.uid, *evicted)

    def _pass_on(self, uid: str) -> list[str]:
        """Whoever waits for room tries again with every pod that leaves."""
        waiting = [one.uid for one in self.pods.values() if uid in one.room_from]
        for one in waiting:
            self._heard[one] = fx.RoomMade(one)
            self._room_made(fx.RoomMade(one), 0.0)
        return waiting

    def _room_made(self, stimulus: fx.RoomMade, _now: float) -> Iterable[str]:
        pod = self.pods.get(stimulus.uid)
        if pod is None:
            return ()
        pod.room_from = frozenset()
        return (stimulus.uid,)

    def _make_room(self, pod: PodRecord, short: fx.Shortage, now: float) -> tuple[fx.Result, tuple[str, ...]]:
        """Let others go for a critical pod; it is admitted when they have left. Returns also who was sent away."""
        room = preemption.room_for(pod, self.pods.values(), short.missing)
        if isinstance(room, str):
            failure = f"preemption: error finding a set of pods to preempt: {room}"
            text = f"Unexpected error while attempting to recover from admission failure: {failure}"
            return Refusal("UnexpectedAdmissionError", text), ()
        by = frozenset({*room.chosen, *room.leaving})
        self._tell(pod, now, f"{short.message}: {len(by)} pods make room")
        for uid in room.chosen:
            evict = fx.Evict(uid, preemption.REASON, preemption.MESSAGE, condition=preemption.CONDITION)
            if self._evict(evict, now):
                self._heard[uid] = evict
                self.preemptions[next(iter(short.missing))] += 1
        return fx.Promised(by), tuple(sorted(room.chosen))

    def _answered(self, pod: PodRecord, now: float) -> None:
        if pod.refused is None:
            if pod.allocated:
                self._move(pod, PodState.ADMITTED, now)
            return
        reason, message = pod.refused.reason, pod.refused.message
        grace = grace_seconds(pod, Cause.REJECTED)
        pod.ending = Ending(Cause.REJECTED, now, grace, reason, message, fails=True)
        # A pod that ran before the agent restarted may be refused now; it is stopped like any other.
        self._move(pod, PodState.REJECTED if pod.seen.empty else PodState.TERMINATING, now, message)

    def _failed(self, stimulus: fx.Failed, now: float) -> Iterable[str]:
        effect = stimulus.effect
        pod = self.pods.get(effect.uid)
        if pod is None:
            return ()
        self._tell(pod, now, f"failed: {describe(effect)}: {stimulus.message}")
        outcomes.failed(pod, stimulus, now)
        return (effect.uid,)

    # ---- Moving on

    def _advance(self, pod: PodRecord, now: float) -> list[fx.Effect]:
        """Derive what is to be done for one pod now."""
        plan = self._plan(pod, now)
        out, pod.told = pod.told + plan.effects, []
        if pod.state is PodState.GONE:
            self._gone[pod.uid] = Told.of(self.pods.pop(pod.uid))
            if len(self._gone) > GONE_STORIES:
                del self._gone[next(iter(self._gone))]
            return [*out, fx.Forget(pod.uid)]
        self._sleep(pod, plan.wake)
        out += self._status(pod, now)
        if plan.deletes:
            out.append(fx.DeletePod(pod.uid))  # after its last status: nobody could write that any more
        return out

    def _plan(self, pod: PodRecord, now: float) -> Plan:
        if pod.state in (PodState.TERMINATING, PodState.FINISHED, PodState.REJECTED):
            return self._plan_end(pod, now)
        if not self.listed and pod.source != "file":
            return Plan()  # static pods do not wait for an API server
        if pod.state is PodState.WAITING:
            return self._plan_admission(pod, now)
        seconds = pod.view.spec.active_deadline_seconds
        deadline = None if seconds is None or not pod.started_at else pod.started_at + seconds
        if deadline is not None and deadline <= now:
            message = "Pod was active on the node longer than the specified deadline"
            grace = grace_seconds(pod, Cause.DEADLINE)
            self._begin_end(pod, Ending(Cause.DEADLINE, now, grace, "DeadlineExceeded", message, fails=True))
            outcomes.record(pod, "Normal", "DeadlineExceeded", message)
            return self._plan_end(pod, now)
        plan = keep_running(pod, now)
        if plan.completed:
            self._begin_end(pod, Ending(Cause.COMPLETED, now, grace_seconds(pod, Cause.COMPLETED)))
            return self._plan_end(pod, now)
        if deadline is not None:
            plan.at(deadline)
        self._plan_resize(pod, plan, now)
        self._note_progress(pod, now)
        return plan

    def _plan_admission(self, pod: PodRecord, now: float) -> Plan:
        if not pod.started_at:
            pod.begin(now)
        plan = Plan()
        if pod.room_from:
            return plan  # those who make room for it have not left yet
        plan.start(pod, fx.Admit(pod.uid), now)
        return plan

    def _plan_resize(self, pod: PodRecord, plan: Plan, now: float) -> None:
        """A changed spec is reserved first and applied then; a refusal waits for the next change, or for room."""
        if not pod.allocated or pod.admitted is pod.asked or not resources_changed(pod.admitted.raw, pod.raw):
            pod.resize = None
            return
        generation = pod.view.metadata.generation
        if pod.resize_refused_generation != generation:
            plan.start(pod, fx.Resize(pod.uid, generation), now)

    def _plan_end(self, pod: PodRecord, now: float) -> Plan:
        if pod.ending is None:
            return Plan()
        plan = wind_down(pod, now)
        if not plan.completed:
            return plan
        if not pod.released:
            plan.start(pod, fx.Release(pod.uid), now)
            return plan
        cause = pod.ending.cause
        if pod.gone and cause.cleans_up:
            if pod.seen.empty:
                self._move(pod, PodState.GONE, now)
        elif cause is Cause.DELETED and pod.source == "api":
            if pod.state is not PodState.FINISHED:
                self._move(pod, PodState.FINISHED, now, "waits to be forgotten")
                plan.deletes = True
        elif pod.state is PodState.TERMINATING:
            self._move(pod, PodState.FINISHED, now, cause.value)
        return plan

    def _note_progress(self, pod: PodRecord, now: float) -> None:
        up = all(one.newest is not None and one.newest.stage is Stage.RUNNING for one in pod.apps)
        if up and pod.state is not PodState.RUNNING:
            self._move(pod, PodState.RUNNING, now)
        elif pod.state is PodState.ADMITTED and (pod.seen.sandboxes or pod.busy):
            self._move(pod, PodState.STARTING, now)

    def _end(self, pod: PodRecord, cause: Cause, now: float) -> None:
        """The API wants the pod to end; a second wish can only make it end sooner and more thoroughly."""
        grace = grace_seconds(pod, cause)
        ending = pod.ending
        if ending is None:
            self._begin_end(pod, Ending(cause, now, grace))
            return
        if not ending.cause.cleans_up:
            pod.ending = replace(ending, cause=cause, since=min(ending.since or now, now))
            self._move(pod, PodState.TERMINATING, now, cause.value)
        elif cause is Cause.REMOVED:
            pod.ending = replace(ending, cause=cause)
        if ending.since + ending.grace_seconds > now + grace and cause is Cause.DELETED:
            assert pod.ending is not None
            pod.ending = replace(pod.ending, since=now, grace_seconds=grace)
            for key in [key for key in pod.busy if key.startswith("stop/")]:
                del pod.busy[key]
            pod.hooked.update(one.id for one in pod.live)

    def _begin_end(self, pod: PodRecord, ending: Ending) -> None:
        pod.ending = ending
        pod.waits.clear()
        if pod.state in ACTIVE and ending.cause is not Cause.COMPLETED:
            for container in pod.live:
                outcomes.record(pod, "Normal", "Killing", f"Stopping container {container.name}", container.name)
        self._move(pod, PodState.TERMINATING, ending.since, ending.cause.value)

    def _move(self, pod: PodRecord, state: PodState, now: float, why: str = "") -> None:
        if pod.state is not state:
            self._tell(pod, now, f"{pod.state} → {state}" + (f": {why}" if why else ""))
            pod.state = state

    def _tell(self, pod: PodRecord, now: float, what: str) -> None:
        pod.story.append(f"{now:.3f} {what}")

    def _sleep(self, pod: PodRecord, wake: float | None) -> None:
        if wake is not None and wake != pod.wake:
            heapq.heappush(self._wakes, (wake, pod.uid))
        pod.wake = wake

    def _status(self, pod: PodRecord, now: float) -> list[fx.Effect]:
        """Write the status if it says something new. Nothing is said about a pod that is not admitted yet."""
        if pod.source == "runtime" or pod.gone or (pod.state is PodState.WAITING and pod.refused is None):
            return []
        if pod.ending is not None and pod.ending.since == 0.0 and pod.status is not None and not pod.live:
            return []  # it ended in an earlier life of this agent, which has written all there is to say
        if pod.told_end:
            return []  # its containers may be gone by now, and say nothing any more
        pod.told_end = pod.state is PodState.FINISHED
        status = pod_status(pod, self.facts, now)
        if status == pod.status:
            return []
        pod.status = status
        return [fx.WriteStatus(pod.uid, status)]

    # ---- Invariants

    def validate(self) -> list[str]:
        """Broken invariants, in words; empty when all is well."""
        wrong = []
        for pod in self.pods.values():
            wrong += [f"{pod.key}: {problem}" for problem in _problems(pod)]
        return wrong


def _problems(pod: PodRecord) -> Iterable[str]:
    live = [one.name for one in pod.live]
    if len(set(live)) != len(live):
        yield f"two live instances of one container: {live}"
    if pod.state in (PodState.REJECTED, PodState.FINISHED) and live:
        yield f"is {pod.state} and has live containers {live}"
    if pod.state in ACTIVE and not pod.allocated:
        yield f"is {pod.state} and was never admitted"
    if pod.released and live:
        yield f"was released and has live containers {live}"
    if pod.state in ACTIVE and pod.ending is not None:
        yield f"is {pod.state} and ends ({pod.ending.cause})"
    starting = [key for key in pod.busy if key.startswith("container/")]
    if len(starting) > 1:
        yield f"starts two containers at once: {starting}"


def describe(effect: fx.Effect) -> str:
    """An effect in a few words, for stories and logs."""
    words = [type(effect).__name__]
    for name in ("container", "attempt", "hook", "probe", "grace_seconds"):
        value = getattr(effect, name, None)
        if value not in (None, ""):
            words.append(f"{name}={value}" if not isinstance(value, str) else value)
    return " ".join(words)


def admitted_pods(raws: Iterable[fx.Raw]) -> dict[str, AdmittedPod]:
    """Pods as managers see them, before any of them was told to a core that acts."""
    core = Core(journal_steps=0)
    for raw in raws:
        core.step(fx.PodSet(raw), 0.0)
    return {uid: pod.admitted for uid, pod in core.pods.items()}
