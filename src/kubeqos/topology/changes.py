"""In which order to write new CPU sets, so that every moment in between is as good as the ends.

Writing one container's set is atomic; writing several is not. `plan_changes` orders the writes so that no
container is ever left without CPUs and no CPU is ever given to an exclusive owner while somebody else still
holds it: whoever gives something up is narrowed before whoever receives it is widened. Almost always each
container is written once; rings of owners that swap CPUs get a step in between. Who becomes an owner does so when
everybody else has left; who was one shares from its first write on. Used by `node.updates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kubeqos.model.cpuset import CpuSet
from kubeqos.topology.answers import Unsatisfiable, Violation


@dataclass(frozen=True, slots=True)
class Held:
    """A container's CPUs. Containers with one exclusive owner may overlap; None is shared with all."""

    cpus: CpuSet
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class CpuChange:
    """Give this container these CPUs; `final` is false for a step in between."""

    container: str
    cpus: CpuSet
    final: bool = True


def plan_changes(
    before: Mapping[str, Held], after: Mapping[str, Held], spare: CpuSet | None = None
) -> tuple[CpuChange, ...] | Unsatisfiable:
    """The writes that lead from `before` to `after`, in a safe order.

    Containers only in `before` are gone already, those only in `after` start with their final set. `spare`
    CPUs belong to nobody and may be used for a moment when single CPUs are swapped. Containers that do not
    change are not written.
    """
    empty = sorted(name for name, held in after.items() if not held.cpus)
    if empty:
        return Unsatisfiable((Violation("cpuset", f"{empty[0]} would be left without CPUs"),))
    clash = _clash(after)
    if clash:
        return Unsatisfiable((Violation("cpuset", clash),))
    planner = _Planner(before, after, (spare or CpuSet()).mask)
    return planner.plan()


def _clash(after: Mapping[str, Held]) -> str | None:
    """Two containers that may not overlap and would."""
    for name, held in after.items():
        for other, theirs in after.items():
            if held.owner is not None and held.owner != theirs.owner and held.cpus & theirs.cpus:
                return f"{name} is exclusive and {other} would share {held.cpus & theirs.cpus} with it"
    return None


class _Planner:
    """Writes one container after the other; what each holds at the moment is the only state.

    Each container first only loses CPUs, then enters its new set and only gains, so the plan ends.
    """

    def __init__(self, before: Mapping[str, Held], after: Mapping[str, Held], spare: int) -> None:
        self.now = {name: held.cpus.mask for name, held in before.items() if name in after}
        self.target = {name: held.cpus.mask for name, held in after.items()}
        self.owner = {name: held.owner for name, held in after.items()}
        self.owner_now = {name: before.get(name, held).owner for name, held in after.items()}
        self.spare = spare
        self.parked: set[str] = set()
        self.changes: list[CpuChange] = []
        # Shared containers give way first: nobody's promise is broken by that.
        self.order = sorted(after, key=lambda name: (self.owner[name] is not None, name))

    def plan(self) -> tuple[CpuChange, ...] | Unsatisfiable:
        while todo := [name for name in self.order if self.now.get(name) != self.target[name]]:
            if not any(step(todo) for step in (self._finish, self._narrow, self._enter, self._shrink, self._park)):
                ring = ", ".join(todo)
                detail = f"{ring} swap CPUs and there is no spare CPU to do it with"
                return Unsatisfiable((Violation("cpuset", detail),))
        return tuple(self.changes)

    def _blocked(self, name: str) -> int:
        """CPUs that this container may not enter now."""
        mask = 0
        for other, held in self.now.items():
            if other != name and self.owner_now[other] != self.owner[name]:
                mask |= held
        return mask

    def _kept(self, name: str) -> int:
        """CPUs for which this container need not ask: it has them, and as it is to have them."""
        becomes_owner = self.owner[name] is not None and self.owner_now[name] != self.owner[name]
        return 0 if becomes_owner else self.now.get(name, 0)

    def _may(self, name: str, mask: int) -> bool:
        return not mask & ~self._kept(name) & self._blocked(name)

    def _write(self, name: str, mask: int) -> bool:
        self.now[name] = mask
        self.owner_now[name] = self.owner[name]
        self.changes.append(CpuChange(name, CpuSet(mask), mask == self.target[name]))
        return True

    def _finish(self, todo: list[str]) -> bool:
        """Anyone whose new set is within the old one, else anyone whose new set is free of others."""
        for name in todo:
            inside = name in self.now and not self.target[name] & ~self.now[name]
            if inside and self._may(name, self.target[name]):
                return self._write(name, self.target[name])
        for name in todo:
            if self._may(name, self.target[name]):
                return self._write(name, self.target[name])
        return False

    def _narrow(self, todo: list[str]) -> bool:
        """Let go of what is not needed any more, while something of the new set is already held."""
        for name in todo:
            keep = self.now.get(name, 0) & self.target[name]
            if keep and keep != self.now[name] and self._may(name, keep):
                return self._write(name, keep)
        return False

    def _enter(self, todo: list[str]) -> bool:
        """Move into the part of the new set that is free, leaving the old set altogether."""
        for name in todo:
            held = self.now.get(name, 0)
            part = self.target[name] & (self._kept(name) | ~self._blocked(name))
            if held and part & ~held:
                return self._write(name, part)
        return False

    def _shrink(self, todo: list[str]) -> bool:
        """Stay on a single CPU of the old set, one that others want least, to open a ring."""
        wanted = 0
        for name in todo:
            wanted |= self.target[name]
        for name in todo:
            held = self.now.get(name, 0)
            stay = held & (self._kept(name) | ~self._blocked(name))
            if held.bit_count() > 1 and stay and not held & self.target[name]:
                choice = stay & ~wanted or stay
                return self._write(name, choice & -choice)
        return False

    def _park(self, todo: list[str]) -> bool:
        """Wait on a CPU that belongs to nobody."""
        taken = 0
        for held in self.now.values():
            taken |= held
        for name in todo:
            idle = self.spare & ~taken
            if idle and name in self.now and name not in self.parked:
                self.parked.add(name)
                return self._write(name, idle & -idle)
        return False
