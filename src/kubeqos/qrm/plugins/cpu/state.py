"""The CPU plugin's state and every decision on it: a value; each operation returns the next one or says why not.

The partition itself is `topology.pools.Pools`. An entry remembers why a container is where it is, so that everything
can be derived again from the entries after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.messages import Allocation, NumaHint
from kubeqos.qrm.plugins.cpu.config import CpuConfig, check_floors, initial_pools
from kubeqos.qrm.plugins.cpu.layout import lay_out
from kubeqos.qrm.plugins.numa import Tenant, bound_hints, choose, open_nodes
from kubeqos.qrm.plugins.roles import Numa, Role, role_for
from kubeqos.qrm.sdk.values import Kind, Request
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.answers import Shortage, Unsatisfiable, Violation
from kubeqos.topology.cpus import CpuOptions, allocate_cpus
from kubeqos.topology.pools import Pools

Key = tuple[str, str]  # pod uid, container


class ContainerCpus(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One container. `pool` is where it runs; a container with CPUs of its own has none."""

    pod_name: str = ""
    pod_namespace: str = ""
    container_type: Kind = Kind.MAIN
    container_index: int = 0
    pod_role: str = ""
    owner_pool_name: str = ""
    request_quantity: float = 0.0
    numa: str = ""
    """The NUMA nodes that it is bound to."""
    alone: bool = False
    follows: bool = False
    """It runs wherever the pod's main container does, once that is there."""


