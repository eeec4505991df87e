"""What everybody gets of whom no manager speaks: the CPUs that nobody owns. No I/O.

On a node of ours every pod goes through the managers. Beside a kubelet there are others too: static pods, pods that
were not admitted yet, pods that resource plugins leave alone. They keep off owned CPUs like everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.updates.plan import CPUS
from kubeqos.plugins.managers import ContainerKey, ContainerRef, Grant
from kubeqos.stock.cores.pods import PodTable


class SharedRest:
    """Admission as updates see it (`DeclaresGrants`), with a place for every container that runs here."""

    def __init__(self, admission: Admission, table: PodTable) -> None:
        self._admission = admission
        self._table = table
        self._made: dict[tuple[str, int], tuple[Grant, Grant]] = {}
        """Grants without CPUs, and the same with those that are left."""

    @property
    def machine(self) -> Machine:
        return self._admission.machine

    @property
    def entries(self) -> Mapping[str, object]:
        return self._admission.entries

    def owned(self) -> CpuSet:
        found = NO_CPUS
        for grant in self._admission.grants().values():
            found |= grant.exclusive
        return found

    def grant(self, container: ContainerRef) -> Grant:
        return self._placed(self._admission.grant(container), str(self.rest()))

    def grants(self) -> Mapping[ContainerKey, Grant]:
        given, rest = self._admission.grants(), str(self.rest())
        found = {key: self._placed(grant, rest) for key, grant in given.items()}
        for uid, pod in self._table.pods.items():
            for one in pod.containers.values():
                if one.live and (uid, one.name) not in found:
                    found[uid, one.name] = self._placed(Grant(), rest)
        self._made = {key: one for key, one in self._made.items() if key[0] == rest}
        return found

    def retry_releases(self) -> None:
        self._admission.retry_releases()

    async def recorded(self) -> None:
        await self._admission.recorded()

    def rest(self) -> CpuSet:
        """The CPUs that nobody owns."""
        # Where everything is owned, to run beside others is all that is left: a container cannot run on no CPU.
        return (self.machine.online - self.owned()) or self.machine.online

    def _placed(self, grant: Grant, rest: str) -> Grant:
        """What did not change stays the same object: nobody is told of it again."""
        if CPUS in grant.properties:
            return grant
        key = rest, id(grant) if grant.properties or grant.because or grant.envs else 0
        known = self._made.get(key)
        if known is None or (key[1] and known[0] is not grant):
            known = self._made[key] = grant, replace(grant, properties={**grant.properties, CPUS: rest})
        return known[1]
