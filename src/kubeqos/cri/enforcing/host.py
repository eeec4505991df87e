"""Performs effects on this machine: cgroup files, process limits, block devices.

Every root directory is a parameter, so the same code serves a container host and a plain directory in a test or in
the simulated runtime. Decisions are made elsewhere; this module only reads, writes and reports what failed.
"""

from __future__ import annotations

import errno
import glob
import os
import resource
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kubeqos.cri.providers.effects import CgroupWrite, Effect, SetRlimit, holds
from kubeqos.cri.providers.protocol import Place, SubjectGone
from kubeqos.errors import RemoteError
from kubeqos.rules.qos.unitproperties import slice_path

V1, V2 = 1, 2
FLAGS_IN_STAT = 6  # of /proc/PID/stat, counted from the state, which follows the name (man 5 proc)
PF_EXITING = 0x4  # include/linux/sched.h
Written = Callable[[str, str, str], None]


class Host:
    """The cgroup tree and the processes of one machine."""

    def __init__(self, cgroup_root: Path = Path("/sys/fs/cgroup"), dev_root: Path = Path("/"), version: int = 0):
        self.cgroup_root = cgroup_root
        self.dev_root = dev_root
        self.version = version or cgroup_version(cgroup_root)
        self._on_written: list[Written] = []

    def on_written(self, callback: Written) -> None:
        """Call back with every value that classes set: the cgroup, the file, what was written."""
        self._on_written.append(callback)

    def written(self, cgroup: str, file: str, value: str) -> None:
        """A class has set a value; whoever writes one by himself says so here."""
        for tell in self._on_written:
            tell(cgroup, file, value)

    def perform(self, place: Place, effects: Iterable[Effect]) -> None:
        """Carry out all effects in order; the first failure stops and is raised."""
        for effect in effects:
            if isinstance(effect, CgroupWrite):
                self._write(place, effect)
            else:
                _set_rlimit(place, effect)

    def directory(self, place: Place, controller: str) -> Path:
        """Where the files of one controller are for this subject."""
        if not place.cgroup:
            raise RemoteError(
                "the cgroup of the container is not known: the runtime did not tell its process",
                remedy="use a runtime whose verbose ContainerStatus carries the pid",
            )
        hierarchy = controller if self.version == V1 else ""
        return self.cgroup_root / hierarchy / place.within(hierarchy).lstrip("/")

    def located(self, pid: int) -> Place:
        """Where a process is, from the process itself: what a runtime was asked for and what it did may differ."""
        try:
            text = Path(f"/proc/{pid}/cgroup").read_text()
            mounts = Path("/proc/self/mountinfo").read_text()
        except (FileNotFoundError, ProcessLookupError) as error:
            raise SubjectGone(f"process {pid} has ended") from error
        if ended(pid):  # asked after the reading: from its end on, a process seems to be in the root of cgroup v1
            raise SubjectGone(f"process {pid} has ended")
        return placed(pid, cgroups_of(text, self.version), mount_roots(mounts, self.cgroup_root, self.version))

    def read(self, place: Place, controller: str, file: str) -> str:
        """What a control file of a subject says now; nothing when it is not there."""
        return _text(self.directory(place, controller) / file) or ""

    def tasks(self, place: Place) -> list[int]:
        """The threads of a subject now, from its cgroup (or its first process when the tree has no such file)."""
        return self.contained(place) or ([place.pid] if place.pid else [])

    def contained(self, place: Place) -> list[int]:
        """The threads in a subject's cgroup now; none when it has gone."""
        directory = self.directory(place, "cpu")
        for name in ("tasks", "cgroup.threads", "cgroup.procs"):
            try:
                return [int(line) for line in (directory / name).read_text().split()]
            except FileNotFoundError:
                continue
            except OSError as error:
                # cgroup.threads of a domain-threaded group cannot be read; cgroup.procs can.
                if error.errno != errno.EOPNOTSUPP:
                    raise RemoteError(f"cannot list tasks: {error.strerror}", where=str(directory / name)) from error
        return []

    def drifted(self, place: Place, effects: Iterable[Effect]) -> list[str]:
        """What of these effects is not so any more, although it was brought about."""
        return [
            f"{path.name}: {' '.join(now.split())} instead of {value}"
            for effect in effects
            if isinstance(effect, CgroupWrite)
            for path, value in self._there(place, effect)
            if (now := _text(path)) is not None and not holds(value, now)
        ]

    def _there(self, place: Place, effect: CgroupWrite) -> list[tuple[Path, str]]:
        """The files that an effect is about."""
        directory = self.directory(place, effect.controller)
        there = [(directory / file, value) for file, value in effect.choices if (directory / file).exists()]
        return there if effect.every else there[:1]

    def _write(self, place: Place, effect: CgroupWrite) -> None:
        directory, there = self.directory(place, effect.controller), self._there(place, effect)
        failures = []
        for path, value in there:
            try:
                write_file(path, value)
                self.written(place.cgroup, path.name, value)
            except RemoteError as error:
                failures.append(error)  # a device may obey only one of several files
        gone = (failures or not there) and not directory.exists() and place.pid and ended(place.pid)
        if gone:  # before our writing, or in the middle of it
            raise SubjectGone(f"process {place.pid} has ended and its cgroup is gone", where=str(directory))
        if failures and (len(failures) == len(there) or not effect.every):
            raise failures[0]
        if there:
            return
        if effect.needed:
            names = " or ".join(file for file, _ in effect.choices)
            raise RemoteError(
                f"cannot set {names}: no such file in the cgroup",
                where=str(directory),
                remedy="the kernel, its I/O scheduler or this cgroup version lacks the control; change the class",
            )

    def block_devices(self, pattern: str) -> list[tuple[int, int]]:
        """(major, minor) of each block device that a glob matches, symbolic links resolved."""
        found = []
        for name in sorted(glob.glob(str(self.dev_root / pattern.lstrip("/")))):
            status = os.stat(name)
            if stat.S_ISBLK(status.st_mode):
                found.append((os.major(status.st_rdev), os.minor(status.st_rdev)))
        return list(dict.fromkeys(found))


