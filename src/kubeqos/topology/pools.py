"""Pools: a named partition of one machine's CPUs, and who runs where.

Every online CPU is in exactly one pool: `reserved` for the system, `isolated` (kernel isolcpus that nobody
has), pools that the user names, one pool per exclusive owner, and `shared`, which is by definition the rest.
So the partition can always be derived again from its entries, and a checkpoint that stores only entries
cannot contradict itself. `Pools` is an immutable value; every operation returns the next one or says why not.
Called by QRM's CPU plugin, the CCI store and the node agent; changes between two values are ordered by
`topology.changes.plan_changes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Unsatisfiable, Violation

RESERVED, ISOLATED, SHARED = "reserved", "isolated", "shared"
BUILT_IN = (RESERVED, ISOLATED, SHARED)


@dataclass(frozen=True)
class Pools:
    """One partition. `members` says in which pool a container without CPUs of its own runs."""

    machine: Machine
    reserved: CpuSet = NO_CPUS
    named: Mapping[str, CpuSet] = field(default_factory=dict)
    exclusive: Mapping[str, CpuSet] = field(default_factory=dict)  # owner (usually pod/container) → CPUs
    members: Mapping[str, str] = field(default_factory=dict)  # container → pool name or exclusive owner

    @cached_property
    def shared(self) -> CpuSet:
        """What nobody else has, without isolated CPUs."""
        return self.available - self.machine.isolated

    @cached_property
    def available(self) -> CpuSet:
        """What an exclusive request may take: shared and isolated CPUs."""
        mask = self.machine.online.mask & ~self.reserved.mask
        for cpus in (*self.named.values(), *self.exclusive.values()):
            mask &= ~cpus.mask
        return CpuSet(mask)

    @cached_property
    def partition(self) -> dict[str, CpuSet]:
        """Every pool and its CPUs; together they are the machine."""
        rest = {
            RESERVED: self.reserved,
            ISOLATED: self.available & self.machine.isolated,
            SHARED: self.shared,
        }
        return {**rest, **self.named, **self.exclusive}

    def carve(self, owner: str, cpus: CpuSet) -> Pools | Unsatisfiable:
        """Give `owner` these CPUs for itself, out of what is available."""
        if owner in self.partition:
            return _refuse(f"{owner} already has {self.partition[owner]}")
        taken = cpus - self.available
        if taken:
            return _refuse(f"{taken} cannot be carved for {owner}: {self._whose(taken)}")
        return self._checked(replace(self, exclusive={**self.exclusive, owner: cpus}))

    def give_back(self, owner: str) -> Pools:
        """Return an exclusive owner's CPUs; whoever shared them falls back to the shared pool."""
        members = {c: SHARED if pool == owner else pool for c, pool in self.members.items() if c != owner}
        exclusive = {name: cpus for name, cpus in self.exclusive.items() if name != owner}
        return replace(self, exclusive=exclusive, members=members)

    def resize(self, name: str, cpus: CpuSet) -> Pools | Unsatisfiable:
        """Make a named pool (new or not) or an exclusive set exactly `cpus`; shared gives or takes."""
        if name in BUILT_IN and name != RESERVED:
            return _refuse(f"{name} is what others leave over and cannot be resized")
        taken = cpus - self.available - self.partition.get(name, NO_CPUS)
        if taken:
            return _refuse(f"{name} cannot have {taken}: {self._whose(taken)}")
        if name == RESERVED:
            return self._checked(replace(self, reserved=cpus))
        if name in self.exclusive:
            return self._checked(replace(self, exclusive={**self.exclusive, name: cpus}))
        return self._checked(replace(self, named={**self.named, name: cpus}))

    def join(self, container: str, pool: str = SHARED) -> Pools | Unsatisfiable:
        """Let a container run in a pool (or in another container's exclusive set, as sidecars do)."""
        if pool not in self.partition or pool in (RESERVED, ISOLATED):
            return _refuse(f"{container} cannot run in pool {pool}")
        if not self.partition[pool]:
            return _refuse(f"pool {pool} has no CPUs for {container}")
        return replace(self, members={**self.members, container: pool})

    def leave(self, container: str) -> Pools:
        """Forget a container that runs in a pool."""
        return replace(self, members={c: pool for c, pool in self.members.items() if c != container})

    def validate(self) -> list[str]:
        """Broken invariants, in words; empty when all is well."""
        wrong = self._overlaps()
        twice = set(self.named) & set(self.exclusive) | set(BUILT_IN) & {*self.named, *self.exclusive}
        wrong += [f"two pools are called {name}" for name in sorted(twice)]
        wrong += [f"{name} is exclusive and has no CPUs" for name, cpus in self.exclusive.items() if not cpus]
        wrong += [
            f"{container} runs in {pool}, which has no CPUs"
            for container, pool in self.members.items()
            if not self.partition.get(pool)
        ]
        total = sum(len(cpus) for cpus in self.partition.values())
        if not wrong and total != len(self.machine.online):
            wrong.append(f"pools hold {total} CPUs of {len(self.machine.online)}")
        return wrong

    def _overlaps(self) -> list[str]:
        wrong = []
        seen = NO_CPUS
        stored = [(RESERVED, self.reserved), *self.named.items(), *self.exclusive.items()]
        for index, (name, cpus) in enumerate(stored):
            if cpus - self.machine.online:
                wrong.append(f"{name} holds {cpus - self.machine.online}, which are not online")
            if cpus & seen:
                others = [(other, cpus & theirs) for other, theirs in stored[:index] if cpus & theirs]
                wrong += [f"{name} and {other} both hold {both}" for other, both in others]
            seen |= cpus
        return wrong

    def _checked(self, after: Pools) -> Pools | Unsatisfiable:
        """The next value, unless it starves someone."""
        for wrong in after.validate():
            return _refuse(wrong)
        return after

    def _whose(self, cpus: CpuSet) -> str:
        owners = [f"{name} has {held & cpus}" for name, held in self.partition.items() if held & cpus]
        if cpus - self.machine.online:
            owners.append(f"{cpus - self.machine.online} are not online")
        return ", ".join(owners)


def _refuse(detail: str) -> Unsatisfiable:
    return Unsatisfiable((Violation("pools", detail),))
