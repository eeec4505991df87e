"""What the control files of a cgroup are called in systemd, which keeps the cgroups of its slices and scopes. Pure.

A value that is only written to a file is lost when systemd writes its own again: when the unit is made, when another
value of it changes, and after `systemctl daemon-reload`. So it is set as a property of the unit, as far as there is
one; the rest is written to the file beside (`Translated.beside`). Both versions of cgroups have their properties:
systemd keeps version 1 as well, up to its release 257. Called by the node's keeper of cgroups and by the relay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kubeqos.model.cpuset import CpuSet, NumaSet

INFINITY = (1 << 64) - 1
IDLE_SINCE = 252
"""The first systemd whose CPUWeight knows `idle`."""
PERCENT = 100
V1_QUOTA, V1_PERIOD, V1_DEFAULT_PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us", "100000"
NO_LIMIT = ("max", "-1")
"""As versions 2 and 1 write it."""

Value = int | str | bytes | list[list[str | int]]
Properties = dict[str, tuple[str, Value]]
"""By name: the D-Bus type and the value."""


@dataclass(frozen=True, slots=True)
class Translated:
    """The files of one cgroup in systemd's terms."""

    properties: Properties = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    """Files for which this systemd has no property."""


def translated(files: Mapping[str, str], systemd: int) -> Translated:
    """The properties of a unit whose cgroup is to have these files, for this version of systemd."""
    found: Properties = {}
    beside = set()
    for name, text in _with_quota(files).items():
        if name == "cpu.idle":
            if text == "1" and systemd >= IDLE_SINCE:
                found["CPUWeight"] = "t", 0
            elif text == "1":
                beside.add(name)
        elif name in _BY_FILE:
            for prop, value in _BY_FILE[name](text).items():
                found.setdefault(prop, value)  # an idle cgroup has no other weight
        else:
            beside.add(name)
    return Translated(found, frozenset(beside))


def unit_of(cgroup: str) -> str:
    """The unit of systemd that a cgroup belongs to by its name; none where systemd would look for it elsewhere."""
    *above, name = cgroup.strip("/").split("/")
    if name.endswith(".scope"):
        return name if above and f"/{'/'.join(above)}" == slice_path(above[-1]) else ""
    return name if name.endswith(".slice") and f"/{'/'.join([*above, name])}" == slice_path(name) else ""


def slice_path(unit: str) -> str:
    """Where systemd puts a slice: `a-b.slice` is in `a.slice`."""
    stem, parts = "", []
    for piece in unit.removesuffix(".slice").split("-"):
        stem = f"{stem}-{piece}" if stem else piece
        parts.append(f"{stem}.slice")
    return "/" + "/".join(parts)


def quota_as_kept(text: str) -> str:
    """A `cpu.max` that systemd can keep: its units know whole percents of a CPU, so a part of one counts as whole."""
    quota, _, period = text.partition(" ")
    if quota == "max" or not period:
        return text
    percents = -(-int(quota) * PERCENT // int(period))
    return f"{percents * int(period) // PERCENT} {period}"


def v1_quota_as_kept(quota_us: str, period_us: str) -> str:
    """The same of version 1, where quota and period are files of their own and no quota is -1."""
    return quota_us if int(quota_us) <= 0 else quota_as_kept(f"{quota_us} {period_us}").partition(" ")[0]


def _with_quota(files: Mapping[str, str]) -> dict[str, str]:
    """The files, with version 1's two files of one quota as the one that version 2 has for it."""
    found = {name: text for name, text in files.items() if name not in (V1_QUOTA, V1_PERIOD)}
    if V1_QUOTA in files:
        quota = files[V1_QUOTA] if int(files[V1_QUOTA]) > 0 else "max"
        found["cpu.max"] = f"{quota} {files.get(V1_PERIOD, V1_DEFAULT_PERIOD)}"
    return found


def _amount(prop: str) -> Callable[[str], Properties]:
    return lambda text: {prop: ("t", INFINITY if text in NO_LIMIT else int(text))}


def _quota(text: str) -> Properties:
    quota, _, period = quota_as_kept(text).partition(" ")
    each_second = INFINITY if quota == "max" else int(quota) * 1_000_000 // int(period)
    return {"CPUQuotaPerSecUSec": ("t", each_second), "CPUQuotaPeriodUSec": ("t", int(period))}


def _weights(text: str) -> Properties:
    """One line for all devices, and one for each that has a weight of its own."""
    found: Properties = {}
    devices: list[list[str | int]] = []
    for line in text.splitlines():
        device, _, weight = line.strip().rpartition(" ")
        if device in ("", "default"):
            found["IOWeight"] = "t", int(weight)
        elif weight != "default":
            devices.append([_device(device), int(weight)])
    return found | ({"IODeviceWeight": ("a(st)", devices)} if devices else {})


_RATES = {
    "rbps": "IOReadBandwidthMax",
    "wbps": "IOWriteBandwidthMax",
    "riops": "IOReadIOPSMax",
    "wiops": "IOWriteIOPSMax",
}


def _rates(text: str) -> Properties:
    found: dict[str, list[list[str | int]]] = {}
    for line in text.splitlines():
        device, *pairs = line.split()
        for key, _, rate in (pair.partition("=") for pair in pairs):
            found.setdefault(_RATES[key], []).append([_device(device), INFINITY if rate == "max" else int(rate)])
    return {prop: ("a(st)", rates) for prop, rates in found.items()}


def _device(number: str) -> str:
    """systemd takes paths; these lead to the device of a number on every machine with udev."""
    return f"/dev/block/{number}"


def _mask(prop: str, kind: type[CpuSet | NumaSet]) -> Callable[[str], Properties]:
    """A set of CPUs or of memory nodes: a bit for each, the lowest first."""

    def properties(text: str) -> Properties:
        mask = kind.parse(text).mask
        return {prop: ("ay", mask.to_bytes((mask.bit_length() + 7) // 8, "little"))}

    return properties


_BY_FILE: Mapping[str, Callable[[str], Properties]] = {
    "cpu.weight": _amount("CPUWeight"),
    "cpu.max": _quota,
    "cpuset.cpus": _mask("AllowedCPUs", CpuSet),
    "cpuset.mems": _mask("AllowedMemoryNodes", NumaSet),
    "io.weight": _weights,
    "io.max": _rates,
    "memory.min": _amount("MemoryMin"),
    "memory.low": _amount("MemoryLow"),
    "memory.high": _amount("MemoryHigh"),
    "memory.max": _amount("MemoryMax"),
    "memory.swap.max": _amount("MemorySwapMax"),
    "pids.max": _amount("TasksMax"),
    "cpu.shares": _amount("CPUShares"),
    "memory.limit_in_bytes": _amount("MemoryLimit"),
}
