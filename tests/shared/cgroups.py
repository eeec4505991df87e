"""The kernel's values by their meaning, on both versions of cgroups: a test asks for "cpu.shares", and gets them.

Called by tests on real containerd, which run on the machine they are started on, whatever it has. Version 1 has one
hierarchy per controller, version 2 one for all; weights and limits have other names and forms there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
VERSION = 2 if (CGROUPS / "cgroup.controllers").exists() else 1

_RATES = {"io.read_bps": "rbps", "io.write_bps": "wbps", "io.read_iops": "riops", "io.write_iops": "wiops"}
_V1 = {
    "cpu.shares": ("cpu", "cpu.shares"),
    "cpu.quota": ("cpu", "cpu.cfs_quota_us"),
    "cpu.period": ("cpu", "cpu.cfs_period_us"),
    "cpu.idle": ("cpu", "cpu.idle"),
    "cpu.usage_ns": ("cpuacct", "cpuacct.usage"),
    "cpuset.cpus": ("cpuset", "cpuset.cpus"),
    "cpuset.mems": ("cpuset", "cpuset.mems"),
    "memory.limit": ("memory", "memory.limit_in_bytes"),
    "memory.swap_limit": ("memory", "memory.memsw.limit_in_bytes"),
    "io.read_bps": ("blkio", "blkio.throttle.read_bps_device"),
    "io.write_bps": ("blkio", "blkio.throttle.write_bps_device"),
    "io.read_iops": ("blkio", "blkio.throttle.read_iops_device"),
    "io.write_iops": ("blkio", "blkio.throttle.write_iops_device"),
}


def shares(weight: int) -> int:
    """CPU shares that Kubernetes and runc turn into this weight."""
    return ((weight - 1) * 262142) // 9999 + 2


def scaled(asked: int, percent: int) -> str:
    """What the kernel says of CPU shares that a class scales: on version 2 it is their weight that is scaled."""
    if VERSION == 1:
        return str(asked * percent // 100)
    return str(shares((1 + (asked - 2) * 9999 // 262142) * percent // 100))


def _throttle(text: str, key: str) -> str:
    """One rate of io.max in version 1's form: `MAJOR:MINOR RATE` per disk that has one."""
    found = []
    for line in text.splitlines():
        disk, *pairs = line.split()
        rate = dict(pair.split("=") for pair in pairs)[key]
        found += [f"{disk} {rate}"] if rate != "max" else []
    return "\n".join(found)


def _no_limit(text: str) -> str:
    return "-1" if text == "max" else text


_V2: dict[str, tuple[str, Callable[[str], str]]] = {
    "cpu.shares": ("cpu.weight", lambda text: str(shares(int(text)))),
    "cpu.quota": ("cpu.max", lambda text: _no_limit(text.split()[0])),
    "cpu.period": ("cpu.max", lambda text: text.split()[1]),
    "cpu.idle": ("cpu.idle", str),
    "cpu.usage_ns": ("cpu.stat", lambda text: f"{text.split()[1]}000"),
    "cpuset.cpus": ("cpuset.cpus", str),
    "cpuset.mems": ("cpuset.mems", str),
    "memory.limit": ("memory.max", str),
    "memory.swap_limit": ("memory.swap.max", str),
    **{meaning: ("io.max", lambda text, key=key: _throttle(text, key)) for meaning, key in _RATES.items()},  # type: ignore[misc]
}


def folders(path: str) -> list[Path]:
    """Where a cgroup stands: once per hierarchy, if it exists there; the path may hold wildcards."""
    inner = path.strip("/")
    found = CGROUPS.glob(inner) if VERSION == 2 else CGROUPS.glob(f"*/{inner}")
    return [folder for folder in found if folder.is_dir()]


def below(path: str) -> list[Path]:
    """Every cgroup below one, the deepest first, so that they can be removed in this order."""
    inner = [group for folder in folders(path) for group in folder.rglob("*") if group.is_dir()]
    return sorted(inner, reverse=True)


def make(path: str) -> None:
    """Make a cgroup, in every hierarchy that there is."""
    hierarchies = [CGROUPS] if VERSION == 2 else [one for one in CGROUPS.iterdir() if one.is_dir()]
    for hierarchy in hierarchies:
        (hierarchy / path.strip("/")).mkdir()


def remove(path: str) -> None:
    """Remove a cgroup and all below it; they are empty of processes."""
    for folder in (*below(path), *folders(path)):
        folder.rmdir()


def file(path: str, meaning: str) -> Path:
    """The file of a cgroup that holds a value; its form differs between versions."""
    inner = path.strip("/")
    if VERSION == 2:
        return CGROUPS / inner / _V2[meaning][0]
    controller, name = _V1[meaning]
    return CGROUPS / controller / inner / name


def value(path: str, meaning: str) -> str:
    """What the kernel says, in the words of version 1, which are CRI's: shares, quota, -1 for no quota."""
    text = file(path, meaning).read_text().strip()
    return _V2[meaning][1](text) if VERSION == 2 else text


def inside(meaning: str) -> str:
    """Where a container sees that file of its own cgroup."""
    name = _V2[meaning][0] if VERSION == 2 else "/".join(_V1[meaning])
    return f"/sys/fs/cgroup/{name}"


def of_process(pid: int, meaning: str) -> str:
    """A value of the cgroup that a process is in."""
    controller = "" if VERSION == 2 else _V1[meaning][0]
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return value(path, meaning)
    raise AssertionError(f"process {pid} is in no cgroup of {controller}")
