"""A playbook tests the pod machine without running a node: stimulus in, effects out, no task, no sleep, no socket.

    assert (
        Playbook(machine())
        >> PodSet(web)
        << Admit("web")
        >> done(Admit("web"))
        << RunSandbox("web", 0)
        >> failed(RunSandbox("web", 0), "no network")
        << [Look("web"), event("FailedCreatePodSandBox")]
    )

`>>` tells the machine something and `<<` says what it has to answer, all of it and in order. Statuses are left out:
they follow from almost everything, and `status(...)` asks for one where it matters. Whatever is not said is a failure:
a stimulus whose effects nobody names fails at the next `>>`. `done` makes up the results of effects as a runtime would;
`after` lets time pass. After every stimulus the machine's invariants hold.

With `exact` everything is compared, statuses included: so replay the stories that `kubeqos story POD -o playbook`
prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.effects import (
    Admit,
    Allocation,
    CreateContainer,
    DeletePod,
    Done,
    Effect,
    EnsureImage,
    Evict,
    Failed,
    Forget,
    Look,
    Observed,
    PodGone,
    PodSet,
    PodsListed,
    Promised,
    Record,
    Release,
    RemoveContainer,
    RemoveSandbox,
    Resize,
    RoomMade,
    RunHook,
    RunProbe,
    RunSandbox,
    Shortage,
    StartContainer,
    Stimulus,
    StopContainer,
    StopSandbox,
    Tick,
    UpdateResources,
    UpdateSandbox,
    WriteStatus,
)
from kubeqos.node.pod.machine import Core
from kubeqos.node.pod.observed import SeenContainer, SeenPod, SeenSandbox, Stage
from kubeqos.node.pod.status import StatusFacts
from kubeqos.plugins.managers import Refusal
from tests.node import pods

__all__ = [
    "START", "Admit", "Allocation", "CreateContainer", "DeletePod", "Done", "EnsureImage", "Evict", "Failed", "Forget",
    "Look", "Observed", "Playbook", "PodGone", "PodSet", "PodsListed", "Promised", "Record", "Refusal", "Release",
    "RemoveContainer", "RemoveSandbox", "Resize", "RoomMade", "RunHook", "RunProbe", "RunSandbox", "SeenContainer",
    "SeenPod", "SeenSandbox", "Shortage", "Stage", "StartContainer", "StatusFacts", "StopContainer", "StopSandbox",
    "Tick", "UpdateResources", "UpdateSandbox", "WriteStatus", "after", "at", "done", "ended", "event", "failed",
    "finishes", "look", "machine", "pod", "running", "status", "unless", "wakes",
]  # fmt: skip

START = 1_700_000_000.0
"""When every playbook begins."""
GRACE = 30


def machine(*, listed: bool = True, facts: StatusFacts | None = None) -> Core:
    """A node that has heard of all pods that there are, which are none."""
    made = Core(facts)
    made.listed = listed
    return made


def pod(name: str = "web", *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod whose uid is its name."""
    return pods.pod(name, *containers, uid=name, **spec)


# ---- What can be told


@dataclass(frozen=True, slots=True)
class _Cue:
    """A stimulus that depends on where the machine stands when it is told."""

    make: Callable[[Playbook], Stimulus | None]


def done(effect: Effect, result: fx.Result | type[_Cue] = _Cue) -> _Cue:
    """An effect was carried out; what it made is made up unless it is given."""
    return _Cue(lambda book: Done(effect, book.result(effect) if result is _Cue else result))  # type: ignore[arg-type]


def failed(effect: Effect, message: str = "broken", reason: str = "") -> Failed:
    return Failed(effect, message, reason)


def after(seconds: float) -> _Cue:
    """Time passes; the machine is woken once, as its shell would wake it."""

    def pass_time(book: Playbook) -> Stimulus:
        book.now += seconds
        return Tick()

    return _Cue(pass_time)


def at(when: float, stimulus: Stimulus) -> _Cue:
    """A stimulus at a time of its own: a recorded one."""

    def move(book: Playbook) -> Stimulus:
        book.now = when
        return stimulus

    return _Cue(move)


