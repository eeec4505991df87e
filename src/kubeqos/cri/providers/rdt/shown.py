"""A resctrl file system as people look at it: its groups with what they may use, who is in them, and what they do.

Read by `kubeqos resctrl`, of a simulated node or of a real machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kubeqos.cri.providers.rdt.files import ResctrlFiles

ROOT = "<root>"


@dataclass(frozen=True, slots=True)
class GroupShown:
    """One control group, or one monitoring group inside it."""

    group: str
    monitor: str
    """Empty for the control group itself."""
    schemata: dict[str, str]
    """By resource, as `0=fff;1=fff`."""
    tasks: int
    occupancy_bytes: int
    moved_bytes: int
    """To and from memory, since the group was made."""


def look(root: Path) -> list[GroupShown]:
    """All groups, each control group before what is measured inside it."""
    files = ResctrlFiles(root)
    shown = []
    monitors = files.monitored("")
    for group in ("", *files.groups()):
        schemata = _schemata((root / group / "schemata").read_text())
        shown.append(_shown(files, group, "", schemata))
        shown += [_shown(files, group, name, schemata) for where, name in monitors if where == group]
    return shown


def _shown(files: ResctrlFiles, group: str, monitor: str, schemata: dict[str, str]) -> GroupShown:
    counters = files.counters(group, monitor)
    inside = f"{group}/mon_groups/{monitor}".lstrip("/") if monitor else group

    def total(event: str) -> int:
        return sum(value for (_, name), value in counters.items() if name == event)

    tasks = len(files.tasks(inside))
    return GroupShown(group or ROOT, monitor, schemata, tasks, total("llc_occupancy"), total("mbm_total_bytes"))


def _schemata(text: str) -> dict[str, str]:
    lines = (line.strip().partition(":") for line in text.splitlines() if ":" in line)
    return {name: values for name, _, values in lines}
