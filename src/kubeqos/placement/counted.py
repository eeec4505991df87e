"""The filters that pods change: ports, resources, classes, pools and NUMA nodes, each rule stated once.

A filter yields checks. `fit` puts them to all rows and turns them into findings with their words; `placer` puts the
same checks to the one row that a pod changed. A check reads the cluster when it is asked, so that it can be kept for
as long as no node divides its resources in a new way (`Cluster.divisions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kubeqos.placement.cluster import LEVELS, Cluster, Column
from kubeqos.placement.findings import COMPUTE, NUMA, Check, always
from kubeqos.placement.published.computing import Answer
from kubeqos.placement.published.pools import WHOLE, Need, amount_of, pool_need
from kubeqos.placement.rows import At, Number, OneRow, Truth
from kubeqos.placement.shape import ClassNeed, Shape
from kubeqos.placement.storage.filters import attach_checks, sharing_checks
from kubeqos.rules.qos.classes import ClassKey, Level, withheld
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.claims.serving import Served

_NATIVE_ORDER = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}


def has_room(checks: Iterable[Check], at: OneRow) -> bool:
    """Whether no check refuses the row."""
    for check in checks:  # noqa: SIM110 - runs for every pod that is placed, and a generator costs as much as a check
        if check.refuses(at):
            return False
    return True


def _free(column: Column, at: At) -> Number:
    return at.read(column.capacity) - at.read(column.used)


# -- ports and resources -------------------------------------------------------------------------------------------


def port_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    if not shape.host_ports:
        return

    def clashes(row: int) -> bool:
        return any(mine.clashes(theirs) for mine in shape.host_ports for theirs in cluster.rows[row].ports)

    text = "node(s) didn't have free ports for the requested pod ports"
    yield Check(lambda at: at.ask(at.read(cluster.alive), clashes), text, resolvable=always, waits_for="ports")


def resource_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """Everything that is counted: the number of pods, then every request that is not zero."""
    pods = cluster.column("pods")
    yield Check(lambda at: _free(pods, at) < 1, "Too many pods", resolvable=always, waits_for="pods")
    for name in sorted(shape.requests, key=lambda each: (_NATIVE_ORDER.get(each, 3), each)):
        if shape.requests[name] and name not in shape.ignored:
            yield _resource_check(cluster.column(name), name, shape.requests[name])


def _resource_check(column: Column, name: str, amount: int) -> Check:
    return Check(
        lambda at: amount > _free(column, at),
        f"Insufficient {name}",
        # What does not fit into the empty node is not helped by evicting others.
        resolvable=lambda at: amount <= at.read(column.capacity),
        waits_for=name,
    )


# -- classes (KEP-3008) --------------------------------------------------------------------------------------------


def class_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """QoS classes: the resource at the right level, the class, and room in it."""
    for need in shape.class_needs:
        yield from _level_checks(cluster, need.resource, need.asked_by_containers)
        for key, count in class_counts(need):
            yield from _class_checks(cluster, key, count)
            yield _handler_check(cluster, key, need.handler)


def class_counts(need: ClassNeed) -> Iterator[tuple[ClassKey, int]]:
    """The classes a pod takes where its need is met at their level, and how often."""
    for cls in need.pod_classes if not need.asked_by_containers else ():
        yield (Level.POD, need.resource, cls), 1
    for cls, count in need.container_classes.items():
        yield (Level.CONTAINER, need.resource, cls), count


def _level_checks(cluster: Cluster, resource: str, asked_by_containers: bool) -> Iterator[Check]:
    cluster.level_column(resource)  # from here on there is one
    levels, for_pods = cluster.levels, LEVELS[Level.POD]
    yield Check(lambda at: at.read(levels[resource]) == 0, f"QoS resource {resource} not available")
    if asked_by_containers:
        text = f"QoS resource {resource} is pod-level, requested at container level"
        yield Check(lambda at: at.read(levels[resource]) == for_pods, text)


def _class_checks(cluster: Cluster, key: ClassKey, count: int) -> Iterator[Check]:
    """Capacity -1 is a class that the node does not have, 0 one without limit."""
    level, resource, cls = LEVELS[key[0]], key[1], key[2]
    levels, column = cluster.levels, cluster.class_column(key)
    yield Check(
        lambda at: (at.read(levels[resource]) == level) & (at.read(column.capacity) < 0),
        f"QoS class {resource}={cls} not available",
    )
    yield Check(
        lambda at: (at.read(levels[resource]) == level) & ((size := at.read(column.capacity)) > 0) & (count > size),
        lambda size: f"QoS class {resource}={cls} too small (capacity {size}, needs {count})",
        lambda at: (at.read(column.capacity),),
    )
    yield Check(
        lambda at: (
            (at.read(levels[resource]) == level)
            & (count <= (size := at.read(column.capacity)))
            & (at.read(column.used) + count > size)
        ),
        lambda taken, size: f"QoS class {resource}={cls} exhausted ({taken}/{size} used)",
        lambda at: (at.read(column.used), at.read(column.capacity)),
        resolvable=always,
        waits_for=key,
    )


def _handler_check(cluster: Cluster, key: ClassKey, handler: str | None) -> Check:
    """A class that the node does not offer to pods of this runtime handler."""
    level, resource, cls = LEVELS[key[0]], key[1], key[2]
    levels, rows = cluster.levels, cluster.withheld
    nobody: set[int] = set()
    return Check(
        lambda at: (at.read(levels[resource]) == level) & at.among(rows.get((handler, resource, cls), nobody)),
        withheld(resource, cls, handler),
    )


# -- pools (KEP-3461) ----------------------------------------------------------------------------------------------


def pool_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """Pools into which plugins divide a node: room in the one that the pod's role draws on."""
    if shape.left_alone:
        return
    for resource in cluster.rule_set:
        for number, rules in enumerate(cluster.rule_sets.values):
            need = pool_need(shape, resource, rules) if number else None
            if need is not None:
                yield from _PoolChecks(cluster, shape, resource, need, number).all()