def look(uid: str, change: Callable[[SeenPod], SeenPod] = lambda seen: seen) -> _Cue:
    """The runtime shows the pod as the machine knows it, but for a change."""
    return _Cue(lambda book: Observed(change(book.core.pods[uid].seen), book.core.pods[uid].serial))


def ended(uid: str, container: str = "main", code: int = 0, **fields: Any) -> _Cue:
    """The runtime tells that a container has ended by itself."""

    def end(book: Playbook) -> Stimulus:
        record = book.core.pods[uid]
        newest = record.containers[container].newest
        assert newest is not None
        over = replace(newest, stage=Stage.EXITED, exit_code=code, finished=book.now, **fields)
        others = tuple(one for one in record.seen.containers if one.id != newest.id)
        return Observed(replace(record.seen, containers=(*others, over)), record.serial)

    return _Cue(end)


# ---- What can be expected


@dataclass(frozen=True, slots=True)
class _Expected:
    """Part of an answer, described by what it has to show."""

    words: str
    fits: Callable[[Effect], bool]

    def __repr__(self) -> str:
        return self.words


def event(reason: str, part: str = "") -> _Expected:
    """People are told, under this reason, with this in the message."""
    return _Expected(
        f"event({reason!r}, {part!r})",
        lambda one: isinstance(one, Record) and one.reason == reason and part in one.message,
    )


