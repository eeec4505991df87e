"""Books equal kernel (ruling 17): what containers were granted is compared with what they have, again and again.

The updater knows what containers were told; somebody else (an admin, another agent, a runtime that lost an update) may
have told them something else. Every relist the runtime is asked, and the cgroup files where the node keeps cgroups.
What differs is an event, a count and a condition of the Node, and the container is brought back in the order that every
other change takes. Containers that are nobody's pod are not ours to move: they are told. Called by the agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.errors import InputError
from kubeqos.model.cpuset import NO_CPUS, CpuSet, NumaSet
from kubeqos.node.cri.observer import POD_UID_LABEL
from kubeqos.node.updates.updater import ContainerUpdater, DeclaresGrants, FollowsPods, RecordNode
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, Grant

CONDITION = "CpusetsAsGranted"
EVENT = "ContainerDrift"
CPUS, MEMS = "cpuset_cpus", "cpuset_mems"
Sets = Mapping[str, str]  # cpuset_cpus and cpuset_mems, those that are known
Kernel = Callable[[AdmittedPod, str], Sets]


@dataclass(frozen=True, slots=True)
class Drift:
    """One container that has something else than it was granted, or that runs where somebody owns the CPUs."""

    kind: str
    who: str
    text: str

    def __str__(self) -> str:
        return f"{self.who} {self.text}"


def drifts(who: str, grant: Grant, has: Sets, owned: Mapping[str, CpuSet]) -> list[Drift]:
    """How what a container has differs from its grant; `owned` is what others own, by their names."""
    found = []
    for kind, what in ((CPUS, "CPUs"), (MEMS, "NUMA nodes")):
        wanted, now = grant.properties.get(kind), has.get(kind)
        if wanted is None or now is None or _same(kind, str(wanted), now):
            continue
        text = f"runs on {what} {now or 'without limit'} and should run on {wanted}"
        found.append(Drift(kind, who, text + _beside(now, owned) if kind == CPUS else text))
    return found


def trespass(who: str, has: Sets, online: CpuSet, owned: Mapping[str, CpuSet]) -> Drift | None:
    """Whether a container that is nobody's pod may run on CPUs that somebody owns."""
    cpus = _cpus(has.get(CPUS, "")) or online
    beside = _beside(str(cpus), owned)
    return Drift("overlap", who, f"is no pod of this node and runs on CPUs {cpus}{beside}") if beside else None


def _beside(now: str, owned: Mapping[str, CpuSet]) -> str:
    cpus = _cpus(now)
    shared = [f"{taken} of {owner}" for owner, own in owned.items() if (taken := own & cpus if now else own)]
    return f", beside CPUs {', '.join(shared)}, which are its alone" if shared else ""


def _same(kind: str, wanted: str, now: str) -> bool:
    parse = CpuSet.parse if kind == CPUS else NumaSet.parse
    try:
        return parse(wanted) == parse(now)
    except InputError:
        return False


def _cpus(text: str) -> CpuSet:
    try:
        return CpuSet.parse(text)
    except InputError:
        return NO_CPUS


class Books:
    """One node's comparison."""

    def __init__(
        self,
        core: FollowsPods,
        runtime: Runtime,
        admission: DeclaresGrants,
        updater: ContainerUpdater,
        record_node: RecordNode,
        kernel: Kernel | None = None,
    ) -> None:
        """`kernel` reads the cpuset of a pod's container from its cgroup, as far as there is one to be read."""
        self._core = core
        self._runtime = runtime
        self._admission = admission
        self._updater = updater
        self._record_node = record_node
        self._kernel: Kernel = kernel or (lambda _pod, _id: {})
        self._told: set[Drift] = set()
        self.found: tuple[Drift, ...] = ()
        """What the last comparison found."""
        self.counts: Counter[str] = Counter()
        """Of all comparisons, by kind."""

    async def compare(self) -> bool:
        """Look at everybody; whether somebody is to be brought back. Asks nothing where nobody is placed."""
        granted = {key: one for key, one in self._admission.grants().items() if CPUS in one.properties}
        if not granted and not self.found:
            return False
        found: list[Drift] = []
        for key, grant in granted.items():
            found += await self._of_ours(key, grant, granted)
        repaired = bool(found)
        found += await self._of_strangers(granted)
        self._tell(found)
        return repaired

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """A condition of the Node once something was found: type → (status, reason, message)."""
        if self.found:
            return {CONDITION: ("False", EVENT, "; ".join(map(str, self.found)))}
        well = "every container has the CPUs that it was granted"
        return {CONDITION: ("True", "AsGranted", well)} if self.counts else {}

    def _tell(self, found: Iterable[Drift]) -> None:
        """Once for each thing that is wrong, until it is well again."""
        self.found = tuple(found)
        for drift in self.found:
            if drift not in self._told:
                self.counts[drift.kind] += 1
                self._record_node(EVENT, str(drift))
        self._told = set(self.found)

    async def _of_ours(self, key: ContainerKey, grant: Grant, granted: Mapping[ContainerKey, Grant]) -> list[Drift]:
        pod, identity = self._core.pods.get(key[0]), self._updater.up_to_date(key, grant)
        if pod is None or identity is None:
            return []
        resources = await self._resources(identity)
        # Whoever was told something meanwhile is looked at next time.
        if resources is None or self._updater.up_to_date(key, grant) != identity or self._admission_changed(key, grant):
            return []
        told = {CPUS: resources.cpuset_cpus, MEMS: resources.cpuset_mems}
        has = {**{kind: text for kind, text in told.items() if text}, **self._kernel(pod.admitted, identity)}
        wrong = drifts(f"container {key[1]} of pod {pod.key}", grant, has, self._owned(granted, key[0]))
        if wrong:
            resources.cpuset_cpus, resources.cpuset_mems = has.get(CPUS, ""), has.get(MEMS, "")
            self._updater.found(key, resources)
        return wrong

    def _admission_changed(self, key: ContainerKey, grant: Grant) -> bool:
        now = self._admission.grants().get(key)
        return now is None or now.properties != grant.properties

    async def _of_strangers(self, granted: Mapping[ContainerKey, Grant]) -> list[Drift]:
        """Containers in the runtime that belong to no pod that this node knows."""
        owned = self._owned(granted, "")
        found = []
        for one in await self._runtime.list_containers() if owned else ():
            if one.state != cri.CONTAINER_RUNNING or one.labels.get(POD_UID_LABEL) in self._core.pods:
                continue
            resources = await self._resources(one.id)
            if resources is None:
                continue
            who = f"container {one.metadata.name} ({one.id[:13]})"
            drift = trespass(who, {CPUS: resources.cpuset_cpus}, self._admission.machine.online, owned)
            found += [drift] if drift is not None else []
        return found

    async def _resources(self, identity: str) -> cri.LinuxContainerResources | None:
        try:
            status = (await self._runtime.container_status(identity)).status
        except CallError:
            return None  # gone, or the runtime does not say: nothing is known
        return status.resources.linux if status.state == cri.CONTAINER_RUNNING else None

    def _owned(self, granted: Mapping[ContainerKey, Grant], but: str) -> dict[str, CpuSet]:
        found = {}
        for (uid, name), grant in granted.items():
            if grant.exclusive and uid != but and (pod := self._core.pods.get(uid)) is not None:
                found[f"{pod.key}/{name}"] = grant.exclusive
        return found
