"""What the machine heard of one pod and what it answered, step by step: written down so that it can be replayed.

A step is kept as JSON, not as objects: a pod's journal holds several versions of the pod, and a node's memory must not
grow with every object of them. `Recorded` is what leaves the node; `playbook` prints it as a test of this room.
"""

from __future__ import annotations

import pprint
import textwrap
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.record import PodRecord
from kubeqos.node.pod.status import StatusFacts
from kubeqos.plugins.managers import Refusal

STEPS = 64
"""Of so many steps a live node's journal of one pod tells; what came before is forgotten, and it says so."""
WIDTH = 110


class Done(Struct, frozen=True, tag=True, tag_field="kind", omit_defaults=True):
    """`effects.Done` as it is written down: a manager's refusal is a type of its own."""

    effect: fx.Effect
    result: fx.Written = None


class Step(Struct, frozen=True):
    """One stimulus and the effects that followed for this pod. `at` is in seconds since the epoch."""

    at: float
    stimulus: fx.PodSet | fx.PodGone | fx.PodsListed | fx.Observed | fx.Evict | fx.RoomMade | fx.Tick | fx.Failed | Done
    effects: list[fx.Effect]

    def heard(self) -> fx.Stimulus:
        """The stimulus as the machine takes it."""
        if not isinstance(self.stimulus, Done):
            return self.stimulus
        result = self.stimulus.result
        return fx.Done(self.stimulus.effect, _refusal(result) if isinstance(result, fx.RecordedRefusal) else result)


class Recorded(Struct, frozen=True, omit_defaults=True):
    """The story of one pod as its node tells it: in words, and in steps that can be replayed."""

    uid: str
    namespace: str
    name: str
    lines: list[str]
    listed: bool
    """Whether the machine knew all pods when it first heard of this one."""
    facts: StatusFacts
    forgotten: int
    """How many steps came before the first one that is kept."""
    steps: list[Step]


_encode = msgspec.json.Encoder().encode
_step = msgspec.json.Decoder(Step)
_recorded = msgspec.json.Decoder(Recorded)


class Journal:
    """The steps of one pod, the newest ones, and where the machine stood when it first heard of the pod."""

    __slots__ = ("facts", "forgotten", "listed", "steps")

    def __init__(self, length: int, *, listed: bool, facts: StatusFacts) -> None:
        self.steps: deque[bytes] = deque(maxlen=length)
        self.listed = listed
        self.facts = facts
        self.forgotten = 0

    def note(self, at: float, stimulus: fx.Stimulus, effects: list[fx.Effect]) -> None:
        """Write a step down."""
        heard = Done(stimulus.effect, _written(stimulus.result)) if isinstance(stimulus, fx.Done) else stimulus
        self.forgotten += len(self.steps) == self.steps.maxlen
        self.steps.append(_encode({"at": at, "stimulus": heard, "effects": effects}))


@dataclass(frozen=True, slots=True)
class Told:
    """All that is kept of a pod that is gone: its name, its story and its journal."""

    uid: str
    namespace: str
    name: str
    story: Sequence[str]
    journal: Journal | None

    @classmethod
    def of(cls, pod: PodRecord) -> Told:
        metadata = pod.view.metadata
        return cls(pod.uid, metadata.namespace, metadata.name, list(pod.story), pod.journal)

    def recorded(self) -> Recorded:
        journal = self.journal or Journal(0, listed=False, facts=StatusFacts())
        steps = [_step.decode(step) for step in journal.steps]
        return Recorded(
            self.uid,
            self.namespace,
            self.name,
            list(self.story),
            journal.listed,
            journal.facts,
            journal.forgotten,
            steps,
        )


def encode(recorded: Recorded) -> bytes:
    return _encode(recorded)


def decode(raw: bytes) -> Recorded:
    """A story from a node; raises `msgspec.ValidationError` where it is none."""
    return _recorded.decode(raw)


def _written(result: fx.Result) -> fx.Written:
    if not isinstance(result, Refusal):
        return result
    missing = dict(result.missing) if isinstance(result, fx.Shortage) else None
    return fx.RecordedRefusal(result.reason, result.message, result.retry, missing)


def _refusal(written: fx.RecordedRefusal) -> Refusal:
    if written.missing is None:
        return Refusal(written.reason, written.message, written.retry)
    return fx.Shortage(written.reason, written.message, written.retry, written.missing)


# ---- As a test


def playbook(recorded: Recorded) -> str:
    """The story as a test of the pod machine: what it heard (`>>`) and what it has to answer (`<<`)."""
    title = "".join(letter if letter.isalnum() else "_" for letter in recorded.name)
    first = recorded.steps[0].at if recorded.steps else 0.0
    lines = [
        f'"""Recorded from pod {recorded.namespace}/{recorded.name} ({recorded.uid}); replay it in tests/node/pod."""',
        "",
        "from tests.node.pod.playbook import *  # noqa: F403",
        "",
        "",
        f"def test_{title}() -> None:",
    ]
    if recorded.forgotten:
        lines.append(
            f"    # The first {recorded.forgotten} steps are forgotten: what follows does not replay from here."
        )
    book = f"Playbook(machine(listed={recorded.listed}, facts={source(recorded.facts)}), {first!r}, exact=True)"
    lines += ["    assert (", textwrap.indent(book, " " * 8)]
    for step in recorded.steps:
        lines.append(textwrap.indent(f">> at({step.at!r}, {source(step.heard())})", " " * 8))
        lines.append(textwrap.indent(f"<< {source(step.effects)}", " " * 8))
    return "\n".join([*lines, "    )", ""])


def source(value: Any) -> str:
    """A value as Python source."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Struct) or hasattr(value, "__dataclass_fields__"):
        return _call(type(value).__name__, _fields(value))
    if isinstance(value, list | tuple) and any(not _plain(one) for one in value):
        inner = ",\n".join(textwrap.indent(source(one), "    ") for one in value)
        opening, closing = "[]" if isinstance(value, list) else "()"
        return f"{opening}\n{inner},\n{closing}"
    return pprint.pformat(value, width=WIDTH, sort_dicts=False)


def _fields(value: Any) -> dict[str, Any]:
    """What a value says beyond its defaults."""
    if isinstance(value, Struct):
        defaults = {one.name: one.default for one in msgspec.structs.fields(value)}
        made = {one.name for one in msgspec.structs.fields(value) if one.default_factory is not msgspec.NODEFAULT}
    else:
        defaults = {name: one.default for name, one in value.__dataclass_fields__.items()}
        made = set()
    shown = {name: getattr(value, name) for name in defaults}
    return {
        name: one
        for name, one in shown.items()
        if not (type(one) is type(defaults[name]) and one == defaults[name]) and not (name in made and not one)
    }


def _call(name: str, fields: Mapping[str, Any]) -> str:
    parts = [f"{key}={source(one)}" for key, one in fields.items()]
    short = f"{name}({', '.join(parts)})"
    if len(short) <= WIDTH and "\n" not in short:
        return short
    inner = ",\n".join(textwrap.indent(part, "    ") for part in parts)
    return f"{name}(\n{inner},\n)"


def _plain(value: Any) -> bool:
    """Whether Python's own form of a value is source that makes it again."""
    return not isinstance(value, Struct | Enum) and (
        not isinstance(value, list | tuple) or all(_plain(one) for one in value)
    )
