"""The memory plugin: `cpuset.mems`, an account for each NUMA node, and the knobs of a role.

Roles keep apart on NUMA nodes as they do for CPUs. A bound container is charged to its nodes; any other may use the
nodes that nobody is bound to, and the plugin admits no more than these hold (reference, regression T36).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from kubeqos.model.annotations.podmarks import DEDICATED_CORES
from kubeqos.model.annotations.topologysummary import Division, PoolRule, Rules
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.messages import Allocation, NumaHint
from kubeqos.qrm.plugins.knobs import check_knobs, knob_allocations
from kubeqos.qrm.plugins.numa import Tenant, bound_hints, choose, open_nodes
from kubeqos.qrm.plugins.roles import Numa, Role, role_for
from kubeqos.qrm.sdk.values import Capacity, Kind, Refuse, Request
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.answers import Unsatisfiable, Violation
from kubeqos.topology.pools import SHARED

Key = tuple[str, str]  # pod uid, container
# What Katalyst's level means for pods without a role, when they are bound to NUMA nodes.
_BY_LEVEL = {DEDICATED_CORES: Role(dedicated=True, numa=Numa.BIND)}


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    system_reserved: int = 0
    """Bytes of every NUMA node that are not handed out."""
    roles: dict[str, Role] = {}


class ContainerMemory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One container: what it asked for and where it is charged; without nodes it is charged to all open ones."""

    container_type: Kind = Kind.MAIN
    pod_role: str = ""
    request_quantity: int = 0
    numa: str = ""
    alone: bool = False


@dataclass(frozen=True)
class MemoryState:
    """Who holds how much, where: a value."""

    machine: Machine
    config: MemoryConfig
    entries: Mapping[Key, ContainerMemory] = field(default_factory=dict)

    def allocatable(self) -> dict[int, int]:
        reserved = self.config.system_reserved
        return {node.id: max(0, node.memory_bytes - node.hugepage_bytes() - reserved) for node in self.machine.nodes}

    def bound(self) -> dict[int, int]:
        """Bytes charged to each node by bound containers."""
        charged = dict.fromkeys(self.allocatable(), 0)
        for _, node, taken in self._charges():
            charged[node] += taken
        return charged

    def _charges(self) -> Iterator[tuple[Key, int, int]]:
        """Who is charged how much of which node: filled in the order of the nodes that each is bound to."""
        room = self.allocatable()
        for key, entry in self.entries.items():
            left = entry.request_quantity
            for node in NumaSet.parse(entry.numa):
                taken = min(left, room[node])
                room[node] -= taken
                left -= taken
                yield key, node, taken

    def open_to_all(self) -> NumaSet:
        """The nodes that nobody is bound to; all of them when everything is bound."""
        bound = 0
        for entry in self.entries.values():
            bound |= NumaSet.parse(entry.numa).mask
        nodes = NumaSet.from_ids(node.id for node in self.machine.nodes if node.memory_bytes)
        return NumaSet(nodes.mask & ~bound) or nodes

    def unbound(self) -> int:
        return sum(entry.request_quantity for entry in self.entries.values() if not entry.numa)

    def hints(self, request: Request) -> tuple[Hint, ...] | None:
        known = self.entries.get((request.pod_uid, request.container))
        if known is not None and known.numa:
            return (Hint(NumaSet.parse(known.numa), True),)
        name, role = role_for(request, self.config.roles)
        return self._bound_hints(request, name, role) if self._binds(request, role) else None

    def open_to(self, name: str, role: Role, pod_uid: str = "") -> dict[int, int]:
        """The NUMA nodes that a pod of this role may be bound to, and the free bytes of each."""
        tenants = [
            Tenant(entry.pod_role, NumaSet.parse(entry.numa), entry.alone)
            for (uid, _), entry in self.entries.items()
            if entry.numa and uid != pod_uid
        ]
        total, charged = self.allocatable(), self.bound()
        nodes = open_nodes(NumaSet.from_ids(n for n, size in total.items() if size), name, role, tenants)
        return {node: total[node] - charged[node] for node in nodes}

    def _bound_hints(self, request: Request, name: str, role: Role) -> tuple[Hint, ...]:
        free, total = self.open_to(name, role, request.pod_uid), self.allocatable()
        return bound_hints(NumaSet.from_ids(free), request.quantity, free, total)

    def division(self) -> Division:
        """For the scheduler: everybody shares the nodes that nobody is bound to, unless it is bound itself."""
        bound = {name: role for name, role in (_BY_LEVEL | self.config.roles).items() if role.numa is not Numa.ANY}
        roles = {
            name: PoolRule("", True, role.numa.value) if role.numa is not Numa.ANY else PoolRule(SHARED)
            for name, role in self.config.roles.items()
        }
        total, charged = self.allocatable(), self.bound()
        owned: dict[str, float] = {}
        for (uid, _), entry in self.entries.items():
            if entry.numa:
                owned[uid] = owned.get(uid, 0.0) + entry.request_quantity
        return Division(
            rules=Rules(SHARED, roles, one_pool=True),
            pools={SHARED: float(sum(total[node] - charged[node] for node in self.open_to_all()))},
            whole=float(sum(total.values())),
            owned=owned,
            open={name: self.open_to(name, role) for name, role in bound.items()},
        )

    def allocate(self, request: Request) -> MemoryState | Unsatisfiable:
        key = request.pod_uid, request.container
        known = self.entries.get(key)
        if known is not None:
            if known.request_quantity == int(request.quantity):
                return self
            return self.release_container(key).allocate(request)
        name, role = role_for(request, self.config.roles)
        entry = ContainerMemory(container_type=request.kind, pod_role=name, request_quantity=int(request.quantity))
        if request.kind is Kind.INIT:
            entry = msgspec.structs.replace(entry, request_quantity=0)
        elif self._binds(request, role):
            numa = choose(self._bound_hints(request, name, role), request.hint.numa)
            if numa is None:
                where = f"on NUMA {request.hint.numa}" if request.hint.numa else "on any NUMA node"
                return _refuse(f"{int(request.quantity)} bytes for role {name} do not fit {where}")
            entry = msgspec.structs.replace(entry, numa=str(numa), alone=role.numa is Numa.EXCLUSIVE)
        after = replace(self, entries={**self.entries, key: entry})
        wrong = after._checked()
        return after if wrong is None else wrong

    def _checked(self) -> Unsatisfiable | None:
        """Whether everybody's memory still exists after this."""
        total, charged = self.allocatable(), self.bound()
        free = sum(total[node] - charged[node] for node in self.open_to_all())
        if self.unbound() > free:
            return _refuse(f"{self.unbound()} bytes requested on NUMA {self.open_to_all()}, {free} allocatable")
        return None

    def _binds(self, request: Request, role: Role) -> bool:
        return role.numa is not Numa.ANY and request.kind is Kind.MAIN and request.quantity > 0

    def release_container(self, key: Key) -> MemoryState:
        return replace(self, entries={k: entry for k, entry in self.entries.items() if k != key})

    def release(self, pod_uid: str) -> MemoryState:
        return replace(self, entries={key: entry for key, entry in self.entries.items() if key[0] != pod_uid})

    def mems(self, key: Key) -> NumaSet:
        """Where a container may take memory: its own nodes, its pod's main container's, or those open to all."""
        own = NumaSet.parse(self.entries[key].numa)
        if own:
            return own
        kin = (entry.numa for (uid, _), entry in self.entries.items() if uid == key[0] and entry.numa)
        return NumaSet.parse(next(kin, "")) or self.open_to_all()

    def allocation(self, key: Key) -> dict[str, Allocation]:
        entry, mems = self.entries[key], self.mems(key)
        role = self.config.roles.get(entry.pod_role)
        given = Allocation(
            property="CpusetMems",
            result=str(mems),
            quantity=float(entry.request_quantity),
            scalar=True,
            hints=(NumaHint(tuple(mems), True),) if entry.numa else (),
            assignments={node: taken for owner, node, taken in self._charges() if owner == key} if entry.numa else {},
        )
        return {"memory": given, **knob_allocations("memory-knobs", role.knobs if role else {})}


