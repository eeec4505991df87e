"""The books of a node's claims as it publishes them, and back: what the manager knows is what placement decides by."""

from __future__ import annotations

from collections.abc import Collection

from kubeqos.errors import InputError
from kubeqos.model.annotations.topologysummary import ComputeSummary, HeldByContainer, HeldClaim
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.machine import Machine
from kubeqos.topology.claims.document import Problem
from kubeqos.topology.claims.holdings import Holding, Holdings, ResourceSet, StoredContainer
from kubeqos.topology.claims.parameters import Group, Parameters, parse_handle
from kubeqos.topology.claims.serving import Terms


def summary_of(holdings: Holdings, terms: Terms) -> ComputeSummary:
    """What a node publishes."""
    held: dict[str, tuple[HeldByContainer, ...]] = {}
    ways = dict(terms.ways)
    for entry in holdings.entries.values():
        if entry.holdings:
            claims = tuple(_held(one, one.driver if one.driver in ways else "") for one in entry.holdings)
            held[entry.pod] = (*held.get(entry.pod, ()), HeldByContainer(entry.transient, claims))
    machine, available = holdings.machine, holdings.available_resources()
    whole = machine.whole_cores(available)
    free: dict[int, dict[str, int]] = {}
    for node, cpus in machine.numa_cpus.items():
        sorts = {"isolated": machine.isolated, "efficiency": machine.efficiency}
        cores = sum(1 for core in machine.cores.values() if core <= whole & cpus)
        special = {name: len(available & cpus & some) for name, some in sorts.items() if cpus & some}
        if cpus:
            free[node] = {"cpus": len(available & cpus), "cores": cores, **special}
    withheld = str((holdings.reserved | holdings.withheld()) & machine.online)
    return ComputeSummary(withheld, terms.minimum, terms.threads, ways, held, free)


def terms_of(summary: ComputeSummary) -> Terms:
    """The node's settings again."""
    return Terms(summary.minimum, summary.threads, tuple(sorted(summary.ways.items())))


def _held(holding: Holding, driver: str) -> HeldClaim:
    shares = any(not one.exclusive for one in holding.sets)
    sets = tuple((str(one.cpus), str(one.whole)) for one in holding.sets)
    return HeldClaim(holding.parameters.least_exclusive, sets, holding.parameters.handle() if shares else "", driver)


def holdings_of(machine: Machine, summary: ComputeSummary, pods: Collection[str]) -> Holdings | None:
    """The books again, of these pods; None when they are not of this machine or cannot be read."""
    try:
        found = Holdings(machine, CpuSet.parse(summary.withheld))
        for uid, containers in summary.held.items():
            if uid in pods:
                for number, one in enumerate(containers):
                    entry = StoredContainer(uid, f"#{number}", "", one.transient, tuple(map(_holding, one.claims)))
                    found.entries[entry.key] = entry
    except InputError:
        return None
    return found


def _holding(told: HeldClaim) -> Holding:
    sets = tuple(ResourceSet(CpuSet.parse(cpus), CpuSet.parse(whole)) for cpus, whole in told.sets)
    parameters = parse_handle(told.handle) if told.handle else _exclusive(told.least)
    if isinstance(parameters, Problem):
        raise InputError(str(parameters))
    return Holding(told.driver, "", "", "", parameters, sets)


def _exclusive(least: int) -> Parameters:
    """All that has to be known of cores that nobody moves: how many of them are requested."""
    return Parameters((Group(least, least, exclusive=True),) if least else ())
