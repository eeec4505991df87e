"""Updates that containers have yet to be told, and in which order that is safe. No I/O, no clock, no await.

Here is kept, once for all managers, what each container has and what it was told last. A container that gains CPUs is
told after those that lose them, and each container hears its own updates in order; nothing else is ordered. So whoever
cannot be told, because the runtime hangs or the container is just starting, holds up those who are to get its CPUs and
nobody else. Kept by `node.updates.updater`, which does the telling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.node.updates.plan import Had, Update, cpus_of, plan, same_for_running
from kubeqos.plugins.managers import ContainerKey, Grant
from kubeqos.topology.answers import Unsatisfiable


@dataclass(eq=False, slots=True)
class PendingUpdate:
    """One update.

    WAITING (for `waits_for`, for the ledger, for its container) → SENDING → made, and forgotten
                                                          ↖ FAILED (`error`), until it is tried again
    """

    key: ContainerKey
    grant: Grant
    before: CpuSet
    """What the container may have until it is told."""
    cpus: CpuSet
    owned: CpuSet = NO_CPUS
    """What may be its pod's alone until then."""
    waits_for: set[PendingUpdate] = field(default_factory=set)
    """Updates that take CPUs away which this one gives."""
    awaited_by: list[PendingUpdate] = field(default_factory=list)
    recorded: bool = False
    """Whether a restart would know of it."""
    sending: bool = False
    error: Exception | None = None

    @property
    def gives_up(self) -> CpuSet:
        """CPUs that others may have, or share with it, only when it is told."""
        return CpuSet(self.gives_up_mask)

    @property
    def gives_up_mask(self) -> int:
        # As a number: when hundreds of containers change, each that gains looks at all that lose.
        return self.before.mask & ~self.cpus.mask | self.owned.mask & ~self.grant.exclusive.mask


