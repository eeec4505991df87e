"""Admission: one transaction over every resource manager. All of what a pod asks for is reserved, or nothing is.

Fit first (`node.admission.fit`), then the topology policy over the offers of all managers, then allocation container by
container, then the check that no two managers contradict each other, then the ledger. Whatever fails on the way gives
everything back. Nothing is locked while a plugin is waited for: what a pod has taken so far is its reservation, and
`node.admission.reservations` says which pods wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kubeqos.errors import KubeqosError, StateError
from kubeqos.logs import logger
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.machine import Machine
from kubeqos.node.admission.fit import NodeFit, Occupancy, Occupant, occupant_of, refuse, shortage
from kubeqos.node.admission.grants import Conflict, all_beside, beside, combine
from kubeqos.node.admission.ledger import LedgerEntry, NodeLedger, Restored
from kubeqos.node.admission.managers import HoldsUntilResized, OffersForPods, Resizes
from kubeqos.node.admission.managers.strangers import Strangers
from kubeqos.node.admission.reservations import NOBODY, Reservation, Reservations
from kubeqos.node.admission.restart import adopt, restore_managers
from kubeqos.node.pod.effects import Allocation, Shortage
from kubeqos.node.pod.preemption import is_critical
from kubeqos.node.pod.resize import resources_of, to_be_told, with_resources
from kubeqos.plugins.managers import (
    NOTHING,
    AdmittedPod,
    AllocatesUnits,
    AsksPeers,
    ContainerKey,
    ContainerRef,
    Grant,
    LiveContainer,
    PlacesOnCpus,
    Refusal,
    ResourceManager,
    ServesClaims,
)
from kubeqos.topology.alignment.hints import Alignment, Hint, Merged, Offer, Policy, Scope, TopologySettings
from kubeqos.topology.alignment.merge import merge

log = logger(__name__)
MANAGER_SECONDS = 30.0
MOST_ROUNDS = 4
"""How often offers are heard anew because others got in between; after that the peers themselves say no."""
ANYWHERE = Hint(None, False)
Given = list[tuple[str, Grant]]  # by manager
TOPOLOGY_REASON = "TopologyAffinityError"
UNEXPECTED = "UnexpectedAdmissionError"


class Admission:
    """Reserves and releases; the only caller of the managers."""

    def __init__(
        self,
        machine: Machine,
        managers: Sequence[ResourceManager],
        ledger: NodeLedger,
        node: Callable[[], NodeFit | None],
        topology: TopologySettings | None = None,
        gate: Callable[[AdmittedPod, bool], Refusal | None] = lambda _pod, _static: None,
    ) -> None:
        """`gate` is asked first, with whether the pod is static: a node under pressure does not take every pod."""
        self.machine = machine
        self.managers = tuple(managers)
        self.entries: dict[str, LedgerEntry] = {}
        self.aligned: dict[str, list[Alignment]] = {}
        """Every merge of the last attempt of each pod, refused ones included."""
        self._gate = gate
        self._ledger = ledger
        self._node = node
        self._topology = topology or TopologySettings()
        self._held = Occupancy()
        self._pending = Reservations()
        self._askers = tuple(manager for manager in self.managers if isinstance(manager, AsksPeers))
        self._placers = tuple(manager for manager in self.managers if isinstance(manager, PlacesOnCpus))
        self._keepers = tuple(manager for manager in self.managers if isinstance(manager, ServesClaims))
        self._strangers = Strangers(machine)
        self._storing = asyncio.Lock()
        self._changes = self._stored = 0
        self._joined: dict[ContainerKey, tuple[Given, Grant | Conflict]] = {}
        self._companions: dict[ContainerKey, ContainerRef] = {}
        self._adopted: set[str] = set()
        """Pods that run with what managers know from their containers, until they are admitted again."""
        self._unreleased: set[tuple[str, str]] = set()
        """Manager and pod of what is to be given back and was not taken yet."""
        self._releasing: set[tuple[str, str]] = set()
        self._late_releases: set[asyncio.Task[None]] = set()

    # ---- The transaction

    async def admit(self, pod: AdmittedPod, *, static: bool = False) -> Refusal | None:
        """Reserve everything, or say why not. A pod that is admitted stays so."""
        refusal, undecided = await self._in_turn(pod, static=static)
        if undecided:
            for decided in undecided:  # with no turn kept: those behind us may have nothing to wait for
                await decided.wait()
            refusal, undecided = await self._in_turn(pod, static=static)
        if refusal is not None:
            return replace(refusal, retry=True) if undecided else refusal
        # Others may be admitted while this one is written: they share the next write.
        try:
            await self._save()
        except StateError as error:
            async with self._pending.turn(pod.uid):
                await self._undo(pod.uid)
            return Refusal(UNEXPECTED, f"{error.what} ({error.where})", retry=True)
        return None

    async def _in_turn(self, pod: AdmittedPod, *, static: bool) -> tuple[Refusal | None, list[asyncio.Event]]:
        """One attempt: why not, and what others may yet give back if the refusal may rest on that."""
        async with self._pending.turn(pod.uid, self._peers(pod)) as mine:
            if pod.uid in self.entries:
                return None, []
            refusal = await self._reserve(pod, mine, static=static)
            return refusal, [] if refusal is None else self._in_doubt(pod, mine, refusal, static=static)

    async def _reserve(self, pod: AdmittedPod, mine: Reservation, *, static: bool) -> Refusal | None:
        """Take everything that a pod needs; after a refusal nothing of it is held."""
        takes = occupant_of(pod.view.spec)
        refusal = self._gate(pod, static) or self._fit(pod, takes, static=static) or self._still_releasing(pod.uid)
        if refusal is not None:
            return refusal
        with mine.holding():
            self._held.reserved[pod.uid] = takes
            try:
                refusal = await self._guarded(self._allocate(pod)) or self._fits_no_more(pod, takes)
                if refusal is None:
                    self._enter(pod, takes)
                elif pod.uid not in self._adopted:  # what runs keeps what it has, whoever cannot serve it for now
                    await self._undo(pod.uid)
            finally:
                del self._held.reserved[pod.uid]
        return refusal

    def _fits_no_more(self, pod: AdmittedPod, takes: Occupant) -> Refusal | None:
        """Claims may keep more than they request (KEP-3675, idle siblings): what is left has to hold all requests."""
        if not self._keepers or pod.uid in self._adopted:
            return None
        return shortage(pod.uid, takes, self._node(), self._held)

    def _still_releasing(self, uid: str) -> Refusal | None:
        """What an earlier attempt took must not be given back out of what this one takes."""
        busy = sorted(name for name, other in self._releasing if other == uid)
        if busy:
            return Refusal(UNEXPECTED, f"{busy[0]} is still giving back what an earlier attempt took", retry=True)
        self._unreleased = {one for one in self._unreleased if one[1] != uid}
        return None

    def _in_doubt(self, pod: AdmittedPod, mine: Reservation, refusal: Refusal, *, static: bool) -> list[asyncio.Event]:
        """What others have reserved, where a refusal that would be final may rest on it."""
        undecided = self._pending.undecided(mine)
        if refusal.retry or not undecided:
            return []
        anyway = self._gate(pod, static) or self._misfit(pod, occupant_of(pod.view.spec), self._held.decided(), static)
        return [] if anyway else undecided

    def _peers(self, pod: AdmittedPod) -> frozenset[str]:
        return NOBODY.union(*(manager.peers(pod) for manager in self._askers))

    def _fit(self, pod: AdmittedPod, takes: Occupant, *, static: bool) -> Refusal | None:
        refusal = self._misfit(pod, takes, self._held, static)
        if isinstance(refusal, Shortage) and is_critical(pod.view.spec.priority, static=static):
            # Others will go for it; nobody else may take what they leave.
            self._held.promised[pod.uid] = takes
        return refusal

    def _misfit(self, pod: AdmittedPod, takes: Occupant, held: Occupancy, static: bool) -> Refusal | None:
        critical = is_critical(pod.view.spec.priority, static=static)
        return refuse(pod.view, takes, self._node(), held, static=static, critical=critical)

    async def resize(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        """Reserve what a changed spec asks for; a refusal leaves everything as it was."""
        async with self._pending.turn(new.uid, self._peers(new)) as mine:
            takes, node = occupant_of(new.view.spec), self._node()
            short = shortage(new.uid, takes, node, self._held)
            if short is not None:
                # What does not even fit into the empty node never will.
                never = shortage(new.uid, takes, node, Occupancy()) is not None
                return Refusal("Infeasible" if never else "Deferred", short.message, retry=not never)
            with mine.holding():
                self._held.reserved[new.uid] = takes.at_most(occupant_of(old.view.spec))
                try:
                    refusal = await self._resize_all(old, new)
                    if refusal is not None:
                        return refusal
                    untold = {*to_be_told(old.raw, new.raw), *self.entries[new.uid].untold}
                    self._enter(new, takes, tuple(sorted(untold)))
                finally:
                    del self._held.reserved[new.uid]
        await self._save()
        return None

    async def _resize_all(self, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        for done, manager in enumerate(self.managers):
            refusal = await self._guarded(self._resize_one(manager, old, new))
            if refusal is not None:
                for earlier in self.managers[:done]:
                    await self._guarded(self._resize_one(earlier, new, old))
                self._resize_done(old.uid)
                return refusal
        return None

    def _resize_done(self, uid: str) -> None:
        """Give back what a pod had before a resize, unless a container of it still runs with that."""
        entry = self.entries.get(uid)
        for manager in self.managers if entry is not None and not entry.untold else ():
            if isinstance(manager, HoldsUntilResized):
                manager.resize_done(uid)

    async def told(self, uid: str, container: str) -> None:
        """A container, or the sandbox, has been brought to what its pod has now."""
        entry = self.entries.get(uid)
        if entry is not None and container in entry.untold:
            self.entries[uid] = replace(entry, untold=tuple(one for one in entry.untold if one != container))
            self._resize_done(uid)
        await self._save()

    async def release(self, uid: str) -> None:
        """Give back what a pod holds; when this returns, it is given back for good."""
        async with self._pending.turn(uid):
            self._held.promised.pop(uid, None)
            self.aligned.pop(uid, None)
            self._companions = {key: one for key, one in self._companions.items() if key[0] != uid}
            if uid not in self.entries and uid not in self._adopted:
                return
            await self._undo(uid)
        await self._save()

    def holders(self) -> set[str]:
        """The pods that hold something: admitted, or known from their containers."""
        return {*self.entries, *self._adopted}

    async def recorded(self) -> None:
        """When this returns, a restart knows everything that containers should have now."""
        await self._save()

    def accompany(self, ephemeral: ContainerRef, other: ContainerRef) -> None:
        """An ephemeral container runs where another of its pod does, from now on."""
        self._companions[ephemeral.pod_uid, ephemeral.name] = other

    def grant(self, container: ContainerRef) -> Grant:
        """What a container of an admitted pod should have."""
        key = container.pod_uid, container.name
        if key in self._companions:
            return beside(self.grant(self._companions[key]))
        found = self._combined(key, [(one.name, one.grant(container) or NOTHING) for one in self.managers])
        if isinstance(found, Conflict):
            raise KubeqosError(f"managers contradict each other: {found}", where=container.name)
        return found

    def grants(self) -> dict[ContainerKey, Grant]:
        """What every container should have; one about which managers contradict each other is left as it is."""
        by_container: dict[ContainerKey, Given] = {}
        for manager in self.managers:
            for key, grant in manager.grants().items():
                by_container.setdefault(key, []).append((manager.name, grant))
        self._joined = {key: one for key, one in self._joined.items() if key in by_container}
        found = {key: self._combined(key, given) for key, given in by_container.items()}
        sure = {key: grant for key, grant in found.items() if isinstance(grant, Grant)}
        return sure | all_beside(self._companions, sure) if self._companions else sure

    def _combined(self, key: ContainerKey, given: Given) -> Grant | Conflict:
        """Grants of one container as one; what several managers gave is put together when it changes, not each time."""
        given = [one for one in given if one[1] is not NOTHING]
        if len(given) <= 1:
            return self._strangers.apart(key, given[0][1] if given else NOTHING)
        known = self._joined.get(key)
        if known is None or known[0] != given:
            known = self._joined[key] = given, combine(given)
        return known[1] if isinstance(known[1], Conflict) else self._strangers.apart(key, known[1])

    def unthrottled(self) -> set[str]:
        """Pods with a container whose CPUs are all its own."""
        return {uid for (uid, _), grant in self.grants().items() if grant.unthrottled}

    def cpus_of(self, container: ContainerRef) -> CpuSet:
        """Where a container is to run; nothing if nobody decides that."""
        near = self._companions.get((container.pod_uid, container.name), container)
        for manager in self._placers:
            held = manager.cpus_of(near)
            if held is not None:
                return held.cpus
        return NO_CPUS

    def owned(self, container: ContainerRef) -> CpuSet:
        """The CPUs that nobody but this container may use."""
        found = (manager.cpus_of(container) for manager in self._placers)
        return next((held.own for held in found if held is not None), NO_CPUS)

    def allocation(self, raw: Mapping[str, Any]) -> Allocation | None:
        """An admitted pod with the resources that it has."""
        entry = self.entries.get(raw["metadata"]["uid"])
        return Allocation(with_resources(raw, entry.resources), frozenset(entry.untold)) if entry else None

    # ---- Allocation

    async def _allocate(self, pod: AdmittedPod) -> Refusal | None:
        containers = pod.containers()
        by_name = {ref.name: ref for ref, _ in containers}
        aligned = self.aligned[pod.uid] = list[Alignment]()
        for unit in self._topology.scope.units([ref.name for ref, _ in containers]):
            refs = [by_name[name] for name in unit]
            heard = await self._hear(pod, refs)
            # From here to the first peer nobody else is asked anything, so that all of it rests on one state.
            merged, offers = await self._merge(pod, refs, heard)
            aligned.append(Alignment(unit, offers, merged))
            if not merged.admitted:
                return Refusal(TOPOLOGY_REASON, merged.because.replace("admitted: ", ""))
            refusal = await self._allocate_unit(pod, refs, merged, offers)
            if refusal is not None:
                return refusal
        return None

    async def _hear(self, pod: AdmittedPod, refs: Sequence[ContainerRef]) -> dict[str, list[Offer]]:
        """What those offer who have to ask others, by manager; asked again while pods of other peers get in between."""
        if self._topology.policy is Policy.NONE or not self._askers:
            return {}
        for _ in range(MOST_ROUNDS):
            heard = {manager.name: await self._offers(manager, pod, refs) for manager in self._askers}
            standing = [manager.offers_stand(pod) for manager in self._askers]
            if all(standing):
                break
        return heard

    async def _offers(self, manager: ResourceManager, pod: AdmittedPod, refs: Sequence[ContainerRef]) -> list[Offer]:
        if self._topology.scope is Scope.POD and isinstance(manager, OffersForPods):
            return list(await manager.pod_offers(pod))
        return [offer for ref in refs for offer in await manager.offers(pod, ref)]

    async def _merge(
        self, pod: AdmittedPod, refs: Sequence[ContainerRef], heard: Mapping[str, list[Offer]]
    ) -> tuple[Merged, list[Offer]]:
        topology = self._topology
        if topology.policy is Policy.NONE:
            return Merged(topology.policy, ANYWHERE, admitted=True), []
        offers: list[Offer] = []
        for manager in self.managers:
            known = heard.get(manager.name)
            offers += await self._offers(manager, pod, refs) if known is None else known
        closest = self.machine.distance if topology.closest else None
        return merge(offers, self.machine.numa, topology.policy, closest=closest), offers

    async def _allocate_unit(
        self, pod: AdmittedPod, refs: Sequence[ContainerRef], merged: Merged, offers: Sequence[Offer]
    ) -> Refusal | None:
        """Let every manager give what the containers of one merge need; no two may contradict each other."""
        grants: dict[str, list[tuple[str, Grant]]] = {ref.name: [] for ref in refs}
        for manager in self.managers:
            own = next((one.resource for one in offers if one.provider == manager.name), "")
            given = await self._ask(manager, pod, refs, merged, merged.hint_for(own))
            if isinstance(given, Refusal):
                return given
            for name, grant in given.items():
                grants[name].append((manager.name, grant))
        for name, found in grants.items():
            together = combine(found)
            if isinstance(together, Conflict):
                return Refusal(UNEXPECTED, f"container {name}: managers contradict each other: {together}")
            if (refusal := self._strangers.refuses((pod.uid, name), together)) is not None:
                return refusal
        return None

    async def _ask(
        self, manager: ResourceManager, pod: AdmittedPod, refs: Sequence[ContainerRef], merged: Merged, hint: Hint
    ) -> Mapping[str, Grant] | Refusal:
        if isinstance(manager, AllocatesUnits):
            return await manager.allocate_unit(pod, refs, merged, self._topology.scope)
        grants = {}
        for ref in refs:
            answer = await manager.allocate(pod, ref, hint)
            if isinstance(answer, Refusal):
                return answer
            grants[ref.name] = answer
        return grants

    @staticmethod
    async def _resize_one(manager: ResourceManager, old: AdmittedPod, new: AdmittedPod) -> Refusal | None:
        if isinstance(manager, Resizes):
            return await manager.resize(old, new)
        if any((manager.grant(ref) or NOTHING) != NOTHING for ref, _ in old.containers()):
            return Refusal("Infeasible", f"what {manager.name} has given to the pod cannot be resized in place")
        return None

    @staticmethod
    async def _guarded(call: Any) -> Refusal | None:
        """A manager that raises or hangs refuses for now; the pod is tried again."""
        try:
            async with asyncio.timeout(MANAGER_SECONDS):
                refusal: Refusal | None = await call
                return refusal
        except TimeoutError:
            return Refusal(UNEXPECTED, f"a resource manager did not answer within {MANAGER_SECONDS:g} s", retry=True)
        except KubeqosError as error:
            return Refusal(UNEXPECTED, f"Allocate failed due to {error.what}, which is unexpected", retry=True)

    async def _undo(self, uid: str) -> None:
        """Give everything back. The room is free at once; a manager whose peers do not answer is asked again later."""
        self.entries.pop(uid, None)
        self._adopted.discard(uid)
        self._held.pods.pop(uid, None)
        self._strangers.forget(uid)
        everywhere = {(manager.name, uid) for manager in self.managers}
        self._unreleased |= everywhere
        self._releasing |= everywhere
        for manager in self.managers:
            await self._release_one(manager, uid)

    def retry_releases(self) -> None:
        """Ask those managers again that could not take something back; nobody waits for them."""
        by_name = {manager.name: manager for manager in self.managers} if self._unreleased else {}
        for name, uid in self._unreleased - self._releasing:
            task = asyncio.create_task(self._release_one(by_name[name], uid), name=f"give back {uid} at {name}")
            self._late_releases.add(task)
            task.add_done_callback(self._late_releases.discard)

    async def _release_one(self, manager: ResourceManager, uid: str) -> None:
        mine = manager.name, uid
        self._releasing.add(mine)
        try:
            async with asyncio.timeout(MANAGER_SECONDS):
                await manager.release(uid)
            self._unreleased.discard(mine)
        except (TimeoutError, KubeqosError) as error:
            log.warning("manager %s does not take back what pod %s held: %s", manager.name, uid, error)
        finally:
            self._releasing.discard(mine)

    def abort(self) -> None:
        """Wait for nobody any more."""
        for task in self._late_releases:
            task.cancel()

    def _enter(self, pod: AdmittedPod, holds: Occupant, untold: tuple[str, ...] = ()) -> None:
        metadata = pod.view.metadata
        self.entries[pod.uid] = LedgerEntry(metadata.namespace, metadata.name, resources_of(pod.raw), untold)
        self._held.pods[pod.uid] = holds
        self._held.promised.pop(pod.uid, None)
        self._adopted.discard(pod.uid)

    async def _save(self) -> None:
        """Wait until a state at least as new as the present one is stored; those who wait together share one write."""
        self._changes += 1
        mine = self._changes
        async with self._storing:
            if self._stored >= mine:
                return
            covers = self._changes
            states = self._strangers.states | {manager.name: manager.save() for manager in self.managers}
            await self._ledger.save(self.entries, states, self._held.reserved.keys() - self.entries.keys())
            self._stored = covers

    # ---- Restart

    async def restore(self, pods: Mapping[str, AdmittedPod], live: Mapping[ContainerRef, LiveContainer]) -> Restored:
        """Take over the ledger of an earlier life. `pods` are all that may still run, `live` those
        containers that do, from which what a lost ledger said is found again."""
        loaded = self._ledger.load()
        out = Restored(damaged=loaded.damaged)
        known = {uid: pods.get(uid) or entry.shadow(uid) for uid, entry in loaded.entries.items()}
        cut_short = {uid: LedgerEntry("", "", {}).shadow(uid) for uid in loaded.reserved if uid not in known}
        out.repairs += await restore_managers(self.managers, loaded.managers, known | cut_short)
        for uid, entry in loaded.entries.items():
            self.entries[uid] = entry
            self._held.pods[uid] = occupant_of(known[uid].view.spec)
        for uid in cut_short:
            await self._undo(uid)
        adopted, taken = adopt(self.managers, pods, live, self.entries)
        self._adopted |= adopted
        out.repairs += taken
        self._strangers.take_over(self.managers, loaded.managers, live)
        return out

    def validate(self) -> list[str]:
        """Broken invariants of the ledger and of every manager."""
        wrong = [f"{manager.name}: {problem}" for manager in self.managers for problem in manager.validate()]
        if self.entries.keys() != self._held.pods.keys():
            wrong.append("the ledger and what pods hold speak of different pods")
        return wrong + self._pending.validate(self._held.reserved)