@dataclass(frozen=True)
class CpuState:
    """Who runs where."""

    config: CpuConfig
    pools: Pools
    entries: Mapping[Key, ContainerCpus] = field(default_factory=dict)

    @classmethod
    def of(cls, machine: Machine, config: CpuConfig) -> CpuState:
        return cls(config, initial_pools(machine, config))

    @property
    def machine(self) -> Machine:
        return self.pools.machine

    # ---- Admission

    def hints(self, request: Request) -> tuple[Hint, ...] | None:
        """Placements for CPUs of one's own on bound nodes; None for whoever has no say in it."""
        known = self.entries.get((request.pod_uid, request.container))
        if known is not None and known.numa:
            return (Hint(NumaSet.parse(known.numa), True),)
        name, role = self._role(request)
        if not self._owns(request, role) or role.numa is Numa.ANY:
            return None
        return self._bound_hints(request, name, role)

    def open_to(self, name: str, role: Role, pod_uid: str = "") -> dict[int, int]:
        """The NUMA nodes that a pod of this role may be bound to, and the free CPUs of each."""
        tenants = self._tenants(but=pod_uid if role.numa is Numa.BIND else "")
        usable = open_nodes(self.machine.cpu_numa, name, role, tenants)
        inside = self.machine.numa_cpus
        return {node: len(inside[node] & self.pools.available) for node in usable if not self._foreign(node, role)}

    def _bound_hints(self, request: Request, name: str, role: Role) -> tuple[Hint, ...]:
        nodes = self.machine.numa_cpus
        usable = NumaSet.from_ids(self.open_to(name, role, request.pod_uid))
        free = {node: len(cpus & self.pools.available) for node, cpus in nodes.items()}
        most = {node: len(cpus - self.pools.reserved) for node, cpus in nodes.items()}
        hints = bound_hints(usable, _count(request), free, most)
        return tuple(hint for hint in hints if not role.evenly or self._evenly(request, role, hint.numa))

    def _evenly(self, request: Request, role: Role, numa: NumaSet | None) -> CpuSet:
        """The same number of CPUs on every node; none when one of them is unable (reference, regression T34)."""
        nodes, count = tuple(numa or ()), _count(request)
        taken = NO_CPUS
        for node in nodes if nodes and count % len(nodes) == 0 else ():
            free = self.pools.available & self.machine.numa_cpus[node]
            share = allocate_cpus(self.machine, free, count // len(nodes), CpuOptions(full_pcpus_only=role.full_cores))
            if isinstance(share, Unsatisfiable):
                return NO_CPUS
            taken |= share.cpus
        return taken

    def _foreign(self, node: int, role: Role) -> bool:
        """Whether somebody's own CPUs keep a whole node from being taken."""
        inside = self.machine.numa_cpus[node]
        return role.numa is Numa.EXCLUSIVE and any(inside & cpus for cpus in self.pools.exclusive.values())

    def allocate(self, request: Request) -> CpuState | Unsatisfiable:
        """The state in which the container runs where its role says."""
        key = request.pod_uid, request.container
        known = self.entries.get(key)
        if known is not None:
            if known.request_quantity == request.quantity:
                return self
            return self._without(key).allocate(request)
        name, role = self._role(request)
        entry = ContainerCpus(
            pod_name=request.pod,
            pod_namespace=request.namespace,
            container_type=request.kind,
            container_index=request.index,
            pod_role=name,
            request_quantity=request.quantity,
        )
        if self._owns(request, role):
            return self._carve(key, request, entry, role)
        if role.dedicated and request.kind is not Kind.INIT:
            return self.follow(key, entry)
        pool = role.pool or self.config.default
        return self._as_held(pool, _held(request))._join(key, entry, pool)

    def _as_held(self, pool: str, held: CpuSet) -> CpuState:
        """A pool that nobody is in goes back to where a container that runs says that it was, if it can."""
        if not held or pool not in self.pools.named or pool in self.pools.members.values():
            return self
        moved = self.resize({pool: held})
        return self if isinstance(moved, Unsatisfiable) else moved

    def _carve(self, key: Key, request: Request, entry: ContainerCpus, role: Role) -> CpuState | Unsatisfiable:
        """CPUs of its own."""
        free, numa = self.pools.available, None
        if role.numa is not Numa.ANY:
            hints = self._bound_hints(request, entry.pod_role, role)
            numa = choose(hints, request.hint.numa)
            if numa is None:
                return self._nowhere(request, entry.pod_role)
            free &= self.machine.cpus_in(numa)
        elif request.hint.numa is not None:
            free &= self.machine.cpus_in(request.hint.numa)
        if role.numa is Numa.EXCLUSIVE:
            cpus = free
        elif role.evenly and numa is not None:
            cpus = self._evenly(request, role, numa)  # the hint was made for this
        else:
            count, options = _count(request), CpuOptions(full_pcpus_only=role.full_cores)
            found = allocate_cpus(self.machine, _held(request) & free, count, options)
            if isinstance(found, Unsatisfiable):  # as nearly always: most containers do not run yet
                found = allocate_cpus(self.machine, free, count, options)
            if isinstance(found, Unsatisfiable):
                return found
            cpus = found.cpus
        carved = self.pools.carve(_name(key), cpus)
        if isinstance(carved, Unsatisfiable):
            return carved
        bound = str(numa or "")
        entry = msgspec.structs.replace(entry, numa=bound, alone=role.numa is Numa.EXCLUSIVE)
        return replace(self, pools=carved, entries={**self.entries, key: entry})._gather(key)

    def _nowhere(self, request: Request, role: str) -> Unsatisfiable:
        bound = sorted({(e.pod_role, e.numa) for e in self.entries.values() if e.numa})
        held = ", ".join(f"{other} is bound to NUMA {numa}" for other, numa in bound) or "nothing is bound yet"
        where = f"on NUMA {request.hint.numa}" if request.hint.numa else "on any NUMA node"
        free = {n: len(cpus & self.pools.available) for n, cpus in self.machine.numa_cpus.items()}
        detail = f"{_count(request)} CPUs for role {role} do not fit {where} (free by node: {free}; {held})"
        return Unsatisfiable((Violation("cpu", detail),))

    def follow(self, key: Key, entry: ContainerCpus) -> CpuState:
        follower = msgspec.structs.replace(entry, follows=True)
        return replace(self, entries={**self.entries, key: follower})._gather(self._main(key[0]))

    def _gather(self, main: Key | None) -> CpuState:
        """Let the pod's followers run beside its main container."""
        if main is None:
            return self
        pools = self.pools
        for key, entry in self.entries.items():
            if key[0] == main[0] and entry.follows and _name(key) not in pools.members:
                joined = pools.join(_name(key), _name(main))
                pools = pools if isinstance(joined, Unsatisfiable) else joined
        return replace(self, pools=pools)

    def _main(self, pod_uid: str) -> Key | None:
        own = (key for key in self.entries if key[0] == pod_uid and _name(key) in self.pools.exclusive)
        return next(own, None)

    def _join(self, key: Key, entry: ContainerCpus, pool: str) -> CpuState | Unsatisfiable:
        """Run in a pool, if its containers together do not ask for more than it may promise."""
        joined = self.pools.join(_name(key), pool)
        if isinstance(joined, Unsatisfiable):
            return joined
        if entry.container_type is not Kind.INIT and entry.request_quantity:
            most = self.most(pool)
            asked = self.requested(pool) + entry.request_quantity
            if asked > most + 1e-6:
                return Unsatisfiable((Shortage("cpus", math.ceil(asked), math.floor(most), f"in pool {pool}"),))
        entry = msgspec.structs.replace(entry, owner_pool_name=pool)
        return replace(self, pools=joined, entries={**self.entries, key: entry})

    def release(self, pod_uid: str) -> CpuState:
        state = self
        for key in [key for key in self.entries if key[0] == pod_uid]:
            state = state._without(key)
        return state

    def _without(self, key: Key) -> CpuState:
        name = _name(key)
        pools = self.pools.give_back(name) if name in self.pools.exclusive else self.pools.leave(name)
        return replace(self, pools=pools, entries={k: entry for k, entry in self.entries.items() if k != key})

    # ---- Pools

    def resize(self, wanted: Mapping[str, CpuSet | int]) -> CpuState | Unsatisfiable:
        """All these pools at once: exactly these CPUs, or so many laid out evenly. Checked before anything moves."""
        unknown = sorted(wanted.keys() - self.pools.named.keys())
        if unknown:
            known = ", ".join(self.pools.named) or "none"
            return Unsatisfiable((Violation("pools", f"there is no pool {unknown[0]} (known: {known})"),))
        kept = {name: cpus for name, cpus in self.pools.named.items() if name not in wanted}
        exact = {name: cpus for name, cpus in wanted.items() if isinstance(cpus, CpuSet)}
        sizes = {name: wanted[name] for name in self.pools.named if isinstance(wanted.get(name), int)}
        free = replace(self.pools, named={**kept, **exact}).shared
        placed = lay_out(self.machine, free, sizes)  # type: ignore[arg-type]
        if isinstance(placed, Unsatisfiable):
            return placed
        named = {**kept, **exact, **placed}
        pools = replace(self.pools, named={name: named[name] for name in self.pools.named})
        wrong = next(iter(pools.validate()), None) or check_floors(pools, self.config)
        return Unsatisfiable((Violation("pools", wrong),)) if wrong else replace(self, pools=pools)

    def requested(self, pool: str) -> float:
        """CPUs that the containers of a pool ask for; init containers are gone before the others run."""
        return sum(
            entry.request_quantity
            for entry in self.entries.values()
            if entry.owner_pool_name == pool and entry.container_type is not Kind.INIT
        )

    def most(self, pool: str) -> float:
        """CPUs that the containers of a pool may ask for together: what it has, or could grow to by itself."""
        settings = self.config.pools.get(pool)
        size = self._adjustable() if self.config.moves and settings else len(self.pools.partition[pool])
        return size * (settings.oversell if settings else 1.0)

    def _adjustable(self) -> int:
        return sum(map(len, self.pools.named.values())) + len(self.pools.shared)

    # ---- What containers hold

    def allocations(self) -> dict[str, dict[str, dict[str, Allocation]]]:
        """Everything that was given; a follower whose main container is not there yet has nothing."""
        book: dict[str, dict[str, dict[str, Allocation]]] = {}
        for key in self.entries:
            given = self.allocation(key)
            if given is not None:
                book.setdefault(key[0], {})[key[1]] = {"cpu": given}
        return book

    def allocation(self, key: Key) -> Allocation | None:
        entry, owner = self.entries[key], self.runs_in(key)
        cpus = self.pools.partition.get(owner, NO_CPUS)
        if not cpus:
            return None
        spread = {numa: len(inside & cpus) for numa, inside in self.machine.numa_cpus.items() if inside & cpus}
        main = self._main(key[0]) if entry.follows else key
        bound = self.entries[main].numa if main else ""
        return Allocation(
            property="CpusetCpus",
            result=str(cpus),
            quantity=float(len(cpus)),
            scalar=True,
            exclusive=owner in self.pools.exclusive,
            hints=(NumaHint(tuple(NumaSet.parse(bound)), True),) if bound else (),
            assignments=spread,
        )

    def runs_in(self, key: Key) -> str:
        """The pool or the exclusive set that a container runs in; empty for a follower that still waits."""
        name = _name(key)
        return name if name in self.pools.exclusive else self.pools.members.get(name, "")

    def validate(self) -> list[str]:
        names = {_name(key) for key in self.entries}
        held = self.pools.exclusive.keys() | self.pools.members.keys()
        return [*self.pools.validate(), *(f"{name} runs and has no entry" for name in sorted(held - names))]

    def _role(self, request: Request) -> tuple[str, Role]:
        return role_for(request, self.config.roles, self.config.default)

    def _owns(self, request: Request, role: Role) -> bool:
        return role.dedicated and request.kind is Kind.MAIN and request.quantity > 0

    def _tenants(self, but: str) -> list[Tenant]:
        return [
            Tenant(entry.pod_role, NumaSet.parse(entry.numa), entry.alone)
            for (uid, _), entry in self.entries.items()
            if entry.numa and uid != but
        ]


def _count(request: Request) -> int:
    return math.ceil(request.quantity - 1e-6)


def _held(request: Request) -> CpuSet:
    """What a running container has, where the manager says so."""
    try:
        return CpuSet.parse(request.held)
    except InputError:
        return NO_CPUS


def _name(key: Key) -> str:
    return "/".join(key)
