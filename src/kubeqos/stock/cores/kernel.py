"""Which CPUs the kernel gives the containers of a stock node. Called by `keeper`."""

from __future__ import annotations

from kubeqos.cri.enforcing.host import V1, Host, cgroup_path
from kubeqos.cri.providers.protocol import Place
from kubeqos.plugins.managers import AdmittedPod
from kubeqos.stock.cores.pods import PodTable

_FILES = (("cpuset_cpus", "cpuset.cpus"), ("cpuset_mems", "cpuset.mems"))


class KernelCpusets:
    """Those of one node."""

    def __init__(self, host: Host, table: PodTable) -> None:
        self._host, self._table = host, table

    def has(self, _pod: AdmittedPod, container_id: str) -> dict[str, str]:
        """What a container was told, as its cgroup says."""
        cgroup = self._table.cgroup(container_id)
        place = Place(0, cgroup_path(cgroup))
        found = {kind: self._host.read(place, "cpuset", file) for kind, file in _FILES} if cgroup else {}
        return {kind: text for kind, text in found.items() if text}

    def in_force(self, cgroup: str) -> str:
        """The CPUs that the kernel gives a cgroup, by its own or by those above it."""
        file = "cpuset.cpus" if self._host.version == V1 else "cpuset.cpus.effective"
        return self._host.read(Place(0, cgroup_path(cgroup)), "cpuset", file) if cgroup else ""
