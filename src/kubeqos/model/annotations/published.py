"""What a node agent publishes about its machine on its Node object, as annotation text and back. Pure.

The machine itself changes with a reboot, who runs where with every pod, so they are two annotations:
`MACHINE_ANNOTATION` and `ASSIGNMENTS_ANNOTATION`. The node agent encodes; `kubeqos map` and the dashboard
decode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.errors import InputError
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION
from kubeqos.model.cpuset import NO_CPUS, NO_NUMA, CpuSet, NumaSet
from kubeqos.model.hardware.machinefile import machine_from_dict, machine_to_dict
from kubeqos.model.machine import Machine

S = TypeVar("S", CpuSet, NumaSet)

SHARED_PART = " (shared)"
"""Follows the name of a container that has CPUs of its own, for the entry with those that it shares."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Where one container runs; an empty `mems` means memory of every NUMA node."""

    cpus: CpuSet
    exclusive: bool = False
    mems: NumaSet = NO_NUMA
    partition: str = ""
    """Of CPUs of its own: `root` where the kernel keeps everybody else away, else why it does not; empty if unknown."""
    idle: CpuSet = NO_CPUS
    """Of CPUs of its own: those on which nobody runs, siblings that a claim keeps idle."""


@dataclass(frozen=True, slots=True)
class Protected:
    """How much of a pod's memory the kernel does not reclaim: what its cgroup asks for, and what comes of it."""

    asked_bytes: int
    effective_bytes: int
    because: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the kernel keeps of what was promised: protected pods by uid, and who owns CPUs by pod and container."""

    protected: Mapping[str, Protected] = field(default_factory=dict)
    partitions: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assignments:
    """Pools of a machine by name, its containers by `namespace/pod/container`, protected pods by `namespace/pod`."""

    pools: Mapping[str, CpuSet] = field(default_factory=dict)
    containers: Mapping[str, Holding] = field(default_factory=dict)
    protected: Mapping[str, Protected] = field(default_factory=dict)

    def owners(self) -> dict[str, CpuSet]:
        """Who has which CPUs, no CPU twice: exclusive containers first, then the pools without what those took."""
        exclusive = {name: held.cpus for name, held in self.containers.items() if held.exclusive}
        taken = CpuSet()
        for cpus in exclusive.values():
            taken |= cpus
        return {name: cpus - taken for name, cpus in self.pools.items() if cpus - taken} | exclusive

    def sharing(self) -> dict[str, Holding]:
        """The containers that share their CPUs with others."""
        return {name: held for name, held in self.containers.items() if not held.exclusive}


def encode_machine(machine: Machine) -> str:
    """The value of `MACHINE_ANNOTATION`."""
    return encode_json(machine_to_dict(machine)).decode()


def decode_machine(text: str) -> Machine:
    """Read `MACHINE_ANNOTATION`."""
    return machine_from_dict(_json(text, MACHINE_ANNOTATION), MACHINE_ANNOTATION)


def encode_assignments(assignments: Assignments) -> str:
    """The value of `ASSIGNMENTS_ANNOTATION`; equal assignments give equal text, so nothing is written for nothing."""
    return encode_json(assignments_to_dict(assignments)).decode()


def decode_assignments(text: str) -> Assignments:
    """Read `ASSIGNMENTS_ANNOTATION`. Members of a newer writer are passed over."""
    document = _json(text, ASSIGNMENTS_ANNOTATION)
    pools = _table(document, "pools")
    containers = _table(document, "containers")
    return Assignments(
        {name: _ids(cpus, CpuSet.parse, f"pools.{name}") for name, cpus in pools.items()},
        {name: _holding(held, f"containers.{name}") for name, held in containers.items()},
        {name: _protected(one, f"protected.{name}") for name, one in _table(document, "protected").items()},
    )


def assignments_to_dict(assignments: Assignments) -> dict[str, Any]:
    """The document form, in the order of names."""
    protected = {
        name: {"asked": one.asked_bytes, "effective": one.effective_bytes}
        | ({"because": one.because} if one.because else {})
        for name, one in sorted(assignments.protected.items())
    }
    return {
        "pools": {name: str(cpus) for name, cpus in sorted(assignments.pools.items())},
        "containers": {
            name: {"cpus": str(held.cpus), "exclusive": held.exclusive}
            | ({"mems": str(held.mems)} if held.mems else {})
            | ({"partition": held.partition} if held.partition else {})
            | ({"idle": str(held.idle)} if held.idle else {})
            for name, held in sorted(assignments.containers.items())
        },
    } | ({"protected": protected} if protected else {})


def _holding(value: object, where: str) -> Holding:
    if not isinstance(value, dict):
        raise InputError(f"{ASSIGNMENTS_ANNOTATION}: expected an object", where=where)
    return Holding(
        _ids(value.get("cpus", ""), CpuSet.parse, f"{where}.cpus"),
        value.get("exclusive") is True,
        _ids(value.get("mems", ""), NumaSet.parse, f"{where}.mems"),
        str(value.get("partition", "")),
        _ids(value.get("idle", ""), CpuSet.parse, f"{where}.idle"),
    )


def _protected(value: object, where: str) -> Protected:
    if not isinstance(value, dict) or not all(isinstance(value.get(key), int) for key in ("asked", "effective")):
        raise InputError(f"{ASSIGNMENTS_ANNOTATION}: expected numbers of bytes", where=where)
    return Protected(value["asked"], value["effective"], str(value.get("because", "")))


def _ids(value: object, parse: Callable[[str], S], where: str) -> S:
    try:
        return parse(str(value))
    except InputError as error:
        raise InputError(f"{ASSIGNMENTS_ANNOTATION}: {error.what}", where=where) from error


def _table(document: object, member: str) -> dict[str, Any]:
    value = document.get(member, {}) if isinstance(document, dict) else None
    if not isinstance(value, dict):
        raise InputError(f"{ASSIGNMENTS_ANNOTATION}: expected an object", where=member)
    return value


def _json(text: str, annotation: str) -> object:
    try:
        return decode_json(text.encode())
    except JsonError as error:
        raise InputError(f"annotation {annotation} is not JSON: {error}") from error