@dataclass(frozen=True, slots=True)
class _PoolChecks:
    """What one need asks of the rows that divide a resource by one set of rules."""

    cluster: Cluster
    shape: Shape
    resource: str
    need: Need
    rules: int

    def concerned(self, at: At) -> Truth:
        return at.read(self.cluster.rule_set[self.resource]) == self.rules

    def all(self) -> Iterator[Check]:
        for pool, amount in self.need.wanted:
            yield from self.room(pool, amount)
        if is_odd(self.resource, self.need):
            yield Check(self.concerned, f"exclusive {self.resource} not a multiple of {self.need.rule.multiple}")
        if self.need.units:
            yield self.last_shared()
            if self.need.is_bound:
                yield from self.bound()

    def room(self, pool: str, amount: int) -> Iterator[Check]:
        column = self.cluster.pool_column((self.resource, pool))
        if pool != WHOLE:  # every division has whole units, if only none of them
            text = f'no pool "{pool}" for {self.resource}'
            yield Check(lambda at: self.concerned(at) & (at.read(column.capacity) < 0), text)
        yield Check(
            lambda at: self.concerned(at) & (at.read(column.capacity) >= 0) & (amount > _free(column, at)),
            f'Insufficient {self.resource} in pool "{pool}"' if pool else f"Insufficient exclusive {self.resource}",
            resolvable=lambda at: amount <= at.read(column.capacity),
            waits_for=(self.resource, pool),
            comes_by_itself=True,
        )

    def last_shared(self) -> Check:
        """Units of its own are never the last of a pool that others run in."""
        column = self.cluster.pool_column((self.resource, WHOLE))

        def starves(row: int) -> bool:
            return self.cluster.rows[row].would_starve(self.shape, self.resource)

        return Check(
            lambda at: at.ask(self.concerned(at) & (self.need.units == _free(column, at)), starves),
            f"the last exclusive {self.resource} has to be shared",
            resolvable=always,
            waits_for=(self.resource, WHOLE),
            comes_by_itself=True,
        )

    def bound(self) -> Iterator[Check]:
        """Units on NUMA nodes that the role may be bound to. One such pod at a time: the node has to say where."""
        key, resource, rows = (self.resource, WHOLE), self.resource, self.cluster.rows
        column = self.cluster.pool_column(key)

        def waits(row: int) -> bool:
            return rows[row].waits_to_hear(resource)

        def is_short(row: int) -> bool:
            left = _free(column, OneRow(row))
            return not waits(row) and rows[row].is_short_of_open(self.shape, resource, self.need, left)

        yield Check(
            lambda at: at.ask(self.concerned(at), waits),
            "node(s) have yet to tell where bound pods went",
            waits_for=key,
            comes_by_itself=True,
        )
        yield Check(
            lambda at: at.ask(self.concerned(at), is_short),
            f"Insufficient exclusive {resource} on NUMA nodes open to the pod's role",
            resolvable=always,
            waits_for=key,
            comes_by_itself=True,
        )