def ended(pid: int) -> bool:
    """Whether a process has ended or is just ending, waited for by its parent or not."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return bool(int(words[FLAGS_IN_STAT]) & PF_EXITING)


def write_file(path: Path, value: str) -> None:
    """One write to one control file. Control files neither need nor like truncation."""
    try:
        descriptor = os.open(path, os.O_WRONLY | (0 if path_is_control(path) else os.O_TRUNC))
        try:
            os.write(descriptor, value.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise RemoteError(f"cannot write {value!r}: {error.strerror}", where=str(path)) from error


def write_lines(path: Path, text: str) -> None:
    """Write a control file: weights of several devices are a line each, and the kernel takes one line at a time."""
    if not path.exists() or path.stat().st_size:  # a plain file of a test's tree
        path.write_text(text)
        return
    for line in text.splitlines():
        write_file(path, line)


def _text(path: Path) -> str | None:
    """What a control file says; None when it has just gone."""
    try:
        return path.read_text().strip()
    except OSError:
        return None


def path_is_control(path: Path) -> bool:
    """Control files have size 0 whatever they hold; a plain file of the simulated tree has its length."""
    return path.stat().st_size == 0


def cgroup_version(root: Path) -> int:
    """1 when the controllers have a directory each, 2 for the unified tree (and for an empty one).

    The one place that looks: relay, providers and node agent ask here, each with the root that it works on.
    """
    if (root / "cgroup.controllers").exists():
        return V2
    return V1 if (root / "memory").is_dir() else V2


def hugepage_sizes(root: Path, system: Path = Path("/sys")) -> tuple[int, ...]:
    """Sizes of huge pages, in bytes, that the kernel limits by cgroup; none where it does not."""
    if cgroup_version(root) == V1:
        limits = (root / "hugetlb").is_dir()
    else:
        found = root / "cgroup.controllers"
        limits = found.exists() and "hugetlb" in found.read_text().split()
    names = [path.name for path in (system / "kernel/mm/hugepages").glob("hugepages-*kB")] if limits else []
    return tuple(sorted(int(name.removeprefix("hugepages-").removesuffix("kB")) << 10 for name in names))


def counts_swap(root: Path) -> bool:
    """Whether swap is limited by cgroup (v2); the root itself has no such file, every other cgroup has."""
    return any(root.glob("*/memory.swap.max"))


def cgroups_of(text: str, version: int) -> dict[str, str]:
    """The cgroups of a process by hierarchy, from its /proc/PID/cgroup (man 7 cgroups); on v2 there is one, unnamed.

    On v1 what only has a name, such as systemd's, has no controller and is left out.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if version == V1:
            found |= {name: path for name in names.split(",") if name and not name.startswith("name=")}
        elif number == "0":
            found[""] = path
    return found


def mount_roots(mountinfo: str, cgroup_root: Path, version: int) -> dict[str, str]:
    """Which cgroup each hierarchy is mounted from: in a container without a namespace of cgroups, not the root."""
    roots: dict[str, str] = {}
    for line in mountinfo.splitlines():
        _, _, _, root, point, *_ = line.split(" ")
        if version == V1 and Path(point).parent == cgroup_root:
            roots |= dict.fromkeys(Path(point).name.split(","), root)
        elif version != V1 and Path(point) == cgroup_root:
            roots[""] = root
    return roots


def placed(pid: int, cgroups: Mapping[str, str], roots: Mapping[str, str]) -> Place:
    """A process and its cgroups below where hierarchies are mounted; the path that most have stands for all."""
    below = {name: _below(path, roots.get(name, "/")) for name, path in cgroups.items()}
    common = below.get("cpu") or next(iter(below.values()), "")
    return Place(pid, common, tuple(sorted((name, path) for name, path in below.items() if path != common)))


def _below(path: str, root: str) -> str:
    """A path as it is below the mounted cgroup."""
    if root != "/" and (path == root or path.startswith(f"{root}/")):
        return path.removeprefix(root) or "/"
    return path


def cgroup_path(cgroups_path: str) -> str:
    """The directory of an OCI `cgroupsPath`: itself, or the slices spelled out for `slice:prefix:name`."""
    parts = cgroups_path.split(":")
    if len(parts) != 3 or not parts[0].endswith(".slice"):
        return cgroups_path
    slice_name, prefix, name = parts
    return f"{slice_path(slice_name)}/{prefix}-{name}.scope"


def _set_rlimit(place: Place, effect: SetRlimit) -> None:
    if not place.pid:
        raise RemoteError(
            f"cannot set ulimit {effect.name}: the runtime did not tell the process of the container",
            remedy="use a runtime whose verbose ContainerStatus carries the pid",
        )
    kind = getattr(resource, f"RLIMIT_{effect.name.upper()}")
    try:
        resource.prlimit(place.pid, kind, (effect.soft, effect.hard))
    except ProcessLookupError:
        # The process has ended in the meantime: nothing is left to limit.
        return
    except (OSError, ValueError) as error:
        raise RemoteError(
            f"cannot set ulimit {effect.name} to {effect.soft}:{effect.hard}: {error}",
            where=f"process {place.pid}",
            remedy="lower the class's hard limit below the system's (fs.nr_open for nofile)",
        ) from error
