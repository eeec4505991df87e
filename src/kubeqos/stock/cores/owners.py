"""Owned CPUs as partitions of the kernel, beside a kubelet: it keeps everybody else off them, whoever is away.

While the agent is away, nobody tells a new container where it may run. The tiers of BestEffort and Burstable pods are
kept to other CPUs (`fences`); Guaranteed pods are beside the owners, in the cgroup of all pods, which must have the
owned CPUs for these to have them. Only a partition takes them out of that cgroup's reach (Linux 6.7, cgroup v2).
Called by `keeper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from kubeqos.cri.enforcing.host import Host, cgroup_path
from kubeqos.cri.providers.protocol import Place
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.cgroups.partitions import Owner, Partitions
from kubeqos.plugins.managers import ContainerRef
from kubeqos.stock.cores.pods import PodTable

log = logger("kubeqos.agent")


class OwnedCpus:
    """The partitions of one node; none where `owned` is not given."""

    def __init__(self, host: Host, table: PodTable, owned: Callable[[ContainerRef], CpuSet] | None) -> None:
        self._table, self._owned = table, owned
        self.partitions = Partitions(host.directory(Place(0, "/"), "cpuset"), host.version)
        self._above: set[str] = set()
        """Every cgroup above containers that was seen: what an owner's needed is given back when the owner is gone."""

    def keep(self) -> None:
        """Bring the partitions to what is owned now."""
        if self._owned is not None:
            self._bring(list(self._owners(self._owned)))

    def leave(self) -> None:
        """Let everybody have all CPUs again."""
        if self._owned is not None:
            self._bring([])

    def _bring(self, owners: list[Owner]) -> None:
        for row in self._table.pods.values():
            for where in row.cgroups.values():
                self._above |= {str(one) for one in list(PurePosixPath(cgroup_path(where)).parents)[:-1]}
        before = dict(self.partitions.reasons)
        try:
            self.partitions.reconcile(owners, sorted(self._above, key=lambda path: path.count("/")))
        except RemoteError as error:
            log.warning("partitions of CPUs are looked at again later", reason=error.what)
        for (uid, name), why in self.partitions.reasons.items():
            if why and before.get((uid, name)) != why:
                log.info("owned CPUs are no partition of the kernel", pod=uid, container=name, reason=why)

    def _owners(self, owned: Callable[[ContainerRef], CpuSet]) -> Iterator[Owner]:
        for uid, row in self._table.pods.items():
            for id, one in row.containers.items():
                where = row.cgroups.get(id, "")
                if one.live and where and (cpus := owned(row.ref(one.name))):
                    yield Owner((uid, one.name), cgroup_path(where), cpus)
