"""Class manager: how many pods and containers hold each QoS class of this node (KEP-3008, "Kubelet").

Counting and fit are `rules.classes`; this keeps the ledger. The runtime enforces classes, so grants are empty: which
class a container gets is written into its CRI configuration (`node.cri.configs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kubeqos.plugins.managers import NOTHING, AdmittedPod, ContainerKey, ContainerRef, Grant, NodeResource, Refusal
from kubeqos.rules.classes import Catalog, ClassKey, Level, demand, fit
from kubeqos.topology.alignment.hints import Hint, Offer

REASON = "QOSResourcesUnavailable"


class ClassManager:
    """The capacity ledger of QoS classes."""

    name = "classes"

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        self._held: dict[str, dict[ClassKey, int]] = {}
        self._used: Counter[ClassKey] = Counter()

    def used(self) -> Counter[ClassKey]:
        """Assignments of every class on this node."""
        return +self._used

    def _hold(self, pod_uid: str, held: dict[ClassKey, int] | None) -> None:
        """Make this what a pod holds; None lets it go."""
        self._used.subtract(self._held.pop(pod_uid, {}))
        if held is not None:
            self._held[pod_uid] = held
            self._used.update(held)

    def unavailable(self, pod: AdmittedPod) -> list[str]:
        """What a pod that runs here asks for and the runtime no longer offers."""
        return [problem.reason for problem in fit(pod.view.spec, self.catalog, {}) if not problem.resolvable]

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        return ()

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        """All classes of a pod are taken with its first container: they are counted per pod (ruling 3)."""
        if pod.uid in self._held:
            return NOTHING
        return self._take(pod) or NOTHING

    def _take(self, pod: AdmittedPod) -> Refusal | None:
        mine = self._held.get(pod.uid, {})
        others = {key: count - mine.get(key, 0) for key, count in self._used.items()}
        problems = fit(pod.view.spec, self.catalog, others)
        if problems:
            return Refusal(REASON, "; ".join(problem.reason for problem in problems))
        container_level = {kind.name for kind in self.catalog.of_level(Level.CONTAINER)}
        self._hold(pod.uid, demand(pod.view.spec, container_level))
        return None

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Another class of a resource that may change while a container runs."""
        immutable = [name for name in _changed(old, new) if not self._mutable(name)]
        if immutable:
            text = f"QoS resource {immutable[0]} cannot be changed while the pod runs"
            return Refusal("Infeasible", text)
        refusal = self._take(new)
        return None if refusal is None else Refusal("Deferred", refusal.message, retry=True)

    def _mutable(self, name: str) -> bool:
        kind = self.catalog.types.get(name)
        return kind is not None and kind.mutable

    async def release(self, pod_uid: str) -> None:
        self._hold(pod_uid, None)

    def grant(self, container: ContainerRef) -> Grant | None:
        return NOTHING if container.pod_uid in self._held else None

    def grants(self) -> Mapping[ContainerKey, Grant]:
        return {}

    def save(self) -> Any:
        return {uid: [[*key, count] for key, count in held.items()] for uid, held in self._held.items()}

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        repaired = []
        for uid, held in (state or {}).items():
            if uid in running:
                self._hold(uid, {(Level(level), name, cls): count for level, name, cls, count in held})
            else:
                repaired.append(f"dropped the classes of pod {uid}, which is gone")
        return repaired

    def node_resources(self) -> Sequence[NodeResource]:
        return ()

    def validate(self) -> list[str]:
        total: Counter[ClassKey] = Counter()
        for held in self._held.values():
            total.update(held)
        wrong = [f"{count} of {key} are held and not counted" for key, count in (total - self._used).items()]
        return wrong + [f"{count} of {key} are counted and not held" for key, count in (self._used - total).items()]


def _changed(old: AdmittedPod, new: AdmittedPod) -> list[str]:
    """Resources whose requested class differs between two versions of a pod."""

    def asked(pod: AdmittedPod) -> set[tuple[str, str, str]]:
        spec = pod.view.spec
        found = {("", request.name, request.class_) for request in spec.qos_resources}
        for container in (*spec.init_containers, *spec.containers):
            found |= {(container.name, one.name, one.class_) for one in container.resources.qos_resources}
        return found

    return sorted({name for _, name, _ in asked(old) ^ asked(new)})
