"""A resctrl file system for machines without the hardware: a plain folder with the kernel's manners.

`kubeqos relay --simulated-resctrl MACHINE` works on it. A new group appears with its files and is refused when there
are too many; schemata are checked as the kernel checks them, with the reason in info/last_cmd_status; a task is in one
group at a time; monitoring counters move with the tasks of a group, its ways and its bandwidth.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from kubeqos.cri.providers.rdt.files import Kernel
from kubeqos.model.machine import Machine

WAYS = 12
WAY_BYTES = 1 << 20
CLOSIDS, RMIDS = 16, 128
MEMORY_BYTES_PER_SECOND = 10_000_000_000
"""What one cache's memory moves when nobody is held back."""
EVENTS = ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")
_OTHERS = ("info", "mon_groups", "mon_data")


def plant(machine: Machine, root: Path) -> None:
    """Write the tree of a machine, one domain for each of its last-level caches; one that is there stays."""
    if (root / "schemata").exists():
        return
    domains = sorted(machine.uncores)
    files = {
        "info/L3/cbm_mask": f"{(1 << WAYS) - 1:x}",
        "info/L3/min_cbm_bits": "1",
        "info/L3/shareable_bits": "0",
        "info/L3/num_closids": str(CLOSIDS),
        "info/MB/bandwidth_gran": "10",
        "info/MB/delay_linear": "1",
        "info/MB/min_bandwidth": "10",
        "info/MB/num_closids": str(CLOSIDS),
        "info/L3_MON/num_rmids": str(RMIDS),
        "info/L3_MON/mon_features": "\n".join(EVENTS),
        "info/last_cmd_status": "ok",
        "mode": "shareable",
        "cpus_list": str(machine.online),
        "schemata": _everything(domains),
        "tasks": "",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n" if text else "")
    (root / "mon_groups").mkdir()
    _plant_counters(root, domains)


def _everything(domains: list[int]) -> str:
    masks = ";".join(f"{domain}={(1 << WAYS) - 1:x}" for domain in domains)
    return f"    MB:{';'.join(f'{domain}=100' for domain in domains)}\n    L3:{masks}"


def _plant_counters(group: Path, domains: list[int]) -> None:
    for domain in domains:
        folder = group / "mon_data" / f"mon_L3_{domain:02}"
        folder.mkdir(parents=True)
        for event in EVENTS:
            (folder / event).write_text("0\n")


class SimulatedResctrl(Kernel):
    """What the kernel does when its files are written."""

    def __init__(self, root: Path, seconds: Callable[[], float] = time.monotonic) -> None:
        self.root = root
        self._seconds = seconds
        self._moved_at = seconds()

    # ---- groups

    def mkdir(self, path: Path) -> None:
        monitoring = path.parent.name == "mon_groups"
        known = list(self._monitoring()) if monitoring else self._control()
        if len(known) + 1 >= (RMIDS if monitoring else CLOSIDS):
            self._fail(errno.ENOSPC, "Out of RMIDs" if monitoring else "Out of CLOSIDs")
        path.mkdir()
        (path / "tasks").write_text("")
        _plant_counters(path, sorted(_values(self.root / "schemata", "L3")))
        if not monitoring:
            for name in ("schemata", "mode"):
                (path / name).write_text((self.root / name).read_text())
            (path / "mon_groups").mkdir()

    def rmdir(self, path: Path) -> None:
        """Its tasks go back to where everybody is who is nowhere else."""
        parent = self.root if path.parent == self.root else path.parent.parent
        tasks = (path / "tasks").read_text()
        shutil.rmtree(path)
        if parent == self.root:
            with (self.root / "tasks").open("a") as file:
                file.write(tasks)

    def _control(self) -> list[Path]:
        return [path for path in self.root.iterdir() if path.is_dir() and path.name not in _OTHERS]

    def _monitoring(self) -> Iterator[Path]:
        for group in (self.root, *self._control()):
            yield from (group / "mon_groups").iterdir()

    # ---- files

    def write(self, path: Path, text: str) -> None:
        if path.name == "schemata":
            path.write_text(self._merged(path, text))
        elif path.name == "tasks":
            self._enter(path, text.strip())
        else:
            path.write_text(text)
        (self.root / "info/last_cmd_status").write_text("ok\n")

    def _enter(self, path: Path, task: str) -> None:
        if not task.isdigit():
            self._fail(errno.EINVAL, f"Task list parsing error pid {task}")
        group = path.parent
        monitoring = group.parent.name == "mon_groups"
        home = group.parent.parent if monitoring else group
        if monitoring and home != self.root and task not in (home / "tasks").read_text().split():
            self._fail(errno.EINVAL, "Can't move task to different control group")
        rivals = (home / "mon_groups").iterdir() if monitoring else (self.root, *self._control(), *self._monitoring())
        for other in rivals:
            left = [line for line in (other / "tasks").read_text().split() if line != task]
            (other / "tasks").write_text("".join(f"{line}\n" for line in left))
        with path.open("a") as file:
            file.write(f"{task}\n")

    def ended(self, task: int) -> None:
        """A process has ended: it is in no group any more."""
        for group in (self.root, *self._control(), *self._monitoring()):
            listed = (group / "tasks").read_text().split()
            if str(task) in listed:
                (group / "tasks").write_text("".join(f"{line}\n" for line in listed if line != str(task)))

    def _merged(self, path: Path, text: str) -> str:
        """The schemata with the lines that were written; domains that they do not name stay as they are."""
        found = {name: _values(path, name) for name in ("MB", "L3")}
        for line in text.splitlines():
            name, _, pairs = line.strip().partition(":")
            if name not in found:
                self._fail(errno.EINVAL, f"Unknown or unsupported resource name '{name}'")
            for pair in pairs.split(";"):
                domain, _, value = pair.partition("=")
                if not domain.strip().isdigit() or int(domain) not in found[name]:
                    self._fail(errno.EINVAL, f"Unknown domain {domain.strip()!r}")
                found[name][int(domain)] = self._checked(name, value.strip())
        return "".join(
            f"    {name}:{';'.join(f'{domain}={value}' for domain, value in sorted(values.items()))}\n"
            for name, values in found.items()
        )

    def _checked(self, name: str, value: str) -> str:
        try:
            number = int(value, 10 if name == "MB" else 16)
        except ValueError:
            self._fail(
                errno.EINVAL, f"Non-hex character in the mask {value}" if name == "L3" else f"Invalid MB value {value}"
            )
        if name == "MB":
            if not 10 <= number <= 100:
                self._fail(errno.EINVAL, f"MB value {number} out of range [10,100]")
            return str(-(-number // 10) * 10)
        if number >> WAYS:
            self._fail(errno.EINVAL, "Mask out of range")
        if number == 0:
            self._fail(errno.EINVAL, "Need at least 1 bits in the mask")
        if (number | (number - 1)) & ((number | (number - 1)) + 1):
            self._fail(errno.EINVAL, f"The mask {number:x} has non-consecutive 1-bits")
        return f"{number:x}"

    def _fail(self, code: int, reason: str) -> NoReturn:
        (self.root / "info/last_cmd_status").write_text(f"{reason}\n")
        raise OSError(code, os.strerror(code))

    # ---- counters

    def tick(self) -> None:
        """Let counters move as far as time has since they last did."""
        now = self._seconds()
        elapsed, self._moved_at = now - self._moved_at, now
        groups = [(home, home) for home in (self.root, *self._control())]
        groups += [(home, one) for home, _ in list(groups) for one in (home / "mon_groups").iterdir()]
        running = sum(len((home / "tasks").read_text().split()) for home, one in groups if one is home) or 1
        for home, group in groups:
            tasks = len((group / "tasks").read_text().split())
            share = tasks / running
            for domain, mask in _values(home / "schemata", "L3").items():
                percent = int(_values(home / "schemata", "MB").get(domain, "100"))
                moved = int(elapsed * MEMORY_BYTES_PER_SECOND * share * percent / 100)
                folder = group / "mon_data" / f"mon_L3_{domain:02}"
                ways = int(mask, 16).bit_count()
                (folder / "llc_occupancy").write_text(f"{ways * WAY_BYTES if tasks else 0}\n")
                for event in EVENTS[1:]:
                    (folder / event).write_text(f"{int((folder / event).read_text()) + moved}\n")


def _values(schemata: Path, name: str) -> dict[int, str]:
    """What a schemata file says of one resource, by domain."""
    for line in schemata.read_text().splitlines():
        kind, _, pairs = line.strip().partition(":")
        if kind == name:
            return {int(domain): value for domain, _, value in (pair.partition("=") for pair in pairs.split(";"))}
    return {}
