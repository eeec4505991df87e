"""CPU manager, policy static: exclusive CPUs for containers of Guaranteed pods that ask for whole CPUs.

Allocation is `topology.cpus`, hints are `topology.alignment.cpuhints`; this keeps who owns what. Everyone else runs in
the shared pool: all online CPUs but the exclusive ones (and, with strict reservation, but the reserved ones). A
container that starts after an init container of its pod may take over that one's CPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kubeqos.errors import InputError
from kubeqos.model.annotations.topologysummary import ByNuma
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ContainerView
from kubeqos.model.quantity import Quantity
from kubeqos.plugins.managers import (
    AdmittedPod,
    ContainerKey,
    ContainerKind,
    ContainerRef,
    CpuHolding,
    Grant,
    LiveContainer,
    NodeResource,
    Refusal,
)
from kubeqos.rules.qos.podqos import QosClass, effective_requests
from kubeqos.topology.alignment.cpuhints import cpu_hints
from kubeqos.topology.alignment.hints import Hint, Offer
from kubeqos.topology.answers import Unsatisfiable, Violation
from kubeqos.topology.cpus import CpuOptions, allocate_cpus

EXCLUSIVE_ANNOTATION = "kubeqos.io/exclusive-cpus"
"""On a container in the runtime: the CPUs it owns, so that they can be found again without our own files."""


class CpuManager:
    """Exclusive CPUs and the shared pool of one machine."""

    name = "cpu"

    def __init__(
        self,
        machine: Machine,
        reserved: CpuSet,
        options: CpuOptions | None = None,
        *,
        strict_reservation: bool = False,
    ) -> None:
        self.machine = machine
        self.reserved = reserved
        self.options = options or CpuOptions()
        self._strict = strict_reservation
        self._exclusive: dict[ContainerKey, CpuSet] = {}
        self._kinds: dict[ContainerKey, ContainerKind] = {}
        self._shared: dict[ContainerKey, ContainerRef] = {}
        self._withheld: dict[ContainerKey, CpuSet] = {}
        """CPUs of containers that own them by a manager which this node no longer has."""

    # ---- Views

    @property
    def owned(self) -> CpuSet:
        """CPUs that belong to some pod alone."""
        return CpuSet.union((*self._exclusive.values(), *self._withheld.values()))

    @property
    def shared(self) -> CpuSet:
        """Where everyone without CPUs of their own runs."""
        return self.machine.online - self.owned - (self.reserved if self._strict else NO_CPUS)

    @property
    def free(self) -> CpuSet:
        """What can still be made exclusive."""
        return self.machine.online - self.owned - self.reserved

    def exclusive_of(self, pod_uid: str, container: str) -> CpuSet:
        return self._exclusive.get((pod_uid, container), NO_CPUS)

    def cpus_of(self, container: ContainerRef) -> CpuHolding | None:
        key = (container.pod_uid, container.name)
        if (own := self._exclusive.get(key)) is not None:
            return CpuHolding(own, own)
        return CpuHolding(self.shared) if key in self._shared else None

    def cpu_pools(self) -> Mapping[str, CpuSet]:
        return {"reserved": self.reserved, "shared": self.shared - self.reserved}

    def free_by_node(self) -> dict[str, ByNuma]:
        return {"cpu": self._by_node(self.free)}

    def held_by_node(self) -> dict[str, dict[str, ByNuma]]:
        return {uid: {"cpu": self._by_node(cpus)} for uid, cpus in self._owned_by_pod().items()}

    def _owned_by_pod(self) -> dict[str, CpuSet]:
        found: dict[str, CpuSet] = {}
        for (uid, _), cpus in self._exclusive.items():
            found[uid] = found.get(uid, NO_CPUS) | cpus
        return found

    def _by_node(self, cpus: CpuSet) -> ByNuma:
        return {node: len(inside & cpus) for node, inside in self.machine.numa_cpus.items()}

    # ---- ResourceManager

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        count = exclusive_count(pod, _view(pod, container))
        if not count:
            return ()
        held = self._exclusive.get((pod.uid, container.name))
        if held is not None:
            return (Offer(self.name, "cpu", (Hint(self.machine.numa_of(held), True),)),)
        return (Offer(self.name, "cpu", self._hints(count, self._reusable(pod.uid))),)

    async def pod_offers(self, pod: AdmittedPod) -> Sequence[Offer]:
        if not any(exclusive_count(pod, view) for _, view in pod.containers()):
            return ()
        count = effective_requests(pod.view.spec).get("cpu", Quantity.ZERO).value()
        return (Offer(self.name, "cpu", self._hints(count, self._reusable(pod.uid))),)

    def _hints(self, count: int, reusable: CpuSet) -> tuple[Hint, ...]:
        align = self.options.align_by_socket
        return cpu_hints(self.machine, self.free, count, reusable=reusable, align_by_socket=align)

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        key = (pod.uid, container.name)
        if key not in self._exclusive and key not in self._shared:
            count = exclusive_count(pod, _view(pod, container))
            refusal = self._take(key, container, count, hint) if count else None
            if refusal is not None:
                return refusal
            if not count:
                if not self.shared:
                    return Refusal("UnexpectedAdmissionError", "the shared pool has no CPUs left")
                self._shared[key] = container
        granted = self.grant(container)
        assert granted is not None
        return granted

    def _take(self, key: ContainerKey, container: ContainerRef, count: int, hint: Hint) -> Refusal | None:
        reusable = self._reusable(key[0])
        free = self.free | reusable
        near = None if hint.numa is None else self.machine.cpus_in(hint.numa)
        if reusable:
            # What an init container held goes first: it must not stay idle beside the pod that owns it.
            near = reusable if near is None or len(reusable) >= count else near | reusable
        answer = allocate_cpus(self.machine, free, count, self.options, aligned=near)
        if isinstance(answer, Unsatisfiable):
            aligned = any(isinstance(one, Violation) and one.rule.startswith("SMT") for one in answer.reasons)
            if aligned:
                return Refusal("SMTAlignmentError", str(answer))
            return Refusal("UnexpectedAdmissionError", f"Allocate failed due to {answer}, which is unexpected")
        if self._shared and not self.shared - answer.cpus:
            return Refusal("UnexpectedAdmissionError", "the shared pool would be left without CPUs")
        self._exclusive[key] = answer.cpus
        self._kinds[key] = container.kind
        return None

    def _reusable(self, pod_uid: str) -> CpuSet:
        """CPUs of the pod's init containers that no later container of it has taken over."""
        left, taken = NO_CPUS, NO_CPUS
        for key, cpus in self._exclusive.items():
            if key[0] == pod_uid:
                if self._kinds[key] is ContainerKind.INIT:
                    left |= cpus
                else:
                    taken |= cpus
        return left - taken

    def withhold(self, container: ContainerRef, cpus: CpuSet) -> None:
        key = container.pod_uid, container.name
        if key not in self._exclusive:
            self._withheld[key] = cpus & self.machine.online

    async def release(self, pod_uid: str) -> None:
        for table in (self._exclusive, self._kinds, self._shared, self._withheld):
            for key in [key for key in table if key[0] == pod_uid]:
                del table[key]

    def grant(self, container: ContainerRef) -> Grant | None:
        key = (container.pod_uid, container.name)
        cpus = self._exclusive.get(key)
        if cpus is not None:
            return _exclusive_grant(cpus)
        return _pool_grant(self.shared) if key in self._shared else None

    def grants(self) -> Mapping[ContainerKey, Grant]:
        """Containers of the shared pool follow it; who owns CPUs keeps them."""
        found = {key: _exclusive_grant(cpus) for key, cpus in self._exclusive.items()}
        if self._shared:
            found.update(dict.fromkeys(self._shared, _pool_grant(self.shared)))
        return found

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        before = [exclusive_count(old, view) for _, view in old.containers()]
        after = [exclusive_count(new, view) for _, view in new.containers()]
        if before != after:
            text = "Resize is infeasible for Guaranteed Pods alongside CPU Manager static policy"
            return Refusal("Infeasible", text)
        return None

    def adopt(self, pod: AdmittedPod, container: ContainerRef, live: LiveContainer) -> bool:
        text = live.annotations.get(EXCLUSIVE_ANNOTATION, "")
        try:
            cpus = CpuSet.parse(text)
        except InputError:
            return False
        key = (pod.uid, container.name)
        if not cpus or key in self._exclusive or not cpus <= self.free | self._reusable(pod.uid):
            return False
        self._exclusive[key] = cpus
        self._kinds[key] = container.kind
        return True

    # ---- State

    def save(self) -> Any:
        return {
            "exclusive": [[*key, self._kinds[key], _text(cpus)] for key, cpus in self._exclusive.items()],
            "shared": [[*key, ref.kind.value, ref.index] for key, ref in self._shared.items()],
        }

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        repaired = []
        for uid, name, kind, text in (state or {}).get("exclusive", ()):
            cpus = CpuSet.parse(text)
            if uid not in running:
                repaired.append(f"returned CPUs {cpus} of {uid}/{name}, whose pod is gone")
            elif not cpus <= self.machine.online:
                repaired.append(f"dropped CPUs {cpus} of {uid}/{name}: {cpus - self.machine.online} are not online")
            else:
                self._exclusive[uid, name] = cpus
                self._kinds[uid, name] = ContainerKind(kind)
        for uid, name, kind, index in (state or {}).get("shared", ()):
            if uid in running:
                self._shared[uid, name] = ContainerRef(uid, name, ContainerKind(kind), index)
        return repaired

    def node_resources(self) -> Sequence[NodeResource]:
        return ()

    def validate(self) -> list[str]:
        wrong = []
        seen: dict[int, ContainerKey] = {}
        for key, cpus in self._exclusive.items():
            if cpus & self.reserved:
                wrong.append(f"{key} owns reserved CPUs {cpus & self.reserved}")
            for cpu in cpus:
                other = seen.setdefault(cpu, key)
                if other[0] != key[0]:
                    wrong.append(f"CPU {cpu} is owned by {other} and by {key}")
        if self._shared and not self.shared:
            wrong.append("containers run in the shared pool, which has no CPUs")
        return wrong


