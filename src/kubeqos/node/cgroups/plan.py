"""Which cgroups a node keeps above its containers, and what stands in them: kubepods, the QoS tiers, one per pod. Pure.

The values of a pod are `rules.qos.cgroups`; the tiers sum them up, because the kernel protects a cgroup only as far as
its ancestors are protected (pod-qos, memory QoS; kubernetes-node §4.6, §4.7). Written by `node.cgroups.files`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kubeqos.model.quantity import Quantity
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.rules.qos.cgroups import (
    MIN_SHARES,
    PAGE_BYTES,
    CgroupSettings,
    CgroupValues,
    MemoryPolicy,
    NodeMemory,
    cgroup_parent,
    page_size_name,
    pod_values,
    shares,
    weight,
)
from kubeqos.rules.qos.podqos import QosClass, effective_requests

File = tuple[str, str]
"""(controller, file): on v2 the controller only says which one must be switched on."""

ROOT = "root"


@dataclass(frozen=True, slots=True)
class Tiers:
    """The cgroups above pods, by the cgroup driver's names."""

    root: str
    burstable: str
    best_effort: str

    @classmethod
    def of(cls, prefix: str, driver: str) -> Tiers:
        if driver == "systemd":
            root = f"{prefix}/kubepods.slice"
            return cls(root, f"{root}/kubepods-burstable.slice", f"{root}/kubepods-besteffort.slice")
        root = f"{prefix}/kubepods"
        return cls(root, f"{root}/burstable", f"{root}/besteffort")


def plan(
    pods: Iterable[AdmittedPod],
    node: NodeMemory,
    allocatable_cpu_milli: int,
    settings: CgroupSettings,
    *,
    spare_bytes: int = 0,
    unthrottled: Collection[str] = (),
    hugepage_sizes: Collection[int] = (),
    prefix: str = "",
    driver: str = "cgroupfs",
) -> dict[str, CgroupValues]:
    """Every cgroup that is to exist and its values; parents come before children.

    Pods together may use what is allocatable and, before they are evicted, `spare_bytes`: the eviction threshold.
    `unthrottled` pods own CPUs: a quota would only take from them what is theirs (kubernetes#70585). Of every size of
    huge pages a pod may use what it asks for, and none where it asks for none.
    """
    tiers = Tiers.of(prefix.rstrip("/"), driver)
    cpu = dict.fromkeys(QosClass, 0)
    memory = dict.fromkeys(QosClass, 0)
    found: dict[str, CgroupValues] = {}
    for pod in pods:
        requests = effective_requests(pod.view.spec)
        cpu[pod.qos] += requests.get("cpu", Quantity.ZERO).milli()
        memory[pod.qos] += requests.get("memory", Quantity.ZERO).value()
        path = prefix.rstrip("/") + cgroup_parent(pod.view, pod.qos, driver)
        values = pod_values(pod.view.spec, pod.qos, node, settings)
        if pod.uid in unthrottled and values.cpu_quota_us is not None:
            values = replace(values, cpu_quota_us=-1)
        if hugepage_sizes:
            none = {str(size): 0 for size in hugepage_sizes}
            values = replace(values, hugepage_limits=none | values.hugepage_limits)
        found[path] = values
    # Guaranteed pods hang below the root itself, so what protects them is counted there and nowhere else.
    protection = _tier_protection(memory, settings.memory_policy)
    return {
        tiers.root: CgroupValues(
            cpu_shares=shares(allocatable_cpu_milli),
            memory_limit_bytes=node.allocatable_bytes + spare_bytes,
            unified=protection[ROOT],
        ),
        tiers.burstable: CgroupValues(
            cpu_shares=shares(cpu[QosClass.BURSTABLE]), unified=protection[QosClass.BURSTABLE]
        ),
        tiers.best_effort: CgroupValues(cpu_shares=MIN_SHARES),
        **found,
    }


def _tier_protection(memory: Mapping[QosClass, int], policy: MemoryPolicy) -> dict[str, dict[str, str]]:
    guaranteed, burstable = memory[QosClass.GUARANTEED], memory[QosClass.BURSTABLE]
    everyone = guaranteed + burstable
    match policy:
        case MemoryPolicy.RESERVE:
            return {
                ROOT: {"memory.min": str(everyone)},
                QosClass.BURSTABLE: {"memory.min": str(burstable)},
            }
        case MemoryPolicy.TIERED:
            return {
                ROOT: {"memory.min": str(everyone), "memory.low": str(burstable)},
                QosClass.BURSTABLE: {"memory.low": str(burstable)},
            }
        case MemoryPolicy.NONE:
            nothing = {"memory.min": "0", "memory.low": "0"}
            return {ROOT: nothing, QosClass.BURSTABLE: nothing}
        case _:
            return {ROOT: {}, QosClass.BURSTABLE: {}}


def files_of(values: CgroupValues, version: int) -> dict[File, str]:
    """The files of one cgroup, as the kernel will show them again: memory on page boundaries."""
    return _files_v2(values) if version == 2 else _files_v1(values)


def _files_v2(values: CgroupValues) -> dict[File, str]:
    files: dict[File, str] = {}
    if values.cpu_shares is not None:
        files["cpu", "cpu.weight"] = str(weight(values.cpu_shares))
    if values.cpu_quota_us is not None and values.cpu_period_us is not None:
        quota = str(values.cpu_quota_us) if values.cpu_quota_us > 0 else "max"
        files["cpu", "cpu.max"] = f"{quota} {values.cpu_period_us}"
    if values.memory_limit_bytes is not None:
        files["memory", "memory.max"] = _pages(values.memory_limit_bytes)
    for name, value in values.unified.items():
        controller = name.partition(".")[0]
        files[controller, name] = _pages(int(value)) if controller == "memory" and value.isdigit() else value
    for size, limit in values.hugepage_limits.items():
        files["hugetlb", f"hugetlb.{page_size_name(int(size))}.max"] = str(limit)
    return files


def _files_v1(values: CgroupValues) -> dict[File, str]:
    files: dict[File, str] = {}
    if values.cpu_shares is not None:
        files["cpu", "cpu.shares"] = str(values.cpu_shares)
    if values.cpu_period_us is not None:
        files["cpu", "cpu.cfs_period_us"] = str(values.cpu_period_us)
    if values.cpu_quota_us is not None:
        files["cpu", "cpu.cfs_quota_us"] = str(values.cpu_quota_us if values.cpu_quota_us > 0 else -1)
    if values.memory_limit_bytes is not None:
        files["memory", "memory.limit_in_bytes"] = _pages(values.memory_limit_bytes)
    for size, limit in values.hugepage_limits.items():
        files["hugetlb", f"hugetlb.{page_size_name(int(size))}.limit_in_bytes"] = str(limit)
    return files


def _pages(size: int) -> str:
    return str(size // PAGE_BYTES * PAGE_BYTES)
