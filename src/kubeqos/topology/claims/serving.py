"""Serving a pod's claims as a node does: from what each container needs to who would hold which CPUs. Pure.

The CCI manager asks drivers; this chooses as they say that they choose (`choosing`), on the same books and in the same
order. Placement calls it to know what a node would say before a pod is sent there, and where pods that are on their way
will be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import PodView
from kubeqos.topology.answers import Shortage, Unsatisfiable, Violation
from kubeqos.topology.claims.asks import Wrong, asks_of
from kubeqos.topology.claims.choosing import BY_ATTRIBUTES, choose
from kubeqos.topology.claims.devices import NO_DEVICES, Devices, devices_of, locate
from kubeqos.topology.claims.holdings import (
    Holding,
    Holdings,
    ResourceSet,
    StoredContainer,
    exclusive_set,
    owned_by,
    taken_by,
)
from kubeqos.topology.claims.parameters import Parameters
from kubeqos.topology.claims.resolving import ResolvedClaim, Unresolved
from kubeqos.topology.claims.sharing import offered, place


@dataclass(frozen=True, slots=True)
class ClaimNeed:
    """One claim: whom it asks (the node's only driver where nobody is named), and for what."""

    driver: str
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class ContainerNeed:
    """What one container asks of drivers, without the names of its claims: equal for the pods of one template."""

    name: str
    transient: bool
    claims: tuple[ClaimNeed, ...]
    devices: Devices = NO_DEVICES


@dataclass(frozen=True, slots=True)
class ComputeNeed:
    """What a pod asks of drivers: its containers that have claims or policies, in the order in which they start."""

    containers: tuple[ContainerNeed, ...] = ()


@dataclass(frozen=True, slots=True)
class Terms:
    """How a node treats claims, beside what is free: settings of its manager."""

    minimum: int = 1
    """CPUs that no exclusive claim may take from pods without claims."""
    threads: bool = False
    """EXCLUSIVE owns single threads."""
    ways: tuple[tuple[str, str], ...] = ()
    """Drivers that look at more than attributes, and how they choose."""

    def way_of(self, driver: str) -> tuple[str, str]:
        """The driver that serves a claim, as far as it matters who that is, and how it chooses."""
        if not driver and len(self.ways) == 1:  # who names none goes only where there is one
            return self.ways[0]
        return next((one for one in self.ways if one[0] == driver), ("", BY_ATTRIBUTES))


@dataclass(frozen=True, slots=True)
class Served:
    """What would be held once the pod is in, and which wishes of its claims could not be met."""

    holdings: Holdings
    kept: int
    """CPUs that its claims would keep from others beyond those that it requests."""
    unmet: tuple[str, ...] = ()


def need_of(pod: PodView, claims: Mapping[str, ResolvedClaim | Unresolved]) -> ComputeNeed | Wrong | None:
    """What a pod asks of drivers; None when it asks for nothing."""
    found: list[ContainerNeed] = []
    for field, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            asks = asks_of(pod, container, f"spec.{field}[{index}]", claims)
            if isinstance(asks, Wrong):
                return asks
            if asks:
                transient = field == "initContainers" and not container.is_sidecar
                needs = tuple(ClaimNeed(ask.driver, ask.parameters) for ask in asks)
                found.append(ContainerNeed(container.name, transient, needs, devices_of(pod, container)))
    return ComputeNeed(tuple(found)) if found else None


def serve(holdings: Holdings, uid: str, need: ComputeNeed, terms: Terms) -> Served | Unsatisfiable:
    """Admit a pod's claims on a copy of the books, or say why not."""
    after = Holdings(holdings.machine, holdings.reserved)
    after.entries = dict(holdings.entries)
    unmet: list[str] = []
    for container in need.containers:
        near = locate(after.machine, container.devices)
        if isinstance(near, str):
            return Unsatisfiable((Violation("device", near),))
        held: list[Holding] = []
        for claim in container.claims:
            wanted = claim.parameters.by_threads() if terms.threads else claim.parameters
            asked = replace(wanted, device_numa=near)
            available = after.available_resources(uid) - taken_by(one for each in held for one in each.sets)
            driver, way = terms.way_of(claim.driver)
            others = (one for entry in after.entries.values() for one in entry.holdings)
            owned = owned_by(driver, (*others, *held)) if driver else NO_CPUS
            given = _given(after.machine, asked, offered(after.machine, asked, available), way, owned)
            if isinstance(given, Unsatisfiable):
                return given
            sets, dropped = given
            held.append(Holding(driver, "", "", "", asked, sets))
            unmet += dropped
        entry = StoredContainer(uid, container.name, "", container.transient, tuple(held))
        changed = place(after, entry, terms.minimum)
        if isinstance(changed, Unsatisfiable):
            return changed
        after.entries |= {each.key: each for each in changed}
    return Served(after, after.kept - holdings.kept, tuple(unmet))


def _given(
    machine: Machine, asked: Parameters, available: CpuSet, way: str, owned: CpuSet
) -> tuple[tuple[ResourceSet, ...], list[str]] | Unsatisfiable:
    """What a claim would get, and the wishes that were dropped for it."""
    if asked.policy:  # what it means is known to the driver alone: so many CPUs it needs at least
        if asked.least > len(available):
            return Unsatisfiable((Shortage("cpus", asked.least, len(available)),))
        return (), []
    answers = choose(way, machine, available, asked, owned)
    if isinstance(answers, Unsatisfiable):
        return answers
    sets = [
        exclusive_set(machine, group, one.cpus) if group.exclusive else ResourceSet(one.cpus)
        for group, one in zip(asked.groups, answers, strict=True)
    ]
    return tuple(sets), [text for one in answers for text in one.because]
