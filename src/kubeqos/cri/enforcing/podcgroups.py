"""Carries the classes of containers up to their pod's cgroup, where pods compete, and memory protection to all above.

The values are those of `rules.qos.podlevel`, from what stands in the containers' cgroups. What was set is noted on the
cgroup itself (an extended attribute, which goes with it): whoever else keeps that cgroup, such as a kubeqos node, reads
there what it has to leave, and what stood there before can be put back. Called by the relay.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.cri.enforcing.host import V1, V2, Host, write_lines
from kubeqos.rules.qos import podlevel
from kubeqos.rules.qos.podlevel import IO, MEMORY, PROTECTIONS, CgroupLevel, Protection

ATTRIBUTE = "user.kubeqos.classes"
_HIERARCHY = {podlevel.CPU: "cpu", IO: "blkio"}


@dataclass(frozen=True, slots=True)
class Mark:
    """What classes set in one cgroup, and what stood there before."""

    files: Mapping[str, str] = field(default_factory=dict)
    was: Mapping[str, str] = field(default_factory=dict)


def read_mark(folder: Path) -> Mark:
    """The mark of a cgroup; an empty one where there is none."""
    try:
        found = decode_json(os.getxattr(folder, ATTRIBUTE))
        return Mark(dict(found["files"]), dict(found["was"]))
    except (OSError, JsonError, KeyError, TypeError, ValueError):
        return Mark()


def is_pod(cgroup: str, uid: str) -> bool:
    """Whether a cgroup is the own one of a pod, as Kubernetes names it; a folder of many pods is nobody's to weigh."""
    name = cgroup.rstrip("/").rpartition("/")[2]
    return bool(uid) and (name == f"pod{uid}" or name.endswith(f"-pod{uid.replace('-', '_')}.slice"))


class PodCgroups:
    """The cgroups above containers, as far as classes have a say in them."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def weigh(self, cgroup: str, sandbox_id: str, about: Collection[str]) -> None:
        """Bring a pod's cgroup to what its containers' classes are `about`; nothing of them is left without any."""
        if self.host.version == V1:
            for kind, hierarchy in _HIERARCHY.items():
                self._weigh_folder(self._folder(cgroup, hierarchy), sandbox_id, {kind} & set(about))
            return
        folder = self._folder(cgroup)
        had = read_mark(folder)
        self._weigh_folder(folder, sandbox_id, about)
        if MEMORY in about or any(name in had.files for name in PROTECTIONS):
            self.carry_up(cgroup)

    def _weigh_folder(self, folder: Path, sandbox_id: str, about: Collection[str]) -> None:
        mark = read_mark(folder)
        if not folder.is_dir() or not (about or mark.files):
            return
        children = [
            {name: text for kind in about for name, text in self._read(child, kind)}
            for child in folder.iterdir()
            if child.is_dir() and sandbox_id not in child.name
        ]
        wanted = podlevel.pod_contents(children, about, self.host.version)
        there = {name: text for name, text in wanted.items() if (folder / name).exists()}
        # A cgroup that is idle loses its weight, so that is noted although it is not set.
        self._put(folder, there, [name for kind in about for name in podlevel.FILES[self.host.version].get(kind, ())])

    def _read(self, folder: Path, kind: str) -> Iterator[tuple[str, str]]:
        for name in podlevel.FILES[self.host.version].get(kind, ()):
            with contextlib.suppress(OSError):  # this kernel lacks it, or the container has just gone
                yield name, (folder / name).read_text().strip()

    def _put(self, folder: Path, wanted: Mapping[str, str], noted: Collection[str] = PROTECTIONS) -> None:
        """Note first, write then: who finds a value that he did not set finds out why, too."""
        had = read_mark(folder)
        was = {name: had.was.get(name, _text(folder / name)) for name in noted if (folder / name).exists()}
        back = {name: text for name, text in had.was.items() if name not in wanted and (folder / name).exists()}
        if wanted.get(podlevel.IDLE) == "1":
            back = {name: text for name, text in back.items() if not name.startswith("cpu.")}  # refused while idle
        with contextlib.suppress(OSError):  # a kernel before 5.7: the value holds until somebody else writes his
            if wanted:
                os.setxattr(folder, ATTRIBUTE, encode_json({"files": dict(wanted), "was": was}))
            elif had.files:
                os.removexattr(folder, ATTRIBUTE)
        for name, text in {**back, **wanted}.items():
            floor = was.get(name, "0") if name in PROTECTIONS and name in wanted else "0"
            text = max(text, floor, key=podlevel.amount) if name in PROTECTIONS else text
            if _text(folder / name) != text:
                write_lines(folder / name, text)
                self.host.written(f"/{folder.relative_to(self.host.cgroup_root)}", name, text)

    # ---- Protection

    def carry_up(self, cgroup: str) -> None:
        """Let every cgroup above a pod protect what its children ask for, and no more than that and its own."""
        for above in list(Path(cgroup.lstrip("/")).parents)[:-1]:
            folder = self._folder(str(above))
            mark = read_mark(folder)
            needed: dict[str, str] = {}
            for name in PROTECTIONS:
                if not (folder / name).exists():
                    continue
                total = sum(podlevel.amount(_text(child / name)) for child in folder.iterdir() if child.is_dir())
                own = podlevel.amount(mark.was.get(name, _text(folder / name)))
                if total > own:
                    needed[name] = podlevel.protection_text(total)
            if needed or mark.files:
                self._put(folder, needed)

    def protection(self, cgroup: str, name: str = "memory.min") -> Protection:
        """What of a cgroup's protection the kernel will heed, from what stands in the files now."""
        levels = []
        parts = Path(cgroup.lstrip("/"))
        for path in (*reversed(list(parts.parents)[:-1]), parts):
            folder = self._folder(str(path))
            siblings = [child for child in folder.parent.iterdir() if child.is_dir()] if folder.is_dir() else []
            total = sum(podlevel.amount(_text(child / name)) for child in siblings)
            levels.append(CgroupLevel(f"/{path}", podlevel.amount(_text(folder / name)), total))
        return podlevel.effective_protection(levels)

    def _folder(self, cgroup: str, hierarchy: str = "") -> Path:
        return self.host.cgroup_root / ("" if self.host.version == V2 else hierarchy) / cgroup.lstrip("/")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return "0"
