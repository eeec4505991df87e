"""Who gets which cores on a stock node: pods come from the API server, containers from the runtime, by either shell.

Hooks of the runtime look up and never wait for an update of another container: the runtime holds one lock for all its
plugins, and such an update needs it. So whoever is to get cores waits for them when its pod is bound (`_admit`), and a
hook that comes too early refuses in words that reach the pod's events; the kubelet tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kubeqos.clock import NS
from kubeqos.cri.enforcing.host import Host, cgroup_path
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.effects import CgroupWrite
from kubeqos.cri.providers.protocol import Place
from kubeqos.errors import InputError, KubeqosError, StateError
from kubeqos.logs import logger
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.node.admission.managers import Reconciles
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.meeting import meeting_plugins
from kubeqos.node.parts import NodeParts
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.observed import Stage
from kubeqos.node.updates.books import Books
from kubeqos.node.updates.plan import CPUS, cpus_of
from kubeqos.node.updates.updater import ContainerUpdater
from kubeqos.plugins.managers import AdmittedPod, ContainerRef, Grant, LiveContainer, Refusal, StartHook
from kubeqos.rules.qos.podqos import QosClass
from kubeqos.stock.asking import asks_for_cores
from kubeqos.stock.cores.devices import only_claims
from kubeqos.stock.cores.events import ContainerEvent, PodEvent
from kubeqos.stock.cores.fences import Fences
from kubeqos.stock.cores.kernel import KernelCpusets
from kubeqos.stock.cores.owners import OwnedCpus
from kubeqos.stock.cores.pods import PodOnNode, PodTable, identity
from kubeqos.stock.cores.quotas import Quotas
from kubeqos.stock.cores.shared import SharedRest
from kubeqos.stock.cores.tableruntime import TableRuntime
from kubeqos.supervision import Supervisor, Work
from kubeqos.topology.alignment.hints import TopologySettings

log = logger("kubeqos.agent")
LIST_SECONDS = 10.0
"""How long a start waits for the API server; what runs is known from the ledger, too."""
EARLY_SECONDS = 1.0
"""How long a container of a pod that asks waits for the pod's admission, under the runtime's lock."""
RETRY_SECONDS, LATER_SECONDS = 2.0, 10.0
PREPARE_SECONDS, POLL_SECONDS = 20.0, 0.1
"""How long the kubelet waits for the claims of a pod (it gives 45 s), and how often it is looked for them."""


class CoresRefused(InputError):
    """A container that cannot have the cores that its pod asks for, or not yet."""


class CoreKeeper:
    """One node's cores."""

    def __init__(
        self, parts: NodeParts, table: PodTable, runtime: TableRuntime, host: Host, changed: Callable[[], None]
    ) -> None:
        self.parts, self.table, self.runtime = parts, table, runtime
        self._host, self._changed = host, changed
        settings = parts.settings
        topology = TopologySettings(settings.topology_policy, settings.topology_scope, settings.prefer_closest_numa)
        # Whether a pod fits is the kubelet's to say.
        self.admission = Admission(parts.machine, parts.managers, parts.ledger, lambda: None, topology, parts.refuses)
        self.shared = SharedRest(self.admission, table)
        self.kernel = KernelCpusets(host, table)
        self.fences = Fences(host, parts.machine.online)
        self.quotas = Quotas(host, table, self.shared.grants, parts.context)
        self.owners = OwnedCpus(host, table, self.admission.owned if settings.cpu_partitions else None)
        tell = parts.events.node
        self.updater = ContainerUpdater(table, runtime, self.shared, parts.context, self._spawn, tell)
        self.books = Books(table, runtime, self.shared, self.updater, tell, self.kernel.has)
        self.supervisor = Supervisor(parts.clock, tell)
        self.ready = asyncio.Event()
        """Set when what runs has been taken over."""
        self._told = asyncio.Event()
        self._live: dict[ContainerRef, LiveContainer] = {}
        self._admitting: set[str] = set()
        self._again: dict[str, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # ---- Running

    async def run(self) -> None:
        """Keep cores until cancelled; containers run on without us."""
        try:
            async with meeting_plugins(self.parts.plugins, self.supervisor):
                self._keep("pods", self.parts.pods.run)
                self._keep("events", self.parts.events.run)
                await self._told.wait()
                await self._take_over()
                self._keep("books", self._compare)
                self._keep("pods that wait", self._try_again)
                self._keep("plugins' changes", self._follow_plugins)
                for manager in self.admission.managers:
                    if isinstance(manager, Reconciles):
                        self._keep(f"reconcile {manager.name}", partial(self._ask, manager))
                await asyncio.Event().wait()
        finally:
            self.admission.abort()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def listed(self) -> None:
        """Wait a while for the API server's pods: better to know them before the runtime asks."""
        try:
            async with asyncio.timeout(LIST_SECONDS):
                await self.parts.pods.synced.wait()
        except TimeoutError:
            log.warning("the API server does not answer; going on with what the node knows by itself")

    def _keep(self, name: str, work: Work) -> None:
        self._spawn(self.supervisor.keep(name, work))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the agent failed", exc_info=error)

    # ---- What runs already

    def synchronize(self, found: Sequence[tuple[PodEvent | None, ContainerEvent]]) -> None:
        """The runtime says which containers it has, and of which pods, after every (re)connection."""
        present = {one.id for _, one in found}
        for row in self.table.pods.values():
            for gone in [one for one in row.containers if one not in present]:
                self.table.ended(gone)
        for pod, one in found:
            self.meet(pod, one)
        self._told.set()
        if self.ready.is_set():
            self._spawn(self._update())
            for row in list(self.table.pods.values()):
                self._let_go(row)

    def meet(self, pod: PodEvent | None, one: ContainerEvent) -> None:
        """The runtime has this container; nobody was asked when it was made, or it was an earlier agent."""
        if pod is None or one.stage is Stage.EXITED:
            self.table.ended(one.id)
            return
        row = self.table.met(pod.uid, pod.namespace, pod.name, pod.annotations)
        self.table.container(row, one.id, one.name, one.stage, one.cgroup)
        has = one.resources
        self._live[row.ref(one.name)] = LiveContainer(dict(one.annotations), has.cpuset_cpus, has.cpuset_mems)
        self.quotas.found(cgroup_path(one.cgroup), has.cpu_quota)
        if not self.updater.pending.of((row.uid, one.name)):
            # One that started while nobody was asked is where those above it let it be, of which runtimes know
            # nothing; taken for one that may be anywhere, it would be in the way of others.
            has.cpuset_cpus = has.cpuset_cpus or self.kernel.in_force(one.cgroup)
            self.updater.found((row.uid, one.name), has)

    async def _take_over(self) -> None:
        """Load the ledger, compare it with what runs, then listen to the API server."""
        for raw in self.parts.pods.known():
            self.table.bind(raw)
        pods = {uid: row.admitted for uid, row in self.table.pods.items() if row.bound}
        # By now pods are described, and their containers are those that managers know. A pod that the API server does
        # not have any more may still run, as may a debugger's container: managers can say nothing new of these.
        known = {(uid, name): ref for uid, pod in pods.items() for name, ref in pod.refs.items()}
        live = {known[key]: one for ref, one in self._live.items() if (key := (ref.pod_uid, ref.name)) in known}
        restored = await self.admission.restore(pods, live)
        for what in restored.damaged:
            self.parts.events.node("CheckpointDamaged", f"set aside {what}; state is rebuilt from what runs")
        for repair in restored.repairs:
            self.parts.events.node("LedgerRepaired", repair)
        for uid in self.admission.entries.keys() & self.table.pods.keys():
            self.table.pods[uid].is_admitted = True
            self.table.pods[uid].decided.set()
        self.quotas.take_over()
        await self._update()
        self.ready.set()
        self.parts.pods.on_change(self._pod_changed)
        self._spawn(self._forget_gone())

    async def _forget_gone(self) -> None:
        """Pods that went while we were away, once the API server has said which there are."""
        await self.parts.pods.synced.wait()
        bound = {identity(raw) for raw in self.parts.pods.known()}
        for uid in self.admission.holders() - bound:
            row = self.table.pods.get(uid)
            if row is None or not row.live:
                await self._release(uid)

    # ---- Pods

    def _pod_changed(self, change: fx.PodSet | fx.PodGone) -> None:
        if isinstance(change, fx.PodSet):
            row = self.table.bind(change.raw)
            if not row.over and not row.is_admitted:
                self._spawn(self._admit(row))
            self._let_go(row)
            return
        gone = self.table.by_api_uid(change.uid)
        if gone is not None:
            gone.bound = False
            self._let_go(gone)

    async def _admit(self, row: PodOnNode) -> None:
        """Reserve what a pod needs, and let others make room for it before its first container is created."""
        if row.uid in self._admitting or row.is_admitted or row.over:
            return
        self._admitting.add(row.uid)
        try:
            refusal = await self._reserve(row)
        except KubeqosError as error:
            refusal = Refusal("UnexpectedAdmissionError", error.what, retry=True)
        finally:
            self._admitting.discard(row.uid)
        row.is_admitted = refusal is None
        if refusal is not None:
            self._refused(row, refusal)
        row.refusal = refusal
        row.decided.set()
        self._changed()
        self._let_go(row)

    async def _reserve(self, row: PodOnNode) -> Refusal | None:
        known = row.admitted
        claims = await self.parts.claims(known.raw)
        if isinstance(claims, Refusal):
            return claims
        raw = only_claims(known.raw, claims)
        row.admitted = AdmittedPod.of(raw, claims)
        refusal = await self.admission.admit(row.admitted)
        await self._update()
        if refusal is None:
            for ref in row.admitted.refs.values():
                try:
                    await self.updater.room(ref, self.admission.cpus_of(ref))
                except KubeqosError as error:
                    log.warning("a pod's cores are not free yet", pod=row.key, reason=error.what)
        return refusal

    def _refused(self, row: PodOnNode, refusal: Refusal) -> None:
        self._again[row.uid] = self._now() + (RETRY_SECONDS if refusal.retry else LATER_SECONDS)
        if self._asks(row) and refusal != row.refusal:
            told = fx.Record(row.uid, "Warning", refusal.reason, refusal.message)
            self.parts.events.pod(row.admitted.raw, told)

    async def _try_again(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            for row in list(self.table.pods.values()):
                if row.bound and row.refusal is not None and self._again.get(row.uid, 0.0) <= self._now():
                    self._spawn(self._admit(row))

    def _let_go(self, row: PodOnNode) -> None:
        """Give back what a pod held, once it is over or gone and nothing of it runs."""
        busy = row.live or row.uid in self._admitting or not self.ready.is_set()
        if busy or (row.bound and not (row.over and row.uid in self.admission.holders())):
            return
        self._spawn(self._release(row.uid))

    async def _release(self, uid: str) -> None:
        row = self.table.pods.get(uid)
        if row is not None and not row.over:
            del self.table.pods[uid]
        elif row is not None:
            row.is_admitted = False
        self._again.pop(uid, None)
        await self.admission.release(uid)
        self.updater.removed(uid)
        await self._update()
        self._changed()

    async def prepared(self, uid: str) -> str:
        """Wait until a pod is admitted; why it is not, after a while.

        One that owns all its CPUs is kept to them before it has a container: should the agent be gone when these are
        created, they begin there all the same.
        """
        if refusal := await self._decided(uid):
            return refusal
        row = self.table.pods[uid]
        grants = [self.shared.grant(ref) for ref in row.admitted.refs.values()]
        if not row.live and all(cpus_of(one) <= one.exclusive for one in grants):
            self.fences.confine(uid, CpuSet.from_ids(cpu for one in grants for cpu in cpus_of(one)))
        return ""

    async def _decided(self, uid: str) -> str:
        row = self.table.pods.get(uid)
        try:
            async with asyncio.timeout(PREPARE_SECONDS):
                while row is None or not row.is_admitted:
                    if row is not None and row.refusal is not None and not row.refusal.retry:
                        self._spawn(self._admit(row))  # others may have left: the next question gets the answer
                        return row.why_not
                    await asyncio.sleep(POLL_SECONDS)
                    row = self.table.pods.get(uid)
        except TimeoutError:
            return row.why_not if row is not None else "the API server has not told of the pod yet"
        return ""

    # ---- Containers: what the runtime asks

    async def create(self, pod: PodEvent, container: ContainerEvent) -> Grant:
        """What a new container gets, or why it must not be created now; for a runtime that knows its id by then."""
        grant = await self.decide(pod, container)
        await self.created(pod, container, grant)
        return grant

    async def decide(self, pod: PodEvent, container: ContainerEvent) -> Grant:
        """What a new container gets, or why it must not be created now."""
        row = self.table.met(pod.uid, pod.namespace, pod.name, pod.annotations)
        if not self.ready.is_set():  # who owns what is in the ledger, which is being read
            await self._in_time(self.ready, row)
        who = f"container {container.name!r} of pod {row.key}"
        if not row.is_admitted and (self._asks(row) or asks_for_cores(pod.annotations)):
            await self._in_time(row.decided, row)
            if not row.is_admitted:
                raise CoresRefused(f"{who}: {row.why_not}")
        ref = row.ref(container.name)
        given = self.shared.grant(ref)
        grant = self._out_of_the_way(who, ref, given)
        cgroup = cgroup_path(container.cgroup)
        self.fences.allow(cgroup, cpus_of(grant))
        if self.fences.met(cgroup):
            self._spawn(self._update())
        return grant

    async def created(self, pod: PodEvent, container: ContainerEvent, grant: Grant) -> None:
        """The runtime has made a container with this grant."""
        row = self.table.met(pod.uid, pod.namespace, pod.name, pod.annotations)
        self.table.container(row, container.id, container.name, Stage.CREATED, container.cgroup)
        await self.updater.created(row.ref(container.name), container.id, grant)
        if grant.unthrottled:
            self.quotas.keep()

    async def start(self, pod: PodEvent, container: ContainerEvent) -> None:
        """Its first process is there and waits: managers may prepare it, and nobody tells it anything until it runs."""
        row = await self._prepare(pod, container)
        if row is not None:
            self._narrow(row, row.ref(container.name), container)
            self.owners.keep()
            self.updater.hold(row.ref(container.name))

    @contextlib.asynccontextmanager
    async def starting(self, pod: PodEvent, container: ContainerEvent) -> AsyncIterator[None]:
        """For a shell that stands before the runtime: what a container is to hear it hears before the start, and while
        the start lasts nothing."""
        row = await self._prepare(pod, container)
        if row is None:
            yield
            return
        ref = row.ref(container.name)
        await self.updater.before_start(ref, container.id)
        async with self.updater.paused(ref):
            yield
        self.started(pod, container)
        self.quotas.keep()
        self.owners.keep()

    async def _prepare(self, pod: PodEvent, container: ContainerEvent) -> PodOnNode | None:
        """Let managers prepare a container that is about to start; None for one that is not known here."""
        row = self.table.pods.get(pod.uid)
        if row is None or container.id not in row.containers:
            return None
        for manager in self.admission.managers if row.is_admitted else ():
            if isinstance(manager, StartHook):
                ref = row.ref(container.name)
                refusal = await manager.before_start(row.admitted, ref, container.id, pod.cgroup)
                if refusal is not None:
                    raise CoresRefused(f"container {container.name!r} of pod {row.key}: {refusal.message}")
        return row

    def started(self, pod: PodEvent, container: ContainerEvent) -> None:
        row = self.table.pods.get(pod.uid)
        if row is not None and container.id in row.containers:
            self.table.container(row, container.id, container.name, Stage.RUNNING)
            self.updater.resume(row.ref(container.name))

    def ended(self, container_id: str) -> None:
        """A container has stopped, or was removed."""
        row = self.table.ended(container_id)
        if row is not None:
            self.updater.resume(row.ref(row.containers[container_id].name))
            self._let_go(row)

    def _asks(self, row: PodOnNode) -> bool:
        """Whether a pod must not run without what it asks for; where CPUs are given by QoS class, that is a promise."""
        by_class = self.parts.cpus is not None and row.admitted.qos is QosClass.GUARANTEED
        return row.asks or by_class

    async def _in_time(self, event: asyncio.Event, row: PodOnNode) -> None:
        try:
            async with asyncio.timeout(EARLY_SECONDS):
                await event.wait()
        except TimeoutError:
            log.warning("a container comes before it is known who owns what, or before its pod", pod=row.key)

    def _out_of_the_way(self, who: str, ref: ContainerRef, given: Grant) -> Grant:
        """What of a grant can be had now: CPUs that others have not left are given when they have."""
        cpus, taken = cpus_of(given), NO_CPUS
        for one in self.updater.in_the_way(ref, cpus):
            taken |= one.gives_up & cpus
        if not taken:
            return given
        if taken & given.exclusive or taken >= cpus:
            raise CoresRefused(f"{who}: others have not left CPUs {taken} yet; it is tried again")
        return replace(given, properties={**given.properties, CPUS: str(cpus - taken)})

    def _narrow(self, row: PodOnNode, ref: ContainerRef, container: ContainerEvent) -> None:
        """What a container is to give up and was not told yet, it gives up before it runs: in its cgroup itself."""
        late = self.updater.pending.before_start((row.uid, ref.name))
        if not late:
            return
        cpus = late[0].before & late[-1].cpus
        if not cpus:
            who = f"container {ref.name!r} of pod {row.key}"
            raise CoresRefused(f"{who}: its CPUs {late[0].before} were given to others meanwhile; it is tried again")
        place = Place(container.pid, cgroup_path(container.cgroup))
        self._host.perform(place, [CgroupWrite("cpuset", (("cpuset.cpus", str(cpus)),))])

    async def leave(self) -> None:
        """Let every running container have all CPUs again: nobody keeps any promise here from now on."""
        machine = self.parts.machine
        for row in self.table.pods.values():
            for one in [one for one in row.containers.values() if one.live]:
                self.fences.allow(cgroup_path(row.cgroups.get(one.id, "")), machine.online)
                everything = cri.LinuxContainerResources(cpuset_cpus=str(machine.online), cpuset_mems=str(machine.numa))
                request = cri.UpdateContainerResourcesRequest(container_id=one.id, linux=everything)
                await self.runtime.update_container_resources(request)
        self.quotas.leave()
        self.owners.leave()

    # ---- Looking after everybody

    async def _update(self) -> None:
        self.fences.widen(self._fenced())
        try:
            await self.updater.reconcile()
        except StateError as error:
            log.warning("containers are told later what has changed", reason=error.what)
        self.fences.narrow(self._fenced())
        self.quotas.keep()
        self.owners.keep()

    def _fenced(self) -> dict[str, CpuSet]:
        """What each tier of pods may have."""
        grants, rows = self.shared.grants(), self.table.pods.values()
        found = ((row.uid, row.containers.get(id), where) for row in rows for id, where in row.cgroups.items())
        cpus = ((where, cpus_of(grants[uid, one.name]) if one and one.live else None) for uid, one, where in found)
        return self.fences.wanted(((cgroup_path(where), one) for where, one in cpus), self.shared.rest())

    async def _ask(self, manager: Reconciles) -> None:
        while True:
            if await manager.reconcile():
                await self._update()
                self._changed()
            await asyncio.sleep(manager.reconcile_seconds)

    async def _follow_plugins(self) -> None:
        changed = self.parts.plugins.changed
        while True:
            await changed.wait()
            changed.clear()
            await self._update()
            self._changed()

    async def _compare(self) -> None:
        """Now and then: what containers have by the kernel is what they were granted."""
        while True:
            await asyncio.sleep(self.parts.settings.relist_seconds)
            try:
                drifted = await self.books.compare()
            except CallError as error:
                log.warning("cannot compare what containers have", reason=error.what)
                continue
            if drifted or self.updater.pending:
                await self._update()
            self.quotas.keep()
            self._changed()

    def _now(self) -> float:
        return self.parts.clock.now_ns() / NS

    def validate(self) -> list[str]:
        """Broken invariants of the ledger, the managers and what is pending."""
        return self.admission.validate() + self.updater.pending.validate()

    def shown(self) -> Iterable[AdmittedPod]:
        return [row.admitted for row in self.table.pods.values() if row.is_admitted]