@lru_cache(maxsize=1024)
def _exclusive_grant(cpus: CpuSet) -> Grant:
    because, annotations = f"exclusive CPUs {cpus}", {EXCLUSIVE_ANNOTATION: str(cpus)}
    return Grant({"cpuset_cpus": str(cpus)}, annotations=annotations, because=because, exclusive=cpus, unthrottled=True)


@lru_cache(maxsize=64)
def _pool_grant(pool: CpuSet) -> Grant:
    return Grant({"cpuset_cpus": str(pool)}, because="shared pool")


@lru_cache(maxsize=4096)
def _text(cpus: CpuSet) -> str:
    """The whole ledger is written for every pod, and most of it is what was written before."""
    return str(cpus)


def exclusive_count(pod: AdmittedPod, container: ContainerView) -> int:
    """How many CPUs a container gets for itself: whole CPUs of Guaranteed pods, else none."""
    if pod.qos is not QosClass.GUARANTEED:
        return 0
    request = container.resources.requests.get("cpu", Quantity.ZERO)
    return request.value() if request.is_integer else 0


def _view(pod: AdmittedPod, container: ContainerRef) -> ContainerView:
    spec = pod.view.spec
    return (spec.containers if container.kind is ContainerKind.APP else spec.init_containers)[container.index]
