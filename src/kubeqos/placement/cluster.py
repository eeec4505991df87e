"""The columnar snapshot of a cluster: one row per node, one array per resource, class, label key.

Updates are incremental and touch one row; every change is logged, so that whoever keeps results per row can
tell which rows are stale. The scheduler's loop, the simulator and the extender own a `Cluster` each.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.computepolicies import ANY_DRIVER
from kubeqos.model.objects import Taint
from kubeqos.placement.indexes import Bools, Floats, Interner, Ints, LabelIndex, PodGroups, Small, grown
from kubeqos.placement.nodes import NodeFacts, PlacedPod, Row, class_use
from kubeqos.placement.published.computing import ServedMemo
from kubeqos.placement.published.pools import NO_RULES, WHOLE, PoolKey, RuleSet, amount_of, pool_use, rule_set
from kubeqos.placement.storage.needs import VolumePlan
from kubeqos.rules.qos.classes import Catalog, ClassKey, Level, catalog

NO_CLASS = -1
LEVELS = {None: 0, Level.POD: 1, Level.CONTAINER: 2}
SOFT_TAINT = "PreferNoSchedule"
HOSTNAME = "kubernetes.io/hostname"


class Column:
    """Capacity and use of one resource or class over all rows."""

    __slots__ = ("capacity", "used")

    def __init__(self, rows: int, absent: int = 0) -> None:
        self.capacity: Ints = np.full(rows, absent, dtype=np.int64)
        self.used: Ints = np.zeros(rows, dtype=np.int64)

    def grow(self, rows: int, absent: int) -> None:
        extra = rows - len(self.used)
        self.capacity = np.concatenate([self.capacity, np.full(extra, absent, dtype=np.int64)])
        self.used = np.concatenate([self.used, np.zeros(extra, dtype=np.int64)])


class Cluster:
    """All nodes and the pods on them."""

    def __init__(self, rows: int = 64) -> None:
        self._size = rows
        self.alive: Bools = np.zeros(rows, dtype=np.bool_)
        self.resources: dict[str, Column] = {}
        self.cpu, self.memory, self.pods = (self.column(name) for name in ("cpu", "memory", "pods"))
        self.classes: dict[ClassKey, Column] = {}
        self.withheld: dict[tuple[str | None, str, str], set[int]] = {}
        """Rows that do not offer a class of a resource to the pods of a runtime handler."""
        self.levels: dict[str, Small] = {}
        self.pools: dict[PoolKey, Column] = {}
        self.rule_sets = Interner[RuleSet]()
        self.rule_sets.number(NO_RULES)
        self.rule_set: dict[str, Small] = {}
        """Resource → for each row the number of the rules by which plugins divide it; 0 where nobody does."""
        self.divided: set[int] = set()
        self.aligning: set[int] = set()
        """Rows whose topology manager may refuse a pod."""
        self.computing: set[int] = set()
        """Rows that tell who holds which CPUs by claims."""
        self.served = ServedMemo()
        self.ailing: set[int] = set()
        """Rows where a plugin or driver is down."""
        self.kept_off: dict[Hashable, dict[int, str]] = {}
        """What pods ask for → rows that refused such pods lately, and with which reason."""
        self.claim_users: dict[str, int] = {}
        """How many pods on nodes mount each PersistentVolumeClaim."""
        self.claim_drivers: dict[str, str] = {}
        """Which CSI driver attaches the volume of each claim; kept by `scheduler.reading.storage`."""
        self.attach_limits: dict[int, Mapping[str, int]] = {}
        """Rows whose CSI drivers say how many volumes they can attach."""
        self.volumes_taken: dict[str, str] = {}
        """In a rehearsal: volumes that pods got which were placed before, and for which claim."""
        self.volumes_made: dict[str, str] = {}
        """In a rehearsal: claims whose volumes would be made for such pods, and on which node."""
        self.labels = LabelIndex(rows)
        self.taint_sets = Interner[tuple[Taint, ...]]()
        self.taint_set: Small = np.zeros(rows, dtype=np.int32)
        self.has_soft_taints = False
        """Whether a node ever had one, so that nodes have to be compared for every pod."""
        self.unschedulable: Bools = np.zeros(rows, dtype=np.bool_)
        self.scoring_cpu: Ints = np.zeros(rows, dtype=np.int64)
        self.scoring_memory: Ints = np.zeros(rows, dtype=np.int64)
        self.unevenness: Floats = np.zeros(rows, dtype=np.float64)
        """The distance between the used shares of CPU and memory."""
        self.scarce_free: Ints = np.zeros(rows, dtype=np.int64)
        """How free the limited classes of a node are on average, from 0 to 100; 0 without any."""
        self.drivers: dict[str, Bools] = {ANY_DRIVER: np.zeros(rows, dtype=np.bool_)}
        self.images: dict[str, Ints] = {}
        self.rows: dict[int, Row] = {}
        self.row_of: dict[str, int] = {}
        self.where: dict[str, int] = {}
        self.groups = PodGroups(rows)
        # Rows of nodes that left are used again, the lowest first: columns stay as short as the cluster is large.
        self._free: list[int] = list(range(rows - 1, -1, -1))
        self.facts_at: Ints = np.zeros(rows, dtype=np.int64)
        """The clock when a node itself, and not only the pods on it, changed for the last time."""
        self.facts_clock = 0
        self.changes: list[int] = []
        self.changes_trimmed = 0

    # -- nodes -----------------------------------------------------------------------------------------------------

    def set_node(self, facts: NodeFacts) -> None:
        """Add a node, or take over its new state; the pods on it stay."""
        name = facts.view.metadata.name
        row = self.row_of.get(name)
        if row is None:
            row = self._take_row()
            self.row_of[name] = row
            self.rows[row] = Row(facts, Catalog())
            self.alive[row] = True
        held = self.rows[row]
        pods = list(held.pods.values())
        for pod in pods:
            self._account(row, held, pod, -1)
        held.facts = facts
        held.classes = catalog(facts.view.status.qos_resources)
        self._write_node(row, held)
        for pod in pods:
            self._account(row, held, pod, +1)
        self._node_changed(row)

    def remove_node(self, name: str) -> None:
        """Forget a node and the pods on it."""
        row = self.row_of.pop(name)
        held = self.rows[row]
        for uid in list(held.pods):
            self.remove_pod(uid)
        del self.rows[row]
        for asks in [asks for asks, rows in self.kept_off.items() if row in rows]:
            self._let_in(asks, row)
        self.alive[row] = False
        self._clear_row(row)
        self._free.append(row)
        self._node_changed(row)

    def node_name(self, row: int) -> str:
        return self.rows[row].facts.view.metadata.name

    # -- pods ------------------------------------------------------------------------------------------------------

    def add_pod(self, node: str, pod: PlacedPod) -> None:
        """Charge a pod to a node."""
        if pod.uid in self.where:
            raise KubeqosError(f"pod {pod.name!r} is already placed on {self.node_name(self.where[pod.uid])}")
        row = self.row_of[node]
        held = self.rows[row]
        held.pods[pod.uid] = pod
        self.where[pod.uid] = row
        self._account(row, held, pod, +1)
        self.groups.add(pod.shape, row, +1)
        self._changed(row)

    def remove_pod(self, uid: str) -> PlacedPod:
        """Give back what a pod holds."""
        row = self.where.pop(uid)
        held = self.rows[row]
        pod = held.pods.pop(uid)
        self._account(row, held, pod, -1)
        self.groups.add(pod.shape, row, -1)
        self._changed(row)
        return pod

    @contextmanager
    def without(self, uids: Sequence[str]) -> Iterator[None]:
        """The cluster as if these pods were gone; restored exactly on leaving, so that nothing counts as changed."""
        trimmed, length = self.changes_trimmed, len(self.changes)
        removed = [(self.node_name(self.where[uid]), self.remove_pod(uid)) for uid in uids]
        try:
            yield
        finally:
            for node, pod in reversed(removed):
                self.add_pod(node, pod)
            if self.changes_trimmed == trimmed:
                del self.changes[length:]

    # -- volumes ---------------------------------------------------------------------------------------------------

    def limit_volumes(self, node: str, limits: Mapping[str, int]) -> None:
        """How many volumes each CSI driver of a node can attach there."""
        row = self.row_of.get(node)
        if row is not None and self.attach_limits.get(row, {}) != limits:
            if limits:
                self.attach_limits[row] = limits
            else:
                del self.attach_limits[row]
            self._node_changed(row)

    def take_volumes(self, plan: VolumePlan, node: str) -> None:
        """A pod that is rehearsed on a node gets these volumes: they are not free for the next."""
        if not plan.bindings and not plan.provisions:
            return
        self.volumes_taken |= {volume: claim for claim, volume in plan.bindings}
        self.volumes_made |= dict.fromkeys(plan.provisions, node)
        for row in np.flatnonzero(self.alive).tolist():
            self._node_changed(row)

    # -- nodes that refuse -----------------------------------------------------------------------------------------

    def keep_off(self, asks: Hashable, node: str, reason: str) -> None:
        """Send no pod that asks for this to a node, which refused one."""
        row = self.row_of[node]
        self.kept_off.setdefault(asks, {})[row] = reason
        self._node_changed(row)

    def let_in(self, asks: Hashable, node: str) -> None:
        """Such pods may be sent there again."""
        row = self.row_of.get(node)
        if row is not None and row in self.kept_off.get(asks, {}):
            self._let_in(asks, row)
            self._node_changed(row)

    def _let_in(self, asks: Hashable, row: int) -> None:
        rows = self.kept_off[asks]
        del rows[row]
        if not rows:
            del self.kept_off[asks]

    # -- the change log --------------------------------------------------------------------------------------------

    @property
    def clock(self) -> int:
        """Grows with every change; `changed_since` tells which rows."""
        return self.changes_trimmed + len(self.changes)

    def changed_since(self, clock: int) -> list[int] | None:
        """The rows changed since then, or None when that is too long ago to tell."""
        if clock < self.changes_trimmed:
            return None
        return list(dict.fromkeys(self.changes[clock - self.changes_trimmed :]))

    def _node_changed(self, row: int) -> None:
        self._changed(row)
        self.facts_at[row] = self.facts_clock = self.clock

    def _changed(self, row: int) -> None:
        self.changes.append(row)
        if len(self.changes) > 4 * self._size + 1024:
            keep = len(self.changes) // 2
            self.changes_trimmed += len(self.changes) - keep
            del self.changes[:-keep]

    # -- columns ---------------------------------------------------------------------------------------------------

    def column(self, name: str) -> Column:
        """The column of a resource; made on first use."""
        found = self.resources.get(name)
        if found is None:
            found = self.resources[name] = Column(self._size)
        return found

    def class_column(self, key: ClassKey) -> Column:
        """The column of a class; capacity -1 where a node does not have it, 0 where it is unlimited."""
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = Column(self._size, NO_CLASS)
        return found

    def pool_column(self, key: PoolKey) -> Column:
        """The column of a plugin's pool; capacity -1 where a node does not have it."""
        found = self.pools.get(key)
        if found is None:
            found = self.pools[key] = Column(self._size, NO_CLASS)
        return found

    def level_column(self, resource: str) -> Small:
        """At which level each node offers a QoS-class resource: 0 not at all, 1 to pods, 2 to containers."""
        found = self.levels.get(resource)
        if found is None:
            found = self.levels[resource] = np.zeros(self._size, dtype=np.int32)
        return found

    @property
    def divisions(self) -> tuple[int, int, bool]:
        """How many resources plugins divide, by how many sets of rules, and whether a node serves claims: on that alone
        depends which checks there are."""
        return len(self.rule_set), len(self.rule_sets), bool(self.computing)

    def driver_column(self, driver: str) -> Bools:
        found = self.drivers.get(driver)
        if found is None:
            found = self.drivers[driver] = np.zeros(self._size, dtype=np.bool_)
        return found

    def _account(self, row: int, held: Row, pod: PlacedPod, sign: int) -> None:
        shape = pod.shape
        for name, amount in shape.requests.items():
            _add(self.column(name).used, row, sign * amount)
        _add(self.pods.used, row, sign)
        _add(self.scoring_cpu, row, sign * shape.scoring_cpu_milli)
        _add(self.scoring_memory, row, sign * shape.scoring_memory)
        if shape.class_needs:
            for key, count in class_use(shape, held.classes):
                _add(self.class_column(key).used, row, sign * count)
            self._weigh_classes(row, held.classes)
        if row in self.divided:
            for pool, amount in pool_use(shape, held.facts.topology, held.rules, pod.uid):
                self.pool_column(pool).used[row] += sign * amount
        for claim in shape.volume_claims:
            self.claim_users[claim] = self.claim_users.get(claim, 0) + sign
            if not self.claim_users[claim]:
                del self.claim_users[claim]
        if shape.compute is not None:
            (held.claimants.add if sign > 0 else held.claimants.discard)(pod.uid)
        held.changed()
        self._weigh_load(row)
        for port in shape.host_ports:
            if sign > 0:
                held.ports.append(port)
            else:
                held.ports.remove(port)

    def _weigh_load(self, row: int) -> None:
        """What scoring asks of a row for every pod is worked out when the row changes, not when it is asked."""
        cpu, memory = self.cpu.capacity.item(row), self.memory.capacity.item(row)
        shares = (self.scoring_cpu.item(row) / max(cpu, 1), self.scoring_memory.item(row) / max(memory, 1))
        self.unevenness[row] = abs(min(shares[0], 1.0) - min(shares[1], 1.0))

    def _weigh_classes(self, row: int, offered: Catalog) -> None:
        free = limited = 0
        for kind in offered.types.values():
            for cls, capacity in kind.classes.items():
                if capacity > 0:
                    used = self.class_column((kind.level, kind.name, cls)).used.item(row)
                    free += max(capacity - used, 0) * 100 // capacity
                    limited += 1
        self.scarce_free[row] = free // limited if limited else 0

    def _write_node(self, row: int, held: Row) -> None:
        view = held.facts.view
        amounts = view.status.allocatable
        for name, column in self.resources.items():
            if name not in amounts:
                column.capacity[row] = 0
        for name, amount in amounts.items():
            self.column(name).capacity[row] = amount.milli() if name == "cpu" else amount.value()
        self._write_classes(row, held.classes)
        self._weigh_classes(row, held.classes)
        self._write_topology(row, held)
        self._weigh_load(row)
        self.labels.write(row, {HOSTNAME: view.metadata.name, **view.metadata.labels})
        self.taint_set[row] = self.taint_sets.number(tuple(view.spec.taints))
        self.has_soft_taints |= any(taint.effect == SOFT_TAINT for taint in view.spec.taints)
        self.unschedulable[row] = view.spec.unschedulable
        for driver, has in self.drivers.items():
            has[row] = driver in held.facts.drivers
        self.drivers[ANY_DRIVER][row] = len(held.facts.drivers) == 1
        for driver in held.facts.drivers:
            self.driver_column(driver)[row] = True
        for sizes in self.images.values():
            sizes[row] = 0
        for image in view.status.images:
            for name in image.names:
                if name not in self.images:
                    self.images[name] = np.zeros(self._size, dtype=np.int64)
                self.images[name][row] = image.size_bytes

    def _write_classes(self, row: int, offered: Catalog) -> None:
        for column in self.classes.values():
            column.capacity[row] = NO_CLASS
        for levels in self.levels.values():
            levels[row] = 0
        for rows in self.withheld.values():
            rows.discard(row)
        for kind in offered.types.values():
            self.level_column(kind.name)[row] = LEVELS[kind.level]
            for handler in (None, *kind.handlers) if kind.handlers else ():
                for cls in (one for one in kind.classes if not kind.is_for(handler, one)):
                    self.withheld.setdefault((handler, kind.name, cls), set()).add(row)
            for cls, capacity in kind.classes.items():
                self.class_column((kind.level, kind.name, cls)).capacity[row] = capacity

    def _write_topology(self, row: int, held: Row) -> None:
        summary = held.facts.topology
        (self.aligning.add if summary.aligns else self.aligning.discard)(row)
        computes = summary.compute is not None and held.facts.machine is not None
        (self.computing.add if computes else self.computing.discard)(row)
        (self.ailing.add if summary.down else self.ailing.discard)(row)
        held.changed()
        self._clear_pools(row)
        held.rules = {resource: rule_set(division, summary) for resource, division in summary.pools.items()}
        for resource, division in summary.pools.items():
            self.divided.add(row)
            if resource not in self.rule_set:
                self.rule_set[resource] = np.zeros(self._size, dtype=np.int32)
            self.rule_set[resource][row] = self.rule_sets.number(held.rules[resource])
            for pool, size in {**division.pools, WHOLE: division.whole}.items():
                self.pool_column((resource, pool)).capacity[row] = amount_of(resource, size)

    def _clear_pools(self, row: int) -> None:
        if row in self.divided:
            self.divided.discard(row)
            for column in self.pools.values():
                column.capacity[row], column.used[row] = NO_CLASS, 0
            for numbers in self.rule_set.values():
                numbers[row] = 0

    def _clear_row(self, row: int) -> None:
        for column in self.resources.values():
            column.capacity[row] = column.used[row] = 0
        self._write_classes(row, Catalog())
        for column in self.classes.values():
            column.used[row] = 0
        self._clear_pools(row)
        self.aligning.discard(row)
        self.computing.discard(row)
        self.ailing.discard(row)
        self.attach_limits.pop(row, None)
        self.labels.write(row, {})
        self.taint_set[row] = self.taint_sets.number(())
        self.unschedulable[row] = False
        self.scoring_cpu[row] = self.scoring_memory[row] = self.scarce_free[row] = 0
        self.unevenness[row] = 0.0
        for flags in self.drivers.values():
            flags[row] = False
        for sizes in self.images.values():
            sizes[row] = 0

    def _take_row(self) -> int:
        if not self._free:
            self._grow()
        return self._free.pop()

    def _grow(self) -> None:
        old, self._size = self._size, self._size * 2
        for name, absent in (
            ("alive", False),
            ("taint_set", 0),
            ("unschedulable", False),
            ("scoring_cpu", 0),
            ("scoring_memory", 0),
            ("unevenness", 0),
            ("scarce_free", 0),
            ("facts_at", 0),
        ):
            setattr(self, name, grown(getattr(self, name), self._size, absent))
        for column in self.resources.values():
            column.grow(self._size, 0)
        for column in (*self.classes.values(), *self.pools.values()):
            column.grow(self._size, NO_CLASS)
        for table in (self.levels, self.drivers, self.images, self.rule_set):
            for key in table:
                table[key] = grown(table[key], self._size, 0)
        self.labels.grow(self._size)
        self.groups.grow(self._size)
        self._free.extend(range(self._size - 1, old - 1, -1))


def _add(column: Ints, row: int, amount: int) -> None:
    column[row] = column.item(row) + amount  # plain numbers: half the time of `+=` on one element
