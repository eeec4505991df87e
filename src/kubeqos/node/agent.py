"""The node agent: the shell around `node.pod.machine` that follows the API, drives the runtime and registers the node.

Stimuli come from the pod informer, the runtime's events, a relist, static pod files and timers; effects are carried out
by `node.runtime.executor`, each in a task of its own. The core lets at most one effect per pod and target run, so order
holds within a pod and a stuck pod delays nobody. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from kubeqos.clock import NS, Timer, WallClock
from kubeqos.cri.errors import CallError
from kubeqos.cri.relist import Seen
from kubeqos.errors import KubeqosError, StateError
from kubeqos.gates import QOS_RESOURCES, STRICT_NAMES, TRANSLATE_METADATA
from kubeqos.logs import logger
from kubeqos.node.admission.managers import Reconciles
from kubeqos.node.admission.transaction import Admission
from kubeqos.node.api import nodestatus
from kubeqos.node.api.podwriter import PodWriter
from kubeqos.node.api.registration import known_classes
from kubeqos.node.api.sources import LocalPods, PodSink
from kubeqos.node.api.staticpods import Mirrors, StaticFolder
from kubeqos.node.cgroups.files import CgroupFiles
from kubeqos.node.cgroups.keeper import CgroupKeeper
from kubeqos.node.cgroups.units import units_of
from kubeqos.node.cgroups.unsupported import UnsupportedFiles
from kubeqos.node.config.driver import driver_of, mismatch
from kubeqos.node.cri.observer import live_containers
from kubeqos.node.decided import NodeDecisions
from kubeqos.node.nodekeeper import NodeKeeper
from kubeqos.node.parts import AgentCounters, NodeParts
from kubeqos.node.pod import effects as fx
from kubeqos.node.pod.machine import Core, admitted_pods, describe
from kubeqos.node.pod.status import StatusFacts
from kubeqos.node.runtime.executor import Executor, StartError
from kubeqos.node.runtime.follower import RuntimeWatch
from kubeqos.node.runtime.prober import Prober
from kubeqos.node.updates.books import Books
from kubeqos.node.updates.updater import ContainerUpdater
from kubeqos.rules.qos.classes import Catalog, catalog, has_class_annotations, translate_annotations
from kubeqos.supervision import Supervisor, Work
from kubeqos.topology.alignment.hints import TopologySettings

log = logger(__name__)
SYNC_SECONDS, RETRY_SECONDS = 10.0, 1.0
Answer = TypeVar("Answer")


class NodeAgent:
    """One node."""

    def __init__(self, parts: NodeParts) -> None:
        parts.settings.check()
        self.parts = parts
        self.settings = parts.settings
        self.runtime, self.machine = parts.runtime, parts.machine
        self.clock, self.context = parts.clock, parts.context
        self.classes, self.cpus, self.memory = parts.classes, parts.cpus, parts.memory
        self.managers = parts.managers
        self.counters = AgentCounters()
        self.ready = asyncio.Event()
        facts = StatusFacts(self.settings.addresses, classes=self.settings.gates.enabled(QOS_RESOURCES))
        self.core = Core(facts, journal_steps=self.settings.journal_steps)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._timer_at: float | None = None
        self._stopped = False
        self._looked: Seen | None = None
        self._make_hands()
        self._make_reports()

    def _make_hands(self) -> None:
        """The transaction over all managers, what carries effects out, and what keeps an eye on the runtime."""
        parts, settings = self.parts, self.settings
        topology = TopologySettings(settings.topology_policy, settings.topology_scope, settings.prefer_closest_numa)
        self.admission = Admission(
            self.machine, self.managers, parts.ledger, lambda: self.node.fit(), topology, parts.refuses
        )
        self.cgroups = self._cgroup_keeper()
        core, runtime, tell = self.core, self.runtime, parts.events.node
        self.updater = ContainerUpdater(core, runtime, self.admission, self.context, self._act, tell)
        kernel = self.cgroups.cpuset if self.cgroups else None
        self.books = Books(core, runtime, self.admission, self.updater, tell, kernel)
        self.executor = Executor(
            core,
            runtime,
            self.admission,
            self.updater,
            self.context,
            Prober(self.runtime, self.clock),
            api=parts.api,
            claims=parts.claims,
            cgroups=self.cgroups,
            threads=isinstance(self.clock, WallClock),
        )
        self.watch = RuntimeWatch(self.core, self.executor, self.feed, self._spawn, self.clock)

    def _cgroup_keeper(self) -> CgroupKeeper | None:
        """Who keeps the cgroups above containers; nobody where the hierarchy is not ours."""
        settings = self.settings
        if settings.cgroup_fs is None:
            return None
        milli = nodestatus.allocatable(self.machine, settings)["cpu"].milli()
        files, spare = CgroupFiles(settings.cgroup_fs), settings.eviction_hard_memory.value()
        unthrottled, events = self.admission.unthrottled, self.parts.events
        units = units_of(settings.cgroup_driver, settings.cgroup_fs)
        owned = self.admission.owned if settings.cpu_partitions else None
        return CgroupKeeper(
            files, self.core, self.context, milli, spare, unthrottled, events.pod, units, owned, events.node
        )

    def _make_reports(self) -> None:
        """Where pods come from, and where everything about them and about the node is told."""
        api = self.parts.api
        self.record_node = self.parts.events.node
        self.supervisor = Supervisor(self.clock, self.record_node)
        self.unsupported = UnsupportedFiles(self.admission.grant, self.context, self.parts.events.pod)
        self.decisions = NodeDecisions(self.parts, self.admission, self.core.pods.get)
        self.pods = self.parts.pods
        self.writer = PodWriter(api, self._spawn, self.parts.events.pod, self.decisions.status) if api else None
        self._sink: PodSink = self.writer or cast(LocalPods, self.pods)
        self._mirrors = Mirrors(api, self.writer, self._spawn) if api and self.writer else None
        self.node = NodeKeeper(self.parts, self.core.pods, self.admission, self.books, self.cgroups)

    # ---- Running

    async def run(self) -> None:
        """Run the node until cancelled; its containers run on without us."""
        try:
            await self._answered(self.refresh_runtime)
            self._keep("pods", self.pods.run)
            with contextlib.suppress(TimeoutError):
                # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event is set.
                async with asyncio.timeout(SYNC_SECONDS):
                    await self.pods.synced.wait()
            self._keep("events", self.parts.events.run)
            await self._take_over()
            self._keep("runtime events", self._follow_runtime)
            self._keep("relist", self._relist)
            for manager in self.managers:
                if isinstance(manager, Reconciles):
                    self._keep(f"reconcile {manager.name}", partial(self._reconcile, manager))
            self._keep("node status", self._keep_node)
            if self.parts.api is not None:
                self._keep("tokens", self.executor.keep_tokens)
            if self.cgroups is not None:
                self._keep("cgroups", partial(self.cgroups.run, self.clock))
                self._keep("reloads of systemd", self.cgroups.follow_reloads)
            self._keep("plugins' changes", self._follow_plugins)
            self.ready.set()
            await asyncio.Event().wait()
        finally:
            await self.stop()

    def abort(self) -> None:
        """End everything at once, as a crash would: nothing more is decided, called or written."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self.admission.abort()
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Abort, and wait until nothing of it is left."""
        self.abort()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _keep(self, name: str, work: Work) -> None:
        """Start a loop that goes on as long as the agent, whatever happens in it."""
        self._spawn(self.supervisor.keep(name, work))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._start(work)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        if self._stopped:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._stopped:
            self.supervisor.restarts["other"] += 1
            log.error("a task of node %s failed", self.settings.node_name, exc_info=error)

    def now(self) -> float:
        return self.clock.now_ns() / NS

    # ---- Stimuli and effects

    def feed(self, stimulus: fx.Stimulus) -> None:
        """Tell the core, and set off what it answers."""
        if self._stopped:
            return
        for effect in self.core.step(stimulus, self.now()):
            self._set_off(effect)
        self._arm()

    def _set_off(self, effect: fx.Effect) -> None:
        pod = self.core.pods.get(effect.uid)
        if isinstance(effect, fx.Look):
            self.watch.look(effect.uid)
        elif isinstance(effect, fx.Forget):
            self._sink.forget(effect.uid)
            self.unsupported.forget(effect.uid)
            self.decisions.forget(effect.uid)
            self.parts.events.parted(effect.uid)
            if self._mirrors is not None:
                self._mirrors.forget(effect.uid)
        elif pod is None:
            return
        elif isinstance(effect, fx.WriteStatus):
            if pod.source == "api":
                self._sink.write(pod.raw, effect.status)
            elif self._mirrors is not None:
                self._mirrors.write(pod.raw, effect.status)
        elif isinstance(effect, fx.DeletePod):
            self._sink.delete(pod.raw)
        elif isinstance(effect, fx.Record):
            self.parts.events.pod(pod.raw, effect)
        else:
            self._act(self._carry_out(effect))

    def _act(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something to the runtime or the managers; whoever waits for quiet waits for it."""
        task = self._start(work)
        if task is not None:
            self.parts.in_flight.count += 1
            task.add_done_callback(self._acted)

    def _acted(self, _task: asyncio.Task[None]) -> None:
        self.parts.in_flight.count -= 1

    async def _carry_out(self, effect: fx.Effect) -> None:
        pod = self.core.pods.get(effect.uid)
        if pod is None:
            return
        kind = type(effect).__name__
        self.counters.effects[kind] += 1
        again = effect.uid in self.admission.entries
        if isinstance(effect, fx.Admit):
            self.parts.events.met(effect.uid, pod.key)
        try:
            result = await self.executor.perform(pod, effect)
        except StartError as error:
            self._fail(fx.Failed(effect, error.what, error.reason))
        except CallError as error:
            self._fail(fx.Failed(effect, error.details))
        except KubeqosError as error:
            self._fail(fx.Failed(effect, error.what))
        except Exception as error:  # one broken pod must not stop the others
            log.exception("%s of %s", describe(effect), pod.key)
            self._fail(fx.Failed(effect, f"{type(error).__name__}: {error}"))
        else:
            self.feed(fx.Done(effect, result))
            if isinstance(effect, fx.Admit):
                self.unsupported.look_at([pod], told=again)
                self.decisions.admission(pod, result)
            if isinstance(effect, fx.Resize):
                self.decisions.resize(pod, result)
            if isinstance(effect, fx.Release):
                await self.executor.keep_cgroups()  # tiers are as large as the pods that are left
                await self.update_containers()
            if isinstance(effect, fx.Admit | fx.Release):
                self._spawn(self.node.write_soon())

    def _fail(self, failure: fx.Failed) -> None:
        self.counters.failures[type(failure.effect).__name__] += 1
        self.feed(failure)

    async def update_containers(self) -> None:
        """Let containers have what others gave back; what fails is tried again at the next relist."""
        try:
            await self.updater.reconcile()
        except StateError as error:
            log.warning("containers are told later what has changed: %s", error)

    def _arm(self) -> None:
        """One timer for everything the core wants to be woken for."""
        due = self.core.due
        if due == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = None if due is None else self.clock.call_at(int(due * NS) + 1, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        self.feed(fx.Tick())

    # ---- Taking over

    async def _answered(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Ask the runtime until it answers: without it nothing can be decided, and it may hang at any question."""
        while True:
            try:
                return await question()
            except CallError as error:
                log.warning("the runtime does not answer: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _take_over(self) -> None:
        """Find out what runs, take over the ledger, then listen to the API."""
        self._looked = await self._answered(self.runtime.look)  # what ends while we take over is an event, too
        seen = await self._answered(self.executor.look_at_all)
        pods = admitted_pods(self.pods.known())
        live = dict(live_containers(pods, seen, self.updater.as_found()))
        restored = await self.admission.restore(pods, live)
        for uid, entry in self.admission.entries.items():
            self.parts.events.met(uid, f"{entry.namespace}/{entry.name}")
        if restored.damaged:
            self.counters.damaged_checkpoints += len(restored.damaged)
            names = ", ".join(restored.damaged)
            self.record_node("CheckpointDamaged", f"set aside {names}; state is rebuilt from what runs")
        for repair in restored.repairs:
            self.record_node("LedgerRepaired", repair)
        for one in seen:
            self.feed(fx.Observed(one, 0))
        await self.update_containers()
        if self.settings.static_pod_dir is not None:
            folder = StaticFolder(self.settings.static_pod_dir, self.settings.node_name)
            folder.tell(self.feed, self.record_node)
            self._keep("static pods", partial(folder.follow, self.clock, self.feed, self.record_node))
        self.pods.on_change(self._pod_changed)
        if self.pods.synced.is_set():
            self._pods_listed()
        else:
            self._spawn(self._list_later())

    async def _list_later(self) -> None:
        await self.pods.synced.wait()
        self._pods_listed()

    def _pods_listed(self) -> None:
        self.feed(fx.PodsListed())
        for uid in self.admission.holders() - set(self.core.pods):
            self._spawn(self.admission.release(uid))

    def _pod_changed(self, change: fx.PodSet | fx.PodGone) -> None:
        if self._mirrors is not None:
            self._mirrors.changed(change)
        if self.writer is not None and isinstance(change, fx.PodSet):
            self.writer.heard(change.raw)
        translates = self.settings.gates.enabled(TRANSLATE_METADATA)
        if translates and isinstance(change, fx.PodSet) and has_class_annotations(change.raw):
            raw = copy.deepcopy(dict(change.raw))
            translate_annotations(raw, official=self.settings.gates.enabled(STRICT_NAMES))
            change = fx.PodSet(raw)
        self.feed(change)

    # ---- The runtime

    async def _follow_runtime(self) -> None:
        since, self._looked = self._looked, None
        await self.watch.follow(self.runtime, since or await self.runtime.look())

    async def _relist(self) -> None:
        """Now and then compare everything: an event may be lost, an update may have failed."""
        while True:
            await self.clock.sleep(self.settings.relist_seconds)
            drifted = False
            try:
                await self.watch.compare()
                drifted = await self.books.compare()
            except CallError as error:
                log.warning("cannot list what runs: %s", error)
            if self.updater.pending or drifted:
                await self.update_containers()

    async def _reconcile(self, manager: Reconciles) -> None:
        """Let a manager look around every period, and tell containers what it found."""
        while True:
            due = self.clock.steady_ns() + round(manager.reconcile_seconds * NS)
            if await manager.reconcile():
                await self.update_containers()
                self.unsupported.look_at(self.core.pods.values())
            await self.clock.sleep(max(0.0, (due - self.clock.steady_ns()) / NS))

    async def _follow_plugins(self) -> None:
        """Tell containers what a peer of a manager has changed by itself."""
        changed = self.parts.plugins.changed
        while True:
            await changed.wait()
            changed.clear()
            self._spawn(self.node.write_soon())
            await self.update_containers()

    async def refresh_runtime(self) -> None:
        """Ask the runtime how it is and what classes it offers; both may change at any time."""
        if not self.node.runtime.name:
            version = await self.runtime.version()
            name, driver = version.runtime_name, await driver_of(self.runtime)
            self.node.runtime = nodestatus.RuntimeFacts(name, version.runtime_version, cgroup_driver=driver)
            self.core.facts = replace(self.core.facts, runtime_name=name)
        status, before = (await self.runtime.status()).status, self.node.runtime
        self.node.runtime = before.asked(status, mismatch(self.settings.cgroup_driver, before.cgroup_driver))
        if self.node.runtime.absent != before.absent:
            self.record_node("QOSProvidersChanged", self.node.runtime.providers)
        if self.classes is not None:
            known = known_classes(self.node.registration, strict := self.settings.gates.enabled(STRICT_NAMES))
            self._set_catalog(catalog(nodestatus.advertised(status.resources), strict_names=strict, known=known))

    def _set_catalog(self, found: Catalog) -> None:
        assert self.classes is not None
        if found == self.classes.catalog:
            return
        for refused in set(found.refused) - set(self.classes.catalog.refused):
            self.record_node("QOSResourceRefused", refused)
        before = self.classes.take_over(found)
        for uid, pod in list(self.core.pods.items()):
            missing = self.classes.unavailable(pod.admitted) if self.settings.qos_class_eviction else []
            if missing:
                message = f"The node no longer offers what the pod asks for: {'; '.join(missing)}"
                self.feed(fx.Evict(uid, "QOSResourcesUnavailable", message))
            elif pod.live:
                self.watch.look(uid)  # implicit defaults may have changed
                if lost := self.classes.lost(uid, before):
                    self.parts.events.pod(pod.raw, fx.Record(uid, "Warning", "QOSClassRetired", lost))

    # ---- The node

    async def _keep_node(self) -> None:
        while True:
            try:
                await self.refresh_runtime()
            except CallError as error:
                self.node.runtime = replace(self.node.runtime, problem=f"container runtime is down: {error.details}")
            await self.node.write()
            if self.writer is not None and self.node.is_ready:
                self.writer.insist()
            await self.clock.sleep(self.settings.status_seconds)

    def validate(self) -> list[str]:
        """Broken invariants of the core, the ledger and the managers."""
        return self.core.validate() + self.admission.validate() + self.updater.pending.validate()
