"""Pools: what a pod draws on where resource plugins divide a node among roles (KEP-3461).

A node publishes its pools (`model.annotations.topologysummary`); what is used of them follows from the pods on it, as
with QoS classes, so that pods on their way there count at once. The cluster charges pools, `counted` asks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from kubeqos.model.annotations.topologysummary import ANY, EXCLUSIVE, Division, PoolRule, Rules, TopologySummary
from kubeqos.placement.shape import Draw, Shape

PoolKey = tuple[str, str]
"""Resource and pool."""
WHOLE = ""
"""In place of a pool: units that are somebody's own."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Who draws on what, on all nodes that say the same about it."""

    text: bytes
    rules: Rules
    carved: str = ""
    by_pod: bool = False
    """The node aligns whole pods, so plugins are asked for all containers together."""

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and self.text == other.text


NO_RULES = RuleSet(b"", Rules())


def rule_set(division: Division, summary: TopologySummary) -> RuleSet:
    text = msgspec.json.encode((division.rules, division.carved, summary.scope))
    return RuleSet(text, division.rules, division.carved, summary.scope == "pod")


def amount_of(resource: str, told: float) -> int:
    """A published amount in the scheduler's integers; plugins forgive a millionth."""
    return int(told * 1000 + 1e-3) if resource == "cpu" else int(told + 1e-6)


@dataclass(frozen=True, slots=True)
class Need:
    """What a pod draws on in one division: how much of which pool must be free, and what it takes."""

    rule: PoolRule
    wanted: tuple[tuple[str, int], ...]
    taken: tuple[tuple[str, int], ...]

    @property
    def units(self) -> int:
        """Whole units, 0 for who shares a pool."""
        return self.wanted[0][1] if self.rule.whole else 0

    @property
    def is_bound(self) -> bool:
        return self.rule.whole and self.rule.numa != ANY


def pool_need(shape: Shape, resource: str, rules: RuleSet) -> Need | None:
    """What a pod draws on; None when plugins leave it alone or it asks for nothing."""
    draw = shape.draws.get(resource)
    if draw is None or shape.left_alone:
        return None
    rule = rules.rules.rule_for(shape.marks)
    if not rule.whole:
        amount = draw.pod if rules.by_pod else draw.together
        return Need(rule, ((rule.pool, amount),), ((rule.pool, amount),)) if amount else None
    return _whole(draw, resource, rule, rules)


def _whole(draw: Draw, resource: str, rule: PoolRule, rules: RuleSet) -> Need | None:
    """Units of its own for the main container; the others run beside it, or share where nothing is carved out."""
    main = draw.pod if rules.by_pod else draw.main
    if not main:
        return None
    units = -(-main // 1000) * 1000 if resource == "cpu" else main
    rest = 0 if rules.carved or rules.by_pod else draw.together - draw.main
    others = ((rules.rules.default, rest),) if rest else ()
    carved = ((rules.carved, units),) if rules.carved else ()
    return Need(rule, ((WHOLE, units), *others), ((WHOLE, units), *carved, *others))


def shares(shape: Shape, rules: RuleSet) -> bool:
    """Whether a container of the pod, if only an init container, runs in the pool that others carve units out of."""
    if shape.left_alone:
        return False
    rule = rules.rules.rule_for(shape.marks)
    pool = rule.pool if not rule.whole else rules.rules.default if shape.has_init and not rules.by_pod else ""
    return pool == rules.carved != WHOLE


def pool_use(
    shape: Shape, summary: TopologySummary, sets: Mapping[str, RuleSet], uid: str = ""
) -> Iterator[tuple[PoolKey, int]]:
    """What a pod takes of a node's pools. Of whole units: what the node says that it has, at least.

    Whole NUMA nodes may be more than a pod asks for: until the node has told, all that it could have taken.
    """
    for resource, division in summary.pools.items():
        found = pool_need(shape, resource, sets[resource])
        if found is None:
            continue
        more = max(0, _owned(shape, resource, division, found, uid) - found.units) if found.units else 0
        for pool, amount in found.taken:
            yield (resource, pool), amount + (more if pool in (WHOLE, division.carved) else 0)


def _owned(shape: Shape, resource: str, division: Division, found: Need, uid: str) -> int:
    told = division.owned.get(uid)
    if told is not None:
        return amount_of(resource, told)
    if found.rule.numa != EXCLUSIVE:
        return 0
    return amount_of(resource, float(sum(division.open.get(_role(shape), {}).values())))


def _role(shape: Shape) -> str:
    return shape.marks.role or shape.marks.level


def pool_wants(shape: Shape, sets: Mapping[str, RuleSet]) -> Iterator[tuple[PoolKey, int]]:
    """What must be free of a node's pools for the pod to be let in."""
    for resource, rules in sets.items():
        found = pool_need(shape, resource, rules)
        for pool, amount in found.wanted if found is not None else ():
            yield (resource, pool), amount


def is_short_of_open(
    shape: Shape, resource: str, summary: TopologySummary, need: Need, left: int, starves: bool
) -> bool:
    """Whether the NUMA nodes that a bound pod may use have less than it needs; False where nobody says.

    Who takes whole NUMA nodes must not take all units that are `left`, if that `starves` others.
    """
    free = summary.pools[resource].open.get(_role(shape))
    if free is None:
        return False
    amounts = sorted((amount_of(resource, float(amount)) for amount in free.values()), reverse=True)
    if need.units > sum(amounts[:1] if summary.policy == "single-numa-node" else amounts):
        return True
    if need.rule.numa != EXCLUSIVE or not starves:
        return False
    taken = 0
    for amount in amounts:
        taken += amount if taken < need.units else 0
    return taken >= left
