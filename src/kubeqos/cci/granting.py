"""What containers are to have by the store: cpusets, memory nodes and the marks by which they are known again.

Kept as long as nothing changes, since whoever tells containers compares. Called by the manager.
"""

from __future__ import annotations

from kubeqos.cci.store import Store
from kubeqos.model.annotations.wellknown import HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.plugins.managers import Grant
from kubeqos.topology.claims.holdings import Key, StoredContainer
from kubeqos.topology.claims.sharing import because, memory_nodes, pool_of


class Granting:
    """Grants by container; those without a claim share one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pool: CpuSet | None = None
        self._standard = Grant()
        self._known: dict[Key, tuple[StoredContainer, str, Grant]] = {}

    def pool(self) -> CpuSet:
        """Where containers without claims run."""
        return pool_of(self._store.machine, self._store.available_resources())

    def grant(self, entry: StoredContainer, pool: CpuSet) -> Grant:
        """What a container should have; who has no claim has the same as all others without one."""
        if entry.standard and not entry.ignored:
            if self._pool != pool:  # sets are compared, not their texts: this is asked for every container
                self._pool, self._standard = pool, Grant({"cpuset_cpus": str(pool)}, because=because(entry))
            return self._standard
        cpus = str(pool if entry.standard else entry.cpus)
        known = self._known.get(entry.key)
        if known is None or known[0] is not entry or known[1] != cpus:
            known = self._known[entry.key] = entry, cpus, self._own(entry, cpus)
        return known[2]

    def _own(self, entry: StoredContainer, cpus: str) -> Grant:
        properties: dict[str, str | int] = {"cpuset_cpus": cpus}
        memory = memory_nodes(self._store.machine, entry)
        if memory:
            properties["cpuset_mems"] = str(memory)
        marks = {HOLDINGS_ANNOTATION: self._store.dump_entry(entry)} if entry.holdings else {}
        return Grant(properties, annotations=marks, because=because(entry), exclusive=entry.whole)

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)