def _refuse(detail: str) -> Unsatisfiable:
    return Unsatisfiable((Violation("memory", detail),))


class MemoryPlugin:
    """Hands out `cpuset.mems`, for every container."""

    resource = "memory"
    implicit = True

    def __init__(self, machine: Machine, config: MemoryConfig) -> None:
        for name, role in config.roles.items():
            check_knobs(f"role {name}", role.knobs)
        self.state = MemoryState(machine, config)

    def hints(self, request: Request) -> tuple[Hint, ...] | None:
        return self.state.hints(request)

    def allocate(self, request: Request) -> dict[str, Allocation]:
        after = self.state.allocate(request)
        if isinstance(after, Unsatisfiable):
            raise Refuse(str(after))
        self.state = after
        return after.allocation((request.pod_uid, request.container))

    pod_hints, allocate_pod = hints, allocate  # a pod as a whole is one tenant, with what its containers need together

    def release(self, pod_uid: str) -> None:
        self.state = self.state.release(pod_uid)

    def allocations(self) -> dict[str, dict[str, dict[str, Allocation]]]:
        book: dict[str, dict[str, dict[str, Allocation]]] = {}
        for uid, container in self.state.entries:
            book.setdefault(uid, {})[container] = self.state.allocation((uid, container))
        return book

    def capacity(self) -> dict[str, Capacity]:
        by_numa = {node: float(size) for node, size in self.state.allocatable().items()}
        whole = {node.id: float(node.memory_bytes) for node in self.state.machine.nodes}
        total, allocatable = sum(whole.values()), sum(by_numa.values())
        told, asked = self.state.division(), {SHARED: float(self.state.unbound())}
        return {"memory": Capacity(total, allocatable, by_numa, division=told, requested=asked, total_by_numa=whole)}

    def save(self) -> Any:
        """The shape of the KEP's example 2, where numbers are texts."""
        state = self.state
        total, charged = state.allocatable(), state.bound()
        entries: dict[str, dict[str, Any]] = {}
        for (uid, container), entry in state.entries.items():
            entries.setdefault(uid, {})[container] = msgspec.to_builtins(entry)
        nodes = {
            str(node.id): {
                "Allocated": str(charged[node.id]),
                "allocatable": str(total[node.id]),
                "free": str(total[node.id] - charged[node.id]),
                "pod_entries": {
                    uid: {
                        name: raw for name, raw in containers.items() if node.id in NumaSet.parse(raw.get("numa", ""))
                    }
                    for uid, containers in entries.items()
                    if any(node.id in NumaSet.parse(raw.get("numa", "")) for raw in containers.values())
                },
                "systemReserved": str(state.config.system_reserved),
                "total": str(node.memory_bytes - node.hugepage_bytes()),
            }
            for node in state.machine.nodes
        }
        return {"machineState": {"memory": nodes}, "pod_resource_entries": {"memory": entries} if entries else {}}

    def restore(self, data: Any) -> None:
        saved = (data.get("pod_resource_entries") or {}).get("memory", {})
        entries = {
            (uid, container): msgspec.convert(raw, ContainerMemory, strict=False)
            for uid, containers in saved.items()
            for container, raw in containers.items()
        }
        self.state = replace(self.state, entries=entries)
