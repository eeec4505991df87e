"""What takes an update of a container's resources back: the values that held before it. Pure.

CRI's update cannot say "as it was" (zero and empty mean "unchanged"), so every field that an update sets is looked up:
in the runtime's status, in the OCI spec that runtimes without such a status show, then in the container's cgroup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubeqos.codec import JsonError, decode_json
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.rules.qos.cgroups import DEFAULT_PERIOD_US

ReadFile = Callable[[str, str], str]
"""The content of (controller, file) of the container's cgroup, or nothing."""
UNLIMITED = -1
NO_HUGEPAGE_LIMIT = (1 << 63) - (1 << 12)
KERNEL_SHARES = 1024

# What the kernel has where nobody set anything.
_UNSET: Mapping[str, int] = {
    "cpu_period": DEFAULT_PERIOD_US,
    "cpu_quota": UNLIMITED,
    "memory_limit_in_bytes": UNLIMITED,
    "memory_swap_limit_in_bytes": UNLIMITED,
    "oom_score_adj": 0,
}
_SETS = {"cpuset_cpus": "cpuset.cpus", "cpuset_mems": "cpuset.mems"}
# Where an OCI spec has what CRI names otherwise.
_SPEC: Mapping[str, tuple[str, str]] = {
    "cpu_period": ("cpu", "period"),
    "cpu_quota": ("cpu", "quota"),
    "cpu_shares": ("cpu", "shares"),
    "cpuset_cpus": ("cpu", "cpus"),
    "cpuset_mems": ("cpu", "mems"),
    "memory_limit_in_bytes": ("memory", "limit"),
    "memory_swap_limit_in_bytes": ("memory", "swap"),
}


def in_status(response: cri.ContainerStatusResponse) -> cri.LinuxContainerResources | None:
    """What a container has, if the runtime's status says so."""
    return response.status.resources.linux if response.status.resources.HasField("linux") else None


def in_spec(response: cri.ContainerStatusResponse) -> cri.LinuxContainerResources:
    """What a container has, from the OCI spec in its verbose status."""
    out = cri.LinuxContainerResources()
    try:
        spec: Any = decode_json(response.info.get("info", "{}").encode()).get("runtimeSpec") or {}
    except (JsonError, AttributeError):
        return out
    found = (spec.get("linux") or {}).get("resources") or {}
    for name, (part, key) in _SPEC.items():
        if value := (found.get(part) or {}).get(key):
            setattr(out, name, value)
    out.oom_score_adj = (spec.get("process") or {}).get("oomScoreAdj") or 0
    for page in found.get("hugepageLimits") or ():
        out.hugepage_limits.add(page_size=page["pageSize"], limit=page["limit"])
    out.unified.update(found.get("unified") or {})
    return out


def taken_back(
    update: cri.LinuxContainerResources, had: cri.LinuxContainerResources, read: ReadFile
) -> cri.LinuxContainerResources:
    """The update that undoes `update`: the same fields with the values of before."""
    out = cri.LinuxContainerResources()
    for name, unset in _UNSET.items():
        if getattr(update, name):
            setattr(out, name, getattr(had, name) or unset)
    if update.cpu_shares:
        out.cpu_shares = had.cpu_shares or _shares(read)
    for name, file in _SETS.items():
        if getattr(update, name):
            setattr(out, name, getattr(had, name) or read("cpuset", file) or read("cpuset", f"{file}.effective"))
    limits = {page.page_size: page.limit for page in had.hugepage_limits}
    for page in update.hugepage_limits:
        out.hugepage_limits.add(page_size=page.page_size, limit=limits.get(page.page_size, NO_HUGEPAGE_LIMIT))
    for key in update.unified:
        if before := had.unified.get(key) or read("", key):
            out.unified[key] = before
    return out


def _shares(read: ReadFile) -> int:
    """The shares of a container that was given none; on cgroup v2 those that become the weight it has."""
    shares, weight = read("cpu", "cpu.shares"), read("cpu", "cpu.weight")
    if shares.isdecimal() or not weight.isdecimal():
        return int(shares or KERNEL_SHARES)
    return 2 - -(int(weight) - 1) * 262142 // 9999
