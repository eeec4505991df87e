"""Keeps one node's classes: drives the table, calls the providers, and looks after what they have done.

The same object in every home. The shells around it translate: the relay a kubelet's CRI calls, the agent of a stock
node what NRI tells. What they can do beyond that (ask where something runs, save the table) they override here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence

from kubeqos.cri.classes import decisions, enforce
from kubeqos.cri.classes.decisions import Denied, Wish
from kubeqos.cri.classes.table import ClassTable, Effect, Enforce, Found, Missed, Weigh, Withdraw
from kubeqos.cri.enforcing.podcgroups import PodCgroups
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.config import RdtSpec
from kubeqos.cri.providers.holders import ClassHolders, Holder
from kubeqos.cri.providers.protocol import ClassRefusal, Edit, Level, Place, Subject, SubjectGone
from kubeqos.cri.status import INVALID_ARGUMENT
from kubeqos.errors import ConfigurationError, InputError, KubeqosError, RemoteError
from kubeqos.logs import logger

FOLLOW_SECONDS = 30.0
DRIFT_ROUNDS = 10
"""Every so many looks at what runs, the values of classes are read, too."""
Broken = Callable[[Subject, str], None]
"""Told of a running pod that does not have what it asked for, and why."""
log = logger("kubeqos.classes")


class ClassRefused(InputError):
    """A pod or container that cannot have what it asked for; `code` is what a CRI call fails with."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class ClassKeeper:
    """Classes for the pods of one node."""

    def __init__(self, catalog: Catalog, table: ClassTable, pods: PodCgroups, broken: Broken | None = None) -> None:
        """`broken` is told by those who can end a pod."""
        self.catalog = catalog
        self.table = table
        self.pods = pods
        self._broken = broken
        self._locks: dict[str, asyncio.Lock] = {}
        self._rounds = 0
        self.drifts = 0
        """How many values of classes somebody else had changed."""

    @property
    def holders(self) -> ClassHolders:
        return self.table.holders

    def lock(self, key: str) -> asyncio.Lock:
        """Whoever changes where a subject stands holds this."""
        return self._locks.setdefault(key, asyncio.Lock())

    # ---- what a shell may be able to do

    async def save(self) -> None:
        """Return when the table as it is now outlasts us; where the runtime keeps our notes it does so by itself."""

    async def resync(self) -> None:
        """Look again at what the runtime has, where it can be asked; raises RemoteError."""

    async def place(self, subject: Subject) -> Place | None:
        """Where a subject runs; None when it does not run yet, or is not to be asked for. Raises SubjectGone."""
        return None

    def located(self, place: Place) -> Place:
        """The whole of a place of which the runtime has told a part."""
        return place

    # ---- what is about to be made

    def asked(self, subject: Subject, pod_annotations: Mapping[str, str]) -> Sequence[Wish]:
        """What a pod asks for by annotation; raises ClassRefused where that cannot be read."""
        asked = self.table.asked(subject, pod_annotations)
        if isinstance(asked, Denied):
            raise ClassRefused(INVALID_ARGUMENT, f"{subject.describe()}: {asked.message}")
        return asked

    async def reserve(
        self, key: str, subject: Subject, wishes: Sequence[Wish], fallback: Sequence[Wish] = ()
    ) -> Holder:
        """Classes for a new subject to which its providers agree, counted from now on; or ClassRefused."""
        granted = self.table.reserve(key, subject, wishes, fallback)
        if isinstance(granted, Denied) and granted.shortage:
            await self._look_again()
            granted = self.table.reserve(key, subject, wishes, fallback)
        if isinstance(granted, Denied):
            raise ClassRefused(granted.code, f"{subject.describe()}: {granted.message}")
        if not granted.classes:
            return granted
        with self.released_on_failure(key):
            agreed = await enforce.check(self.catalog, subject, granted.classes)
            if isinstance(agreed, ClassRefusal):
                raise ClassRefused(INVALID_ARGUMENT, f"{subject.describe()}: {agreed}")
        return self.table.agreed(key, agreed)

    @contextlib.contextmanager
    def released_on_failure(self, key: str) -> Iterator[None]:
        """Room that was reserved for a create is free again when the create fails."""
        try:
            yield
        except BaseException:
            self.table.released(key)
            raise

    async def _look_again(self) -> None:
        """A class is full: some of its containers may have ended by themselves."""
        try:
            await self.resync()
        except RemoteError as error:
            log.warning("cannot list what the runtime has", error=error.what)

    async def edits(self, holder: Holder) -> Edit:
        """What the classes of a subject change in the request that the runtime sees."""
        return await enforce.edits(self.catalog, holder.subject, holder.classes)

    # ---- what runs

    async def enter(self, key: str, place: Place) -> None:
        """Enforce the classes of a subject at the place where it has just started; nothing has changed if that fails.

        The caller holds the lock.
        """
        before = self.holders.get(key)
        if before is None:
            return
        place = self.located(place) if enforce.needs_place(self.catalog, before.classes) else place
        self.table.placed(key, place)
        try:
            await enforce.enter(self.catalog, before, place)
            self.weigh(before.subject)
            await self.save()
        except BaseException:
            if (now := self.holders.get(key)) is not None and now.alive:
                self.table.put(key, before, "not entered")
            raise

    async def agreed_change(
        self, key: str, holder: Holder, wishes: Sequence[Wish], subject: Subject
    ) -> decisions.ClassChange:
        """What an update means, to which every provider agrees; or ClassRefused. Nothing is changed yet."""
        change = self.table.change(key, holder, wishes, subject)
        if isinstance(change, Denied):
            raise ClassRefused(change.code, change.message)
        agreed = await enforce.check(self.catalog, subject, change.holder.classes)
        if isinstance(agreed, ClassRefusal):
            raise ClassRefused(INVALID_ARGUMENT, f"{subject.describe()}: {agreed}; nothing was updated")
        return change

    async def resize(self, key: str, *, cpu_shares: int, memory_limit_bytes: int) -> None:
        """A subject asks for other amounts from now on (0: as before) and its providers agree; or ClassRefused."""
        if (holder := self.holders.get(key)) is not None:
            subject = decisions.resized(holder.subject, cpu_shares, memory_limit_bytes)
            change = await self.agreed_change(key, holder, (), subject)
            self.table.put(key, change.holder, "resized")

    @contextlib.asynccontextmanager
    async def changing(self, change: decisions.ClassChange, before: Holder) -> AsyncIterator[contextlib.AsyncExitStack]:
        """Move, let the caller tell the runtime, save. What was done is undone, last first, when a later step fails.

        What takes the caller's part back goes onto the stack. The caller holds the lock.
        """
        holder, place = change.holder, change.holder.place
        key, moves = holder.subject.id, change.moves if place else ()
        self.table.put(key, holder, "changed")
        async with contextlib.AsyncExitStack() as way_back:
            way_back.callback(lambda: self._weigh_rest(holder.subject, self.table.mates(holder.subject)))
            way_back.callback(self.table.put, key, before, "changed back")
            await enforce.move(self.catalog, holder.subject, place or Place(), moves)
            way_back.push_async_callback(enforce.move_back, self.catalog, holder.subject, place or Place(), moves)
            yield way_back
            self.weigh(holder.subject)
            await self.save()
            way_back.pop_all()

    async def ended(self, key: str) -> None:
        """The subject no longer runs and takes no room."""
        await self._perform(self.table.ended(key))

    async def forget(self, key: str) -> None:
        """The subject is gone."""
        self._locks.pop(key, None)
        await self._perform(self.table.gone(key))

    async def synchronize(
        self, found: Sequence[Found], before: Collection[str] | None = None, *, again: bool = False
    ) -> None:
        """Make the table agree with what the runtime has, and everybody new (or, with `again`, everybody) enter."""
        await self._perform(self.table.synchronize(found, before, again=again))

    async def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Withdraw(key, holder):
                    self._locks.pop(key, None)
                    await enforce.withdraw(self.catalog, holder)
                case Weigh(subject):
                    self._weigh_rest(subject, self.table.mates(subject))
                case Enforce(key, place):
                    await self.enforce_found(key, place)
                case Missed(subject, reason):
                    self._tell_broken(subject, reason)

    def _tell_broken(self, subject: Subject, reason: str) -> None:
        if self._broken is not None:
            self._broken(subject, reason)

    async def enforce_found(self, key: str, place: Place | None = None) -> None:
        """Let one that ran before us into its classes. Who asked and cannot be runs outside them, and is told of."""
        try:
            await self.let_in(key, place)
        except KubeqosError as error:
            log.error("cannot enforce a class", id=key, error=error.what)
            holder = self.holders.get(key)
            # Where the runtime did not say where it is, or it is not any more, nothing is known against the class.
            known = holder is not None and not isinstance(error, CallError | SubjectGone)
            if holder is not None and known and any(each.explicit for each in holder.classes.values()):
                self._tell_broken(holder.subject, error.what)

    async def let_in(self, key: str, told: Place | None = None, resources: Collection[str] | None = None) -> None:
        """Let one that runs into its classes; into all, or those of these resources."""
        holder = self.holders.get(key)
        if holder is None or not holder.alive or not holder.subject.id:
            return
        classes = {n: a for n, a in holder.classes.items() if resources is None or n in resources}
        if not enforce.acts_in_place(self.catalog, classes):
            return
        place = self.located(told) if told else holder.place or await self.place(holder.subject)
        # A sandbox runs from the moment it is there, also where a runtime does not say in which process.
        if place is None or not (place.pid or holder.subject.level is Level.POD):
            return
        await enforce.enter(self.catalog, dataclasses.replace(holder, classes=classes), place)
        if (now := self.holders.get(key)) is not None and now.alive:
            self.table.placed(key, place)
            self.weigh(holder.subject)

    # ---- the pod's cgroup

    def weigh(self, subject: Subject) -> None:
        """Let the pod's own cgroup say what the classes of its containers mean against other pods."""
        enforce.weigh(self.catalog, self.pods, subject, self.table.mates(subject))

    def _weigh_rest(self, subject: Subject, mates: list[Holder]) -> None:
        """The same for those who are left, where nobody waits for it."""
        try:
            enforce.weigh(self.catalog, self.pods, subject, mates)
        except (KubeqosError, OSError) as error:
            log.error("cannot weigh a pod", subject=subject.describe(), error=str(error))

    # ---- looking after it

    async def repair(self) -> None:
        """Put back what another agent took away, everybody into it, and into their groups who came from outside."""
        if self.catalog.repair():
            log.warning("resctrl groups had been removed by another agent and were made again")
            await self.enforce_all()
        self.catalog.gather([holder for _, holder in self.holders])
        self._rounds += 1
        if self._rounds % DRIFT_ROUNDS == 0:
            await self.put_right()
        pods: dict[str, list[Holder]] = {}
        for _, holder in self.holders:
            pods.setdefault(holder.subject.sandbox_id, []).append(holder)
        for mates in pods.values():
            self._weigh_rest(mates[0].subject, mates)

    async def enforce_all(self, resources: Collection[str] | None = None) -> None:
        """Write again what classes promise to whoever runs: somebody has written his own to all of them."""
        for key, holder in self.holders:
            try:
                await self.let_in(key, None, resources)
            except KubeqosError as error:
                log.error("cannot enforce a class", subject=holder.subject.describe(), error=error.what)

    async def put_right(self) -> None:
        """Look whether everybody's values are still those of their classes, and write them again where they are not."""
        for key, _ in self.holders:
            if self.holders.get(key) is None:
                continue  # gone meanwhile, and its lock with it
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

    # ---- the configuration

    async def take_on(self, catalog: Catalog) -> None:
        """Put a new configuration in force, or raise with every reason against it and change nothing."""
        old = self.catalog
        gone = {name for name, source in old.sources.items() if source in catalog.absent}
        back = {name for name, source in catalog.sources.items() if source in old.absent}
        # Nobody moves because a provider went or came: what it was asked for waits for it.
        before = {name: offer for name, offer in old.offers.items() if name not in gone}
        before |= {name: catalog.offers[name] for name in back}
        refusals = decisions.broken_promises(before, catalog.offers, self.holders)
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
        self.catalog, self.table.offers = catalog, catalog.offers
        await asyncio.gather(*(self._follow(key, old, catalog, before) for key, _ in self.holders))
        await self.enforce_all(back)
        await self.save()
        busy = catalog.retire()
        if busy:
            log.warning("groups of removed classes still hold tasks", groups=busy)
        kept = {id(provider) for provider in catalog.distinct_providers()}
        for provider in old.distinct_providers():
            if id(provider) not in kept:
                await provider.close()
        await self.resync()

    async def _follow(self, key: str, old: Catalog, new: Catalog, before: decisions.Offers) -> None:
        """One subject goes where the new configuration wants it; a failure is its own."""
        try:
            async with asyncio.timeout(FOLLOW_SECONDS), self.lock(key):
                holder = self.holders.get(key)
                if holder is None:
                    return
                holder = await self._located(holder)
                step = self.table.follow(before, key, holder, _redefined(old, new))
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


def _in_place(catalog: Catalog, moves: tuple[decisions.Move, ...]) -> list[decisions.Move]:
    return [step for step in moves if catalog.providers[step.resource].acts_in_place]


def _redefined(old: Catalog, new: Catalog) -> list[str]:
    """Resources whose classes have other contents now."""
    return [
        name
        for name, spec in new.specs.items()
        # A resctrl group keeps its tasks while its schemata change: nobody has to leave and come back.
        if name in old.specs and old.specs[name] != spec and not isinstance(spec.spec, RdtSpec)
    ]