class PendingUpdates:
    """The updates of one node, what each container has meanwhile, and what it will have in the end."""

    def __init__(self, online: CpuSet) -> None:
        self._online = online
        self._queues: dict[ContainerKey, deque[PendingUpdate]] = {}
        self._has: dict[ContainerKey, CpuSet] = {}
        self._last: dict[ContainerKey, Had] = {}
        """What containers have once nothing is pending."""
        self._paused: set[ContainerKey] = set()
        self._unplanned: list[PendingUpdate] = []
        """Moves for which there is no safe order."""

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[PendingUpdate]:
        return (one for queue in self._queues.values() for one in queue)

    # ---- What comes in

    def require(self, wanted: Mapping[ContainerKey, Grant]) -> Unsatisfiable | None:
        """Containers should have this now: what that takes becomes pending, after all that is so already.

        Only those that exist are told; others are created with it. Without a safe order everybody stays as he is.
        """
        for key, had in self._last.items():
            if key in wanted and had.grant is not wanted[key] and same_for_running(had.grant, wanted[key]):
                # Who owns CPUs may change although nobody is to be told.
                self._last[key] = Had(had.cpus, wanted[key], wanted[key].exclusive)
        updates = plan(self._last, wanted, self._online)
        self._unplanned = []
        if isinstance(updates, Unsatisfiable):
            present = {key: had for key, had in self._last.items() if key in wanted}
            moves = (
                PendingUpdate(key, wanted[key], had.cpus, cpus_of(wanted[key], had.cpus))
                for key, had in present.items()
            )
            self._unplanned = [one for one in moves if one.gives_up]
            return updates
        self.add(updates)
        return None

    def add(self, updates: Iterable[Update]) -> list[PendingUpdate]:
        """Updates that are safe in the order in which they stand here, after all that are pending already."""
        return [self._add(update) for update in updates]

    def _add(self, update: Update) -> PendingUpdate:
        key = update.key
        queue = self._queues.setdefault(key, deque())
        before = queue[-1].cpus if queue else self._has.get(key, self._online)
        owned = self._last[key].owned if key in self._last else NO_CPUS
        self._last[key] = Had.of(update.grant, before)
        cpus = self._last[key].cpus
        # Who becomes the owner of CPUs that it had gains them, too.
        gained = cpus.mask & ~(before.mask & ~(update.grant.exclusive.mask & ~owned.mask))
        earlier = {one for one in self if one.gives_up_mask & gained and one.key != key} if gained else set()
        last = queue[-1] if queue else None
        if last is not None and not earlier and not last.sending:
            # It takes nothing that is still to be given up, so the one before need not be made any more.
            last.grant, last.cpus, last.error, last.recorded = update.grant, cpus, None, False
            last.waits_for = {one for one in last.waits_for if one.gives_up & cpus}
            return last
        pending = PendingUpdate(key, update.grant, before, cpus, owned, earlier)
        for one in earlier:
            one.awaited_by.append(pending)
        queue.append(pending)
        return pending

    def found(self, key: ContainerKey, cpus: CpuSet | None, wanted: Grant | None = None, *, same: bool = False) -> None:
        """A container of an earlier life of the agent has these CPUs (None: any).

        `wanted` is what it should have, once that is known; `same` when it has that already.
        """
        self._has[key] = cpus or self._online
        # Whoever has more than is to be its own was not the owner yet; a runtime that does not say must stop no owner.
        owner = cpus is None or (wanted is not None and cpus <= wanted.exclusive)
        owned = self._has[key] if owner else NO_CPUS
        self._last[key] = Had(self._has[key], wanted if same else None, owned)

    def has(self, key: ContainerKey, grant: Grant, void: Iterable[PendingUpdate] | None = None) -> list[ContainerKey]:
        """A container was created with, or brought to, this grant; what was pending for it (`void`, or all) is void.

        Returns whose updates may be ready now, as do the others.
        """
        self._has[key] = cpus_of(grant, self._online)
        gone = set(self._queues.get(key, ()) if void is None else void)
        left = deque(one for one in self._queues.get(key, ()) if one not in gone)
        ready = self._drop(key, but=left)
        if left:
            self._queues[key] = left
        else:
            self._last[key] = Had.of(grant, self._online)
        return ready

    def of(self, key: ContainerKey) -> list[PendingUpdate]:
        """All that a container has yet to be told."""
        return list(self._queues.get(key, ()))

    def was_told(self, key: ContainerKey, grant: Grant) -> bool:
        """Whether what a container was told last, or is about to be, is the same as this."""
        had = self._last.get(key)
        return had is not None and had.grant is not None and same_for_running(had.grant, grant)

    def unrecorded(self) -> list[tuple[PendingUpdate, Grant]]:
        """Updates of which a restart would not know."""
        return [(one, one.grant) for one in self if not one.recorded]

    def record(self, known: Iterable[tuple[PendingUpdate, Grant]]) -> list[ContainerKey]:
        """These were written down as they stood; one that has changed since was not."""
        found = [one for one, grant in known if one.grant is grant]
        for one in found:
            one.recorded = True
        return [one.key for one in found]

    def removed(self, pod_uid: str) -> list[ContainerKey]:
        """Containers of this pod are not there any more."""
        for key in [key for key in self._last if key[0] == pod_uid]:
            self._forget(key)
        return [ready for key in list(self._queues) if key[0] == pod_uid for ready in self._drop(key)]

    # ---- Telling

    def next(self, key: ContainerKey) -> PendingUpdate | None:
        """The update that its container is to be told now; it counts as being sent."""
        queue = self._queues.get(key)
        if not queue or key in self._paused:
            return None
        first = queue[0]
        if first.sending or first.waits_for or first.error is not None or not first.recorded:
            return None
        first.sending = True
        return first

    def made(self, update: PendingUpdate, *, alive: bool = True) -> list[ContainerKey]:
        """The container has it, or there is no container to be told."""
        queue = self._queues.get(update.key)
        if not queue or queue[0] is not update:
            return []  # void since
        queue.popleft()
        if not queue:
            del self._queues[update.key]
        if alive:
            self._has[update.key] = update.cpus
        elif not queue:
            self._forget(update.key)
        return [update.key, *self._release(update)]

    def failed(self, update: PendingUpdate, error: Exception) -> None:
        """It may or may not have been made; those that wait for it go on waiting."""
        update.sending, update.error = False, error
        update.before |= update.cpus
        update.owned |= update.grant.exclusive

    def retry(self) -> list[ContainerKey]:
        """Let everything that failed be tried again."""
        for update in self:
            update.error = None
        return list(self._queues)

    def pause(self, key: ContainerKey) -> None:
        """Tell this container nothing until `resume`."""
        self._paused.add(key)

    def is_paused(self, key: ContainerKey) -> bool:
        return key in self._paused

    def resume(self, key: ContainerKey) -> None:
        self._paused.discard(key)

    # ---- Questions

    def in_the_way(self, pod_uid: str, cpus: CpuSet) -> list[PendingUpdate]:
        """Updates of other pods' containers that may have these CPUs until they are told."""
        return [one for one in (*self, *self._unplanned) if one.key[0] != pod_uid and one.gives_up & cpus]

    def unknown(self, cpus: CpuSet) -> list[PendingUpdate]:
        """Containers of an earlier life on these CPUs, of whom nobody has said yet what they should have."""
        return [
            PendingUpdate(key, Grant(), had.cpus, NO_CPUS)
            for key, had in self._last.items()
            if had.grant is None and key not in self._queues and had.cpus & cpus
        ]

    def before_start(self, key: ContainerKey) -> list[PendingUpdate]:
        """Updates of a container that it must have heard before it runs."""
        return [one for one in self._queues.get(key, ()) if one.sending or one.gives_up]

    def validate(self) -> list[str]:
        """Broken invariants: something is waited for that nobody will ever tell, or told to whom nobody knows."""
        present = set(self)
        wrong = [f"{one.key} waits for what is not pending" for one in present if one.waits_for - present]
        wrong += [f"{key} has something pending and is unknown" for key in self._queues if key not in self._last]
        return wrong + [f"{one.key} is told out of turn" for one in present if one.sending and one.waits_for]

    def _forget(self, key: ContainerKey) -> None:
        self._has.pop(key, None)
        self._last.pop(key, None)

    def _drop(self, key: ContainerKey, but: Collection[PendingUpdate] = ()) -> list[ContainerKey]:
        gone = [one for one in self._queues.pop(key, ()) if one not in but]
        return [ready for update in gone for ready in self._release(update)]

    @staticmethod
    def _release(update: PendingUpdate) -> list[ContainerKey]:
        for one in update.awaited_by:
            one.waits_for.discard(update)
        return [one.key for one in update.awaited_by if not one.waits_for]
