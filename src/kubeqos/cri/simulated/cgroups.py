"""The cgroup v2 files of a simulated container: every value that a real runtime would write, by file name. Pure."""

from __future__ import annotations

from kubeqos.cri.errors import Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import class_of
from kubeqos.cri.simulated.process.usage import Usage
from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.machine import Machine
from kubeqos.rules.qos.cgroups import DEFAULT_PERIOD_US, weight

MAX = "max"
DEFAULT_WEIGHT = 100

# CRI's update says "no change" by a zero or empty field.
MERGED_FIELDS = (
    "cpu_period", "cpu_quota", "cpu_shares", "memory_limit_in_bytes", "oom_score_adj", "cpuset_cpus", "cpuset_mems",
    "memory_swap_limit_in_bytes",
)  # fmt: skip


def check_resources(resources: cri.LinuxContainerResources, machine: Machine) -> None:
    """Refuse what the kernel of this machine would refuse."""
    if resources.cpuset_cpus:
        _check_set("cpuset_cpus", resources.cpuset_cpus, CpuSet, machine.online)
    if resources.cpuset_mems:
        _check_set("cpuset_mems", resources.cpuset_mems, NumaSet, machine.numa)
    if resources.cpu_shares < 0 or resources.memory_limit_in_bytes < -1:
        raise RuntimeRefused(Code.INVALID_ARGUMENT, "cpu_shares and memory_limit_in_bytes must not be negative")


def _check_set(field: str, text: str, kind: type[CpuSet] | type[NumaSet], have: CpuSet | NumaSet) -> None:
    try:
        wanted = kind.parse(text)
    except InputError as error:
        raise RuntimeRefused(Code.INVALID_ARGUMENT, f"{field}: {error.what}") from error
    if wanted.mask & ~have.mask:
        outside = kind.from_mask(wanted.mask & ~have.mask)
        raise RuntimeRefused(Code.INVALID_ARGUMENT, f"{field} {text!r}: this machine has {have}, not {outside}")


def merged(old: cri.LinuxContainerResources, change: cri.LinuxContainerResources) -> cri.LinuxContainerResources:
    """Resources after an update: what the update leaves out stays."""
    out = cri.LinuxContainerResources()
    out.CopyFrom(old)
    for field in MERGED_FIELDS:
        if value := getattr(change, field):
            setattr(out, field, value)
    if change.hugepage_limits:
        del out.hugepage_limits[:]
        out.hugepage_limits.extend(change.hugepage_limits)
    out.unified.update(change.unified)
    return out


def update_summary(request: cri.UpdateContainerResourcesRequest) -> str:
    """An update in one line."""
    changes = [f"{field.name}={value}" for field, value in request.linux.ListFields() if not field.is_repeated]
    changes += [f"{name}={value}" for name, value in sorted(request.linux.unified.items())]
    changes += [f"{resource.name} class {class_of(resource)}" for resource in request.qos_resources]
    return ", ".join(changes) or "nothing"


def memory_limit(resources: cri.LinuxContainerResources) -> int | None:
    """The limit in bytes that holds, or None; a unified value stands above the plain one, as in runc."""
    unified = resources.unified.get("memory.max", "")
    if unified.isdigit():
        return int(unified)
    return resources.memory_limit_in_bytes if resources.memory_limit_in_bytes > 0 and unified != MAX else None


def memory_high(resources: cri.LinuxContainerResources) -> int | None:
    """From which size on the container is made to wait for memory, in bytes, or None."""
    high = resources.unified.get("memory.high", "")
    return int(high) if high.isdigit() else None


def cpu_limit_milli(resources: cri.LinuxContainerResources, machine: Machine) -> int:
    """How much CPU the container can use at most, by quota and by cpuset."""
    cpus = len(CpuSet.parse(resources.cpuset_cpus)) if resources.cpuset_cpus else len(machine.online)
    if resources.cpu_quota > 0:
        return min(cpus * 1000, resources.cpu_quota * 1000 // (resources.cpu_period or DEFAULT_PERIOD_US))
    return cpus * 1000


def value_files(resources: cri.LinuxContainerResources, machine: Machine) -> dict[str, str]:
    """Settings by file name."""
    limit, swap = resources.memory_limit_in_bytes, resources.memory_swap_limit_in_bytes
    quota = str(resources.cpu_quota) if resources.cpu_quota > 0 else MAX
    files = {
        "cpu.max": f"{quota} {resources.cpu_period or DEFAULT_PERIOD_US}",
        "cpu.weight": str(weight(resources.cpu_shares) if resources.cpu_shares >= 2 else DEFAULT_WEIGHT),
        "cpuset.cpus": resources.cpuset_cpus,
        "cpuset.cpus.effective": resources.cpuset_cpus or str(machine.online),
        "cpuset.mems": resources.cpuset_mems,
        "cpuset.mems.effective": resources.cpuset_mems or str(machine.numa),
        "memory.high": MAX,
        "memory.low": "0",
        "memory.max": str(limit) if limit > 0 else MAX,
        "memory.min": "0",
        "memory.swap.max": str(max(0, swap - limit)) if swap > 0 else MAX,
    }
    files |= {f"hugetlb.{page.page_size}.max": str(page.limit) for page in resources.hugepage_limits}
    return files | dict(resources.unified)


def usage_files(usage: Usage, pid: int, at_ns: int, *, oom_killed: bool) -> dict[str, str]:
    """Meters by file name."""
    microseconds = usage.cpu_ns_at(at_ns) // 1000
    high, killed = int(usage.memory.stalled_at(at_ns) > 0), int(oom_killed)
    return {
        "cgroup.procs": f"{pid}" if usage.stopped_ns is None else "",
        "cpu.stat": f"usage_usec {microseconds}\nuser_usec {microseconds}\nsystem_usec 0",
        "io.stat": f"8:0 rbytes={usage.read_at(at_ns)} wbytes={usage.written_at(at_ns)} rios=0 wios=0 dbytes=0 dios=0",
        "memory.current": str(usage.memory_at(at_ns)),
        "memory.events": f"low 0\nhigh {high}\nmax 0\noom {killed}\noom_kill {killed}",
        "memory.pressure": usage.memory.pressure_at(at_ns),
    }
