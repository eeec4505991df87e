"""What the scheduler wants done, as values: the core decides on them, the service performs them. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from kubeqos.model.decisions import NodeScore, Waiting
from kubeqos.placement.storage.needs import VolumePlan

UNSCHEDULABLE = "Unschedulable"
"""No node fits. Autoscalers read it: they make room for such pods."""
WAITING_FOR_VOLUMES = "WaitingForVolumes"
"""It has a node as soon as its volumes are there."""


class PodKey(msgspec.Struct, frozen=True, gc=False):
    """A pod as effects name it."""

    uid: str
    namespace: str
    name: str


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Give the pod this node."""

    pod: PodKey
    node: str
    because: str
    best: tuple[NodeScore, ...] = ()
    """The score table; empty in a burst."""


class Report(msgspec.Struct, frozen=True, gc=False):
    """Tell the user why the pod waits; `nominated` is the node being freed for it."""

    pod: PodKey
    message: str
    nominated: str = ""
    waiting: Waiting | None = None
    """The same in numbers, where nodes were looked at."""
    victims: tuple[PodKey, ...] = ()
    """Who has to go for it now."""
    reason: str = UNSCHEDULABLE


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Delete a victim so that a more important pod can have its place."""

    victim: PodKey
    node: str
    preemptor: PodKey
    because: str = ""


class BindVolumes(msgspec.Struct, frozen=True, gc=False):
    """Give the claims of a pod their volumes, or have them made, for the node that it will get."""

    pod: PodKey
    node: str
    plan: VolumePlan


Effect = Bind | Report | Evict | BindVolumes


class Outcome(enum.StrEnum):
    """How an attempt ended, as metrics count it."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"


@dataclass(slots=True)
class Counters:
    """What metrics read."""

    attempts: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    preemptions: int = 0
    victims: int = 0
