"""Reads and writes a resctrl file system. No decision is made here.

The root is a parameter. `Kernel` is the part of the kernel's behaviour that a plain directory does not have (a new
group gets its files at once, a group is removed with its files): tests put a tree with those manners in its place.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from kubeqos.cri.providers.rdt.machine import BandwidthInfo, BandwidthUnit, CacheInfo, Capabilities
from kubeqos.cri.providers.rdt.resolve import ResctrlPlan
from kubeqos.errors import ConfigurationError, RemoteError

RESERVED = frozenset({"info", "mon_groups", "mon_data"})


class Kernel:
    """The three things we ask of resctrl."""

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def write(self, path: Path, text: str) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)

    def tick(self) -> None:
        """Once in a while: a kernel moves its counters by itself, one that is simulated does it now."""


class ResctrlFiles:
    """One mounted resctrl file system."""

    def __init__(self, root: Path, kernel: Kernel | None = None) -> None:
        self.root = root
        self.kernel = kernel or Kernel()

    def groups(self) -> list[str]:
        """The control groups that exist, ours and others'."""
        return sorted(p.name for p in self.root.iterdir() if p.is_dir() and p.name not in RESERVED)

    def busy(self, groups: Iterable[str]) -> set[str]:
        return {name for name in groups if (self.root / name / "tasks").read_text().strip()}

    def tasks(self, group: str) -> set[int]:
        """The threads in a group now; none when the group has gone."""
        try:
            return {int(line) for line in (self.root / group / "tasks").read_text().split()}
        except FileNotFoundError:
            return set()

    def apply(self, plan: ResctrlPlan) -> None:
        """Remove groups (their places may be needed), make groups, write schemata that differ."""
        for name in plan.remove:
            self.remove(name)
        for name in plan.create:
            self._mkdir(self.root / name)
        for name, text in plan.schemata.items():
            path = self.root / name / "schemata"
            current = _normal(path.read_text())
            if any(current.get(line) != values for line, values in _normal(text).items()):
                self._write(path, text)

    def retire(self, plan: ResctrlPlan) -> list[str]:
        """Remove the groups that have become empty; returns those that have not."""
        there = [name for name in plan.retire if (self.root / name).is_dir()]
        busy = self.busy(there)
        for name in there:
            if name not in busy:
                self.remove(name)
        return sorted(busy)

    def remove(self, group: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.kernel.rmdir(self.root / group)

    def add_tasks(self, group: str, tasks: Iterable[int]) -> None:
        """Move tasks, one per write; one that ended in the meantime is no error."""
        for task in tasks:
            self._write(self.root / group / "tasks", f"{task}\n", ignore=errno.ESRCH)

    def monitor(self, group: str, name: str) -> bool:
        """Make a monitoring group; False when the hardware has no counter left."""
        path = self.root / group / "mon_groups" / name
        if path.exists():
            return True
        try:
            self.kernel.mkdir(path)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.ENOENT, errno.EPERM):
                return False
            raise self._failed(f"cannot make monitoring group {name}", path, error) from error
        return True

    def unmonitor(self, name: str) -> None:
        """Remove a monitoring group wherever it is."""
        for group in ("", *self.groups()):
            path = self.root / group / "mon_groups" / name
            if path.exists():
                self.kernel.rmdir(path)

    def monitored(self, prefix: str) -> list[tuple[str, str]]:
        """(control group, monitoring group) of every monitoring group of ours."""
        out = []
        for group in ("", *self.groups()):
            directory = self.root / group / "mon_groups"
            if directory.is_dir():
                out += [(group, p.name) for p in sorted(directory.iterdir()) if p.name.startswith(prefix)]
        return out

    def counters(self, group: str, name: str) -> dict[tuple[str, str], int]:
        """Values of a monitoring group by (domain, event). A domain that is offline has none."""
        out: dict[tuple[str, str], int] = {}
        base = self.root / group / "mon_groups" / name if name else self.root / group
        for path in sorted((base / "mon_data").glob("mon_*/*")):
            text = path.read_text().strip()
            if text.isdecimal():
                out[path.parent.name, path.name] = int(text)
        return out

    def _mkdir(self, path: Path) -> None:
        if path.exists():
            return
        try:
            self.kernel.mkdir(path)
        except OSError as error:
            raise self._failed(f"cannot make group {path.name}", path, error) from error

    def _write(self, path: Path, text: str, ignore: int = 0) -> None:
        try:
            self.kernel.write(path, text)
        except OSError as error:
            if error.errno != ignore:
                raise self._failed(f"cannot write {text.strip()!r}", path, error) from error

    def _failed(self, what: str, path: Path, error: OSError) -> RemoteError:
        """The kernel's own words are in info/last_cmd_status."""
        reason = ""
        with contextlib.suppress(OSError):
            reason = (self.root / "info" / "last_cmd_status").read_text().strip()
        said = f" ({reason})" if reason and reason != "ok" else ""
        return RemoteError(f"rdt: {what}: {error.strerror}{said}", where=str(path))


