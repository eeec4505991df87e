"""Readers of the values in a `NodeConfiguration`, for settings from a file and from flags alike. Pure.

A flag's text takes the form that Kubernetes' flags have: `cpu=500m,memory=1Gi`, `memory.available<100Mi`,
`0:memory=1Gi;1:memory=1Gi`. The result is the same as that of the file's YAML.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kubeqos.document import Doc, suggest
from kubeqos.errors import ConfigurationError
from kubeqos.gates import FeatureGates
from kubeqos.model.objects import ResourceList
from kubeqos.model.reading import quantity, seconds
from kubeqos.topology.cpus import CpuOptions

SHORTEST_PERIOD_SECONDS = 0.01
T = TypeVar("T")
E = TypeVar("E", bound=enum.Enum)
Reader = Callable[[Doc], T]


def members(doc: Doc, sign: str = "=") -> dict[str, Doc]:
    """A map from a file, or a flag's list of pairs."""
    if not doc.source.startswith("--") or doc.is_mapping:
        return doc.items()
    pairs: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in doc.text().split(","))):
        name, found, value = part.partition(sign)
        if not found:
            doc.fail(f"{part!r} is not a pair", f"write it like name{sign}value")
        pairs[name.strip()] = value.strip()
    return dataclasses.replace(Doc.of(pairs, doc.source), path=doc.path).items()


def whole(low: int, high: int) -> Reader[int]:
    return lambda doc: doc.integer(low, high)


def one_of(kind: type[E]) -> Reader[E]:
    """A member of an enumeration by its value."""
    return lambda doc: kind(doc.one_of([str(member.value) for member in kind]))


def text(doc: Doc) -> str:
    return doc.text()


def flag(doc: Doc) -> bool:
    return doc.boolean()


def path(doc: Doc) -> Path:
    """A path; a relative one in a file is relative to the file."""
    given = Path(doc.text())
    if given.is_absolute() or doc.source.startswith("--"):
        return given
    return Path(doc.source).parent / given


def duration(doc: Doc) -> float:
    """A span of time; one below zero is none."""
    found = seconds(doc)
    if found < 0:
        doc.fail(f"a duration of {doc.text()} is before it begins", "use 0s or more")
    return found


def period(doc: Doc) -> float:
    """How often or how long something is done: with none at all it would be done without a pause, or never."""
    found = seconds(doc)
    if found < SHORTEST_PERIOD_SECONDS:
        doc.fail(f"{doc.text()} is too short for a period", f"use {SHORTEST_PERIOD_SECONDS * 1000:g}ms or more")
    return found


def quota_period(doc: Doc) -> float:
    """The kernel's bounds of a period of CPU limits."""
    found = seconds(doc)
    if not 0.001 <= found <= 1.0:
        doc.fail(f"{doc.text()} is no period of CPU limits", "use 1ms to 1s, as the kernel does")
    return found


def factor(doc: Doc) -> float:
    """A number above 0 and up to 1."""
    try:
        found = float(doc.text())
    except ValueError:
        found = 0.0
    if not 0.0 < found <= 1.0:
        doc.fail(f"expected a number above 0 and up to 1, found {doc.text()!r}")
    return found


def memory_policy(doc: Doc) -> str:
    """The memory manager's policies begin with a capital, unlike the CPU manager's; both spellings are read."""
    known = {"none": "None", "static": "Static"}
    return known.get(doc.text().lower()) or doc.one_of(known.values())


def texts(doc: Doc) -> dict[str, str]:
    return {name: child.text() for name, child in members(doc).items()}


def names(doc: Doc) -> tuple[str, ...]:
    if doc.source.startswith("--") and not doc.is_list:
        return tuple(filter(None, doc.text().split(",")))
    return tuple(child.text() for child in doc.elements())


def reserved(doc: Doc) -> ResourceList:
    """What is kept from pods, by resource."""
    known = ("cpu", "memory", "ephemeral-storage", "pid")
    out: ResourceList = {}
    for name, child in members(doc).items():
        if name not in known and not name.startswith("hugepages-"):
            child.fail("cannot be reserved", suggest(name, known))
        out[name] = quantity(child)
    return out


def signals(doc: Doc) -> dict[str, str]:
    """Eviction thresholds by signal; `rules.qos.eviction` understands the values."""
    return {name: child.text() for name, child in members(doc, "<").items()}


def minimum_reclaims(doc: Doc) -> dict[str, str]:
    return {name: child.text() for name, child in members(doc).items()}


def grace_periods(doc: Doc) -> dict[str, float]:
    return {name: seconds(child) for name, child in members(doc).items()}


