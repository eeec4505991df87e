"""Class manager: how many pods and containers hold each QoS class of this node (KEP-3008, "Kubelet").

Counting and fit are `rules.qos.classes`; this keeps the ledger. The runtime enforces classes, so grants are empty:
which class a container gets is written into its CRI configuration (`node.cri.configs`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from kubeqos.model.objects import PodSpec
from kubeqos.plugins.managers import NOTHING, AdmittedPod, ContainerKey, ContainerRef, Grant, NodeResource, Refusal
from kubeqos.rules.defaulting.runtimeclass import DEFAULT_HANDLER, handler_of
from kubeqos.rules.qos.allocated import held_spec, with_classes_of
from kubeqos.rules.qos.classes import Catalog, ClassKey, Level, demand, fit
from kubeqos.topology.alignment.hints import Hint, Offer

REASON = "QOSResourcesUnavailable"
AFTER_RESIZE = ""
"""The key of what pods hold after a resize, among the uids of a saved state."""


class ClassManager:
    """The capacity ledger of QoS classes."""

    name = "classes"

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        """What the runtime offers now."""
        self._held: dict[str, dict[ClassKey, int]] = {}
        self._after_resize: dict[str, dict[ClassKey, int]] = {}
        """What pods hold once their containers have been told of a resize, where that is less."""
        self._used: Counter[ClassKey] = Counter()

    def take_over(self, found: Catalog) -> Catalog:
        """The runtime offers this from now on; the answer is what it offered before."""
        before, self.catalog = self.catalog, found
        return before

    def used(self) -> Counter[ClassKey]:
        """Assignments of every class on this node."""
        return +self._used

    def _hold(self, pod_uid: str, held: dict[ClassKey, int] | None) -> None:
        """Make this what a pod holds; None lets it go."""
        self._used.subtract(self._held.pop(pod_uid, {}))
        self._after_resize.pop(pod_uid, None)
        if held is not None:
            self._held[pod_uid] = held
            self._used.update(held)

    def unavailable(self, pod: AdmittedPod) -> list[str]:
        """What a pod that runs here asks for and the runtime no longer offers."""
        problems = fit(pod.view.spec, self.catalog, {}, handler_of(pod.view))
        return [problem.reason for problem in problems if not problem.resolvable]

    def lost(self, pod_uid: str, before: Catalog) -> str:
        """What a pod holds and nobody new gets any more, said once: when it has just gone from what is on offer."""

        def offered(one: Catalog, name: str, cls: str) -> bool:
            return name in one.types and cls in one.types[name].classes

        gone = [
            f"{name}={cls}"
            for (_, name, cls) in self._held.get(pod_uid, {})
            if offered(before, name, cls) and not offered(self.catalog, name, cls)
        ]
        return f"{', '.join(gone)} is no longer on offer here; the pod keeps it until it ends" if gone else ""

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        return ()

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        """All classes of a pod are taken with its first container: they are counted per pod (ruling 3)."""
        if pod.uid in self._held:
            return NOTHING
        return self._take(pod, held_spec(pod.view)) or NOTHING

    def _take(self, pod: AdmittedPod, holds: PodSpec) -> Refusal | None:
        """Let a pod have the classes that it asks for, beside those that it still has (`rules.qos.allocated`)."""
        mine = self._held.get(pod.uid, {})
        others = {key: count - mine.get(key, 0) for key, count in self._used.items()}
        handler = handler_of(pod.view) if pod.view.spec.runtime_class_name else DEFAULT_HANDLER
        problems = fit(pod.view.spec, self.catalog, others, handler)
        if problems:
            return Refusal(REASON, "; ".join(problem.reason for problem in problems))
        container_level = {kind.name for kind in self.catalog.of_level(Level.CONTAINER)}
        asked, held = (demand(spec, container_level) for spec in (pod.view.spec, holds))
        self._hold(pod.uid, held)
        if held != asked:
            self._after_resize[pod.uid] = asked
        return None

    def resize_done(self, pod_uid: str) -> None:
        """What a pod had before it was resized is free again: none of its containers is in it any more."""
        if pod_uid in self._after_resize:
            self._hold(pod_uid, self._after_resize[pod_uid])

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Another class of a resource that may change while a container runs."""
        immutable = [name for name in _changed(old, new) if not self._mutable(name)]
        if immutable:
            text = f"QoS resource {immutable[0]} cannot be changed while the pod runs"
            return Refusal("Infeasible", text)
        refusal = self._take(new, with_classes_of(new.view.spec, old.view.spec))
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
        held = {uid: _listed(counts) for uid, counts in self._held.items()}
        after = {uid: _listed(counts) for uid, counts in self._after_resize.items()}
        return {**held, AFTER_RESIZE: after} if after else held

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        repaired = []
        saved = dict(state or {})
        after = saved.pop(AFTER_RESIZE, {})
        for uid, held in saved.items():
            if uid in running:
                self._hold(uid, _counts(held))
                if uid in after:
                    self._after_resize[uid] = _counts(after[uid])
            else:
                repaired.append(f"dropped the classes of pod {uid}, which is gone")
        return repaired

    def node_resources(self) -> Sequence[NodeResource]:
        return ()

    def validate(self) -> list[str]:
        total: Counter[ClassKey] = Counter()
        for held in self._held.values():
            total.update(held)
        wrong = [
            f"pod {uid} is being resized and holds nothing" for uid in self._after_resize.keys() - self._held.keys()
        ]
        wrong += [f"{count} of {key} are held and not counted" for key, count in (total - self._used).items()]
        return wrong + [f"{count} of {key} are counted and not held" for key, count in (self._used - total).items()]


def _listed(counts: Mapping[ClassKey, int]) -> list[list[Any]]:
    return [[*key, count] for key, count in counts.items()]


def _counts(listed: Any) -> dict[ClassKey, int]:
    return {(Level(level), name, cls): count for level, name, cls, count in listed}


def _changed(old: AdmittedPod, new: AdmittedPod) -> list[str]:
    """Resources whose requested class differs between two versions of a pod."""

    def asked(pod: AdmittedPod) -> set[tuple[str, str, str]]:
        spec = pod.view.spec
        found = {("", request.name, request.class_) for request in spec.qos_resources}
        for container in (*spec.init_containers, *spec.containers):
            found |= {(container.name, one.name, one.class_) for one in container.resources.qos_resources}
        return found

    return sorted({name for _, name, _ in asked(old) ^ asked(new)})
