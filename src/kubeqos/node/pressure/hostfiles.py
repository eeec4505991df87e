"""What the kernel's files say about use: cgroups (v1 and v2), /proc, and file systems.

Every function takes the root of the file tree, so that tests read recorded ones. A file that is not there (the cgroup
ended meanwhile, the controller is not mounted) gives None, never an error.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kubeqos.cri.enforcing.host import cgroup_version
from kubeqos.node.pressure.samples import Supply

_KIB = 1024


@dataclass(frozen=True, slots=True)
class CgroupUse:
    """The meters of one cgroup."""

    memory_usage: int | None = None
    memory_working_set: int | None = None
    cpu_ns: int | None = None
    processes: int | None = None


def cgroup_use(root: Path, path: str) -> CgroupUse:
    """The meters of the cgroup at `path` (`/kubepods/burstable/pod…`; empty for the whole machine)."""
    mount, inside = root / "sys/fs/cgroup", path.strip("/")
    if cgroup_version(mount) == 2:
        return _unified(mount / inside)
    memory, cpu, pids = (mount / controller / inside for controller in ("memory", "cpuacct", "pids"))
    usage = _number(memory / "memory.usage_in_bytes")
    inactive = _table(memory / "memory.stat").get("total_inactive_file", 0)
    return CgroupUse(
        usage, _working_set(usage, inactive), _number(cpu / "cpuacct.usage"), _number(pids / "pids.current")
    )


def _unified(folder: Path) -> CgroupUse:
    usage = _number(folder / "memory.current")
    inactive = _table(folder / "memory.stat").get("inactive_file", 0)
    micros = _table(folder / "cpu.stat").get("usage_usec")
    return CgroupUse(
        usage,
        _working_set(usage, inactive),
        None if micros is None else micros * 1000,
        _number(folder / "pids.current"),
    )


def _working_set(usage: int | None, inactive_file: int) -> int | None:
    """Memory that cannot be had back at once: what is used without file pages that nobody touched of late."""
    return None if usage is None else max(0, usage - inactive_file)


def memory(root: Path) -> tuple[Supply, int] | None:
    """Memory of the machine, and what of it is in use. The root cgroup of v2 has no meter: /proc/meminfo has."""
    info = _table(root / "proc/meminfo", unit=_KIB)
    if "MemTotal:" not in info:
        return None
    total = info["MemTotal:"]
    used = cgroup_use(root, "").memory_working_set
    if used is None:
        used = max(0, total - info.get("MemFree:", 0) - info.get("Inactive(file):", 0))
    return Supply(max(0, total - used), total), used


def processes(root: Path) -> Supply | None:
    """How many processes there may be, and how many more."""
    most = [_number(root / "proc/sys/kernel" / name) for name in ("pid_max", "threads-max")]
    known = [limit for limit in most if limit is not None]
    try:
        running = int((root / "proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, IndexError, ValueError):
        return None
    return Supply(max(0, min(known) - running), min(known)) if known else None


def filesystem(path: Path) -> tuple[Supply, Supply] | None:
    """Bytes and inodes of the file system that holds a path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    size = Supply(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
    return size, Supply(found.f_favail, found.f_files)


def folder_size(path: Path) -> tuple[int, int]:
    """Bytes and inodes below a folder; nothing of what is not there."""
    size = count = 0
    waiting = [path]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            count += 1
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
                continue
            try:
                size += entry.stat(follow_symlinks=False).st_blocks * 512
            except OSError:
                continue
    return size, count


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _table(path: Path, unit: int = 1) -> dict[str, int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {word[0]: int(word[1]) * unit for word in words if len(word) >= 2 and word[1].isdecimal()}
