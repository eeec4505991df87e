"""Recorded resctrl trees of several machines, and a stand-in for the kernel's manners on them.

Each machine is written by hand from the documented file formats. `TreeKernel` does to a plain directory what resctrl
does to its own: a new group appears with its files, refuses one group too many, refuses bad schemata with the reason
in info/last_cmd_status, and a task is in one group at a time.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from kubeqos.cri.providers.rdt.files import Kernel

Files = dict[str, str]

MACHINES: dict[str, Files] = {
    # Two sockets, 20-way L3, bandwidth in percent, monitoring.
    "full": {
        "schemata": "    MB:0=100;1=100\n    L3:0=fffff;1=fffff\n",
        "info/L3/cbm_mask": "fffff",
        "info/L3/min_cbm_bits": "1",
        "info/L3/shareable_bits": "c0000",
        "info/L3/num_closids": "16",
        "info/MB/bandwidth_gran": "10",
        "info/MB/delay_linear": "1",
        "info/MB/min_bandwidth": "10",
        "info/MB/num_closids": "8",
        "info/L3_MON/num_rmids": "224",
        "info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes",
    },
    # An embedded part: only L2, per core pair, four groups.
    "l2": {
        "schemata": "L2:0=ff;1=ff;2=ff;3=ff\n",
        "info/L2/cbm_mask": "ff",
        "info/L2/min_cbm_bits": "1",
        "info/L2/shareable_bits": "0",
        "info/L2/num_closids": "4",
    },
    # L3 with code and data apart, no bandwidth, at least two bits.
    "cdp": {
        "schemata": "L3DATA:0=fff\nL3CODE:0=fff\n",
        **{f"info/L3{kind}/cbm_mask": "fff" for kind in ("CODE", "DATA")},
        **{f"info/L3{kind}/min_cbm_bits": "2" for kind in ("CODE", "DATA")},
        **{f"info/L3{kind}/num_closids": "8" for kind in ("CODE", "DATA")},
    },
    # L3 without bandwidth allocation.
    "nomb": {
        "schemata": "L3:0=7ff\n",
        "info/L3/cbm_mask": "7ff",
        "info/L3/min_cbm_bits": "1",
        "info/L3/num_closids": "4",
    },
    # Mounted with mba_MBps.
    "mbps": {
        "schemata": "L3:0=7ff;1=7ff\nMB:0=4294967295;1=4294967295\n",
        "info/L3/cbm_mask": "7ff",
        "info/L3/min_cbm_bits": "1",
        "info/L3/num_closids": "8",
        "info/MB/bandwidth_gran": "10",
        "info/MB/min_bandwidth": "10",
        "info/MB/num_closids": "8",
    },
    # Bandwidth in eighths of a GB/s.
    "amd": {
        "schemata": "L3:0=ffff\nMB:0=2048\n",
        "info/L3/cbm_mask": "ffff",
        "info/L3/min_cbm_bits": "1",
        "info/L3/num_closids": "16",
        "info/MB/bandwidth_gran": "1",
        "info/MB/min_bandwidth": "1",
        "info/MB/num_closids": "16",
    },
}


def plant(machine: str, root: Path) -> Path:
    """Write one machine's tree under `root`."""
    for name, text in MACHINES[machine].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text.endswith("\n") else text + "\n")
    (root / "info" / "last_cmd_status").write_text("ok\n")
    (root / "tasks").write_text("1\n2\n")
    (root / "mon_groups").mkdir()
    return root


class TreeKernel(Kernel):
    """resctrl's behaviour on a plain directory, with a list of every change made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changes: list[str] = []

    def mkdir(self, path: Path) -> None:
        self.changes.append(f"mkdir {path.relative_to(self.root)}")
        if path.parent == self.root:
            groups = [p for p in self.root.iterdir() if p.is_dir() and p.name not in ("info", "mon_groups")]
            closids = min(int(p.read_text()) for p in self.root.glob("info/*/num_closids"))
            if len(groups) + 2 > closids:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            path.mkdir()
            (path / "schemata").write_text((self.root / "schemata").read_text())
            (path / "mon_groups").mkdir()
        else:
            path.mkdir()
            data = path / "mon_data" / "mon_L3_00"
            data.mkdir(parents=True)
            for event, value in (("llc_occupancy", 4096), ("mbm_total_bytes", 99), ("mbm_local_bytes", 42)):
                (data / event).write_text(f"{value}\n")
        (path / "tasks").write_text("")

    def rmdir(self, path: Path) -> None:
        self.changes.append(f"rmdir {path.relative_to(self.root)}")
        shutil.rmtree(path)

    def write(self, path: Path, text: str) -> None:
        self.changes.append(f"write {path.relative_to(self.root)}")
        if path.name == "schemata":
            self._check(text)
            path.write_text(text)
            return
        if path.parent.parent.name != "mon_groups":
            for other in self.root.glob("**/tasks"):
                left = [line for line in other.read_text().split() if line != text.strip()]
                other.write_text("".join(f"{line}\n" for line in left))
        with path.open("a") as file:
            file.write(text)

    def _check(self, text: str) -> None:
        for line in text.splitlines():
            name, _, values = line.partition(":")
            if not (self.root / "info" / name).is_dir():
                self._refuse(f"Unknown or unsupported resource name '{name}'")
            for pair in values.split(";"):
                value = pair.split("=")[1]
                if name != "MB" and int(value, 16) & ~int((self.root / "info" / name / "cbm_mask").read_text(), 16):
                    self._refuse("Mask out of range")

    def _refuse(self, reason: str) -> None:
        (self.root / "info" / "last_cmd_status").write_text(reason + "\n")
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
