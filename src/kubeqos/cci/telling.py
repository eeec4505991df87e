"""What each container was told about its CPUs, and what it has to be told now.

The manager decides what containers hold; here is remembered what the runtime was asked to give them. The difference
is what `updates` hands out, in an order in which nobody runs on a CPU that another pod owns (`cci.sharing.steps`).
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from kubeqos.cci.sharing import memory_nodes, pool_of, running_on, steps, trespassers
from kubeqos.cci.store import Entry, Key, Store
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.wellknown import HOLDINGS_ANNOTATION
from kubeqos.plugins.managers import ContainerRef, Grant, Update
from kubeqos.topology.answers import Refused

log = structlog.get_logger("kubeqos.cci")


class Telling:
    """One node's memory of what containers were told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.told: dict[Key, CpuSet] = {}
        self._unsure: set[Key] = set()
        self._refs: dict[Key, ContainerRef] = {}

    def tell(self, entry: Entry, container: ContainerRef) -> Grant:
        """What a container is created with."""
        cpus = self._cpus(entry)
        self._refs[entry.key] = container
        self.told[entry.key] = cpus
        self._unsure.discard(entry.key)
        return self._grant(entry, cpus)

    def show(self, entry: Entry) -> Grant:
        """What a container would be created with now."""
        return self._grant(entry, self._cpus(entry))

    def _cpus(self, entry: Entry) -> CpuSet:
        return entry.cpus if not entry.standard else pool_of(self.store.machine, self.store.available_resources())

    def doubt(self, container: ContainerRef) -> None:
        """The container may have any CPUs until it is told again."""
        key = (container.pod_uid, container.name)
        self._refs[key] = container
        self.told[key] = self.store.machine.online
        self._unsure.add(key)

    def forget(self, key: Key) -> None:
        self.told.pop(key, None)
        self._unsure.discard(key)
        self._refs.pop(key, None)

    def in_the_way_of(self, entry: Entry) -> Entry | None:
        """A container of another pod that may still run on CPUs which `entry` owns."""
        return next(iter(trespassers(self.store, self.told, entry)), None)

    def updates(self) -> Sequence[Update]:
        """The writes that bring every container to what it should have."""
        planned = steps(self.store, self.told)
        if isinstance(planned, Refused):
            log.error("cannot move containers", reason=str(planned))
            return ()
        writes = [(step.key, step.cpus) for step in planned]
        if self._unsure:
            wanted, written = running_on(self.store), {step.key for step in planned}
            writes += [(key, wanted[key]) for key in sorted(self._unsure - written)]
        self._unsure.clear()
        found = []
        alike: dict[CpuSet, Grant] = {}  # standard containers mostly get one and the same
        for key, cpus in writes:
            entry = self.store.entries[key]
            grant = alike.get(cpus) if entry.standard else None
            if grant is None:
                grant = self._grant(entry, cpus)
                if entry.standard:
                    alike[cpus] = grant
            self.told[key] = cpus
            found.append(Update(self._refs[key], grant))
        return found

    def _grant(self, entry: Entry, cpus: CpuSet) -> Grant:
        properties: dict[str, str | int] = {"cpuset_cpus": str(cpus)}
        memory = memory_nodes(self.store.machine, entry)
        if memory:
            properties["cpuset_mems"] = str(memory)
        marks = {} if entry.standard else {HOLDINGS_ANNOTATION: self.store.dump_entry(entry)}
        return Grant(properties, annotations=marks, because=because(entry))


def because(entry: Entry) -> str:
    """Why a container has the CPUs that it has."""
    if entry.standard:
        return "no claim: all CPUs that nobody holds exclusively"
    said = []
    for holding in entry.holdings:
        sets = " and ".join(f"{'exclusive' if one.exclusive else 'shared'} {one.cpus}" for one in holding.sets)
        said.append(f"claim {holding.claim_name} by driver {holding.driver}: {sets}")
    return "; ".join(said)
