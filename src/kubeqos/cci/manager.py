"""The CCI resource manager (KEP-3675): gives every container of a node its CPUs, by drivers where claims say so.

Implements `plugins.managers.ResourceManager` and `StartHook` for the node agent. Flow of the KEP's figures: admit →
store → the runtime creates the container with the cpuset → `CCIAddContainerResource` before start → on removal
`CCIRemoveContainerResource` → store cleaned → standard containers widened. Nothing is believed before it is verified
(`cci.answers`), nothing is granted before it is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kubeqos.cci.answers import refused
from kubeqos.cci.claims.claiming import INVALID, REFUSED, UNAVAILABLE, Claiming
from kubeqos.cci.claims.devices import DeviceLocator, locate_by_name
from kubeqos.cci.departures import Departures
from kubeqos.cci.drivers import Deadlines, Driver, Drivers
from kubeqos.cci.granting import Granting
from kubeqos.cci.metrics import Metrics
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.startup import check_reserved
from kubeqos.cci.store import FILE_NAME, Store
from kubeqos.errors import RemoteError, StateError
from kubeqos.logs import logger
from kubeqos.model.annotations.computepolicies import compute_policy
from kubeqos.model.annotations.topologysummary import ComputeSummary, Down
from kubeqos.model.annotations.wellknown import HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.model.objects import ContainerView
from kubeqos.plugins.managers import (
    AdmittedPod,
    ContainerKind,
    ContainerRef,
    CpuHolding,
    Grant,
    LiveContainer,
    NodeResource,
    Refusal,
)
from kubeqos.supervision import Supervisor
from kubeqos.topology.alignment.hints import Hint, Offer
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.claims.asks import Wrong, asks_of
from kubeqos.topology.claims.holdings import Holding, Key, StoredContainer
from kubeqos.topology.claims.serving import Terms
from kubeqos.topology.claims.sharing import because, memory_nodes, place, pool_of, running_on, said
from kubeqos.topology.claims.summary import summary_of

NOT_STORED = "CCIStateError"
CONDITION = "ComputeDriversReady"

log = logger("kubeqos.cci")


@dataclass(frozen=True, slots=True)
class CciSettings:
    """How the manager treats its node."""

    reserved: CpuSet = NO_CPUS
    standard_minimum: int = 1
    """CPUs that no exclusive claim may take from pods without claims."""
    several_drivers: bool = False
    best_effort_without_driver: bool = False
    """The KEP's alpha rule: a pod whose driver is missing or sick runs as a standard one."""
    driver_wait_seconds: float = 300.0
    """How long a pod is tried again while its driver is missing or sick (the KEP's beta rule)."""
    departure_seconds: float = 60.0
    """How long CPUs stay held for a driver that cannot be told that their container is gone."""
    thread_granularity: bool = False
    """EXCLUSIVE owns the threads that it was given and not full cores; of claims that are put from now on."""
    deadlines: Deadlines = field(default_factory=Deadlines)


