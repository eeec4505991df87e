"""The QoS Resource Manager: hands out whatever plugins manage, through the contract of `plugins.managers`.

The node agent owns the transaction: when a container is refused it releases the whole pod, which reaches every plugin.
A grant may rest on changes of other containers that `updates` tells next; the agent applies these before it starts the
new container. The agent calls `reconcile` every period (KEP-3461: 3 s), outside of its lock, and `updates` when that
found something.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.topologysummary import Division
from kubeqos.plugins.managers import (
    NOTHING,
    AdmittedPod,
    ContainerRef,
    CpuHolding,
    Grant,
    NodeResource,
    Refusal,
    Update,
)
from kubeqos.qrm.allocating import REASON, Allocator, Unit
from kubeqos.qrm.answers import CPUS, Nonsense, grant_of
from kubeqos.qrm.asking import Placement, marks_of, why_skipped, with_marks, wrong_annotation
from kubeqos.qrm.endpoint import Capacity, options_from_json
from kubeqos.qrm.endpoints import Endpoints
from kubeqos.qrm.ledger import Ledger
from kubeqos.qrm.metrics import Metrics
from kubeqos.qrm.ordering import Key, order
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.reconcile import Reconciler
from kubeqos.qrm.settings import Event, EventSink, OnError, Settings
from kubeqos.topology.alignment.hints import Hint, Merged, Offer, Scope
from kubeqos.topology.answers import Refused
from kubeqos.topology.changes import Held

START_REASON = "PreStartHookError"
CONDITION = "ResourcePluginsReady"


class QosResourceManager:
    """All resource plugins of one node as one manager."""

    name = "qrm"

    def __init__(
        self,
        settings: Settings | None = None,
        machine: Machine | None = None,
        *,
        metrics: Metrics | None = None,
        emit: EventSink = lambda _event: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or Settings()
        self.machine = machine
        self.metrics = metrics or Metrics()
        self.emit = emit
        self.reconcile_seconds = self.settings.reconcile_seconds
        self.endpoints = Endpoints(self.settings, self.metrics, clock)
        self.ledger = Ledger()
        self._pods: dict[str, AdmittedPod] = {}
        self._told: dict[Key, tuple[Grant, Held | None]] = {}
        self._told_at = -1
        self._resume: list[Update] = []
        self._conflict = ""
        self._admitting: dict[str, int] = {}
        told: EventSink = lambda event: self.emit(event)  # noqa: E731  # who listens changes
        self.reconciler = Reconciler(self.ledger, self.endpoints, self._pods, machine, told, self._busy)
        self.allocator = Allocator(self.name, self.reconciler)

    def _busy(self) -> Iterable[str]:
        """Pods that plugins may know and the ledger does not, yet."""
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
        holdings = [holding for ref, _ in pod.containers() if (holding := self.ledger.get(pod.uid, ref.name))]
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
        self._pods[pod.uid] = pod
        self._admitting[pod.uid] = self._admitting.get(pod.uid, 0) + 1
        try:
            grants = await self.allocator.allocate(unit)
        finally:
            self._admitting[pod.uid] -= 1
            if not self._admitting[pod.uid]:
                del self._admitting[pod.uid]
        if not isinstance(grants, Refusal) and not unit.again:  # a running container is told by `updates`
            for name, grant in grants.items():
                holding = self.ledger.get(pod.uid, name)
                self._told[pod.uid, name] = grant, holding.held() if holding else None
        return grants

    def _awaited(self, unit: Unit) -> list[str]:
        """What containers ask for of plugins that have yet to come: without them they would run unpinned."""
        views = [view for ref, view in unit.pod.containers() if ref in unit.refs]
        asked = {self.settings.names.get(name, name) for view in views for name in view.resources.requests}
        return sorted(name for name in asked & self.settings.expected if self.endpoints.get(name) is None)

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
        asked = {plugin for holding in self.ledger.of_pod(pod_uid) for plugin in holding.asked}
        asked |= self.allocator.forget(pod_uid)
        self.ledger.drop(pod_uid)
        self._pods.pop(pod_uid, None)
        for key in [key for key in self._told if key[0] == pod_uid]:
            del self._told[key]
        # A plugin that is still busy with the pod keeps its answer for the next attempt, see `patience`.
        await self.endpoints.release(pod_uid, asked, but=self.allocator.patience.plugins_of(pod_uid))

    def grant(self, container: ContainerRef) -> Grant | None:
        holding = self.ledger.get(container.pod_uid, container.name)
        if holding is None:
            return None
        grant = holding.grant()
        if isinstance(grant, Nonsense):
            return self._told.get((container.pod_uid, container.name), (None, None))[0]
        self._told[container.pod_uid, container.name] = grant, holding.held()
        return grant

    def show(self, container: ContainerRef) -> Grant | None:
        holding = self.ledger.get(container.pod_uid, container.name)
        grant = holding.grant() if holding is not None else None
        return None if isinstance(grant, Nonsense) else grant

    def cpus_of(self, container: ContainerRef) -> CpuHolding | None:
        holding = self.ledger.get(container.pod_uid, container.name)
        held = holding.held() if holding is not None else None
        return None if held is None else CpuHolding(held.cpus, held.cpus if held.owner else NO_CPUS)

    def cpu_pools(self) -> Mapping[str, CpuSet]:
        return {}  # a plugin's pools are its own affair; `kubeqos plugin cpu pools` shows them

    # ---- Adjustment of running containers

    async def reconcile(self) -> bool:
        """Ask every plugin how things stand; whether there is something to tell containers. Runs beside admissions."""
        for plugin, pod_uid in self.allocator.patience.forgotten():
            if pod_uid not in self.ledger:
                self.endpoints.owe(plugin, pod_uid)
        with self.metrics.reconciles.time():
            await self.reconciler.round()
        return bool(self._resume) or self.ledger.revision != self._told_at

    async def updates(self) -> Sequence[Update]:
        told = [*self._resume, *self._changes()]
        self._resume = []
        self.metrics.updates.inc(len(told))
        return told

    def _changes(self) -> list[Update]:
        """The difference between the ledger and what containers were told, in a safe order."""
        if self.ledger.revision == self._told_at:
            return []
        after = {key: held for key, held in self.ledger.cpus().items() if key in self._told}
        before = {key: held for key in after if (held := self._told[key][1]) is not None}
        steps = order(before, after, self.machine)
        if isinstance(steps, Refused):
            if self._conflict != str(steps):  # told once, not every period
                self._conflict = str(steps)
                self.emit(Event("ResourceConflict", f"running containers stay as they are: {steps}"))
            return []
        self._conflict = ""
        changes = self._cpu_changes(steps, after) + self._other_changes()
        self._told_at = self.ledger.revision
        return changes

    def _cpu_changes(self, steps: Sequence[tuple[Key, Any]], after: Mapping[Key, Held]) -> list[Update]:
        changes = []
        for key in {key for key, _ in steps}:
            holding, held = self.ledger.get(*key), self._told[key][1]
            if holding is not None and held is not None:
                holding.was = held.cpus if holding.was is None else holding.was & held.cpus
        for key, cpus in steps:
            changing = self.ledger.get(*key)
            grant = changing.grant() if changing else None
            if changing is None or grant is None or isinstance(grant, Nonsense):
                continue
            step = replace(grant, properties={**grant.properties, CPUS: str(cpus)})
            changes.append(Update(changing.ref, step))
            self._told[key] = step, after[key]
        return changes

    def applied(self, container: ContainerRef, grant: Grant) -> None:
        """A container has its CPUs; a restart need not tell it again."""
        holding = self.ledger.get(container.pod_uid, container.name)
        held = holding.held() if holding is not None and holding.was is not None else None
        if holding is not None and held is not None and grant.properties.get(CPUS) == str(held.cpus):
            holding.was = None

    def _other_changes(self) -> list[Update]:
        changes = []
        for holding in self.ledger:
            key = holding.ref.pod_uid, holding.ref.name
            grant = holding.grant()
            if key not in self._told or isinstance(grant, Nonsense):
                continue
            told = self._told[key][0]
            if (grant.properties, grant.unified) != (told.properties, told.unified):
                changes.append(Update(holding.ref, grant))
                self._told[key] = grant, holding.held()
        return changes

    # ---- State

    def save(self) -> Any:
        return {
            "pods": self.ledger.entries(),
            "marks": {uid: marks_of(self._pods[uid].view.metadata) for uid in self.ledger.pods if uid in self._pods},
            "owed": self.endpoints.owed,
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
        repaired = self.ledger.load(state.get("pods"))
        options = state.get("options") or {}
        for name, capacities in (state.get("plugins") or {}).items():
            if name not in self.settings.built_in:
                known = {resource: Capacity(*one) for resource, one in capacities.items()}
                self.endpoints.expect(name, known, options_from_json(options.get(name)))
        for name, pods in (state.get("owed") or {}).items():
            for uid in pods:
                self.endpoints.owe(name, uid)
        for uid in sorted(self.ledger.pods - running.keys()):
            repaired.append(f"pod {uid} is gone; what it held is given back")
            await self.release(uid)
        marks = state.get("marks") or {}
        self._pods.update({uid: with_marks(pod, marks.get(uid, {})) for uid, pod in running.items()})
        self._told.update(
            {(uid, ref.name): (NOTHING, None) for uid, pod in running.items() for ref, _ in pod.containers()}
        )
        for holding in self.ledger:
            grant = holding.grant()
            if not isinstance(grant, Nonsense):
                self._told[holding.ref.pod_uid, holding.ref.name] = grant, holding.held()
        self._resume = list(self._unfinished())
        return repaired

    def _unfinished(self) -> list[Update]:
        """Changes that a crash may have cut short: everybody keeps what is old and new, then takes the new."""
        narrow, final = [], []
        for holding in self.ledger:
            held, grant = holding.held(), grant_of(holding.resources)
            if holding.was is None or held is None or isinstance(grant, Nonsense):
                continue
            both = holding.was & held.cpus
            if both and both != held.cpus:
                narrow.append(Update(holding.ref, replace(grant, properties={**grant.properties, CPUS: str(both)})))
            final.append(Update(holding.ref, grant))
        return narrow + final

    def node_resources(self) -> Sequence[NodeResource]:
        return self.endpoints.node_resources()

    def divisions(self) -> Mapping[str, tuple[Division, Mapping[str, float]]]:
        found = self.endpoints.divided()
        return {name: (one.division, one.requested) for name, one in found.items() if one.division is not None}

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """The health of all plugins as one condition of the Node: type → (status, reason, message)."""
        known = list(self.endpoints)
        if not known:
            return {}
        sick = [f"plugin {endpoint.name} {endpoint.trouble}" for endpoint in known if endpoint.trouble]
        if sick:
            return {CONDITION: ("False", "ResourcePluginNotReady", "; ".join(sick))}
        names = ", ".join(sorted(endpoint.name for endpoint in known))
        return {CONDITION: ("True", "ResourcePluginsReady", f"plugins answer: {names}")}

    def validate(self) -> list[str]:
        return self.ledger.validate()

    async def close(self) -> None:
        await self.allocator.patience.close()
        await self.reconciler.close()
        await self.endpoints.close()
