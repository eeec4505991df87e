"""Which writes bring containers from what they have to what they should have, in a safe order. No I/O, no clock.

`topology.changes` orders the CPUs: who gains comes after who loses. Containers that change alike are planned as one, so
a change that touches hundreds is planned as quickly as one that touches two. Called by `node.updates.pending`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.plugins.managers import ContainerKey, Grant
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.changes import Held, plan_changes

CPUS = "cpuset_cpus"
UNMOVED = "owners"
"""All who own CPUs and keep them, as one entry of the plan; no pod has a uid like this."""


@dataclass(frozen=True, slots=True)
class Update:
    """Let one container have this, after all earlier updates of the same list."""

    key: ContainerKey
    grant: Grant


@dataclass(frozen=True, slots=True)
class Had:
    """What a container has once all that it was told so far is made; no grant when nobody knows."""

    cpus: CpuSet
    grant: Grant | None = None
    owned: CpuSet = NO_CPUS
    """Of its CPUs, or beside them, those that are its pod's alone."""

    @classmethod
    def of(cls, grant: Grant, otherwise: CpuSet) -> Had:
        return cls(cpus_of(grant, otherwise), grant, grant.exclusive)


def plan(
    had: Mapping[ContainerKey, Had], wanted: Mapping[ContainerKey, Grant], online: CpuSet
) -> list[Update] | Unsatisfiable:
    """The updates from `had` to `wanted`; empty when everybody has what he should have.

    Containers only in `had` have gone or are nobody's affair, those only in `wanted` are not created yet.
    """
    changed = {
        key: wanted[key] for key, one in had.items() if key in wanted and not same_for_running(one.grant, wanted[key])
    }
    if not changed:
        return []
    moving = {key for key, grant in changed.items() if cpus_of(grant, had[key].cpus) != had[key].cpus}
    steps = _order(had, wanted, moving, online) if moving else []
    if isinstance(steps, Unsatisfiable):
        return steps
    moves = [Update(key, _with_cpus(changed[key], cpus)) for key, cpus in steps]
    return moves + [Update(key, grant) for key, grant in changed.items() if key not in moving]


def same_for_running(one: Grant | None, other: Grant) -> bool:
    """Whether a running container that has the one need not be told of the other."""
    return one is other or (one is not None and (one.properties, one.unified) == (other.properties, other.unified))


def cpus_of(grant: Grant, otherwise: CpuSet = NO_CPUS) -> CpuSet:
    """The CPUs that a grant gives; those it does not speak of stay as they are."""
    text = grant.properties.get(CPUS)
    return _parsed(str(text)) if text else otherwise


@lru_cache(maxsize=1024)
def _parsed(text: str) -> CpuSet:
    return CpuSet.parse(text)


def _with_cpus(grant: Grant, cpus: CpuSet) -> Grant:
    if cpus_of(grant) == cpus:
        return grant
    return replace(grant, properties={**grant.properties, CPUS: str(cpus)})


# ---- The order of moves


@dataclass(frozen=True, slots=True)
class _Part:
    """The part of a container that is planned: all of it, or what it shares beside CPUs of its pod's own."""

    before: CpuSet
    after: CpuSet
    owner: str | None = None
    owner_before: str | None = None


def _order(
    had: Mapping[ContainerKey, Had],
    wanted: Mapping[ContainerKey, Grant],
    moving: set[ContainerKey],
    online: CpuSet,
) -> list[tuple[ContainerKey, CpuSet]] | Unsatisfiable:
    """The new CPU sets of the moving containers, one after the other."""
    present = {key: wanted[key] for key in had if key in wanted and cpus_of(wanted[key])}
    owned = _owned(present)
    groups: dict[_Part, list[ContainerKey]] = {}
    for key, grant in present.items():
        part = _part_of(key[0], had[key], grant, owned.get(key[0], NO_CPUS))
        if key in moving or part.owner is None:
            groups.setdefault(part, []).append(key)
    members = {"/".join(keys[0]): keys for keys in groups.values()}
    parts = dict(zip(members, groups, strict=True))
    before = {name: Held(part.before, part.owner_before) for name, part in parts.items() if part.before}
    after = {name: Held(part.after, part.owner) for name, part in parts.items()}
    still = _unmoved(owned, groups)
    taken = [one.cpus for one in (*before.values(), *after.values(), *still.values())]
    taken += [grant.exclusive | cpus_of(grant) for key, grant in wanted.items() if key not in had]
    changes = plan_changes(before | still, after | still, online - CpuSet.union(taken))
    if isinstance(changes, Unsatisfiable):
        return changes
    writes = []
    for change in changes:
        alone = parts[change.container].owner is not None
        for key in members[change.container]:
            own = NO_CPUS if alone else cpus_of(wanted[key]) & owned.get(key[0], NO_CPUS)
            writes.append((key, change.cpus | own))
    # Who only lacks CPUs of his own has nothing to wait for: they are nobody else's by now.
    return writes + [(key, cpus_of(wanted[key])) for key in moving - {key for key, _ in writes}]


def _owned(grants: Mapping[ContainerKey, Grant]) -> dict[str, CpuSet]:
    """The CPUs that are one pod's alone, by pod."""
    found: dict[str, CpuSet] = {}
    for (pod, _), grant in grants.items():
        if grant.exclusive:
            found[pod] = found.get(pod, NO_CPUS) | grant.exclusive
    return found


def _part_of(pod: str, had: Had, grant: Grant, own: CpuSet) -> _Part:
    cpus = cpus_of(grant)
    shared = cpus - own
    owner_before = pod if had.owned and had.cpus <= had.owned else None
    return _Part(had.cpus - own, shared, None, owner_before) if shared else _Part(had.cpus, cpus, pod, owner_before)


def _unmoved(owned: Mapping[str, CpuSet], moving: Iterable[_Part]) -> dict[str, Held]:
    """CPUs that stay their owners'. They are one entry where that makes no difference, so that plans stay small."""
    found, rest = {}, NO_CPUS
    for pod, cpus in owned.items():
        mine = [part.after for part in moving if part.owner == pod]
        if not mine:
            rest |= cpus
        elif left := cpus - CpuSet.union(mine):
            found[f"{pod}/"] = Held(left, pod)
    return {**found, UNMOVED: Held(rest, UNMOVED)} if rest else found
