"""What running containers have yet to be told, and in which order that is safe. No I/O, no clock, no await.

A container that gains CPUs is told after those that lose them, and each container hears its own updates in order;
nothing else is ordered. So whoever cannot be told, because the runtime hangs or the container is just starting, holds
up those who are to get its CPUs and nobody else. Kept by `node.updates.teller`, which does the telling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.plugins.managers import ContainerRef, Grant, Update

Key = tuple[str, str]  # pod uid, container name


@dataclass(eq=False, slots=True)
class Owed:
    """One update.

    WAITING (for `waits_for`, for the ledger, for its container) → SENDING → told, and forgotten
                                                          ↖ FAILED (`error`), until it is tried again
    """

    ref: ContainerRef
    grant: Grant
    before: CpuSet
    """What the container may have until it is told."""
    cpus: CpuSet
    waits_for: set[Owed] = field(default_factory=set)
    """Updates that take CPUs away which this one gives."""
    awaited_by: list[Owed] = field(default_factory=list)
    recorded: bool = False
    """Whether a restart would know of it."""
    sending: bool = False
    error: Exception | None = None

    @property
    def key(self) -> Key:
        return self.ref.pod_uid, self.ref.name

    @property
    def gives_up(self) -> CpuSet:
        return self.before - self.cpus


class OwedUpdates:
    """The updates of one node, and what each container has meanwhile."""

    def __init__(self, everything: CpuSet) -> None:
        self._everything = everything
        self._queues: dict[Key, deque[Owed]] = {}
        self._has: dict[Key, CpuSet] = {}
        self._held: set[Key] = set()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[Owed]:
        return (one for queue in self._queues.values() for one in queue)

    # ---- What comes in

    def add(self, updates: Iterable[Update]) -> list[Owed]:
        """Updates that are safe in the order in which they stand here, after all that are owed already."""
        return [self._add(update) for update in updates]

    def _add(self, update: Update) -> Owed:
        key = update.container.pod_uid, update.container.name
        queue = self._queues.setdefault(key, deque())
        before = queue[-1].cpus if queue else self._has.get(key, self._everything)
        cpus = cpus_of(update.grant, before)
        gained = cpus.mask & ~before.mask
        lost = ((one, one.before.mask & ~one.cpus.mask) for one in self if one.key != key) if gained else ()
        earlier = {one for one, mask in lost if mask & gained}
        last = queue[-1] if queue else None
        if last is not None and not earlier and not last.sending:
            # It takes nothing that is still to be given up, so the one before need not be made any more.
            last.grant, last.cpus, last.error, last.recorded = update.grant, cpus, None, False
            last.waits_for = {one for one in last.waits_for if one.gives_up & cpus}
            return last
        owed = Owed(update.container, update.grant, before, cpus, earlier)
        for one in earlier:
            one.awaited_by.append(owed)
        queue.append(owed)
        return owed

    def has(self, key: Key, cpus: CpuSet, void: Iterable[Owed] | None = None) -> list[Key]:
        """A container was made with, or brought to, what it should have now; what it was owed (`void`, or all) is void.

        Returns whose updates may be ready now, as do the others.
        """
        self._has[key] = cpus
        if void is None:
            return self._drop(key)
        gone = set(void)
        left = deque(one for one in self._queues.get(key, ()) if one not in gone)
        ready = self._drop(key, but=left)
        if left:
            self._queues[key] = left
        return ready

    def of(self, key: Key) -> list[Owed]:
        """All that a container has yet to be told."""
        return list(self._queues.get(key, ()))

    def unrecorded(self) -> list[tuple[Owed, Grant]]:
        """Updates of which a restart would not know."""
        return [(one, one.grant) for one in self if not one.recorded]

    def record(self, known: Iterable[tuple[Owed, Grant]]) -> list[Key]:
        """These were written down as they stood; one that has changed since was not."""
        found = [one for one, grant in known if one.grant is grant]
        for one in found:
            one.recorded = True
        return [one.key for one in found]

    def gone(self, pod_uid: str) -> list[Key]:
        """Containers of this pod are not there any more."""
        for key in [key for key in self._has if key[0] == pod_uid]:
            del self._has[key]
        return [ready for key in list(self._queues) if key[0] == pod_uid for ready in self._drop(key)]

    # ---- Telling

    def next(self, key: Key) -> Owed | None:
        """The update that its container is to be told now; it counts as being sent."""
        queue = self._queues.get(key)
        if not queue or key in self._held:
            return None
        owed = queue[0]
        if owed.sending or owed.waits_for or owed.error is not None or not owed.recorded:
            return None
        owed.sending = True
        return owed

    def told(self, owed: Owed, *, alive: bool = True) -> list[Key]:
        """It was made, or there is no container to be told."""
        queue = self._queues.get(owed.key)
        if not queue or queue[0] is not owed:
            return []  # void since
        queue.popleft()
        if not queue:
            del self._queues[owed.key]
        if alive:
            self._has[owed.key] = owed.cpus
        else:
            self._has.pop(owed.key, None)
        return [owed.key, *self._release(owed)]

    def failed(self, owed: Owed, error: Exception) -> None:
        """It may or may not have been made; those that wait for it go on waiting."""
        owed.sending, owed.error = False, error
        owed.before |= owed.cpus

    def retry(self) -> list[Key]:
        """Let everything that failed be tried again."""
        for owed in self:
            owed.error = None
        return list(self._queues)

    def hold(self, key: Key) -> None:
        """Tell this container nothing until `let_go`."""
        self._held.add(key)

    def let_go(self, key: Key) -> None:
        self._held.discard(key)

    # ---- Questions

    def in_the_way(self, pod_uid: str, cpus: CpuSet) -> list[Owed]:
        """Updates of other pods' containers that may have these CPUs until they are told."""
        return [one for one in self if one.ref.pod_uid != pod_uid and one.gives_up & cpus]

    def before_start(self, key: Key) -> list[Owed]:
        """Updates of a container that it must have heard before it runs."""
        return [one for one in self._queues.get(key, ()) if one.sending or one.gives_up]

    def validate(self) -> list[str]:
        """Broken invariants: something is waited for that nobody will ever tell."""
        present = set(self)
        wrong = [f"{one.key} waits for what is not owed" for one in present if one.waits_for - present]
        return wrong + [f"{one.key} is told out of turn" for one in present if one.sending and one.waits_for]

    def _drop(self, key: Key, but: Collection[Owed] = ()) -> list[Key]:
        gone = [one for one in self._queues.pop(key, ()) if one not in but]
        return [ready for owed in gone for ready in self._release(owed)]

    @staticmethod
    def _release(owed: Owed) -> list[Key]:
        for one in owed.awaited_by:
            one.waits_for.discard(owed)
        return [one.key for one in owed.awaited_by if not one.waits_for]


def cpus_of(grant: Grant, otherwise: CpuSet = NO_CPUS) -> CpuSet:
    """The CPUs that a grant gives; those it does not speak of stay as they are."""
    text = grant.properties.get("cpuset_cpus")
    return _parsed(str(text)) if text else otherwise


@lru_cache(maxsize=1024)
def _parsed(text: str) -> CpuSet:
    return CpuSet.parse(text)
