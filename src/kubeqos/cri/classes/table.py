"""Who has which class on this node: one table, whichever way the runtime's events come. Pure.

One method per event (asked for, made, placed, changed, ended, gone, found, other offers), and one place that changes a
row. What is to be done about it comes back as effects. `keeper` drives it and performs them, for the relay and for NRI.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.codec import JsonObject
from kubeqos.cri.classes import decisions
from kubeqos.cri.classes.decisions import Asks, ClassChange, Denied, Follow, Offers, Wish
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Level, Place, Subject

_STORY_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Found:
    """A sandbox or container that the runtime has, as it tells of it."""

    subject: Subject
    pod_annotations: Mapping[str, str] = field(default_factory=dict)
    noted: Holder | None = None
    """As whom it was made by us, where that is noted on it."""
    alive: bool = True
    running: bool = True
    created_at: int = 0
    can_be_noted: bool = True
    """False where nothing can be noted on what we make: it may be ours all the same."""
    place: Place | None = None
    """Where it runs, if the runtime has told that, too."""


@dataclass(frozen=True, slots=True)
class Enforce:
    """The providers are to let this one into its classes, where it runs."""

    key: str
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Withdraw:
    """The providers are to release what they keep for one that is gone."""

    key: str
    holder: Holder


@dataclass(frozen=True, slots=True)
class Weigh:
    """The cgroup of this one's pod is to say what the classes of those who are left in it mean."""

    subject: Subject


@dataclass(frozen=True, slots=True)
class Missed:
    """This one runs and cannot have what it asked for."""

    subject: Subject
    reason: str


Effect = Enforce | Withdraw | Weigh | Missed


