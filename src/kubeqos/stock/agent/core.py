"""Which classes the pods and containers of a node get, from what the runtime says of them. Pure.

A pod asks by annotation (`asking`), and the runtime hands every annotation on; nothing else is needed to decide. The
rules of granting are the relay's own (`cri.relay.core`). Who asked for something gets it or is refused, never neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Level, Subject
from kubeqos.cri.relay.core import Denied, Offers, Wish, adopted, grant
from kubeqos.errors import KubeqosError
from kubeqos.stock.asking import CONTAINER_KEY, POD_KEY, read_on_node

MARK = "qos.kubeqos.io.classes"
"""The annotation of a container that was given its classes when it was made."""


@dataclass(frozen=True, slots=True)
class Found:
    """A container or sandbox that runs already, as the runtime tells of it after a (re)connection."""

    subject: Subject
    pod_annotations: Mapping[str, str]
    own_annotations: Mapping[str, str] = field(default_factory=dict)
    alive: bool = True
    created_at: int = 0

    @property
    def is_marked(self) -> bool:
        return MARK in self.own_annotations


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of those that were found: who holds what, and who cannot have what it asked for, with the reason."""

    holders: ClassHolders
    broken: Sequence[tuple[Subject, str]]


def wishes(offers: Offers, subject: Subject, pod_annotations: Mapping[str, str]) -> list[Wish] | Denied:
    """What a pod's annotations ask for this subject.

    What a pod asks for as a whole is a class of the pod where the resource is given to pods, and the default of its
    containers elsewhere; a resource that nobody here knows is the sandbox's, so that the pod is refused at once.
    """
    try:
        asked = read_on_node(pod_annotations)
    except KubeqosError as error:
        return Denied(0, "; ".join(error.lines()))
    whole = {name: cls for name, cls in asked.pod.items() if name not in offers or offers[name].level is Level.POD}
    if subject.level is Level.POD:
        return [Wish(name, cls, f"annotation {POD_KEY}") for name, cls in whole.items()]
    defaults = {name: cls for name, cls in asked.pod.items() if name not in whole}
    own = asked.containers.get(subject.container_name, {})
    return [
        *(Wish(name, cls, f"annotation {POD_KEY}") for name, cls in defaults.items() if name not in own),
        *(Wish(name, cls, f"annotation {CONTAINER_KEY}{subject.container_name}") for name, cls in own.items()),
    ]


def decide(
    offers: Offers, holders: ClassHolders, subject: Subject, pod_annotations: Mapping[str, str]
) -> dict[str, Assignment] | Denied:
    """The class of every resource for a new sandbox or container, or why it cannot be had."""
    asked = wishes(offers, subject, pod_annotations)
    return asked if isinstance(asked, Denied) else grant(offers, holders, subject.level, asked, subject=subject)


def take(offers: Offers, found: Sequence[Found]) -> Taken:
    """Who holds what among those that run already. The oldest come first: room that they have is theirs."""
    holders, broken = ClassHolders(), []
    for one in sorted(found, key=lambda each: (each.subject.level is not Level.POD, each.created_at)):
        subject = one.subject
        kept = _kept(offers, one)
        decided = kept if kept is not None else _late(offers, holders, one)
        if isinstance(decided, Denied):
            if one.alive:
                broken.append((subject, decided.message))
            continue
        holders.put(subject.id, Holder(subject, decided, alive=one.alive))
    return Taken(holders, broken)


def _late(offers: Offers, holders: ClassHolders, one: Found) -> dict[str, Assignment] | Denied:
    """For one that was made while nobody was here to give it classes: those that can still be entered."""
    decided = decide(offers, holders, one.subject, one.pod_annotations)
    if isinstance(decided, Denied):
        return decided
    explicit = {name: assigned for name, assigned in decided.items() if assigned.explicit}
    missed = [name for name in explicit if not offers[name].mutable]
    if missed and one.alive and one.subject.level is Level.CONTAINER:
        what = f"{missed[0]}={explicit[missed[0]].class_name}"
        return Denied(0, f"{one.subject.describe()} started without its class {what}, which cannot be entered later")
    return {**adopted(offers, one.subject.level, running=True), **explicit}


def _kept(offers: Offers, one: Found) -> dict[str, Assignment] | None:
    """The classes that a container was given when it was made; None where that was not by us."""
    if not one.is_marked:
        return None
    try:
        noted = decode_json(one.own_annotations[MARK])
        return {name: Assignment(str(cls), bool(explicit)) for name, (cls, explicit) in noted.items() if name in offers}
    except (JsonError, AttributeError, TypeError, ValueError):
        return None


def mark(classes: Mapping[str, Assignment]) -> str:
    """What is noted on a container, so that it is known again."""
    return encode_json({name: [each.class_name, each.explicit] for name, each in classes.items()}).decode()
