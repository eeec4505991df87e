"""How much CPU pods use and how long they wait, from the kernel's accounting; v2 and v1 cgroups.

A pod's group is found by its uid, which every cgroup driver puts into the name of the group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

NANO = 10**9
MICRO = 10**6


@dataclass(frozen=True, slots=True)
class Load:
    """CPUs in use on average since the last look, and per cent of time that some task waited."""

    used: float = 0.0
    pressure: float = 0.0


class UsageReader:
    """Reads the groups of pods below one root."""

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._clock = clock
        self._last: dict[str, tuple[float, float]] = {}

    def loads(self, pods: Iterable[str]) -> Mapping[str, Load]:
        """The load of each pod that has a group; the first look at a pod says 0."""
        groups = self._groups(set(pods))
        now = self._clock()
        found, seen = {}, {}
        for uid, group in groups.items():
            seconds = _cpu_seconds(group)
            before, at = self._last.get(uid, (seconds, now))
            rate = (seconds - before) / (now - at) if now > at else 0.0
            found[uid] = Load(max(0.0, rate), _pressure(group))
            seen[uid] = seconds, now
        self._last = seen
        return found

    def _groups(self, pods: set[str]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        tops = [self.root / "cpu,cpuacct", self.root / "cpuacct", self.root]
        top = next((folder for folder in tops if folder.is_dir()), self.root)
        for group in top.glob("**/*pod*"):
            name = group.name.replace("_", "-")
            uid = next((uid for uid in pods if uid in name), None)
            if uid and group.is_dir():
                found.setdefault(uid, group)
        return found


def _cpu_seconds(group: Path) -> float:
    try:
        if (group / "cpu.stat").exists():
            for line in (group / "cpu.stat").read_text().splitlines():
                if line.startswith("usage_usec "):
                    return int(line.split()[1]) / MICRO
        return int((group / "cpuacct.usage").read_text()) / NANO
    except OSError:
        return 0.0  # the pod ended between the two looks


def _pressure(group: Path) -> float:
    try:
        text = (group / "cpu.pressure").read_text()
    except OSError:
        return 0.0  # a kernel without PSI, or v1
    fields = dict(part.split("=") for part in text.splitlines()[0].split()[1:])
    return float(fields.get("avg10", 0.0))
