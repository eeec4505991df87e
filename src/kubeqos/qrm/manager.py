"""The QoS Resource Manager: hands out whatever plugins manage, through the contract of `plugins.managers`.

The node agent owns the transaction: when a container is refused it releases the whole pod, which reaches every plugin.
A grant may rest on changes of other containers, which are in `grants` at once; the agent sees to these before it
starts the new container. The agent calls `reconcile` every period (KEP-3461: 3 s), outside of its lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeqos.errors import RemoteError
from kubeqos.model.annotations.topologysummary import Division, Down
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.plugins.distrust import RefusedAnswers
from kubeqos.plugins.managers import (
    NOTHING,
    AdmittedPod,
    ContainerKey,
    ContainerRef,
    CpuHolding,
    Grant,
    LiveContainer,
    NodeResource,
    Refusal,
)
from kubeqos.qrm.allocating import REASON, Allocator, Unit
from kubeqos.qrm.allocations import Allocations
from kubeqos.qrm.answers import CPUS, Nonsense, told
from kubeqos.qrm.asking import Placement, marks_of, why_skipped, with_marks, wrong_annotation
from kubeqos.qrm.edge.capacity import Capacity
from kubeqos.qrm.endpoint import options_from_json
from kubeqos.qrm.endpoints import Endpoints
from kubeqos.qrm.metrics import Metrics
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.reconcile import Reconciler
from kubeqos.qrm.settings import Event, EventSink, OnError, QrmSettings
from kubeqos.topology.alignment.hints import Hint, Merged, Offer, Scope

START_REASON = "PreStartHookError"
CONDITION = "ResourcePluginsReady"


class QosResourceManager:
    """All resource plugins of one node as one manager."""

    name = "qrm"

    def __init__(
        self,
        settings: QrmSettings | None = None,
        machine: Machine | None = None,
        *,
        metrics: Metrics | None = None,
        emit: EventSink = lambda _event: None,
        clock: Callable[[], float] = time.monotonic,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`changed` is called when the node has to say something else of its plugins."""
        self.settings = settings or QrmSettings()
        self.machine = machine
        self.metrics = metrics or Metrics()
        self.emit = emit
        self.reconcile_seconds = self.settings.reconcile_seconds
        self.refused = RefusedAnswers(
            lambda plugin, method: self.metrics.refused_answers.labels(plugin, method).inc(), self._tell_refused
        )
        self.endpoints = Endpoints(self.settings, self.metrics, self.refused, machine, clock, changed)
        self.allocations = Allocations()
        self._pods: dict[str, AdmittedPod] = {}
        self._kept_off: dict[ContainerKey, tuple[Grant, Grant]] = {}
        """Grants without CPUs, and the same with those that nobody owns."""
        self._reconciled: tuple[int, frozenset[str]] = -1, frozenset()
        """The ledger's revision after the last period, and whose grace was over then."""
        self._admitting: dict[str, int] = {}
        self._retired: set[str] = set()
        """Plugins that nobody waits for although the settings expect them; one that comes back is like any other."""
        self.reconciler = Reconciler(self.allocations, self.endpoints, self._pods, machine, emit, self._busy)
        self.allocator = Allocator(self.name, self.reconciler)

    def _tell_refused(self, plugin: str, what: str) -> None:
        self.emit(Event("ResourcePluginAnswer", f"plugin {plugin} is in the wrong: {what}; the last good state stays"))

    def _busy(self) -> Iterable[str]:
        """Pods that plugins may know and the allocations do not, yet."""
        return {*self._admitting, *self.allocator.patience.pods()}

    # ---- Admission

    def peers(self, pod: AdmittedPod) -> frozenset[str]:
        """The plugins that this pod's containers ask for something."""
        if self._left_alone(pod):
            return frozenset()
        catalogue = self.endpoints.catalogue()
        return frozenset(one.plugin for ref, _ in pod.containers() for one in catalogue.questions(pod, ref))

    def offers_stand(self, pod: AdmittedPod) -> bool:
        return self.allocator.offers_stand(pod.uid)

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        return () if self._left_alone(pod) else await self.allocator.offers(pod, container)

    async def pod_offers(self, pod: AdmittedPod) -> Sequence[Offer]:
        return () if self._left_alone(pod) else await self.allocator.pod_offers(pod)

    def _left_alone(self, pod: AdmittedPod) -> bool:
        return bool(why_skipped(pod, self.settings.skip) or wrong_annotation(pod))

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        outcome = await self._take(Unit(pod, (container,), Placement(hint)))
        return outcome if isinstance(outcome, Refusal) else outcome[container.name]

    async def allocate_unit(
        self, pod: AdmittedPod, containers: Sequence[ContainerRef], merged: Merged, scope: Scope
    ) -> Mapping[str, Grant] | Refusal:
        return await self._take(Unit(pod, tuple(containers), Placement(merged.hint, merged.by_resource), scope))

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Ask plugins for what a changed pod needs, where it is; a refusal leaves everything as it was."""
        units = list(self._units(new))
        for done, unit in enumerate(units):
            outcome = await self._take(unit)
            if isinstance(outcome, Refusal):
                for changed in units[: done + 1]:
                    await self._take(replace(changed, pod=old))
                return Refusal("Deferred" if outcome.retry else "Infeasible", outcome.message, outcome.retry)
        return None

    def _units(self, pod: AdmittedPod) -> Iterator[Unit]:
        """What to ask again for a pod: the whole of it where a plugin gave it as a whole, else each container."""
        holdings = [holding for ref, _ in pod.containers() if (holding := self.allocations.get(pod.uid, ref.name))]
        if any(holding.whole for holding in holdings):
            refs = tuple(holding.ref for holding in holdings)
            yield Unit(pod, refs, holdings[0].placement, Scope.POD, again=True)
            return
        for holding in holdings:
            yield Unit(pod, (holding.ref,), holding.placement, again=True)

    async def _take(self, unit: Unit) -> dict[str, Grant] | Refusal:
        """Allocate some containers of a pod, or none of them."""
        pod = unit.pod
        if why_skipped(pod, self.settings.skip):
            return {ref.name: NOTHING for ref in unit.refs}
        wrong = wrong_annotation(pod)
        if wrong:
            return Refusal(REASON, wrong)
        awaited = self._awaited(unit)
        if awaited:
            return Refusal(REASON, f"the resource plugin for {', '.join(awaited)} is not registered yet", retry=True)
        gone = self._gone(unit)
        if gone:
            return Refusal(
                f"OutOf{gone}", f"Node didn't have enough resource: {gone}, whose resource plugin is retired"
            )
        self._pods[pod.uid] = pod
        self._admitting[pod.uid] = self._admitting.get(pod.uid, 0) + 1
        try:
            return await self.allocator.allocate(unit)
        finally:
            self._admitting[pod.uid] -= 1
            if not self._admitting[pod.uid]:
                del self._admitting[pod.uid]

    async def retire(self, name: str) -> bool:
        """A plugin is not coming back: nobody waits for it, its resources leave the node, what it gave stays."""
        if name in self._retired and self.endpoints.get(name) is None:
            return True
        known = self.endpoints.get(name) is not None or name in self.settings.expected
        if not await self.endpoints.retire(name):
            self._retired.discard(name)
            return False
        self._retired.add(name)
        if known:
            self.emit(Event("ResourcePluginRetired", f"plugin {name} is retired; pods do not wait for it any more"))
        for holding in self.allocations:
            if name in holding.asked and holding.of_plugin(name):
                what = f"container {holding.ref.name} keeps what plugin {name} gave it: the plugin is retired"
                self.emit(Event("ResourcePluginRetired", what, holding.ref.pod_uid))
        self.allocations.revision += 1
        return True

    def _asked(self, unit: Unit) -> set[str]:
        views = [view for ref, view in unit.pod.containers() if ref in unit.refs]
        return {self.settings.names.get(name, name) for view in views for name in view.resources.requests}

    def _awaited(self, unit: Unit) -> list[str]:
        """What containers ask for of plugins that have yet to come: without them they would run unpinned."""
        expected = (self._asked(unit) & self.settings.expected) - self._retired
        return sorted(name for name in expected if self.endpoints.get(name) is None)

    def _gone(self, unit: Unit) -> str:
        """What containers ask for of a plugin that is retired, and nobody else has: the first of it.

        Cores and memory a node has without plugins. Who holds something keeps it.
        """
        if not self._retired or all(self.allocations.get(unit.pod.uid, ref.name) for ref in unit.refs):
            return ""
        gone = [one for one in self._asked(unit) & self._retired if "/" in one and self.endpoints.get(one) is None]
        return min((one for one in gone if self.settings.on_error.get(one) is not OnError.IGNORE), default="")

    async def before_start(
        self, pod: AdmittedPod, container: ContainerRef, container_id: str, cgroup_parent: str
    ) -> Refusal | None:
        """Let plugins that want it prepare for each start of a container; one that cannot holds the start back."""
        if why_skipped(pod, self.settings.skip):
            return None
        meta = pod.view.metadata
        request = pb.PreStartContainerRequest(
            pod_uid=meta.uid, pod_namespace=meta.namespace, pod_name=meta.name, container_name=container.name
        )
        for question in self.endpoints.catalogue().questions(pod, container):
            endpoint = self.endpoints.get(question.plugin)
            if endpoint is None or not endpoint.options.pre_start_required:
                continue
            try:
                await endpoint.call("PreStartContainer", request)
            except RemoteError as error:
                told = f"container {container.name}: {question.resource}: {error.what}"
                if self.settings.on_error.get(question.resource) is not OnError.IGNORE:
                    return Refusal(START_REASON, told, retry=True)
                self.emit(Event("ResourceIgnored", f"{told}; it starts without", pod.uid))
        return None

    async def release(self, pod_uid: str) -> None:
        asked = {plugin for holding in self.allocations.of_pod(pod_uid) for plugin in holding.asked}
        asked |= self.allocator.forget(pod_uid)
        self.allocations.drop(pod_uid)
        self._pods.pop(pod_uid, None)
        # A plugin that is still busy with the pod keeps its answer for the next attempt, see `patience`.
        await self.endpoints.release(pod_uid, asked, but=self.allocator.patience.plugins_of(pod_uid))

    def grant(self, container: ContainerRef) -> Grant | None:
        holding = self.allocations.get(container.pod_uid, container.name)
        grant = holding.grant() if holding is not None else None
        if grant is None or isinstance(grant, Nonsense):
            return None
        return self._off_owned((container.pod_uid, container.name), grant, self._unowned())

    def grants(self) -> Mapping[ContainerKey, Grant]:
        found = {(one.ref.pod_uid, one.ref.name): one.grant() for one in self.allocations}
        self._kept_off = {key: one for key, one in self._kept_off.items() if key in found}
        rest = self._unowned()
        return {
            key: self._off_owned(key, grant, rest) for key, grant in found.items() if not isinstance(grant, Nonsense)
        }

    def _unowned(self) -> str:
        """Where a container runs that no plugin gave CPUs: on what nobody owns; empty when that is anywhere."""
        owned = self.allocations.owned() if self.machine is not None else NO_CPUS
        return str(self.machine.online - owned) if self.machine is not None and owned else ""

    def _off_owned(self, key: ContainerKey, grant: Grant, rest: str) -> Grant:
        if not rest or CPUS in grant.properties:
            return grant
        known = self._kept_off.get(key)
        if known is None or known[0] is not grant or known[1].properties[CPUS] != rest:
            known = self._kept_off[key] = grant, replace(grant, properties={**grant.properties, CPUS: rest})
        return known[1]

    def given(self, container: ContainerRef) -> list[tuple[str, str, str]]:
        holding = self.allocations.get(container.pod_uid, container.name)
        if holding is None:
            return []
        return [(name, told(one), f"plugin {holding.plugins[name]}") for name, one in sorted(holding.resources.items())]

    def cpus_of(self, container: ContainerRef) -> CpuHolding | None:
        holding = self.allocations.get(container.pod_uid, container.name)
        held = holding.held() if holding is not None else None
        return None if held is None else CpuHolding(held.cpus, held.cpus if held.owner else NO_CPUS)

    def cpu_pools(self) -> Mapping[str, CpuSet]:
        return {}  # a plugin's pools are its own affair; `kubeqos plugin cpu pools` shows them

    # ---- Adjustment of running containers

    async def reconcile(self) -> bool:
        """Ask every plugin how things stand; whether the ledger has changed. Runs beside admissions."""
        for plugin, pod_uid in self.allocator.patience.forgotten():
            if pod_uid not in self.allocations:
                self.endpoints.release_later(plugin, pod_uid)
        with self.metrics.reconciles.time():
            await self.reconciler.round()
        before, self._reconciled = self._reconciled, (self.allocations.revision, self.endpoints.expired())
        return self._reconciled != before

    # ---- State

    def save(self) -> Any:
        return {
            "pods": self.allocations.entries(),
            "marks": {
                uid: marks_of(self._pods[uid].view.metadata) for uid in self.allocations.pods if uid in self._pods
            },
            "owed": self.endpoints.unreleased,
            "expired": sorted(self.endpoints.expired()),
            "options": {endpoint.name: endpoint.saved_options() for endpoint in self.endpoints},
            "plugins": {
                endpoint.name: {
                    name: [one.capacity, one.allocatable, one.shown] for name, one in endpoint.capacity.items()
                }
                for endpoint in self.endpoints
            },
        }

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        state = state if isinstance(state, dict) else {}
        repaired = self.allocations.load(state.get("pods"))
        options = state.get("options") or {}
        for name, capacities in (state.get("plugins") or {}).items():
            if name not in self.settings.built_in:
                known = {resource: Capacity(*one) for resource, one in capacities.items()}
                expired = name in (state.get("expired") or ())
                self.endpoints.expect(name, known, options_from_json(options.get(name)), expired=expired)
        for name, pods in (state.get("owed") or {}).items():
            for uid in pods:
                self.endpoints.release_later(name, uid)
        for uid in sorted(self.allocations.pods - running.keys()):
            repaired.append(f"pod {uid} is gone; what it held is given back")
            await self.release(uid)
        marks = state.get("marks") or {}
        self._pods.update({uid: with_marks(pod, marks.get(uid, {})) for uid, pod in running.items()})
        return repaired

    def adopt(self, pod: AdmittedPod, container: ContainerRef, live: LiveContainer) -> bool:
        """Take a running container in by what it was created with and has, when the ledger is lost."""
        if self._left_alone(pod) or not self.allocations.adopt(container, live):
            return False
        self._pods[pod.uid] = pod
        for name in self.allocations.asked(container) - self._retired:
            # Whoever placed this container places everybody: nobody runs anywhere before it is back.
            placed = self.allocations.placed_by(container, name)
            options = pb.ResourcePluginOptions(with_topology_alignment=True, need_reconcile=True, implicit=placed)
            self.endpoints.expect(name, {}, options)
            self.endpoints.withdraw(name, pod.uid)
        return True

    def node_resources(self) -> Sequence[NodeResource]:
        return self.endpoints.node_resources()

    def divisions(self) -> Mapping[str, tuple[Division, Mapping[str, float]]]:
        found = self.endpoints.divided()
        return {name: (one.division, one.requested) for name, one in found.items() if one.division is not None}

    def down(self) -> Sequence[Down]:
        """Plugins that are away, hang or have still to come back after a restart."""
        absent = self.settings.expected - self._retired - {endpoint.name for endpoint in self.endpoints}
        yet = [Down(name, "is not registered yet", resources=(name,)) for name in sorted(absent)]
        return [*self.endpoints.down(), *yet]

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """The health of all plugins as one condition of the Node: type → (status, reason, message)."""
        known = list(self.endpoints)
        if not known:
            return {}
        sick = [f"plugin {endpoint.name} {endpoint.trouble}" for endpoint in known if endpoint.trouble]
        if sick:
            return {CONDITION: ("False", "ResourcePluginNotReady", "; ".join(sick))}
        wrong = [f"plugin {one.name} is in the wrong: {what}" for one in known for what in self.refused.of(one.name)]
        if wrong:
            return {CONDITION: ("False", "ResourcePluginAnswerRefused", "; ".join(wrong))}
        names = ", ".join(sorted(endpoint.name for endpoint in known))
        return {CONDITION: ("True", "ResourcePluginsReady", f"plugins answer: {names}")}

    def validate(self) -> list[str]:
        return self.allocations.validate()

    async def close(self) -> None:
        await self.allocator.patience.close()
        await self.reconciler.close()
        await self.endpoints.close()
