"""Who holds which CPUs of one machine by claims (KEP-3675), as values.

The CCI manager keeps them on disk (`cci.store`); the scheduler works them out for every node from what the node
publishes (`placement.published.computing`). Decisions about them live in `sharing`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.attributes import CpuRequest, owned
from kubeqos.topology.claims.parameters import Group, Parameters

Key = tuple[str, str]
"""Pod id and container name."""


@dataclass(frozen=True, slots=True)
class ResourceSet:
    """CPUs of one group. `whole` is what nobody else may use: nothing for shared ones, else the siblings too."""

    cpus: CpuSet
    whole: CpuSet = NO_CPUS

    @property
    def exclusive(self) -> bool:
        return bool(self.whole)


@dataclass(frozen=True, slots=True)
class Holding:
    """What one claim gave one container, and what was asked for."""

    driver: str
    namespace: str
    claim_uid: str
    claim_name: str
    parameters: Parameters
    sets: tuple[ResourceSet, ...]

    @property
    def whole(self) -> CpuSet:
        """The CPUs that it keeps from others."""
        return CpuSet.union(each.whole for each in self.sets)

    @property
    def kept(self) -> int:
        """CPUs that it keeps from others beyond those that its container requests: idle siblings, more of a range."""
        lent = CpuSet.union(each.cpus for each in self.sets if not each.exclusive) & self.whole
        return max(0, len(self.whole) - len(lent) - self.parameters.least_exclusive) if self.whole else 0

    def pairs(self) -> Iterable[tuple[Group | None, ResourceSet]]:
        """Each set beside the group that it serves; None when a driver answered several groups with one set."""
        groups = self.parameters.groups
        return zip(groups if len(groups) == len(self.sets) else [None] * len(self.sets), self.sets, strict=True)


@dataclass(frozen=True, slots=True)
class StoredContainer:
    """One container on this node. Without holdings it is a standard one."""

    pod: str
    container: str
    label: str
    """`namespace/pod` for messages."""
    transient: bool = False
    """An init container that ends before the next container starts: its pod may use its CPUs again."""
    holdings: tuple[Holding, ...] = ()
    container_id: str = ""
    ignored: str = ""
    """Why it runs as a standard one although it has claims, where the node's settings say so (the KEP's alpha rule)."""

    @property
    def key(self) -> Key:
        return self.pod, self.container

    @property
    def standard(self) -> bool:
        return not self.holdings

    @property
    def cpus(self) -> CpuSet:
        """Every CPU of its claims."""
        return CpuSet.union(each.cpus for holding in self.holdings for each in holding.sets)

    @property
    def whole(self) -> CpuSet:
        """The CPUs that it keeps from others."""
        return CpuSet.union(each.whole for holding in self.holdings for each in holding.sets)

    @property
    def kept(self) -> int:
        """CPUs that it keeps from others and does not request."""
        return sum(holding.kept for holding in self.holdings)


class Holdings:
    """Everybody who holds something of a machine. Standard containers, which run on the rest, may be in it too."""

    def __init__(self, machine: Machine, reserved: CpuSet = NO_CPUS) -> None:
        self.machine = machine
        self.reserved = reserved & machine.online
        self.entries: dict[Key, StoredContainer] = {}

    def withheld(self) -> CpuSet:
        """What nobody may have for another reason than that somebody has it."""
        return NO_CPUS

    def available_resources(self, pod: str | None = None) -> CpuSet:
        """All CPUs − reserved − exclusive, or about to be. For a pod, its finished init containers do not count."""
        taken = self.reserved.mask | self.withheld().mask
        for entry in self.entries.values():
            if entry.holdings and not (entry.transient and entry.pod == pod):
                taken |= entry.whole.mask
        return CpuSet(self.machine.online.mask & ~taken)

    @property
    def kept(self) -> int:
        """CPUs that claims keep from others and that are in nobody's requests."""
        return sum(entry.kept for entry in self.entries.values() if entry.holdings and not entry.transient)


def exclusive_set(machine: Machine, group: Group | None, cpus: CpuSet, *, threads: bool = False) -> ResourceSet:
    """CPUs held exclusively, with their siblings, which are nobody else's; `threads` where no group can say."""
    request = replace(group.request(), exclusive=True) if group else CpuRequest(1, exclusive=True, threads=threads)
    return ResourceSet(cpus, owned(machine, request, cpus))


def owned_by(driver: str, holdings: Iterable[Holding]) -> CpuSet:
    """The CPUs that a driver gave to somebody alone, without the siblings that go with them."""
    return CpuSet.union(held.cpus for one in holdings if one.driver == driver for held in one.sets if held.exclusive)


def taken_by(sets: Iterable[ResourceSet]) -> CpuSet:
    """All that sets take, whether as theirs alone or not."""
    return CpuSet.union(each.cpus | each.whole for each in sets)