class CciManager:
    """One node's manager. State changes only between awaits, so that pods may be admitted beside each other.

    Claims are put to drivers by `cci.claims.claiming`; who has none waits for nobody.
    """

    name = "cci"

    def __init__(
        self,
        machine: Machine,
        state_directory: Path,
        settings: CciSettings | None = None,
        *,
        metrics: Metrics | None = None,
        locate_devices: DeviceLocator = locate_by_name,
        clock: Callable[[], float] = time.monotonic,
        emit: Callable[[str, str], None] = lambda _reason, _message: None,
        emit_pod: Callable[[AdmittedPod, str, str], None] = lambda _pod, _reason, _message: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """`emit` takes a reason and a message when a driver falls ill or goes; the agent makes events of them.

        `emit_pod` does the same for a pod.

        `changed` is called when containers may have to be told something although no pod came or went.
        """
        self.settings = settings or CciSettings()
        # A machine without CPUs for standard pods is refused before anybody can register with it.
        check_reserved(machine, self.settings.reserved, self.settings.standard_minimum)
        self.machine = machine
        self.path = state_directory / FILE_NAME
        self.store = Store(machine, self.settings.reserved)
        self.metrics = metrics or Metrics()
        self.drivers = Drivers(
            self.metrics,
            self.settings.several_drivers,
            self.settings.deadlines,
            self._driver_changed,
            tell_refused=lambda driver, what: emit("ComputeDriverAnswer", f"driver {driver} is in the wrong: {what}"),
        )
        self.departures = Departures(self.store, self.drivers, self.settings.departure_seconds, clock, emit)
        self._claiming = Claiming(
            self.store, self.drivers, self.departures, self.metrics, locate_devices, self.settings.thread_granularity
        )
        self._clock = clock
        self._granting = Granting(self.store)
        self._unsaved = False
        self._waiting_since: dict[str, float] = {}
        self._story: dict[str, list[str]] = {}
        self._emit, self._emit_pod = emit, emit_pod
        self._changed = changed
        self._leaving = False
        self._hurry = asyncio.Event()
        """A driver is well that has something to hear."""
        self._measure()

    # ---- Admission

    async def offers(self, pod: AdmittedPod, container: ContainerRef) -> Sequence[Offer]:
        """No opinion: the topology manager is off where CCI is on."""
        return ()

    async def allocate(self, pod: AdmittedPod, container: ContainerRef, hint: Hint) -> Grant | Refusal:
        """CPUs for one container. Who has no claim waits for nobody, who has one for its own drivers."""
        known = self.store.entries.get((pod.uid, container.name))
        if known is None:
            answer = await self._admit(pod, container)
            if isinstance(answer, Refusal):
                return self._refused(pod, answer)
            known = answer
        self._waiting_since.pop(pod.uid, None)
        return self._granting.grant(known, self._granting.pool())

    async def _admit(self, pod: AdmittedPod, container: ContainerRef) -> StoredContainer | Refusal:
        view, path = _find(pod, container)
        entry = StoredContainer(pod.uid, container.name, _label(pod), transient=container.kind is ContainerKind.INIT)
        asks = asks_of(pod.view, view, path, pod.claims)
        if isinstance(asks, Wrong):
            self.metrics.requested("")
            self.metrics.refused("", INVALID)
            return Refusal(INVALID, str(asks), retry=asks.retry)
        holdings: list[Holding] = []
        try:
            refusal = await self._claiming.put(pod, view, asks, holdings)
        except asyncio.CancelledError:
            for holding in holdings:
                self.departures.add(holding)
            raise
        finally:
            self.store.reservations.pop(entry.key, None)
        if refusal is not None:
            await self._claiming.undo(holdings)
            if refusal.reason == UNAVAILABLE and self.settings.best_effort_without_driver:
                return self._run_unpinned(pod, replace(entry, ignored=refusal.message))
            return refusal
        if not asks:
            self.metrics.requested("")
        answer = self._commit(pod, replace(entry, holdings=tuple(holdings)))
        if isinstance(answer, Refusal):
            self.metrics.refused(holdings[0].driver if holdings else "", answer.reason)
            await self._claiming.undo(holdings)
        return answer

    def _run_unpinned(self, pod: AdmittedPod, entry: StoredContainer) -> StoredContainer | Refusal:
        """The KEP's alpha rule, which nobody should have to guess: the pod and the node say so."""
        self._note(pod.uid, f"{entry.container}: runs without claim: {entry.ignored}")
        answer = self._commit(pod, entry)
        if not isinstance(answer, Refusal):
            self._emit("ComputeClaimIgnored", f"{entry.label}/{entry.container} runs unpinned: {entry.ignored}")
            what = f"container {entry.container} runs without the cores of its claim: {entry.ignored}"
            self._emit_pod(pod, "ComputeClaimIgnored", what)
        return answer

    def _commit(self, pod: AdmittedPod, entry: StoredContainer) -> StoredContainer | Refusal:
        """Make room, and store it all; nothing is left behind when that fails."""
        changed = place(self.store, entry, self.settings.standard_minimum)
        if isinstance(changed, Unsatisfiable):
            return Refusal(REFUSED, str(changed))
        before = {each.key: self.store.entries.get(each.key) for each in changed}
        for each in changed:
            self.store.add_resource(each)
        try:
            self.store.save(self.path)
        except StateError as error:
            for key, old in before.items():
                self.store.remove_resource(key) if old is None else self.store.add_resource(old)
            return Refusal(NOT_STORED, " ".join(error.lines()), retry=True)
        self._note(pod.uid, f"{entry.container}: {because(entry)}")
        self._measure()
        return entry

    def _refused(self, pod: AdmittedPod, refusal: Refusal) -> Refusal:
        """A refusal that is worth trying again is final when the pod has waited long enough."""
        self._note(pod.uid, f"refused: {refusal.message}")
        if not refusal.retry:
            self._waiting_since.pop(pod.uid, None)
            return refusal
        now = self._clock()
        since = self._waiting_since.setdefault(pod.uid, now)
        limit = self.settings.driver_wait_seconds
        if now - since < limit:
            return refusal
        del self._waiting_since[pod.uid]
        return replace(refusal, message=f"{refusal.message} (gave up after {limit:g} s)", retry=False)

    # ---- Life of containers

    async def before_start(
        self, pod: AdmittedPod, container: ContainerRef, container_id: str, cgroup_parent: str
    ) -> Refusal | None:
        """Let the drivers allocate what they admitted; called with the created container's id."""
        key = (pod.uid, container.name)
        entry = self.store.entries.get(key)
        if entry is None:
            return Refusal(REFUSED, f"container {container.name!r} was not admitted", retry=True)
        for name in dict.fromkeys(holding.driver for holding in entry.holdings):
            driver = self.drivers.choose(name)
            if isinstance(driver, str):
                return Refusal(UNAVAILABLE, driver, retry=True)
            request = pb.AddResourceRequest(
                cgroup=cgroup_parent, pod=pod.uid, container=container.name, container_id=container_id
            )
            try:
                answer = await self.drivers.invoke(driver, "CCIAddContainerResource", request)
            except RemoteError as error:
                return Refusal(UNAVAILABLE, f"compute driver {name}: {error.what}", retry=True)
            if why := refused(answer):
                return Refusal(REFUSED, f"compute driver {name}: {why}", retry=True)
        if entry.holdings and self.store.entries.get(key) is not None:
            self.store.add_resource(replace(self.store.entries[key], container_id=container_id))
            self._save()
        return None

    async def release(self, pod_uid: str) -> None:
        """The pod's containers are gone: drivers first, then the store, then everybody else may widen."""
        self.store.withheld_for = {key: cpus for key, cpus in self.store.withheld_for.items() if key[0] != pod_uid}
        entries = self.store.of_pod(pod_uid)
        if not entries:
            return
        for entry in entries:
            self._forget(entry.key)
            for holding in entry.holdings:
                self.departures.add(holding, entry.container_id)
        self._story.pop(pod_uid, None)
        await self.departures.deliver_to({holding.driver for entry in entries for holding in entry.holdings})
        self._save()
        self._measure()

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Standard containers may have any requests; claims are fixed, and their cores with them."""
        for container, view in new.containers():
            _, path = _find(new, container)
            before = next(known for ref, known in old.containers() if ref == container)
            asks = asks_of(new.view, view, path, new.claims or old.claims)
            entry = self.store.entries.get((new.uid, container.name))
            cpu = [each.resources.requests.get("cpu") for each in (before, view)]
            if entry is not None and not entry.standard and cpu[0] != cpu[1]:
                return Refusal("Infeasible", f"container {container.name!r} has its cores by claims, which are fixed")
            if isinstance(asks, Wrong) and (entry is None or entry.standard):
                return Refusal("Infeasible", str(asks))
        return None

    def grant(self, container: ContainerRef) -> Grant | None:
        entry = self.store.entries.get((container.pod_uid, container.name))
        return self._granting.grant(entry, self._granting.pool()) if entry else None

    def grants(self) -> Mapping[Key, Grant]:
        pool = self._granting.pool()
        return {key: self._granting.grant(entry, pool) for key, entry in self.store.entries.items()}

    # ---- State

    def save(self) -> Any:
        return self.store.dump()

    async def restore(self, state: Any, running: Mapping[str, AdmittedPod]) -> list[str]:
        """Take over the store's own file, which is never older than the ledger, or the ledger's copy of it."""
        newest, repaired = self.store.load(self.path)
        if not newest and state:
            repaired += self.store.restore(state)
        for entry in list(self.store.entries.values()):
            if entry.pod not in running:
                self._forget(entry.key)
                for holding in entry.holdings:
                    self.departures.add(holding, entry.container_id)
        for pod in running.values():
            for ref, view in pod.containers():
                if (ref.pod_uid, ref.name) not in self.store.entries:
                    repaired.append(self._adopt(pod, ref, view))
        self.metrics.repaired(len(repaired))
        self._measure()
        self._save()
        return [told for told in repaired if told]

    def _adopt(self, pod: AdmittedPod, ref: ContainerRef, view: ContainerView) -> str:
        """Take a running container in that the store does not know."""
        policy = compute_policy(pod.view.metadata.annotations, ref.name)
        if view.resources.claims or policy:
            asks = "a compute policy" if policy else "claims"
            return f"{_label(pod)}/{ref.name} has {asks} and no stored CPUs: it must be admitted again"
        self.store.add_resource(StoredContainer(pod.uid, ref.name, _label(pod), ref.kind is ContainerKind.INIT))
        return f"{_label(pod)}/{ref.name} was not in the store and runs as a standard container"

    def adopt(self, pod: AdmittedPod, container: ContainerRef, live: LiveContainer) -> bool:
        """Take a running container in by what it was created with, when both store and ledger are lost."""
        found = self.store.load_entry(live.annotations.get(HOLDINGS_ANNOTATION, ""))
        key = pod.uid, container.name
        if found is None or found.key != key:
            # Who has no claim is known by that alone: owners that come have to wait until it has made room.
            if key in self.store.entries:
                return False
            self._adopt(pod, container, _find(pod, container)[0])
            return key in self.store.entries
        for holding in found.holdings:
            self.departures.withdraw(holding.claim_uid, found.container_id)
        if self.store.impossible(found):
            return False
        self.store.add_resource(found)
        self._save()
        return True

    def withhold(self, container: ContainerRef, cpus: CpuSet) -> None:
        """Give these to nobody until the container's pod is released: it owns them by a manager that is turned off."""
        if (key := (container.pod_uid, container.name)) not in self.store.entries or self.store.entries[key].standard:
            self.store.withheld_for[key] = cpus

    def node_resources(self) -> Sequence[NodeResource]:
        """The CPUs that the scheduler may count on.

        Claims repeat their cores as requests. What they keep beyond that (idle siblings) is in nobody's requests.
        """
        online = self.machine.online
        return [NodeResource("cpu", len(online), max(0, len(online - self.settings.reserved) - self.store.kept))]

    def compute(self) -> ComputeSummary:
        """What the scheduler has to know to decide as admission here does."""
        settings = self.settings
        return summary_of(
            self.store, Terms(settings.standard_minimum, settings.thread_granularity, self.drivers.ways())
        )

    def down(self) -> Sequence[Down]:
        """Drivers that are sick. Where the alpha rule holds their pods run all the same, and nobody is kept off."""
        if self.settings.best_effort_without_driver:
            return ()
        return [Down(one.name, one.sick, driver=True) for one in self.drivers.table.values() if one.sick]

    def driver_health(self) -> dict[str, str]:
        """What is wrong with each driver, empty where nothing is; one whose cores are in use may be gone."""
        return self.drivers.health(one.driver for entry in self.store.entries.values() for one in entry.holdings)

    def conditions(self) -> dict[str, tuple[str, str, str]]:
        """The health of all drivers as one condition of the Node: type → (status, reason, message)."""
        found = self.drivers.condition()
        return {CONDITION: found} if found else {}

    def given(self, container: ContainerRef) -> list[tuple[str, str, str]]:
        entry = self.store.entries.get((container.pod_uid, container.name))
        if entry is None or entry.standard:
            return [("cpu", because(entry), "the cci manager")] if entry is not None else []
        return [
            (f"claim {one.claim_name}", " and ".join(map(said, one.sets)), f"driver {one.driver}")
            for one in entry.holdings
        ]

    def cpus_of(self, container: ContainerRef) -> CpuHolding | None:
        entry = self.store.entries.get((container.pod_uid, container.name))
        if entry is None:
            return None
        cpus = running_on(self.store)[container.pod_uid, container.name]
        return CpuHolding(cpus, entry.whole, memory_nodes(self.machine, entry))

    def cpu_pools(self) -> Mapping[str, CpuSet]:
        pool = pool_of(self.machine, self.store.available_resources())
        return {"reserved": self.settings.reserved, "shared": pool}

    def story(self, pod_uid: str) -> list[str]:
        """What happened to a pod here, oldest first."""
        return list(self._story.get(pod_uid, ()))

    def validate(self) -> list[str]:
        wrong = self.store.validate()
        wrong += [f"{key} would have no CPUs" for key, cpus in running_on(self.store).items() if not cpus]
        return wrong

    @asynccontextmanager
    async def running(self, supervisor: Supervisor | None = None) -> AsyncIterator[CciManager]:
        """Health checks of drivers and late departures, for the duration of a block."""
        keep = (supervisor or Supervisor()).keep
        tasks = [
            asyncio.create_task(keep("driver health", self.drivers.watch)),
            asyncio.create_task(keep("driver removals", self._keep_delivering)),
        ]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.drivers.close()

    def leave(self) -> None:
        """The node agent ends: drivers that are given up from now on are no news, it is we who go."""
        self._leaving = True

    async def deliver_departures(self) -> None:
        """Tell drivers what they still have to hear; drop what has waited too long."""
        drivers = {one.driver for one in self.store.departures}
        await asyncio.gather(*(self._deliver_due(name) for name in drivers))
        if self._unsaved:
            self._save()

    async def _deliver_due(self, driver: str) -> None:
        if await self.departures.deliver(driver, at_once=False):
            self._save()
            self._measure()
            self._changed()

    async def _keep_delivering(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.deadlines.probe_sick_every):
                    await self._hurry.wait()
            self._hurry.clear()
            if self.store.departures or self._unsaved:
                await self.deliver_departures()

    def _driver_changed(self, driver: Driver, well: bool, message: str) -> None:
        if not well and not self._leaving:
            self._emit("ComputeDriverUnavailable", f"{driver.name}: {message}")
        if well:
            self.departures.hurry(driver.name)
            self._hurry.set()
        self._changed()  # the node says of itself who is away

    # ---- Details

    def _save(self) -> None:
        """Store what is true already; when the disk refuses, it is tried again later."""
        try:
            self.store.save(self.path)
            self._unsaved = False
        except StateError as error:
            self._unsaved = True
            log.error("cannot store the state", reason=error.what, where=error.where)

    def _forget(self, key: Key) -> None:
        self.store.remove_resource(key)
        self._granting.forget(key)

    def _note(self, pod_uid: str, what: str) -> None:
        told = self._story.setdefault(pod_uid, [])
        if not told or told[-1] != what:
            told.append(what)
            del told[:-50]

    def _measure(self) -> None:
        available = self.store.available_resources()
        self.metrics.cpus(available, self.machine.online - self.settings.reserved - available)


def _label(pod: AdmittedPod) -> str:
    return f"{pod.view.metadata.namespace}/{pod.view.metadata.name}"


def _find(pod: AdmittedPod, container: ContainerRef) -> tuple[ContainerView, str]:
    """A container's view, and its field in the pod."""
    if container.kind is ContainerKind.APP:
        return pod.view.spec.containers[container.index], f"spec.containers[{container.index}]"
    return pod.view.spec.init_containers[container.index], f"spec.initContainers[{container.index}]"
