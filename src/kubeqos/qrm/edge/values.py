"""What the fields of one allocation may hold, so that it harms nobody but its owner. Pure.

The bounds are those of the kernel and of CRI: a value beyond them would fail the container's start, or worse, be cut
to something else on its way. Called by `edge.messages`, and by the allocations for reports.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from kubeqos.errors import InputError
from kubeqos.model import names
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.qrm.answers import CPUS, MEMS, PROPERTIES, UNIFIED, Nonsense, property_value
from kubeqos.qrm.messages import Allocation, NumaHint

MOST = float(2**63 - 1)
"""The largest amount that a quantity of Kubernetes can count."""
NAME_BYTES = 317
"""The longest qualified name: a prefix of 253 bytes, a slash, a name of 63."""
TEXT_BYTES = 64 << 10
VARIABLE_BYTES = 128 << 10
"""MAX_ARG_STRLEN of Linux: one variable of an environment with its name, `=` and final zero."""
TABLE_BYTES = 1 << 20
PATH_BYTES = 4096
ITEMS = 1024
OWN_KEYS = "kubeqos.io/"
"""Annotations of this prefix are read by the agent itself, which believes them."""
RANGES: Mapping[str, tuple[int, int]] = {
    "cpu_period": (0, 1_000_000),
    "cpu_quota": (-1, 2**63 - 1),
    "cpu_shares": (0, 262_144),
    "memory_limit_in_bytes": (0, 2**63 - 1),
    "memory_swap_limit_in_bytes": (-1, 2**63 - 1),
    "oom_score_adj": (-1000, 1000),
}
_CGROUP_FILE = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_-]+)+", re.ASCII)
_PERMISSIONS = re.compile(r"[rwm]{0,3}", re.ASCII)


def amount_wrong(amount: float) -> str:
    """Why this is no amount of anything; empty if it is one."""
    if not math.isfinite(amount) or not 0 <= amount <= MOST:
        return f"{amount} is not a quantity"
    return ""


def name_wrong(name: str) -> str:
    """Why this cannot be the name of a resource; empty if it can."""
    if len(name) > NAME_BYTES:
        return f"{shown(name)} is too long for the name of a resource"
    complaints = names.qualified_name(name)
    return f"{shown(name)} is not the name of a resource: {complaints[0]}" if complaints else ""


def numa_wrong(ids: Iterable[int], machine: Machine | None) -> str:
    """Which of these NUMA nodes there cannot be; empty if they all can."""
    ids = list(ids)
    try:
        found = NumaSet.from_ids(ids)
    except InputError as error:
        return error.what
    if machine is not None and found - machine.numa:
        return f"NUMA nodes {found - machine.numa} do not exist on this machine"
    return ""


def shown(text: str) -> str:
    """A peer's text, short enough for a message."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


def check_allocation(name: str, given: Allocation, machine: Machine | None) -> Nonsense | None:
    """What is wrong with one allocation by itself."""
    wrong = name_wrong(name)
    if wrong:
        return Nonsense(wrong)
    for found in _wrongs(given, machine):
        return Nonsense(f"{name}: {found}")
    return None


def _wrongs(given: Allocation, machine: Machine | None) -> Iterator[str]:
    if complaint := amount_wrong(given.quantity):
        yield f"allocated quantity {complaint}"
    if len(given.result) > TEXT_BYTES:
        yield f"its result has {len(given.result)} characters, at most {TEXT_BYTES} are taken"
        return
    yield from _property_wrongs(given, machine)
    yield from _hint_wrongs(given, machine)
    yield from _env_wrongs(given.envs)
    yield from _annotation_wrongs(given.annotations)
    yield from _path_wrongs(given)


