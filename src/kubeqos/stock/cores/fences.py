"""The cgroups above containers: QoS tiers and pods. They keep off owned CPUs whoever starts while nobody is asked.

A container begins where its parents may run. While the agent is away, or a runtime has just come back, no hook says
where that is; so the tiers of BestEffort and Burstable pods are kept to the CPUs that somebody in them may have, and a
pod that was promised CPUs to these before its first container. Called by `keeper`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from kubeqos.cri.enforcing.host import V1, Host, write_file
from kubeqos.cri.enforcing.podcgroups import is_pod
from kubeqos.cri.providers.protocol import Place
from kubeqos.errors import InputError, RemoteError
from kubeqos.logs import logger
from kubeqos.model.cpuset import CpuSet

TIERS = "besteffort", "burstable"
FILE = "cpuset.cpus"
DEFAULTS = "/kubepods", "/kubepods.slice"
"""Where kubelets keep pods unless they are told otherwise."""
log = logger("kubeqos.agent")


def pods_root(cgroup: str) -> str:
    """The cgroup of all pods above that of a container, as kubelets name it; empty where there is none."""
    found = (str(one) for one in PurePosixPath(cgroup).parents if one.name.endswith(("kubepods", "kubepods.slice")))
    return next(found, "")


def tiers_in(root: str) -> list[str]:
    """The cgroups of the tiers that can be kept off owned CPUs; Guaranteed pods are beside them."""
    stem = PurePosixPath(root).name.removesuffix(".slice")
    return [f"{root}/{stem}-{tier}.slice" if root.endswith(".slice") else f"{root}/{tier}" for tier in TIERS]


def tier_of(cgroup: str) -> str:
    """The tier in which a container is; empty for one of a Guaranteed pod."""
    above = str(PurePosixPath(cgroup).parent.parent)
    return above if above in tiers_in(pods_root(cgroup)) else ""


class Fences:
    """Those of one node. A cgroup that cannot be written now is written at the next occasion."""

    def __init__(self, host: Host, online: CpuSet) -> None:
        self._host, self._online = host, online
        self._roots: set[str] = set()

    def met(self, container: str) -> bool:
        """There is a container in this cgroup; whether its tiers were not known before."""
        root = pods_root(container)
        new = bool(root) and root not in self._roots
        if new:
            self._roots.add(root)
        return new

    def wanted(self, containers: Iterable[tuple[str, CpuSet | None]], rest: CpuSet) -> dict[str, CpuSet]:
        """What each tier may have: the rest, and the CPUs of whoever is in it; None are those of one that has ended."""
        found: dict[str, CpuSet] = {}
        for cgroup, cpus in containers:
            self.met(cgroup)
            if (tier := tier_of(cgroup)) and cpus is not None:
                found[tier] = found.get(tier, rest) | cpus
        return {tier: found.get(tier, rest) for tier in self.known()}

    def widen(self, wanted: Mapping[str, CpuSet]) -> None:
        """Let tiers have these CPUs, too, with all their pods: before containers are told of them."""
        for tier, cpus in wanted.items():
            folder = self._folder(tier)
            if (have := _cpus(folder)) and not cpus <= have:
                for group in (folder, *_children(folder)):
                    self._write(group, (_cpus(group) or self._online) | cpus)

    def narrow(self, wanted: Mapping[str, CpuSet]) -> None:
        """Let tiers have these CPUs alone: after everybody in them has left the others, or is to leave them now."""
        for tier, cpus in wanted.items():
            folder = self._folder(tier)
            if not folder.is_dir() or (_cpus(folder) or self._online) <= cpus:
                continue
            if self._host.version == V1:  # there nobody may have more than its parent
                for below, _, _ in os.walk(folder, topdown=False):
                    had = _cpus(Path(below))
                    if had and not had <= cpus:
                        self._write(Path(below), (had & cpus) or cpus)
            self._write(folder, cpus)

    def allow(self, container: str, cpus: CpuSet) -> None:
        """Let those above a container have what it is about to get."""
        pod = PurePosixPath(container).parent
        for cgroup in filter(None, (tier_of(container), str(pod))):
            folder = self._folder(cgroup)
            if (have := _cpus(folder)) and not cpus <= have:
                self._write(folder, have | cpus)

    def confine(self, pod_uid: str, cpus: CpuSet) -> None:
        """Let a pod have these CPUs alone, before it has a container."""
        for root in self._roots or DEFAULTS:
            for above in map(self._folder, (root, *tiers_in(root))):
                for folder in _children(above):
                    if is_pod(folder.name, pod_uid):
                        self._write(folder, cpus)

    def known(self) -> Iterable[str]:
        """Every tier of this node."""
        return [tier for root in self._roots for tier in tiers_in(root)]

    def _folder(self, cgroup: str) -> Path:
        return self._host.directory(Place(0, cgroup), "cpuset")

    def _write(self, folder: Path, cpus: CpuSet) -> None:
        try:
            write_file(folder / FILE, str(cpus))
        except (RemoteError, OSError) as error:
            if folder.is_dir():
                log.warning("cannot keep a cgroup to its CPUs", cgroup=str(folder), cpus=str(cpus), reason=str(error))


def _children(folder: Path) -> Iterator[Path]:
    try:
        yield from [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return  # it has just gone


def _cpus(folder: Path) -> CpuSet | None:
    """What a cgroup is kept to by itself; None where it is not, or is gone."""
    try:
        return CpuSet.parse((folder / FILE).read_text().strip()) or None
    except (OSError, InputError):
        return None
