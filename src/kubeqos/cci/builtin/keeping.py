"""What a driver's containers hold, for drivers that look at it when they choose or tune."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kubeqos.cci.sdk import Ask, End, Held, Start
from kubeqos.model.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class Kept:
    claim_uid: str
    pod: str
    container: str
    cpus: CpuSet
    owned: CpuSet
    """Those of them that are its own. Shared ones may have been exchanged since, of which no driver is told."""
    container_id: str = ""


@dataclass
class Keeping:
    """A list that follows the three calls; `restore` replaces it by what the manager remembers."""

    kept: list[Kept] = field(default_factory=list)

    def asked(self, ask: Ask) -> None:
        """Whoever asks again has lost the first answer: what it said does not stand in its own way."""
        self.kept = [one for one in self.kept if (one.claim_uid, one.pod, one.container) != _identity(ask)]

    def admitted(self, ask: Ask, sets: Iterable[CpuSet]) -> None:
        given = list(sets)
        own = [cpus for cpus, group in zip(given, ask.groups, strict=True) if group.exclusive]
        self.kept.append(Kept(*_identity(ask), _union(given), _union(own)))

    def started(self, start: Start) -> None:
        self.kept = [
            replace(one, container_id=start.container_id)
            if (one.pod, one.container) == (start.pod, start.container)
            else one
            for one in self.kept
        ]

    def ended(self, end: End) -> None:
        gone = (end.claim_uid, end.container_id)
        self.kept = [one for one in self.kept if (one.claim_uid, one.container_id) != gone]

    def restored(self, held: Sequence[Held]) -> None:
        self.kept = [
            Kept(one.claim_uid, one.pod, one.container, _union(one.sets), _union(_owned(one)), one.container_id)
            for one in held
        ]

    @property
    def cpus(self) -> CpuSet:
        return _union(one.cpus for one in self.kept)

    @property
    def owned(self) -> CpuSet:
        return _union(one.owned for one in self.kept)


def _identity(ask: Ask) -> tuple[str, str, str]:
    return ask.claim_uid, ask.pod, ask.container


def _owned(held: Held) -> Iterator[frozenset[int]]:
    return (cpus for cpus, own in zip(held.sets, held.exclusive, strict=True) if own)


def _union(sets: Iterable[Iterable[int]]) -> CpuSet:
    return CpuSet.from_ids(cpu for cpus in sets for cpu in cpus)
