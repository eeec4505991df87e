"""In which order containers are told their new CPUs: `topology.changes` over whole groups of containers.

Containers of one pool change alike, so they are planned as one; a resize that touches hundreds of containers is planned
as quickly as one that touches two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Refused
from kubeqos.topology.changes import Held, plan_changes

Key = tuple[str, str]  # pod uid, container name
Step = tuple[Key, CpuSet]
Signature = tuple[Held | None, Held]


def order(
    before: Mapping[Key, Held], after: Mapping[Key, Held], machine: Machine | None = None
) -> Sequence[Step] | Refused:
    """The writes from `before` to `after`; empty when nothing changes."""
    if all(before.get(key) is not None and before[key].cpus == held.cpus for key, held in after.items()):
        return ()
    groups: dict[Signature, list[Key]] = {}
    for key, held in after.items():
        groups.setdefault((before.get(key), held), []).append(key)
    members = {f"{keys[0][0]}/{keys[0][1]}": keys for keys in groups.values()}
    names = dict(zip(groups, members, strict=True))
    old = {names[signature]: signature[0] for signature in groups if signature[0] is not None}
    new = {names[signature]: signature[1] for signature in groups}
    plan = plan_changes(old, new, _spare(before, after, machine))
    if isinstance(plan, Refused):
        return plan
    return [(key, change.cpus) for change in plan for key in members[change.container]]


def _spare(before: Mapping[Key, Held], after: Mapping[Key, Held], machine: Machine | None) -> CpuSet:
    if machine is None:
        return NO_CPUS
    taken = 0
    for held in (*before.values(), *after.values()):
        taken |= held.cpus.mask
    return CpuSet(machine.online.mask & ~taken)


def clashes(held: Mapping[Key, Held]) -> list[str]:
    """CPUs that are one pod's alone and somebody else's too, in words."""
    groups: dict[Held, Key] = {}
    for key, one in held.items():
        groups.setdefault(one, key)
    alone = [(one, key) for one, key in groups.items() if one.owner is not None]
    wrong: dict[frozenset[Key], str] = {}
    for one, key in alone:
        for two, other in groups.items():
            if one.owner != two.owner and one.cpus & two.cpus:
                text = f"{'/'.join(key)} and {'/'.join(other)} both hold {one.cpus & two.cpus}, which is exclusive"
                wrong.setdefault(frozenset((key, other)), text)
    return list(wrong.values())