def discover(root: Path, mbps_mode: bool | None = None) -> Capabilities:
    """What the mounted resctrl offers. `mbps_mode` None means: look at the mount options."""
    if not (root / "info").is_dir() or not (root / "schemata").is_file():
        raise ConfigurationError(
            "rdt: resctrl is not mounted",
            where=str(root),
            remedy="mount -t resctrl resctrl /sys/fs/resctrl, on hardware that has it",
        )
    lines = _schemata_lines((root / "schemata").read_text())
    caches = {level: info for level in ("L2", "L3") if (info := _cache_info(root, level, lines))}
    if mbps_mode is None:
        mbps_mode = "mba_MBps" in mount_options(root)
    mon = root / "info" / "L3_MON"
    return Capabilities(
        caches,
        _bandwidth_info(root, lines, mbps_mode),
        _number(mon / "num_rmids") if mon.is_dir() else 0,
        tuple((mon / "mon_features").read_text().split()) if mon.is_dir() else (),
    )


def mount_options(root: Path) -> frozenset[str]:
    for line in Path("/proc/mounts").read_text().splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[1] == str(root) and fields[2] == "resctrl":
            return frozenset(fields[3].split(","))
    return frozenset()


def _cache_info(root: Path, level: str, lines: dict[str, dict[int, str]]) -> CacheInfo | None:
    for suffix in ("CODE", ""):
        info = root / "info" / f"{level}{suffix}"
        if info.is_dir():
            return CacheInfo(
                level,
                tuple(sorted(lines.get(f"{level}{suffix}", {}))),
                _number(info / "cbm_mask", 16),
                _number(info / "min_cbm_bits"),
                _number(info / "num_closids"),
                cdp=bool(suffix),
            )
    return None


def _bandwidth_info(root: Path, lines: dict[str, dict[int, str]], mbps_mode: bool) -> BandwidthInfo | None:
    info = root / "info" / "MB"
    if not info.is_dir():
        return None
    domains = lines.get("MB", {})
    unit = BandwidthUnit.MBPS if mbps_mode else BandwidthUnit.PERCENT
    # No limit is 100 % on Intel; AMD starts above that, at 2048 eighths of a GB/s.
    if not mbps_mode and any(int(value) > 100 for value in domains.values()):
        unit = BandwidthUnit.EIGHTH_GBPS
    return BandwidthInfo(
        tuple(sorted(domains)),
        unit,
        _number(info / "min_bandwidth"),
        _number(info / "bandwidth_gran"),
        _number(info / "num_closids"),
    )


def _schemata_lines(text: str) -> dict[str, dict[int, str]]:
    out: dict[str, dict[int, str]] = {}
    for line in text.splitlines():
        name, _, values = line.strip().partition(":")
        if values:
            pairs = (pair.split("=") for pair in values.split(";"))
            out[name] = {int(cache_id): value.strip() for cache_id, value in pairs}
    return out


def _normal(schemata: str) -> dict[str, dict[int, int]]:
    """Schemata compared by meaning: the kernel pads names and masks when it prints them."""
    return {
        name: {i: int(value, 10 if name == "MB" else 16) for i, value in by_id.items()}
        for name, by_id in _schemata_lines(schemata).items()
    }


def _number(path: Path, base: int = 10) -> int:
    return int(path.read_text().strip(), base)
