"""CPU quotas beside a kubelet: who owns its CPUs has none, and neither has its pod.

A quota would only take from it what is its own. The kubelet gives every limit one: to containers through the runtime,
which asks us first, and to pods by itself, when it makes a pod's cgroup and whenever it resizes the pod. So what stands
in the cgroups is looked at after each of these moments, and now and then. Called by `keeper` and by the agent's hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from kubeqos.cri.enforcing.host import V1, Host, cgroup_path
from kubeqos.cri.providers.effects import CgroupWrite
from kubeqos.cri.providers.protocol import Place
from kubeqos.errors import RemoteError
from kubeqos.logs import logger
from kubeqos.node.cri.context import Context
from kubeqos.plugins.managers import NOTHING, ContainerKey, Grant
from kubeqos.rules.qos.cgroups import container_values, pod_values
from kubeqos.rules.qos.unitproperties import V1_QUOTA
from kubeqos.stock.cores.pods import PodOnNode, PodTable

NO_QUOTA = -1
V2_QUOTA = "cpu.max"
CPU = "cpu"
log = logger("kubeqos.agent")


class Quotas:
    """Those of one node. What was lifted is put back for whoever does not own its CPUs any more."""

    def __init__(
        self,
        host: Host,
        table: PodTable,
        grants: Callable[[], Mapping[ContainerKey, Grant]],
        context: Context,
    ) -> None:
        self._host, self._table = host, table
        self._grants, self._context = grants, context
        self._lifted: set[str] = set()
        """The cgroups of containers and pods that have no quota because of us."""
        self._found: set[str] = set()

    def owns(self, container_id: str) -> bool:
        """Whether a container owns its CPUs."""
        rows = (row for row in self._table.pods.values() if container_id in row.containers)
        return any(container_id in _owners(row, self._grants()) for row in rows)

    def found(self, cgroup: str, told_us: int) -> None:
        """A container that ran before we came, and the quota that the runtime was told of, by whomever.

        One that has none by the kernel lost it to the agent before us. Who has been told of none, as where the kubelet
        gives nobody a quota, never had any.
        """
        for one in (cgroup, str(PurePosixPath(cgroup).parent)) if cgroup and told_us else ():
            if self._now(one)[:1] in (["max"], [str(NO_QUOTA)]):
                self._found.add(one)

    def take_over(self) -> None:
        """From now on it is known who owns its CPUs: those of the found who do not get their quota back."""
        self._lifted |= self._found
        self._found.clear()

    def keep(self) -> None:
        """Look at everybody."""
        self._bring(self._grants())

    def leave(self) -> None:
        """Give everybody back the quota of its limit."""
        self._bring({})

    def _bring(self, grants: Mapping[ContainerKey, Grant]) -> None:
        for row in self._table.pods.values():
            for cgroup, owns, quota_us in self._wanted(row, _owners(row, grants)):
                if owns:
                    self._lifted.add(cgroup)
                    self._write(cgroup, NO_QUOTA)
                elif cgroup in self._lifted:
                    self._lifted.discard(cgroup)
                    self._write(cgroup, quota_us)
        self._lifted = {one for one in self._lifted if self._host.directory(Place(0, one), CPU).is_dir()}

    def _wanted(self, row: PodOnNode, owners: set[str]) -> Iterator[tuple[str, bool, int]]:
        """The cgroups of a pod and of its containers, whether each is to be without a quota, and what it has else.

        The pod comes first: on version 1 no container may have more than its pod.
        """
        live = {id: one.name for id, one in row.containers.items() if one.live and id in row.cgroups}
        cgroups = {id: cgroup_path(row.cgroups[id]) for id in live}
        if not owners and not self._lifted & {*cgroups.values()}:
            return
        context, spec, qos = self._context, row.admitted.view.spec, row.admitted.qos
        of_pod = pod_values(spec, qos, context.memory, context.cgroups).cpu_quota_us
        for pod in {str(PurePosixPath(one).parent) for one in cgroups.values()}:
            yield pod, bool(owners), of_pod or NO_QUOTA
        views = {view.name: view for view in (*spec.init_containers, *spec.containers)}
        for id, cgroup in cgroups.items():
            view = views.get(live[id])
            own = container_values(spec, view, qos, context.memory, context.cgroups).cpu_quota_us if view else None
            yield cgroup, id in owners, own or NO_QUOTA

    def _now(self, cgroup: str) -> list[str]:
        file = V1_QUOTA if self._host.version == V1 else V2_QUOTA
        return self._host.read(Place(0, cgroup), CPU, file).split()

    def _write(self, cgroup: str, quota_us: int) -> None:
        place, is_v1 = Place(0, cgroup), self._host.version == V1
        file = V1_QUOTA if is_v1 else V2_QUOTA
        now = self._now(cgroup)
        text = str(quota_us) if is_v1 or quota_us > 0 else "max"
        if not now or now[0] == text:
            return  # the runtime has not made it yet, or it has just gone; or all is well
        period = [] if is_v1 else [now[1] if quota_us == NO_QUOTA else str(self._context.cgroups.cpu_period_us)]
        try:
            self._host.perform(place, [CgroupWrite(CPU, ((file, " ".join([text, *period])),), needed=False)])
        except RemoteError as error:
            log.warning("cannot set a CPU quota", cgroup=cgroup, quota=text, reason=error.what)


def _owners(row: PodOnNode, grants: Mapping[ContainerKey, Grant]) -> set[str]:
    """The containers of a pod that own their CPUs."""
    live = (one for one in row.containers.values() if one.live)
    return {one.id for one in live if grants.get((row.uid, one.name), NOTHING).unthrottled}
