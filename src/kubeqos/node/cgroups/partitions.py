"""Exclusive CPUs as partitions of the kernel (cgroup v2, `cpuset.cpus.partition`): nobody else runs there.

A cpuset alone only says where its own tasks run; a partition takes the CPUs from everybody outside it, also from the
host's own processes. Deep in the hierarchy the kernel makes one since Linux 6.7 (remote partitions), if the CPUs are
named in `cpuset.cpus.exclusive` all the way down. Where it does not, the reason is kept. Called by
`node.cgroups.keeper`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kubeqos.cri.enforcing.host import write_file
from kubeqos.errors import InputError, RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.plugins.managers import ContainerKey

EXCLUSIVE, PARTITION = "cpuset.cpus.exclusive", "cpuset.cpus.partition"
ROOT, MEMBER = "root", "member"
OLD_VERSION = "cgroup v1 has no partitions"
OLD_KERNEL = "the kernel makes none below pods (Linux 6.7 does)"


@dataclass(frozen=True, slots=True)
class Owner:
    """A container that has CPUs of its own."""

    key: ContainerKey
    cgroup: str
    """Of the container, from the root of the hierarchy."""
    cpus: CpuSet


def exclusive_above(owners: Iterable[Owner]) -> dict[str, CpuSet]:
    """Which CPUs every cgroup above the owners has to hand down. Pure."""
    found: dict[str, CpuSet] = {}
    for owner in owners:
        for above in list(Path(owner.cgroup).parents)[:-1]:
            found[str(above)] = found.get(str(above), NO_CPUS) | owner.cpus
    return found


class Partitions:
    """The partitions of one node. `reasons` has an entry for every owner: why it has none; empty where it has."""

    def __init__(self, root: Path, version: int) -> None:
        self._root = root
        self._version = version
        self.reasons: Mapping[ContainerKey, str] = {}

    def reconcile(self, owners: Iterable[Owner], cgroups: Iterable[str]) -> None:
        """Bring the partitions to what is owned now. `cgroups`: those above containers, parents first."""
        wanted, above = list(owners), list(cgroups)
        if self._version == 1:
            self.reasons = {owner.key: OLD_VERSION for owner in wanted}
            return
        needs = exclusive_above(wanted)
        # A child holds no more than its parent at any time: grow from the top, shrink from below.
        problems = [self._exclusive(path, self._now(path) | needs.get(path, NO_CPUS)) for path in above]
        for path in above:
            self._leave(path, {owner.cgroup for owner in wanted})
        reasons = {owner.key: self._partition(owner) for owner in wanted}
        problems += [self._exclusive(path, needs.get(path, NO_CPUS)) for path in reversed(above)]
        blame = next(filter(None, problems), "")
        self.reasons = {key: reason and (blame or reason) for key, reason in reasons.items()}

    def _partition(self, owner: Owner) -> str:
        folder = self._folder(owner.cgroup)
        if not (folder / EXCLUSIVE).exists():
            return OLD_KERNEL if folder.is_dir() else "the container has no cgroup"
        problem = self._exclusive(owner.cgroup, owner.cpus)
        if problem:
            return problem
        try:
            if _text(folder / PARTITION) != ROOT:
                write_file(folder / PARTITION, ROOT)
        except RemoteError as error:
            return f"{PARTITION}: {error.what}"
        said = _text(folder / PARTITION)
        return "" if said == ROOT else f"the kernel says: {said}"

    def _leave(self, path: str, owners: set[str]) -> None:
        """Containers that own nothing any more give back what they kept from others."""
        folder = self._folder(path)
        for child in folder.iterdir() if folder.is_dir() else ():
            cgroup = f"{path.rstrip('/')}/{child.name}"
            if cgroup in owners or not child.is_dir() or _text(child / PARTITION) in ("", MEMBER):
                continue
            write_file(child / PARTITION, MEMBER)
            self._exclusive(cgroup, NO_CPUS)

    def _now(self, path: str) -> CpuSet:
        try:
            return CpuSet.parse(_text(self._folder(path) / EXCLUSIVE))
        except InputError:
            return NO_CPUS

    def _exclusive(self, path: str, cpus: CpuSet) -> str:
        """Let a cgroup hand these CPUs down; why it does not, if so."""
        file = self._folder(path) / EXCLUSIVE
        if not file.exists() or self._now(path) == cpus:
            return ""
        try:
            write_file(file, str(cpus) or "\n")
        except RemoteError as error:
            return f"{file.parent.name}/{EXCLUSIVE}: {error.what}"
        return ""

    def _folder(self, path: str) -> Path:
        return self._root / path.strip("/")


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