def is_odd(resource: str, need: Need) -> bool:
    """Whether whole units do not come in the multiples that the role needs."""
    return need.rule.multiple > 1 and need.units % amount_of(resource, need.rule.multiple) != 0


# -- NUMA nodes ----------------------------------------------------------------------------------------------------


def numa_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """Pods that the node's topology manager would refuse, by what the node publishes of its NUMA nodes."""
    if not shape.aligned:
        return

    def cannot(row: int) -> bool:
        return not cluster.rows[row].can_align(shape)

    yield Check(
        lambda at: at.ask(at.among(cluster.aligning), cannot),
        "node(s) cannot align the pod's resources on one NUMA node",
        resolvable=always,
        waits_for=NUMA,
        comes_by_itself=True,
    )


# -- claims (KEP-3675) ---------------------------------------------------------------------------------------------


def compute_checks(cluster: Cluster, shape: Shape) -> Iterator[Check]:
    """Claims that the node's drivers could not serve, attribute by attribute; and CPUs that claims keep idle."""
    if not cluster.computing:
        return
    checks = _ComputeChecks(cluster, shape)
    if shape.compute is not None:
        yield checks.served()
    if shape.requests.get("cpu"):
        yield checks.room()


@dataclass(frozen=True, slots=True)
class _ComputeChecks:
    """What a pod asks of rows that tell who holds which CPUs by claims."""

    cluster: Cluster
    shape: Shape
    words: dict[str, int] = field(default_factory=dict)
    """Why claims cannot be served, numbered: findings tell texts by numbers."""

    def concerned(self, at: At) -> Truth:
        return at.among(self.cluster.computing)

    def answer(self, row: int) -> Answer | None:
        found = self.cluster.rows[row].compute()
        assert self.shape.compute is not None
        return found.answer(self.shape.compute, self.cluster.served) if found is not None else None

    def served(self) -> Check:
        """The check that the allocators of `topology` find CPUs for every group."""

        def unserved(row: int) -> bool:
            return isinstance(self.answer(row), Unsatisfiable)

        def because(row: int) -> int:
            return self.words.setdefault(str(self.answer(row)), len(self.words)) if unserved(row) else 0

        return Check(
            lambda at: at.ask(self.concerned(at), unserved),
            lambda number: f"node(s) cannot serve the pod's claims ({list(self.words)[number]})",
            lambda at: (at.count(self.concerned(at), because),),
            resolvable=always,
            waits_for=COMPUTE,
            comes_by_itself=True,
        )

    def room(self) -> Check:
        """CPUs that are nobody's request and yet nobody's: kept by this pod's claims, or by some on their way."""
        wanted = self.shape.requests["cpu"]

        def is_short(row: int) -> bool:
            more = self.cluster.rows[row].unforeseen()
            if self.shape.compute is not None:
                answer = self.answer(row)
                more += 1000 * answer.kept if isinstance(answer, Served) else 0
            return bool(more and wanted + more > _free(self.cluster.cpu, OneRow(row)))

        return Check(
            lambda at: at.ask(self.concerned(at), is_short),
            "Insufficient cpu beside the cores that claims keep",
            resolvable=always,
            waits_for="cpu",
            comes_by_itself=True,
        )


COUNTED = {
    "NodePorts": port_checks,
    "NodeResourcesFit": resource_checks,
    "QOSResources": class_checks,
    "ResourcePools": pool_checks,
    "NUMATopology": numa_checks,
    "ComputeFit": compute_checks,
    "VolumeRestrictions": sharing_checks,
    "NodeVolumeLimits": attach_checks,
}


def counted_checks(cluster: Cluster, shape: Shape) -> tuple[Check, ...]:
    """Everything that decides whether a row has room, as far as pods can change that."""
    return tuple(check for checks in COUNTED.values() for check in checks(cluster, shape))