def _property_wrongs(given: Allocation, machine: Machine | None) -> Iterator[str]:
    field = PROPERTIES.get(given.property)
    if given.exclusive and field is not None and field.name == CPUS and not given.result:
        yield "it names no CPUs where some are to be one pod's alone"
    found = property_value(given)
    if isinstance(found, Nonsense):
        yield str(found)
    elif found is not None and found[0] in (CPUS, MEMS):
        yield from _set_wrongs(found[0], str(found[1]), machine)
    elif found is not None and found[0] == UNIFIED and isinstance(found[1], dict):
        bad = next((file for file in found[1] if not _CGROUP_FILE.fullmatch(file)), None)
        if bad is not None:
            yield f"{shown(bad)} is not a cgroup file"
    elif found is not None and isinstance(found[1], int):
        low, high = RANGES.get(found[0], (-(2**63), 2**63 - 1))
        if not low <= found[1] <= high:
            yield f"{given.property} must be {_bounds(low, high)}, not {found[1]}"


def _bounds(low: int, high: int) -> str:
    return f"at least {low}" if high == 2**63 - 1 else f"from {low} to {high}"


def _set_wrongs(field: str, text: str, machine: Machine | None) -> Iterator[str]:
    kind: type[CpuSet] | type[NumaSet] = CpuSet if field == CPUS else NumaSet
    try:
        ids = kind.parse(text)
    except InputError as error:
        yield error.what
        return
    known = None if machine is None else machine.online if field == CPUS else machine.numa
    if known is not None and ids.mask & ~known.mask:
        yield f"{kind(ids.mask & ~known.mask)} do not exist on this machine"


def _hint_wrongs(given: Allocation, machine: Machine | None) -> Iterator[str]:
    yield from hints_wrong(given.hints, machine)
    if complaint := numa_wrong(given.assignments, machine):
        yield complaint


def hints_wrong(hints: Iterable[NumaHint], machine: Machine | None) -> Iterator[str]:
    """What is wrong with placements."""
    for count, hint in enumerate(hints):
        if count >= TEXT_BYTES:
            yield f"it has more than {TEXT_BYTES} hints"
        elif complaint := numa_wrong(hint.nodes, machine):
            yield f"a hint is wrong: {complaint}"
        else:
            continue
        return


def _env_wrongs(envs: Mapping[str, str]) -> Iterator[str]:
    total = 0
    for name, value in envs.items():
        size = len(name.encode()) + len(value.encode()) + 2
        total += size
        if complaints := names.env_var_name(name):
            yield f"{shown(name)} is not the name of a variable: {complaints[0]}"
        if "\0" in value:
            yield f"variable {shown(name)} holds a zero byte"
        if size > VARIABLE_BYTES:
            yield f"variable {shown(name)} has {size} bytes, the kernel takes {VARIABLE_BYTES}"
    if total > TABLE_BYTES:
        yield f"its variables have {total} bytes, at most {TABLE_BYTES} are taken"


def _annotation_wrongs(annotations: Mapping[str, str]) -> Iterator[str]:
    total = 0
    for key, value in annotations.items():
        total += len(key.encode()) + len(value.encode())
        if not key or not key.isprintable() or len(key) > NAME_BYTES:
            yield f"{shown(key)} is not the key of an annotation"
        if OWN_KEYS in key:
            yield f"annotation {shown(key)} is the node agent's own"
        if "\0" in value:
            yield f"annotation {shown(key)} holds a zero byte"
    if total > TABLE_BYTES // 4:
        yield f"its annotations have {total} bytes, at most {TABLE_BYTES // 4} are taken"


def _path_wrongs(given: Allocation) -> Iterator[str]:
    if max(len(given.mounts), len(given.devices)) > ITEMS:
        yield f"it has more than {ITEMS} mounts or devices"
        return
    mounts = [path for one in given.mounts for path in (one.container_path, one.host_path)]
    devices = [path for one in given.devices for path in (one.container_path, one.host_path)]
    for what, paths in (("mount", mounts), ("device", devices)):
        for path in paths:
            absolute = path.startswith("/") and ".." not in path.split("/")
            if not absolute or "\0" in path or len(path.encode()) > PATH_BYTES:
                yield f"{what} path {shown(path)} must be absolute, without '..', and at most {PATH_BYTES} bytes long"
    for device in given.devices:
        if not _PERMISSIONS.fullmatch(device.permissions):
            yield f"permissions {shown(device.permissions)} of device {shown(device.container_path)} are not of 'rwm'"
