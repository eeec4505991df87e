"""Memory manager, policy Static: memory and huge pages of Guaranteed pods come from NUMA nodes of their own.

The account is `topology.memory.MemoryState`, an immutable value; this keeps the present one, and the requests in the
order in which they were granted, from which it can always be derived again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.model.annotations.topologysummary import ByNuma
from kubeqos.model.cpuset import NumaSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.managers import (
    NOTHING,
    AdmittedPod,
    ContainerKey,
    ContainerKind,
    ContainerRef,
    Grant,
    LiveContainer,
    NodeResource,
    Refusal,
)
from kubeqos.rules.qos.podqos import QosClass, effective_requests
from kubeqos.topology.alignment.hints import Hint, Offer
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.memory import MEMORY, MemoryHold, MemoryState

MEMORY_ANNOTATION = "kubeqos.io/numa-memory"
"""On a container in the runtime: what it holds on which NUMA nodes."""

_KINDS = {
    ContainerKind.INIT: MemoryHold.INIT,
    ContainerKind.SIDECAR: MemoryHold.SIDECAR,
    ContainerKind.APP: MemoryHold.MAIN,
}
Granted = tuple[MemoryHold, dict[str, int], NumaSet]


class MemoryManager:
    """NUMA memory of one machine."""

    name = "memory"

    def __init__(self, machine: Machine, reserved: Mapping[int, Mapping[str, int]] | None = None) -> None:
        self._empty = MemoryState.of(machine, reserved)
        self._state = self._empty
        self._granted: dict[ContainerKey, Granted] = {}
        self._grants: dict[ContainerKey, Grant] = {}

    def numa_of(self, pod_uid: str, container: str) -> NumaSet | None:
        granted = self._granted.get((pod_uid, container))
        return granted[2] if granted else None

    def blocks(self, pod_uid: str, container: str) -> dict[str, int]:
        """Bytes of each resource that a container holds."""
        granted = self._granted.get((pod_uid, container))
        return dict(granted[1]) if granted else {}

    def free_by_node(self) -> dict[str, ByNuma]:
        """A NUMA node that serves together with others has nothing for who wants it alone."""
        found: dict[str, ByNuma] = {}
        for numa, node in self._state.nodes.items():
            for resource, size in node.free.items():
                found.setdefault(resource, {})[numa] = size if len(node.group) == 1 else 0
        return found

    def held_by_node(self) -> dict[str, dict[str, ByNuma]]:
        """What each pod holds; of a group of NUMA nodes that serve it together, by the first of them."""
        found: dict[str, dict[str, ByNuma]] = {}
        for uid, name in self._granted:
            for block in self._state.blocks(uid, name):
                node = next(iter(block.numa))
                held = found.setdefault(uid, {}).setdefault(block.resource, {})
                held[node] = held.get(node, 0) + block.size
        return found

    def allocatable(self) -> dict[int, dict[str, int]]:
        """What each NUMA node could give if nothing were taken."""
        return {numa: dict(node.allocatable) for numa, node in self._empty.nodes.items()}

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        request = _request(pod, container)
        if not request:
            return ()
        hints = self._state.hints(pod.uid, container.name, request)
        return [Offer(self.name, resource, hints.get(resource, ())) for resource in request]

    async def pod_offers(self, pod: AdmittedPod) -> Sequence[Offer]:
        if pod.qos is not QosClass.GUARANTEED:
            return ()
        request = _amounts(effective_requests(pod.view.spec))
        hints = self._state.hints(pod.uid, "", request)
        return [Offer(self.name, resource, hints.get(resource, ())) for resource in request]

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        key = (pod.uid, container.name)
        request = _request(pod, container)
        if request and key not in self._granted:
            refused = self._take(key, _KINDS[container.kind], request, hint)
            if refused is not None:
                text = f"Allocate failed due to {refused}, which is unexpected"
                return Refusal("UnexpectedAdmissionError", text)
        return self.grant(container) or NOTHING

    def _take(self, key: ContainerKey, kind: MemoryHold, request: dict[str, int], hint: Hint) -> Unsatisfiable | None:
        after = self._state.allocate(*key, request, hint, kind)
        if isinstance(after, Unsatisfiable):
            return after
        self._state = after
        blocks = after.blocks(*key)
        self._granted[key] = (kind, request, blocks[0].numa)
        self._grants[key] = _grant(request, blocks[0].numa)
        return None

    async def release(self, pod_uid: str) -> None:
        for key in [key for key in self._granted if key[0] == pod_uid]:
            self._state = self._state.release(*key)
            del self._granted[key], self._grants[key]

    def grant(self, container: ContainerRef) -> Grant | None:
        return self._grants.get((container.pod_uid, container.name))

    def grants(self) -> Mapping[ContainerKey, Grant]:
        return self._grants

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        if any(_request(old, ref) != _request(new, ref) for ref, _ in old.containers()):
            text = "Resize is infeasible for Guaranteed Pods alongside Memory Manager static policy"
            return Refusal("Infeasible", text)
        return None

    def adopt(self, pod: AdmittedPod, container: ContainerRef, live: LiveContainer) -> bool:
        key = (pod.uid, container.name)
        try:
            found = decode_json(live.annotations.get(MEMORY_ANNOTATION, "").encode())
        except JsonError:
            return False
        if key in self._granted or not isinstance(found, dict):
            return False
        hint = Hint(NumaSet.parse(found["numa"]), True)
        return self._take(key, _KINDS[container.kind], found["bytes"], hint) is None

    def save(self) -> Any:
        return [[*key, kind.value, request, _text(numa)] for key, (kind, request, numa) in self._granted.items()]

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        repaired = []
        for uid, name, kind, request, numa in state or ():
            if uid not in running:
                repaired.append(f"returned the memory of {uid}/{name}, whose pod is gone")
                continue
            refused = self._take((uid, name), MemoryHold(kind), request, Hint(NumaSet.parse(numa), True))
            if refused is not None:
                repaired.append(f"dropped the memory of {uid}/{name}: {refused}")
        return repaired

    def node_resources(self) -> Sequence[NodeResource]:
        return ()

    def validate(self) -> list[str]:
        return self._state.validate()


def _grant(request: Mapping[str, int], numa: NumaSet) -> Grant:
    annotation = encode_json({"numa": str(numa), "bytes": request}).decode()
    because = f"memory of NUMA node {numa}"
    return Grant({"cpuset_mems": str(numa)}, annotations={MEMORY_ANNOTATION: annotation}, because=because)


@lru_cache(maxsize=4096)
def _text(numa: NumaSet) -> str:
    """The whole ledger is written for every pod, and most of it is what was written before."""
    return str(numa)


def _request(pod: AdmittedPod, container: ContainerRef) -> dict[str, int]:
    """Bytes of memory and huge pages that a container of a Guaranteed pod gets from its own nodes."""
    if pod.qos is not QosClass.GUARANTEED:
        return {}
    spec = pod.view.spec
    view = (spec.containers if container.kind is ContainerKind.APP else spec.init_containers)[container.index]
    return _amounts(view.resources.requests)


def _amounts(resources: Mapping[str, Any]) -> dict[str, int]:
    found = {
        name: amount.value() for name, amount in resources.items() if name == MEMORY or name.startswith("hugepages-")
    }
    return {name: size for name, size in found.items() if size}