def gates(doc: Doc) -> FeatureGates:
    """Feature gates, with Kubernetes' wording for what is wrong."""
    wanted = {name: child.boolean() for name, child in members(doc).items()}
    try:
        return FeatureGates.default().set(wanted)
    except ConfigurationError as error:
        doc.fail(error.what, error.remedy or "")


NO_CPU_OPTIONS = CpuOptions()


@dataclasses.dataclass(frozen=True, slots=True)
class CpuPolicyOptions:
    """`cpuManagerPolicyOptions`: what the allocator obeys, and what the pools obey."""

    allocation: CpuOptions = NO_CPU_OPTIONS
    strict_reservation: bool = False


CPU_OPTIONS = {
    "full-pcpus-only": "full_pcpus_only",
    "distribute-cpus-across-numa": "distribute_across_numa",
    "distribute-cpus-across-cores": "distribute_across_cores",
    "align-by-socket": "align_by_socket",
    "prefer-align-cpus-by-uncorecache": "prefer_align_by_uncore_cache",
}
STRICT_RESERVATION = "strict-cpu-reservation"


def cpu_options(doc: Doc) -> CpuPolicyOptions:
    found = members(doc)
    known = (*CPU_OPTIONS, STRICT_RESERVATION)
    for name, child in found.items():
        if name not in known:
            child.fail("unknown option", suggest(name, known))
    on = {name: child.boolean() for name, child in found.items()}
    allocation = CpuOptions(**{CPU_OPTIONS[name]: value for name, value in on.items() if name in CPU_OPTIONS})
    return CpuPolicyOptions(allocation, on.get(STRICT_RESERVATION, False))


@dataclasses.dataclass(frozen=True, slots=True)
class TopologyOptions:
    """`topologyManagerPolicyOptions`. Kubernetes stops at 8 NUMA nodes unless told otherwise; here 0 is no bound."""

    prefer_closest_numa: bool = False
    max_numa_nodes: int = 0


def topology_options(doc: Doc) -> TopologyOptions:
    found = members(doc)
    known = ("prefer-closest-numa-nodes", "max-allowable-numa-nodes")
    for name, child in found.items():
        if name not in known:
            child.fail("unknown option", suggest(name, known))
    closest, most = (found.get(name) for name in known)
    return TopologyOptions(
        closest.boolean() if closest is not None else False, most.integer(8, 64) if most is not None else 0
    )


def reserved_memory(doc: Doc) -> dict[int, ResourceList]:
    """Memory kept from pods by NUMA node: a list of `{numaNode, limits}`, or the flag's `0:memory=1Gi;1:…`."""
    out: dict[int, ResourceList] = {}
    for numa, limits in _reservations(doc):
        if numa in out:
            limits.fail(f"NUMA node {numa} appears twice", "keep one of them")
        out[numa] = {name: quantity(child) for name, child in members(limits).items()}
        for name, child in members(limits).items():
            if name != "memory" and not name.startswith("hugepages-"):
                child.fail("cannot be reserved by NUMA node", "use memory or hugepages-…")
    return out


def _reservations(doc: Doc) -> list[tuple[int, Doc]]:
    if doc.source.startswith("--") and not doc.is_list:
        out = []
        for part in filter(None, doc.text().split(";")):
            numa, _, limits = part.partition(":")
            place = dataclasses.replace(Doc.of(limits, doc.source), path=doc.path)
            if not numa.isdecimal():
                doc.fail(f"{part!r} names no NUMA node", "write it like 0:memory=1Gi")
            out.append((int(numa), place))
        return out
    found = []
    for each in doc.elements():
        fields = each.fields(("numaNode", "limits"))
        numa_node = each.required(fields, "numaNode").integer(0, 1023)
        found.append((numa_node, each.required(fields, "limits")))
    return found


def taints(doc: Doc) -> tuple[Mapping[str, Any], ...]:
    """Taints of the node, as objects or in kubectl's form `key=value:effect`."""
    found: list[Mapping[str, Any]] = []
    for each in doc.elements() if doc.is_list else [Doc.of(part, doc.source) for part in names(doc)]:
        if each.is_mapping:
            fields = each.fields(("key", "value", "effect"))
            found.append({key: child.text() for key, child in fields.items()})
        else:
            pair, colon, effect = each.text().rpartition(":")
            key, _, value = pair.partition("=")
            found.append({"key": key, "value": value, "effect": effect} if colon else {})
        if found[-1].get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute") or not found[-1].get("key"):
            each.fail("is not a taint", "write it like key=value:NoSchedule")
    return tuple(found)