class ClassTable:
    """The sandboxes and containers of one node, and their classes.

    reserved → made → placed → ended → gone; whatever the runtime has and the table has not is met between them.
    """

    def __init__(self, offers: Offers, holders: ClassHolders | None = None, asks: Asks | None = None) -> None:
        self.offers = offers
        self.holders = holders if holders is not None else ClassHolders()
        self.asks = asks
        self.version = 0
        """Counts up with every change that is worth keeping over a restart."""
        self._missed: set[str] = set()
        """Who was told of, and does not come in by a room that is free later: its pod is on its way out."""
        self._story: deque[tuple[str, str]] = deque(maxlen=_STORY_LINES)

    def known(self) -> list[str]:
        """Of all that the runtime has made."""
        return [key for key, _ in self.holders if ":" not in key]

    def mates(self, subject: Subject) -> list[Holder]:
        """Everybody in the same pod."""
        return [one for _, one in self.holders if one.subject.sandbox_id == subject.sandbox_id]

    def dump(self) -> JsonObject:
        """Plain data for a checkpoint. Who misses something is found again, and told of again: it may not have gone."""
        return {key: row for key, row in self.holders.dump().items() if key not in self._missed}

    def story(self, pod_uid: str) -> list[str]:
        """What happened to a pod's classes, oldest first."""
        return [line for uid, line in self._story if uid == pod_uid]

    def validate(self) -> list[str]:
        """What is wrong with the table; nothing, ever."""
        self.holders.validate()
        rows = dict(iter(self.holders))
        return [
            *(f"{key} is held as {one.subject.id}" for key, one in rows.items() if one.subject.id not in (key, "")),
            *(f"{key} has ended and is somewhere" for key, one in rows.items() if not one.alive and one.place),
            *(f"{key} is a reservation and is somewhere" for key, one in rows.items() if ":" in key and one.place),
        ]

    # ---- what is about to be made

    def asked(self, subject: Subject, pod_annotations: Mapping[str, str]) -> Sequence[Wish] | Denied:
        """What a pod asks for by annotation, where its owner may ask so."""
        return self.asks(self.offers, subject, pod_annotations) if self.asks is not None else ()

    def reserve(
        self, key: str, subject: Subject, wishes: Sequence[Wish], fallback: Sequence[Wish] = ()
    ) -> Holder | Denied:
        """Classes for a new one, counted from now on; or why not. Who is given none is not in the table."""
        granted = decisions.grant(self.offers, self.holders, subject.level, wishes, fallback, subject)
        if isinstance(granted, Denied):
            self._tell(subject, f"refused: {granted.message}")
            return granted
        holder = Holder(subject, granted)
        if granted:
            self.put(key, holder, "reserved")
        return holder

    def agreed(self, key: str, classes: Mapping[str, Assignment]) -> Holder:
        """The providers have said to which of the reserved classes they agree."""
        holder = dataclasses.replace(self._of(key), classes=dict(classes))
        self.put(key, holder, "agreed")
        return holder

    def released(self, key: str) -> None:
        """It was not made after all."""
        self._remove(key, "not made")

    def made(self, ticket: str, key: str) -> Holder:
        """The runtime has given it an id."""
        holder = self.holders.rename(ticket, key)
        self.version += 1
        self._tell(holder.subject, f"made: {_named(holder)}")
        return holder

    # ---- what runs

    def placed(self, key: str, place: Place) -> None:
        """It is there, and in its classes."""
        self.put(key, dataclasses.replace(self._of(key), place=place, alive=True), "placed")

    def change(self, key: str, holder: Holder, wishes: Sequence[Wish], subject: Subject) -> ClassChange | Denied:
        """What an update means for one that runs; nothing is changed yet."""
        return decisions.change(self.offers, self.holders, key, holder, wishes, subject)

    def resized(self, key: str, *, cpu_shares: int = 0, memory_limit_bytes: int = 0) -> None:
        """It asks for other amounts from now on, which its classes scale."""
        if (holder := self.holders.get(key)) is not None:
            subject = decisions.resized(holder.subject, cpu_shares, memory_limit_bytes)
            self.put(key, dataclasses.replace(holder, subject=subject), "resized")

    def put(self, key: str, holder: Holder, what: str) -> None:
        """The one place where a row is written."""
        if self.holders.get(key) == holder:
            return
        self.holders.put(key, holder)
        self.version += ":" not in key
        self._tell(holder.subject, f"{what}: {_named(holder)}")

    # ---- what has ended

    def ended(self, key: str) -> list[Effect]:
        """It no longer runs, and takes no room."""
        holder = self.holders.get(key)
        if holder is None or not holder.alive:
            return []
        self.put(key, dataclasses.replace(holder, alive=False, place=None), "ended")
        return [Weigh(holder.subject)]

    def gone(self, key: str) -> list[Effect]:
        """The runtime has it no more."""
        self._missed.discard(key)
        holder = self._remove(key, "gone")
        return [Withdraw(key, holder), Weigh(holder.subject)] if holder is not None else []

    # ---- what the runtime has

    def synchronize(
        self, found: Sequence[Found], before: Collection[str] | None = None, *, again: bool = False
    ) -> list[Effect]:
        """Agree with the runtime. `before` are those who were here when it was asked: none else can have gone.

        With `again` everybody who runs is let into its classes, not the new ones alone: somebody may have been at them.
        """
        effects: list[Effect] = []
        there = {one.subject.id for one in found}
        self._missed &= there
        for key in self.known() if before is None else before:
            effects += self.gone(key) if key not in there else ()
        new = {id for id in there if self.holders.get(id) is None and id not in self._missed}
        for one in found:
            effects += self._seen(one) if one.subject.id not in new else ()
        # Room belongs to whom it was given; then the oldest come first.
        for one in sorted((each for each in found if each.subject.id in new), key=_age):
            effects += self._met(one)
        held = (one for one in found if (again or one.subject.id in new) and one.alive)
        return [*effects, *(Enforce(one.subject.id, one.place) for one in held if self.holders.get(one.subject.id))]

    def _seen(self, one: Found) -> list[Effect]:
        if not one.alive:
            return self.ended(one.subject.id)
        amounts = one.subject
        self.resized(amounts.id, cpu_shares=amounts.cpu_shares, memory_limit_bytes=amounts.memory_limit_bytes)
        return []

    def _met(self, one: Found) -> list[Effect]:
        holder = one.noted or Holder(one.subject)
        effects: list[Effect] = []
        classes = decisions.adopted(self.offers, one.subject, one.running)
        if one.noted is not None:
            # A resource whose provider is away is in no offer; what was asked of it waits for it.
            classes |= {name: each for name, each in holder.classes.items() if each.explicit or name in self.offers}
        else:
            entered, missed = self._late(one)
            # Who cannot have all of it is about to go: it gets what it asked for as far as that is possible, no more.
            classes = entered if missed else {**classes, **entered}
            if missed and one.alive:
                self._missed.add(one.subject.id)
                self._tell(one.subject, f"missed: {missed}")
                effects.append(Missed(one.subject, missed))
        if classes:
            self.put(one.subject.id, dataclasses.replace(holder, classes=classes, alive=one.alive), "met")
        return effects

    def _late(self, one: Found) -> tuple[dict[str, Assignment], str]:
        """What one that was made without us can still have of what it asked for, and why not the rest."""
        asked = self.asked(one.subject, one.pod_annotations)
        if isinstance(asked, Denied):
            return {}, asked.message
        entered: dict[str, Assignment] = {}
        missed: list[str] = []
        for wish in asked:
            granted = decisions.grant(self.offers, self.holders, one.subject.level, [wish], subject=one.subject)
            if isinstance(granted, Denied):
                missed.append(granted.message)
                continue
            for name in (name for name, each in granted.items() if each.explicit):
                if one.alive and one.can_be_noted and not self.offers[name].mutable:
                    what = f"started without its class {name}={wish.class_name}, which cannot be entered later"
                    missed.append(f"{one.subject.describe()} {what}")
                else:
                    entered[name] = granted[name]
        return entered, "; ".join(missed)

    # ---- what is on offer

    def follow(self, before: Offers, key: str, holder: Holder, redefined: Collection[str]) -> Follow:
        """One goes where the offers of now want it; `before` are those that it follows from."""
        step = decisions.follow(before, self.offers, key, holder, redefined)
        self.put(key, step.holder, "follows")
        return step

    # ---- helpers

    def _of(self, key: str) -> Holder:
        holder = self.holders.get(key)
        assert holder is not None, f"{key} is not in the table"
        return holder

    def _remove(self, key: str, what: str) -> Holder | None:
        holder = self.holders.remove(key)
        if holder is not None:
            self.version += ":" not in key
            self._tell(holder.subject, what)
        return holder

    def _tell(self, subject: Subject, what: str) -> None:
        self._story.append((subject.pod_uid, f"{subject.container_name or 'sandbox'} {what}"))


def _age(one: Found) -> tuple[bool, bool, int]:
    return one.noted is None, one.subject.level is not Level.POD, one.created_at


def _named(holder: Holder) -> str:
    return ", ".join(f"{name}={each.class_name}" for name, each in sorted(holder.classes.items()) if each.class_name)
