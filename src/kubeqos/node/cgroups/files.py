"""Writes the plan of `node.cgroups.plan` into a cgroup hierarchy, v1 or v2, and repairs what others changed.

The root is a parameter: `/sys/fs/cgroup` on a node, a folder in tests. Only what differs is written, so an unchanged
plan costs reads; a value that was right before and is wrong now is drift, which is counted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubeqos.cri.enforcing.host import cgroup_version, write_lines
from kubeqos.cri.enforcing.podcgroups import read_mark
from kubeqos.logs import logger
from kubeqos.model.annotations.published import Protected
from kubeqos.node.cgroups.classes import Files, protection, with_classes
from kubeqos.node.cgroups.plan import File, files_of
from kubeqos.rules.qos.cgroups import CgroupValues

log = logger(__name__)
CONTROLLERS_V2 = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")


@dataclass(slots=True)
class Written:
    """What one reconcile did."""

    written: int = 0
    drifted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    protected: dict[str, Protected] = field(default_factory=dict)
    """Pods' cgroups whose memory is protected: how much of what they ask for is effective."""


class CgroupFiles:
    """The cgroups above containers, on one node."""

    def __init__(self, root: Path, version: int | None = None) -> None:
        self.root = root
        self.version = version or cgroup_version(root)
        self.drifts = 0
        self._known: dict[Path, str] = {}

    def reconcile(self, plan: Mapping[str, CgroupValues]) -> Written:
        """Bring every cgroup of the plan to its values, and to what classes of containers add; parents first."""
        return self.write(self.contents(plan))

    def contents(self, plan: Mapping[str, CgroupValues]) -> dict[str, Files]:
        """What is to stand in the files of every cgroup of the plan, with what classes of containers add."""
        files = {path: files_of(values, self.version) for path, values in plan.items()}
        marks = {path: marked for path in plan if is_pod(path) and (marked := self._marks(path))}
        return with_classes(files, marks, self.version)

    def write(self, contents: Mapping[str, Files]) -> Written:
        """Write what differs from these contents."""
        done = Written()
        for path, wanted in contents.items():
            self._reconcile_one(path, wanted, done)
        if self.version == 2:
            done.protected = {
                path: found for path in contents if is_pod(path) and (found := protection(contents, path))
            }
        self.drifts += len(done.drifted)
        return done

    def cpuset(self, path: str, container_id: str) -> dict[str, str]:
        """The cpuset of a container in a pod's cgroup, by the names that CRI has for it; empty when it is not there."""
        folder = self._folder("cpuset", path)
        names = {"cpuset_cpus": "cpuset.cpus", "cpuset_mems": "cpuset.mems"}
        try:
            group = next(one for one in folder.iterdir() if container_id in one.name) if folder is not None else None
            return {name: (group / file).read_text().strip() for name, file in names.items()} if group else {}
        except (OSError, StopIteration):
            return {}

    def _marks(self, path: str) -> dict[File, str]:
        """What a relay has set in a pod's cgroup."""
        if self.version == 2:
            found = read_mark(self.root / path.strip("/")).files
            return {(name.partition(".")[0], name): text for name, text in found.items()}
        folders = {one: self._folder(one, path) for one in ("cpu", "blkio")}
        return {
            (controller, name): text
            for controller, folder in folders.items()
            if folder is not None
            for name, text in read_mark(folder).files.items()
        }

    def _reconcile_one(self, path: str, files: Mapping[File, str], done: Written) -> None:
        for (controller, name), value in files.items():
            folder = self._folder(controller, path)
            if folder is None:
                continue
            file = folder / name
            try:
                if not file.exists():
                    self._make(folder, path)
                if not file.exists() and (self._hierarchy(controller) / "cgroup.procs").exists():
                    continue  # a kernel without this feature
                now = file.read_text().strip() if file.exists() else None
                if now == value:
                    self._known[file] = value
                    continue
                if self._known.get(file) == value:
                    done.drifted.append(f"{file}: {now} instead of {value}")
                write_lines(file, value)
                if (kept := file.read_text().strip()) != value:
                    done.problems.append(f"{file}: the kernel keeps {kept} instead of {value}")
                self._known[file] = value
                done.written += 1
            except OSError as error:
                done.problems.append(f"{file}: {error.strerror}")

    def _hierarchy(self, controller: str) -> Path:
        return self.root if self.version == 2 else self.root / controller

    def _folder(self, controller: str, path: str) -> Path | None:
        hierarchy = self._hierarchy(controller)
        return hierarchy / path.strip("/") if hierarchy.is_dir() else None

    def _make(self, folder: Path, path: str) -> None:
        """Make a cgroup and hand the controllers down to it; one that somebody else made may lack some."""
        if self.version == 2:
            parent = self.root
            for part in Path(path.strip("/")).parts:
                self._enable(parent)
                parent = parent / part
                parent.mkdir(exist_ok=True)
        else:
            folder.mkdir(parents=True, exist_ok=True)

    def _enable(self, folder: Path) -> None:
        switch, available = folder / "cgroup.subtree_control", folder / "cgroup.controllers"
        if not switch.exists():
            return
        have = set(available.read_text().split()) - set(switch.read_text().split())
        for controller in have & set(CONTROLLERS_V2):
            with contextlib.suppress(OSError):  # one that is used elsewhere does not keep back the others
                switch.write_text(f"+{controller}")

    def end(self, path: str) -> None:
        """End what is left in the cgroup of a pod whose containers have all stopped.

        A runtime may lose sight of a process that it was just making, and then nobody else ends it.
        """
        for folder in self._everywhere(path):
            for file in folder.rglob("cgroup.procs"):
                with contextlib.suppress(OSError):  # it goes away meanwhile, or has threads only
                    # Who lives in another PID namespace is shown as 0, which would mean ourselves.
                    for pid in {int(word) for word in file.read_text().split()} - {0}:
                        log.warning("cgroup %s: process %d is left after all containers stopped; ended", path, pid)
                        os.kill(pid, signal.SIGKILL)

    def remove(self, path: str) -> bool:
        """Remove a pod's cgroup from every hierarchy; False when something still lives in it."""
        clean = True
        for folder in self._everywhere(path):
            self._known = {file: value for file, value in self._known.items() if file.parent != folder}
            clean &= _remove_tree(folder)
        return clean

    def oom_kills(self, path: str) -> dict[str, int]:
        """How many processes of a pod were killed because memory ran out, by the cgroup that counts them.

        On v2 a pod's cgroup counts for all below it; on v1 a container's counts its own, and takes its count along.
        """
        if self.version == 2:
            return {path: _counted(self.root / path.strip("/") / "memory.events")}
        return {child.name: _counted(child / "memory.oom_control") for child in self._below("memory", path)}

    def _below(self, controller: str, path: str) -> list[Path]:
        folder = self._folder(controller, path)
        return [child for child in folder.iterdir() if child.is_dir()] if folder is not None and folder.is_dir() else []

    def container(self, pod: str, identity: str) -> str:
        """The cgroup of a pod's container, by the id that every runtime has in its name; nothing without one."""
        found = (child.name for child in self._below("cpuset", pod) if identity in child.name)
        return next((f"{pod}/{name}" for name in found), "")

    def orphans(self, plan: Mapping[str, CgroupValues]) -> list[str]:
        """Pods' cgroups that belong to no pod of the plan."""
        tiers = [path for path in plan if not is_pod(path)]
        found = set()
        for tier in tiers:
            for folder in self._everywhere(tier):
                found |= {f"{tier}/{child.name}" for child in folder.iterdir() if child.is_dir() and is_pod(child.name)}
        return sorted(found - set(plan))

    def _everywhere(self, path: str) -> Iterable[Path]:
        relative = path.strip("/")
        if self.version == 2:
            folders = [self.root / relative]
        else:
            folders = [hierarchy / relative for hierarchy in self.root.iterdir() if hierarchy.is_dir()]
        return [folder for folder in folders if folder.is_dir()]


def _counted(file: Path) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0  # it has gone with its container
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def is_pod(path: str) -> bool:
    """Whether a cgroup is a pod's own, by its name with either driver."""
    name = path.rpartition("/")[2]
    return name.startswith("pod") or "-pod" in name


def _remove_tree(folder: Path) -> bool:
    """Empty cgroups are removed from the leaves up; their files go with them."""
    for child in folder.iterdir():
        if child.is_dir():
            _remove_tree(child)
        elif child.stat().st_size and not (folder / "cgroup.procs").exists():
            child.unlink()  # a plain folder, not a kernel's
    try:
        folder.rmdir()
    except OSError as error:
        return error.errno == errno.ENOENT
    return True
