"""What a plugin's answers mean once they are believed (`qrm.edge` says which are): pure.

An `oci_property_name` is the Go name of a field of CRI's LinuxContainerResources; the field is found in the message's
descriptor, so that every property of the installed CRI works and none is listed here (KEP-3461, Synchronous Pod
Admission: "by reflecting mechanism").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from kubeqos.codec import JsonError, decode_json
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from kubeqos.plugins.managers import DeviceNode, Grant, Mount
from kubeqos.qrm.asking import Question
from kubeqos.qrm.messages import Allocation
from kubeqos.qrm.proto import resourceplugin_pb2 as pb

UNIFIED, HUGEPAGES = "unified", "hugepage_limits"
PAGE_SIZE = re.compile(r"[1-9][0-9]*[KMG]?B")
CPUS, MEMS = "cpuset_cpus", "cpuset_mems"
INTEGER_BITS = {FieldDescriptor.CPPTYPE_INT64: 63, FieldDescriptor.CPPTYPE_INT32: 31}
SLACK = 1e-6  # quantities travel as doubles


def _go_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _properties(message: Any) -> dict[str, FieldDescriptor]:
    scalar = (*INTEGER_BITS, FieldDescriptor.CPPTYPE_STRING)
    return {
        _go_name(field.name): field
        for field in message.DESCRIPTOR.fields
        if field.name in (UNIFIED, HUGEPAGES) or (not field.is_repeated and field.cpp_type in scalar)
    }


PROPERTIES: Mapping[str, FieldDescriptor] = _properties(cri.LinuxContainerResources)

_PLACES = ("CpusetCpus", "CpusetMems")


@dataclass(frozen=True, slots=True)
class Nonsense:
    """An answer that cannot be used."""

    what: str

    def __str__(self) -> str:
        return self.what


def property_value(given: Allocation) -> tuple[str, str | int | dict[str, str] | dict[str, int]] | Nonsense | None:
    """The CRI field that an allocation sets and its value; None when it sets none."""
    if not given.property:
        return None
    field = PROPERTIES.get(given.property)
    if field is None:
        return Nonsense(f"unknown property {given.property!r} (known: {', '.join(sorted(PROPERTIES))})")
    if field.name in TABLES:
        return _table(field.name, given.result)
    if field.cpp_type not in INTEGER_BITS:
        return (field.name, given.result) if given.result else None
    try:
        number = int(given.result)
    except ValueError:
        return Nonsense(f"{given.property} must be a whole number, not {given.result!r}")
    if abs(number) >> INTEGER_BITS[field.cpp_type]:
        return Nonsense(f"{given.property} is out of range: {given.result}")
    return field.name, number


# The two properties that are tables: what they look like as JSON, and what makes an entry good.
TABLES: Mapping[str, tuple[str, Callable[[str, Any], bool]]] = {
    UNIFIED: (
        'Unified must be a JSON object of cgroup files, like {"io.weight": "100"}',
        lambda _file, value: isinstance(value, str),
    ),
    HUGEPAGES: (
        'HugepageLimits must be a JSON object of bytes by page size, like {"2MB": 4194304}',
        lambda size, value: PAGE_SIZE.fullmatch(size) is not None and type(value) is int and 0 <= value < 1 << 63,
    ),
}


def _table(name: str, text: str) -> tuple[str, Any] | Nonsense:
    wanted, good = TABLES[name]
    try:
        table = decode_json(text.encode())
    except JsonError:
        table = None
    if not isinstance(table, dict) or not all(good(key, value) for key, value in table.items()):
        return Nonsense(f"{wanted}, not {text!r}")
    return name, table


def own_of(question: Question, resources: Mapping[str, Allocation]) -> Allocation | None:
    """What was given of the resource itself; plugins call it by their own name or by the pod's."""
    return resources.get(question.resource) or resources.get(question.spelled)


def satisfies(question: Question, held: Allocation, kind: pb.ContainerType.ValueType) -> bool:
    """Whether what a container holds still serves its request (KEP-3461, IsScalarResource: re-admission)."""
    return not held.scalar or kind != pb.MAIN or math.ceil(held.quantity) + SLACK >= in_unit(question)


def in_unit(question: Question) -> float:
    """The request in the plugin's unit: a mapped name that counts thousandths is a thousandth of the other's."""
    thousandths = question.spelled != question.resource and "milli" in question.spelled.rpartition("/")[2]
    return question.quantity / 1000 if thousandths else question.quantity


def grant_of(resources: Mapping[str, Allocation]) -> Grant | Nonsense:
    """Everything that one container gets, from all its resources; two that disagree are an error that names both."""
    setters = _Once()
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceNode] = {}
    # In the order of names, so that a clash is told the same way whichever plugin answered first.
    for name, given in sorted(resources.items()):
        found = property_value(given)
        if isinstance(found, Nonsense):
            return Nonsense(f"{name}: {found}")
        if found and found[0] == HUGEPAGES and isinstance(found[1], dict):
            setters.add("property", name, {f"{HUGEPAGES}.{size}": limit for size, limit in found[1].items()})
        elif found and isinstance(found[1], dict):
            setters.add(UNIFIED, name, found[1])
        elif found:
            setters.add("property", name, {found[0]: found[1]})
        setters.add("env", name, given.envs)
        setters.add("annotation", name, given.annotations)
        for mount in given.mounts:
            value = Mount(mount.container_path, mount.host_path, mount.read_only)
            setters.add("mount", name, {mount.container_path: value})
            mounts[mount.container_path] = value
        for device in given.devices:
            node = DeviceNode(device.container_path, device.host_path, device.permissions)
            setters.add("device", name, {device.container_path: node})
            devices[device.container_path] = node
    if setters.clash:
        return Nonsense(setters.clash)
    return Grant(
        properties=setters.of("property"),
        unified=setters.of(UNIFIED),
        envs=setters.of("env"),
        annotations=setters.of("annotation"),
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        because=", ".join(f"{name}={told(given)}" for name, given in sorted(resources.items())),
        unthrottled=(placed := cpus_of(resources.values())) is not None and placed[1],
    )


def told(given: Allocation) -> str:
    """What a plugin gave of a resource, for people: its value, and what it brings along."""
    value = given.result or (f"{given.quantity:g}" if given.quantity else "")
    along = [f"{name}={text}" for name, text in sorted(given.envs.items())]
    along += [*(one.host_path for one in given.devices), *(one.host_path for one in given.mounts)]
    where = "" if given.property in _PLACES else " or ".join(str(one.value.numa) for one in given.hints if one.nodes)
    said = [*([value] if value else []), *along, *([f"NUMA {where}"] if where else [])]
    return ", ".join(said) + (" (its own)" if given.exclusive else "") or "0"


class _Once:
    """Collects values that must not be set twice to different things."""

    def __init__(self) -> None:
        self.clash = ""
        self._values: dict[tuple[str, str], tuple[str, Any]] = {}

    def add(self, what: str, resource: str, values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            first, held = self._values.setdefault((what, key), (resource, value))
            if held != value and not self.clash:
                self.clash = f"{first} and {resource} both set {what} {key}: {held!r} and {value!r}"

    def of(self, what: str) -> dict[str, Any]:
        return {key: value for (kind, key), (_, value) in self._values.items() if kind == what}


def cpus_of(resources: Iterable[Allocation]) -> tuple[CpuSet, bool] | None:
    """The CPUs that a container may run on by its allocations, and whether they are its pod's alone."""
    for given in resources:
        field = PROPERTIES.get(given.property)
        if field is not None and field.name == CPUS and given.result:
            return CpuSet.parse(given.result), given.exclusive
    return None
