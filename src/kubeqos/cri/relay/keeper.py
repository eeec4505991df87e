"""Keeps what the relay knows: the catalog in force, who holds classes, its file, and their agreement with the runtime.

Restores after a crash (checkpoint first, then what the runtime itself remembers), takes on a new configuration, and
finds the ends of containers that nobody told us about.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Mapping

from kubeqos.checkpoint import Checkpoint
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.config import RdtSpec
from kubeqos.cri.providers.holders import Assignment, ClassHolders, Holder
from kubeqos.cri.providers.protocol import Level, Place, Subject, SubjectGone
from kubeqos.cri.relay import core, enforce, messages, undo
from kubeqos.cri.runtime import Runtime
from kubeqos.errors import ConfigurationError, KubeqosError
from kubeqos.logs import logger

FOLLOW_SECONDS = 30.0
DRIFT_ROUNDS = 10
"""Every so many looks at what runs, the values of classes are read, too."""
log = logger("kubeqos.relay")


class Keeper:
    """The relay's state and how it lasts."""

    def __init__(
        self,
        catalog: Catalog,
        holders: ClassHolders,
        checkpoint: Checkpoint,
        runtime: Runtime,
        pods: PodCgroups,
        asks: core.Asks | None = None,
    ) -> None:
        self.pods = pods
        self.asks = asks
        self.missed: list[tuple[Subject, str]] = []
        """What was made without us and cannot have what it asked for, and why: for who can end it."""
        self.catalog = catalog
        self.holders = holders
        self.checkpoint = checkpoint
        self.runtime = runtime
        self.ready = asyncio.Event()
        """Set when the holders agree with what the runtime has; classes are given out only then."""
        self._version = self._saved = 0
        self._saving = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}
        self.drifts = 0
        """How many values of classes somebody else had changed."""
        self.unanswered = 0
        """How many annotations asked for a class that nobody here gives."""
        self._rounds = 0
        self.doubtful = False
        """A call was cut off and the runtime may have done more than we know: look again soon."""

    # ---- the file

    async def save(self) -> None:
        """Return when the holders as they are now are on disk. Callers that wait together share one write."""
        self._version += 1
        wanted = self._version
        async with self._saving:
            if self._saved >= wanted:
                return
            version, data = self._version, self.holders.dump()
            await asyncio.to_thread(self.checkpoint.save, data)
            self._saved = version

    async def save_if_changed(self) -> None:
        """What need not be waited for (resync finds an end again) is written soon after."""
        if self._version > self._saved:
            await self.save()

    # ---- ends

    def ended(self, key: str) -> None:
        """The subject no longer runs and takes no room."""
        holder = self.holders.get(key)
        if holder is not None and holder.alive:
            self.holders.put(key, dataclasses.replace(holder, alive=False, place=None))
            self._version += 1
            self.weigh_rest(holder.subject)

    async def forget(self, key: str) -> None:
        """The subject is gone."""
        holder = self.holders.remove(key)
        self._locks.pop(key, None)
        if holder is not None:
            self._version += 1
            await enforce.withdraw(self.catalog, holder)
            self.weigh_rest(holder.subject)

    # ---- the pod's cgroup

    def weigh(self, subject: Subject) -> None:
        """Let the pod's own cgroup say what the classes of its containers mean against other pods."""
        mates = [one for _, one in self.holders if one.subject.sandbox_id == subject.sandbox_id]
        enforce.weigh(self.catalog, self.pods, subject, mates)

    def weigh_rest(self, subject: Subject, mates: list[Holder] | None = None) -> None:
        """The same for those who are left, where nobody waits for it."""
        try:
            self.weigh(subject) if mates is None else enforce.weigh(self.catalog, self.pods, subject, mates)
        except (KubeqosError, OSError) as error:
            log.error("cannot weigh a pod", subject=subject.describe(), error=str(error))

    # ---- the runtime

    async def place(self, subject: Subject) -> Place | None:
        """Where a subject runs, or None when it does not run yet; raises SubjectGone when it has just ended."""
        if subject.level is Level.POD:
            place = messages.place_of((await self.runtime.pod_sandbox_status(subject.id, verbose=True)).info)
            return self._whole(place)
        place = messages.place_of((await self.runtime.container_status(subject.id, verbose=True)).info)
        return self._whole(place) if place.pid or place.cgroup else None

    def _whole(self, place: Place) -> Place:
        """With the cgroup, which the process knows."""
        return self.pods.host.located(place.pid) if place.pid and not place.cgroup else place

    async def held_back(self, subject: Subject, pid: int) -> Place:
        """Where a container is that the OCI hook holds back; the runtime may not know its first process yet."""
        told = messages.place_of((await self.runtime.container_status(subject.id, verbose=True)).info)
        return self._whole(dataclasses.replace(told, pid=pid))

    async def resync(self) -> None:
        """Make the holders agree with what the runtime has: exits we did not see, creates we did not save."""
        self.doubtful = False
        known = [key for key, _ in self.holders if ":" not in key]
        sandboxes, containers = await self.runtime.list_pod_sandboxes(), await self.runtime.list_containers()
        pods = {sandbox.id: sandbox for sandbox in sandboxes}
        adopted: list[str] = []
        for sandbox in sandboxes:
            alive = sandbox.state == cri.SANDBOX_READY
            subject = _sandbox_subject(sandbox)
            known_as = self._known_as(subject, sandbox.annotations, sandbox.annotations, alive)
            self._seen(sandbox.id, known_as, alive, alive, adopted)
        for item in containers:
            pod = pods.get(item.pod_sandbox_id)
            alive, running = item.state != cri.CONTAINER_EXITED, item.state == cri.CONTAINER_RUNNING
            asked = pod.annotations if pod is not None else {}
            known_as = self._known_as(_container_subject(item, pod), item.annotations, asked, running)
            self._seen(item.id, known_as, alive, running, adopted)
        there = {*pods, *(item.id for item in containers)}
        for key in known:
            if key not in there:
                await self.forget(key)
        await self._learn(adopted)
        await self._enforce(adopted)
        await self.save_if_changed()
        self.ready.set()

    def _known_as(
        self, subject: Subject, annotations: Mapping[str, str], of_pod: Mapping[str, str], running: bool
    ) -> Holder:
        """With the classes that it was made with by us; else those that it asked for and can still enter."""
        marked = messages.holder_from_mark(annotations, subject)
        if marked is not None or self.asks is None or self.holders.get(subject.id) is not None:
            return marked or Holder(subject)
        offers = self.catalog.offers
        asked = self.asks(offers, subject, of_pod)
        if isinstance(asked, core.Denied):
            self.missed.append((subject, asked.message))
            return Holder(subject)
        found = {}
        for wish in asked:
            offer = offers.get(wish.resource)
            if offer is None or not offer.find(wish.class_name) or (running and not offer.mutable):
                what = f"started without its class {wish.resource}={wish.class_name}, which cannot be entered later"
                self.missed.append((subject, f"{subject.describe()} {what}"))
            else:
                found[wish.resource] = Assignment(wish.class_name, explicit=True)
        return Holder(subject, found)

    def _seen(self, key: str, marked: Holder, alive: bool, running: bool, adopted: list[str]) -> None:
        holder = self.holders.get(key)
        if holder is not None:
            if not alive:
                self.ended(key)
            return
        classes = {**core.adopted(self.catalog.offers, marked.subject.level, running), **marked.classes}
        if classes:
            self.holders.put(key, dataclasses.replace(marked, classes=classes, alive=alive))
            self._version += 1
            adopted.append(key)

    async def _learn(self, keys: list[str]) -> None:
        """What containers have that were made without us: classes go from there."""
        for key in keys:
            holder = self.holders.get(key)
            if holder is None or holder.subject.level is Level.POD or holder.subject.cpu_shares:
                continue
            try:
                response = await self.runtime.container_status(key, verbose=True)
            except CallError as error:
                if error.code is Code.NOT_FOUND:
                    continue
                raise
            had = undo.in_status(response) or undo.in_spec(response)
            limit = max(had.memory_limit_in_bytes, 0)
            subject = dataclasses.replace(holder.subject, cpu_shares=had.cpu_shares, memory_limit_bytes=limit)
            self.holders.put(key, dataclasses.replace(holder, subject=subject))

    async def restore(self) -> None:
        """After a start: agree with the runtime, then enforce again what running subjects were promised."""
        await self.resync()
        await self.enforce_all()
        await self.save_if_changed()

    async def _enforce(self, keys: list[str], resources: Collection[str] | None = None) -> None:
        """Tell providers of everything that runs and has a class of theirs; of all, or of these resources."""
        for key in keys:
            holder = self.holders.get(key)
            if holder is None or not holder.alive or not holder.subject.id:
                continue
            told = {n: a for n, a in holder.classes.items() if resources is None or n in resources}
            if not enforce.acts_in_place(self.catalog, told):
                continue
            try:
                place = holder.place or await self.place(holder.subject)
                # A sandbox runs from the moment it is there, also where a runtime does not say in which process.
                if place is not None and (place.pid or holder.subject.level is Level.POD):
                    await enforce.enter(self.catalog, dataclasses.replace(holder, classes=told), place)
                    self.holders.put(key, dataclasses.replace(holder, place=place))
                    self.weigh(holder.subject)
            except KubeqosError as error:
                log.error("cannot enforce a class", subject=holder.subject.describe(), error=error.what)

    # ---- the configuration

    async def take_on(self, catalog: Catalog) -> None:
        """Put a new configuration in force, or raise with every reason against it and change nothing."""
        old = self.catalog
        gone = {name for name, source in old.sources.items() if source in catalog.absent}
        back = {name for name, source in catalog.sources.items() if source in old.absent}
        # Nobody moves because a provider went or came: what it was asked for waits for it.
        before = {name: offer for name, offer in old.offers.items() if name not in gone}
        before |= {name: catalog.offers[name] for name in back}
        refusals = core.broken_promises(before, catalog.offers, self.holders)
        if refusals:
            raise ConfigurationError(
                "the new classes.yaml is not taken on: " + "; ".join(refusals),
                remedy="keep the class and name it under `retired` until its containers have ended",
            )
        try:
            catalog.install()
        except KubeqosError:
            old.reinstall()
            raise
        self.catalog = catalog
        await asyncio.gather(*(self._follow(key, old, catalog, before) for key, _ in self.holders))
        await self._enforce([key for key, _ in self.holders], back)
        await self.save()
        busy = catalog.retire()
        if busy:
            log.warning("groups of removed classes still hold tasks", groups=busy)
        kept = {id(provider) for provider in catalog.distinct_providers()}
        for provider in old.distinct_providers():
            if id(provider) not in kept:
                await provider.close()
        await self.resync()

    async def repair(self) -> None:
        """Put back what another agent took away, everybody into it, and into their groups who came from outside."""
        if self.catalog.repair():
            log.warning("resctrl groups had been removed by another agent and were made again")
            await self.enforce_all()
        self.catalog.gather([holder for _, holder in self.holders])
        self._rounds += 1
        if self._rounds % DRIFT_ROUNDS == 0:
            await self._put_right()
        pods: dict[str, list[Holder]] = {}
        for _, holder in self.holders:
            pods.setdefault(holder.subject.sandbox_id, []).append(holder)
        for mates in pods.values():
            self.weigh_rest(mates[0].subject, mates)

    async def enforce_all(self) -> None:
        """Write again what classes promise to whoever runs: somebody has written his own to all of them."""
        await self._enforce([key for key, _ in self.holders])

    async def _put_right(self) -> None:
        """Look whether everybody's values are still those of their classes, and write them again where they are not."""
        for key, _ in list(self.holders):
            async with self.lock(key):
                holder = self.holders.get(key)
                if holder is None or not holder.alive or holder.place is None:
                    continue
                try:
                    changed = await enforce.drifted(self.catalog, holder, holder.place)
                    if changed:
                        self.drifts += len(changed)
                        log.warning("a class was changed by others", subject=holder.subject.describe(), files=changed)
                        await enforce.enter(self.catalog, holder, holder.place)
                except KubeqosError as error:
                    log.error("cannot enforce a class", subject=holder.subject.describe(), error=error.what)

    async def _follow(self, key: str, old: Catalog, new: Catalog, before: core.Offers) -> None:
        """One subject goes where the new configuration wants it; a failure is its own."""
        try:
            async with asyncio.timeout(FOLLOW_SECONDS), self.lock(key):
                holder = self.holders.get(key)
                if holder is None:
                    return
                holder = await self._located(holder)
                step = core.follow(before, new.offers, key, holder, _redefined(old, new))
                self.holders.put(key, step.holder)
                if step.holder.place is not None:
                    await enforce.move(old, holder.subject, step.holder.place, _in_place(old, step.leave))
                    await enforce.move(new, holder.subject, step.holder.place, _in_place(new, step.enter))
                    self.weigh(holder.subject)
        except (KubeqosError, TimeoutError) as error:
            log.error("a subject cannot follow the new configuration", id=key, error=str(error))

    async def _located(self, holder: Holder) -> Holder:
        """A subject that started when no class needed its place has one all the same."""
        if holder.place is not None or not holder.alive or not holder.subject.id:
            return holder
        try:
            place = await self.place(holder.subject)
        except CallError as error:
            if error.code is Code.NOT_FOUND:
                return holder  # being removed at this moment: nothing is left to follow
            raise
        except SubjectGone:
            return holder
        return dataclasses.replace(holder, place=place) if place is not None and place.pid else holder

    def lock(self, key: str) -> asyncio.Lock:
        """Whoever changes where a subject stands holds this."""
        return self._locks.setdefault(key, asyncio.Lock())


def _in_place(catalog: Catalog, moves: tuple[core.Move, ...]) -> list[core.Move]:
    return [step for step in moves if catalog.providers[step.resource].acts_in_place]


def _redefined(old: Catalog, new: Catalog) -> list[str]:
    """Resources whose classes have other contents now."""
    return [
        name
        for name, spec in new.specs.items()
        # A resctrl group keeps its tasks while its schemata change: nobody has to leave and come back.
        if name in old.specs and old.specs[name] != spec and not isinstance(spec.spec, RdtSpec)
    ]


def _sandbox_subject(item: cri.PodSandbox) -> Subject:
    meta = item.metadata
    return Subject(Level.POD, item.id, "", meta.uid, meta.namespace, meta.name, runtime_handler=item.runtime_handler)


def _container_subject(item: cri.Container, pod: cri.PodSandbox | None) -> Subject:
    pod = pod or cri.PodSandbox()
    meta, name, handler = pod.metadata, item.metadata.name, pod.runtime_handler
    return Subject(
        Level.CONTAINER,
        item.id,
        item.pod_sandbox_id,
        meta.uid,
        meta.namespace,
        meta.name,
        name,
        runtime_handler=handler,
    )
