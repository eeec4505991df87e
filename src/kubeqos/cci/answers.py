"""Whether to believe a driver: its answer to `CCIAdmit`, checked before anything is reserved.

A driver is foreign code. Its sets must be readable, lie inside what is available, have the size that was asked for, not
overlap, say "exclusive" where the claim does, and honour every hard attribute. Pure; called by the manager and by
`kubeqos cci conformance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.attributes import Siblings, violations
from kubeqos.topology.claims.holdings import ResourceSet, exclusive_set
from kubeqos.topology.claims.parameters import Group, Parameters


@dataclass(frozen=True, slots=True)
class Lie:
    """Why an answer is not believed."""

    because: str

    def __str__(self) -> str:
        return self.because


MOST_CHARACTERS = 64 << 10
MOST_WORDS = 1024


def said(err: str) -> str:
    """A driver's own words for a pod's event: one line, and not without end. Empty when it has nothing against it."""
    words = " ".join("".join(char if char.isprintable() else " " for char in err[: MOST_WORDS + 1]).split())
    return words if len(err) <= MOST_WORDS else f"{words[:MOST_WORDS]}…"


def refused(answer: pb.AdmitResponse | pb.AddResourceResponse | pb.RemoveResourceResponse) -> str:
    """Why a driver says no, in its own words; empty when it says yes. Blanks alone are a no without a word."""
    return (said(answer.err) or "it refuses, and does not say why") if answer.err else ""


def verified(
    machine: Machine, available: CpuSet, parameters: Parameters, answer: pb.AdmitResponse
) -> tuple[ResourceSet, ...] | Lie:
    """The sets of an answer without error, or what is wrong with it."""
    said = _sets(answer)
    if isinstance(said, Lie):
        return said
    groups = _groups(parameters, said)
    if isinstance(groups, Lie):
        return groups
    found: list[ResourceSet] = []
    used = NO_CPUS
    for group, (cpus, exclusive) in zip(groups, said, strict=True):
        wrong = _wrong(machine, available, parameters, group, cpus, exclusive)
        one = exclusive_set(machine, group, cpus) if exclusive else ResourceSet(cpus)
        if not wrong and cpus & used:
            wrong = f"CPUs {cpus & used} are in two of its sets"
        if not wrong and one.whole - available:
            wrong = f"CPUs {one.whole - available}, siblings of {cpus}, are in use by others"
        if wrong:
            return Lie(wrong)
        found.append(one)
        used |= cpus
    return _keeps_siblings(groups, found) or tuple(found)


def _keeps_siblings(groups: Sequence[Group], found: Sequence[ResourceSet]) -> Lie | None:
    """Whether one group uses siblings that another owns: only CORE-SIBLING-PREFERRED lends them to its own claim."""
    for group, one in zip(groups, found, strict=True):
        for other in found:
            both = one.whole & other.cpus
            if other is not one and both and group.siblings is not Siblings.PREFERRED:
                return Lie(f"CPUs {both} are siblings of its exclusive {one.cpus} and in another of its sets")
    return None


def _sets(answer: pb.AdmitResponse) -> list[tuple[CpuSet, bool]] | Lie:
    """The groups of an answer: `sets`, whose union must be `rSet`, or `rSet` alone."""
    parsed = []
    if sum(len(each.cpuset) for each in (answer.rSet, *answer.sets)) > MOST_CHARACTERS:
        return Lie(f"its cpusets are longer than {MOST_CHARACTERS} characters")
    for each in (answer.rSet, *answer.sets):
        try:
            parsed.append((CpuSet.parse(each.cpuset), each.exclusive))
        except InputError as error:
            return Lie(f"its cpuset {each.cpuset[:80]!r} cannot be read: {error.what}")
    union, sets = parsed[0], parsed[1:]
    if not sets:
        return [union] if union[0] else Lie("it named no CPUs")
    together = CpuSet()
    for cpus, _ in sets:
        together |= cpus
    if answer.HasField("rSet") and union[0] != together:
        return Lie(f"its sets are {together} together, its rSet is {union[0]}")
    return sets


def _groups(parameters: Parameters, said: Sequence[tuple[CpuSet, bool]]) -> tuple[Group, ...] | Lie:
    """The groups that the sets serve; one set may serve several groups that are all exclusive or all shared."""
    groups = parameters.groups
    if len(said) == len(groups):
        return groups
    if len(said) != 1:
        return Lie(f"it answered {len(said)} sets for {len(groups)} groups of cores")
    if len({group.exclusive for group in groups}) > 1:
        return Lie("it answered one set for exclusive and shared cores; a mixed answer needs AdmitResponse.sets")
    return (Group(parameters.least, parameters.most, groups[0].exclusive, threads=groups[0].threads),)


def _wrong(
    machine: Machine, available: CpuSet, parameters: Parameters, group: Group, cpus: CpuSet, exclusive: bool
) -> str:
    if not group.least <= len(cpus) <= group.most:
        return f"it answered {len(cpus)} cores ({cpus}) where {group.cores} were asked for"
    if cpus - available:
        return f"CPUs {cpus - available} are not available"
    if parameters.policy:  # only the driver knows what the policy promises
        return ""
    if exclusive != group.exclusive:
        words = {True: "exclusive", False: "shared"}
        return f"it answered {words[exclusive]} cores where {words[group.exclusive]} ones were asked for"
    outside = cpus - group.region(machine)
    if outside:
        return f"CPUs {outside} are not next to huge pages of the size that was asked for"
    broken = violations(machine, available, group.request(parameters.device_numa), cpus)
    return "; ".join(map(str, broken))