def _within(found: Any, wanted: Any) -> bool:
    """Whether everything wanted is there; lists of objects with a name or type are matched by that."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(key in found and _within(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return all(any(_within(one, each) for one in found) for each in wanted)
    return bool(found == wanted)


def status(**wanted: Any) -> _Expected:
    """The status is written, and says this: `phase="Running"`, or any part of the tree."""
    return _Expected(f"status({wanted})", lambda one: isinstance(one, WriteStatus) and _within(one.status, wanted))


@dataclass(frozen=True, slots=True)
class wakes:
    """The machine wants to be woken in so many seconds; None: not at all."""

    seconds: float | None


Expected = Effect | _Expected | wakes


@dataclass
class Playbook:
    """One machine and what happens to it."""

    core: Core
    now: float = START
    exact: bool = False
    told: Stimulus | None = None
    answer: list[Effect] | None = None
    """What the machine answered last, until somebody says what it should have."""
    outstanding: list[Effect] = field(default_factory=list)

    def __rshift__(self, stimulus: Stimulus | _Cue) -> Playbook:
        self._check_nothing_left()
        told = stimulus.make(self) if isinstance(stimulus, _Cue) else stimulus
        assert told is not None
        self.told = told
        if isinstance(told, Done | Failed) and told.effect in self.outstanding:
            self.outstanding.remove(told.effect)
        self.answer = self.core.step(told, self.now)
        self.outstanding += [one for one in self.answer if type(one) in ANSWERS]
        assert self.core.validate() == [], self.core.validate()
        return self

    def __lshift__(self, expected: Expected | Sequence[Expected]) -> Playbook:
        assert self.answer is not None, "nothing was told"
        wanted: list[Expected] = list(expected) if isinstance(expected, list | tuple) else [expected]  # type: ignore[list-item]
        found, self.answer = self.answer, None
        for wish in [one for one in wanted if isinstance(one, wakes)]:
            due = None if self.core.due is None else round(self.core.due - self.now, 3)
            assert due == wish.seconds, f"wakes in {due}, not in {wish.seconds}"
            wanted.remove(wish)
        if not self.exact and not any(_is_status(one) for one in wanted):
            found = [one for one in found if not isinstance(one, WriteStatus)]
        fit = len(found) == len(wanted) and all(map(_fits, wanted, found))
        assert fit, f"after {_short(self.told)}:\n  wanted  {wanted}\n  found   {[_short(one) for one in found]}"
        return self

    def __bool__(self) -> bool:
        self._check_nothing_left()
        return True

    def _check_nothing_left(self) -> None:
        left = self.answer or []
        if not self.exact:
            left = [one for one in left if not isinstance(one, WriteStatus)]
        assert not left, f"nobody said that {_short(self.told)} is answered by {[_short(one) for one in left]}"
        self.answer = None

    # ---- Shortcuts through what other playbooks tell

    def start(self, raw: Mapping[str, Any], until: Callable[[Effect], bool] = lambda _: False) -> Playbook:
        """Let a pod be known and everything succeed, until nothing is left to do but what `until` holds back."""
        self >> PodSet(raw)
        return self.succeed(until)

    def succeed(self, until: Callable[[Effect], bool] = lambda _: False) -> Playbook:
        """Carry out all that is outstanding, and all that follows from it."""
        self.answer = None
        while ready := [one for one in self.outstanding if not until(one)]:
            self >> done(ready[0])
            self.answer = None
        return self

    def result(self, effect: Effect) -> fx.Result:
        """What an effect makes when all goes well."""
        return ANSWERS[type(effect)](self, effect)

    def status(self, uid: str) -> Mapping[str, Any]:
        found = self.core.pods[uid].status
        assert found is not None
        return found

    def container(self, uid: str, name: str = "main") -> Mapping[str, Any]:
        told = self.status(uid)
        every = [*told.get("initContainerStatuses", ()), *told.get("containerStatuses", ())]
        found: Mapping[str, Any] = next(one for one in every if one["name"] == name)
        return found

    def condition(self, uid: str, kind: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next((one for one in self.status(uid)["conditions"] if one["type"] == kind), {})
        return found


def running(raw: Mapping[str, Any], core: Core | None = None) -> Playbook:
    """A pod whose every container has been started. Probes are still to run."""
    return Playbook(core or machine()).start(raw, unless(RunProbe))


def unless(*kinds: type) -> Callable[[Effect], bool]:
    """Holds back effects of these kinds."""
    return lambda effect: isinstance(effect, kinds)


def finishes(*names: str) -> Callable[[Effect], bool]:
    """Holds back everything that is done to these containers after their start, so that a test can end them."""
    return lambda effect: (
        getattr(effect, "container", "") in names
        and not isinstance(effect, EnsureImage | CreateContainer | StartContainer)
    )


def _is_status(one: Expected) -> bool:
    return isinstance(one, WriteStatus) or (isinstance(one, _Expected) and one.words.startswith("status("))


def _fits(wanted: Expected, found: Effect) -> bool:
    return wanted.fits(found) if isinstance(wanted, _Expected) else wanted == found


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}…"


# ---- What a runtime and managers answer


def _admitted(book: Playbook, effect: Any) -> fx.Result:
    return Allocation(book.core.pods[effect.uid].raw)


def _resized(book: Playbook, effect: Any) -> fx.Result:
    record = book.core.pods[effect.uid]
    return Allocation(record.raw, frozenset(record.containers))


def _sandbox(book: Playbook, effect: Any) -> fx.Result:
    return SeenSandbox(f"sandbox-{effect.attempt}", effect.attempt, True, book.now, ("10.0.0.1",))


def _created(book: Playbook, effect: Any) -> fx.Result:
    identity = f"{effect.container}-{effect.attempt}"
    return SeenContainer(identity, effect.container, effect.attempt, Stage.CREATED, book.now)


def _container(book: Playbook, effect: Any) -> SeenContainer:
    found: Iterable[SeenContainer] = book.core.pods[effect.uid].seen.containers
    return next(one for one in found if one.id == effect.id)


def _started(book: Playbook, effect: Any) -> fx.Result:
    return replace(_container(book, effect), stage=Stage.RUNNING, started=book.now)


def _stopped(book: Playbook, effect: Any) -> fx.Result:
    return replace(_container(book, effect), stage=Stage.EXITED, exit_code=0, finished=book.now)


def _nothing(_book: Playbook, _effect: Any) -> fx.Result:
    return None


ANSWERS: Mapping[type, Callable[[Playbook, Any], fx.Result]] = {
    Admit: _admitted,
    Resize: _resized,
    RunSandbox: _sandbox,
    EnsureImage: lambda _book, _effect: "present",
    CreateContainer: _created,
    StartContainer: _started,
    RunHook: _nothing,
    RunProbe: lambda _book, _effect: True,
    StopContainer: _stopped,
    RemoveContainer: _nothing,
    StopSandbox: _nothing,
    RemoveSandbox: _nothing,
    UpdateResources: _nothing,
    UpdateSandbox: _nothing,
    Release: _nothing,
}
