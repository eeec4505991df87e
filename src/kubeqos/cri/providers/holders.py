"""Who holds which class on this node, and how full each class is.

Counting follows DESIGN ruling 3: a pod-level class counts pods, a container-level class counts containers that are
alive at the same time, so an init container that has finished makes room for the next. Implicit defaults are recorded
(status shows them) and never counted. No I/O here; the relay saves `dump()` in a checkpoint.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.codec import JsonObject
from kubeqos.cri.providers.protocol import Level, Place, Subject


@dataclass(frozen=True, slots=True)
class Assignment:
    """A class that a subject has, and whether it asked for it."""

    class_name: str
    explicit: bool = False


@dataclass(frozen=True, slots=True)
class Holder:
    """A sandbox or container and its classes by resource."""

    subject: Subject
    classes: Mapping[str, Assignment] = field(default_factory=dict)
    alive: bool = True
    place: Place | None = None
    """Where it runs; None until it has started."""

    def charges(self) -> Iterator[tuple[str, str]]:
        """(resource, class) pairs that this holder takes room in."""
        if self.alive:
            yield from ((name, a.class_name) for name, a in self.classes.items() if a.explicit)


class ClassHolders:
    """All holders of one node."""

    def __init__(self) -> None:
        self._holders: dict[str, Holder] = {}
        self._used: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._holders)

    def __iter__(self) -> Iterator[tuple[str, Holder]]:
        return iter(list(self._holders.items()))

    def get(self, key: str) -> Holder | None:
        return self._holders.get(key)

    def used(self, resource: str, class_name: str) -> int:
        return self._used[resource, class_name]

    def put(self, key: str, holder: Holder) -> None:
        """Record or replace a holder; the counts follow."""
        self.remove(key)
        self._holders[key] = holder
        self._used.update(holder.charges())

    def remove(self, key: str) -> Holder | None:
        holder = self._holders.pop(key, None)
        if holder:
            self._used.subtract(holder.charges())
        return holder

    def rename(self, key: str, new_key: str) -> Holder:
        """A reservation becomes the holder of the id that the runtime gave."""
        holder = self._holders[key]
        self.remove(key)
        bound = dataclasses.replace(holder, subject=dataclasses.replace(holder.subject, id=new_key))
        self.put(new_key, bound)
        return bound

    def holders_of(self, resource: str, class_name: str) -> list[Holder]:
        return [h for h in self._holders.values() if (resource, class_name) in set(h.charges())]

    def validate(self) -> None:
        """The invariant: counts are what the holders say."""
        expected: Counter[tuple[str, str]] = Counter()
        for holder in self._holders.values():
            expected.update(holder.charges())
        assert +self._used == expected, f"counts {+self._used} differ from holders {expected}"

    def dump(self) -> JsonObject:
        """Plain data for the checkpoint, without reservations still in flight (their keys have a colon)."""
        return {
            key: {
                "subject": {**dataclasses.asdict(h.subject), "level": h.subject.level.value},
                "classes": {name: [a.class_name, a.explicit] for name, a in h.classes.items()},
                "alive": h.alive,
                "place": [h.place.pid, h.place.cgroup, [list(one) for one in h.place.elsewhere]] if h.place else None,
            }
            for key, h in self._holders.items()
            if ":" not in key
        }

    @classmethod
    def load(cls, data: JsonObject) -> ClassHolders:
        holders = cls()
        for key, item in data.items():
            subject = Subject(**{**item["subject"], "level": Level(item["subject"]["level"])})
            classes = {name: Assignment(c, explicit) for name, (c, explicit) in item["classes"].items()}
            place = _place(*item["place"]) if item["place"] else None
            holders.put(key, Holder(subject, classes, item["alive"], place))
        return holders


def _place(pid: int, cgroup: str, elsewhere: Sequence[Sequence[str]] = ()) -> Place:
    """A saved place; older files know of one path for all hierarchies."""
    return Place(pid, cgroup, tuple((name, path) for name, path in elsewhere))
