"""Which pod is decided next. Pure: the time comes in as an argument.

A pod is ACTIVE (decide now), in BACKOFF (decide after a pause that doubles with every failed attempt) or
WAITING (nothing that could help has happened). A waiting pod names what it waits for; an event wakes exactly
the pods that wait for what the event freed. When nothing is active, pods in backoff do not wait for their
pause: there is nobody they could delay. A pod whose binding failed does: the server is away or too busy.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from kubeqos.placement.shape import Shape

FIRST_BACKOFF, LONGEST_BACKOFF = 1.0, 10.0
_DOUBLINGS = 8
"""More than it takes to reach the longest pause; the power itself would overflow after a thousand attempts."""
LONGEST_WAIT = 300.0
ANYTHING: Hashable = "node"
"""What every waiting pod waits for beside its own needs: nodes that are new or changed."""


@dataclass(slots=True)
class QueuedPod:
    """A pod that wants a node."""

    uid: str
    namespace: str
    name: str
    shape: Shape
    arrived: float
    attempts: int = 0
    ready_at: float = 0.0
    waits_for: frozenset[Hashable] = field(default=frozenset())
    waiting_since: float = 0.0
    annotations: bytes = b"{}"
    """As they were written: what plugins see of it beside its requests."""

    @property
    def key(self) -> tuple[int, float]:
        """Higher priority first, then the longest in the queue."""
        return (-self.shape.priority, self.arrived)


@dataclass(slots=True)
class Nominee:
    """A preemptor whose node is being freed."""

    pod: QueuedPod
    node: str
    victims: set[str]
    for_volumes: bool = False
    """It waits for nobody to go, but for its volumes."""


class SchedulingQueue:
    """All pods without a node."""

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[tuple[tuple[int, float], int, str]] = []
        self._sequence = 0  # equal pods in the order they came
        self._backoff: list[tuple[float, str]] = []
        self._retries: list[tuple[float, str]] = []
        self._place: dict[str, str] = {}
        self._waiting_for: defaultdict[Hashable, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> QueuedPod | None:
        return self._pods.get(uid)

    def count(self, place: str) -> int:
        """How many pods are `active`, in `backoff` or `waiting`."""
        places = ("backoff", "retry") if place == "backoff" else (place,)
        return sum(1 for where in self._place.values() if where in places)

    def add(self, pod: QueuedPod) -> None:
        """A new pod, or a changed one, which starts over."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        self._activate(pod)

    def remove(self, uid: str) -> None:
        """The pod is gone or has a node."""
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._stop_waiting(pod)
            del self._place[uid]

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to decide, which stays known until it is removed or fails."""
        self.promote(now)
        while self._active:
            _, _, uid = heapq.heappop(self._active)
            if self._place.get(uid) == "active":
                return self._take(uid)
        while self._backoff:
            _, uid = heapq.heappop(self._backoff)
            if self._place.get(uid) == "backoff":
                return self._take(uid)
        return None

    def failed(self, pod: QueuedPod, waits_for: Iterable[Hashable], now: float) -> None:
        """No node fits: wait for something that could help."""
        if pod.uid not in self._pods:
            return
        self._note_attempt(pod, now)
        pod.waits_for = frozenset(waits_for) | {ANYTHING}
        pod.waiting_since = now
        self._place[pod.uid] = "waiting"
        for need in pod.waits_for:
            self._waiting_for[need].add(pod.uid)

    def retry(self, pod: QueuedPod, now: float) -> None:
        """It had a node, and the API did not take it: decide again after a pause that is kept."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        self._note_attempt(pod, now)
        self._place[pod.uid] = "retry"
        heapq.heappush(self._retries, (pod.ready_at, pod.uid))

    @property
    def next_due(self) -> float | None:
        """When the next pause that is kept ends."""
        return self._retries[0][0] if self._retries else None

    def wake(self, freed: Iterable[Hashable], now: float) -> list[str]:
        """Something was freed: pods that wait for it are decided again, after their pause."""
        woken = [uid for need in freed for uid in tuple(self._waiting_for.get(need, ()))]
        for uid in dict.fromkeys(woken):
            pod = self._pods[uid]
            self._stop_waiting(pod)
            if pod.ready_at > now:
                self._back_off(pod)
            else:
                self._activate(pod)
        return list(dict.fromkeys(woken))

    def flush(self, now: float) -> None:
        """Pods that waited very long are tried again without a reason, in case one was missed."""
        for uid, where in list(self._place.items()):
            pod = self._pods[uid]
            if where == "waiting" and now - pod.waiting_since >= LONGEST_WAIT:
                self._stop_waiting(pod)
                self._activate(pod)

    @property
    def has_work(self) -> bool:
        """Whether `pop` is worth a call; `promote` says what time has changed."""
        return bool(self._active or self._backoff)

    def _take(self, uid: str) -> QueuedPod:
        self._place[uid] = "deciding"
        return self._pods[uid]

    def _note_attempt(self, pod: QueuedPod, now: float) -> None:
        pod.attempts += 1
        pod.ready_at = now + min(FIRST_BACKOFF * 2 ** min(pod.attempts - 1, _DOUBLINGS), LONGEST_BACKOFF)

    def _activate(self, pod: QueuedPod) -> None:
        self._place[pod.uid] = "active"
        self._sequence += 1
        heapq.heappush(self._active, (pod.key, self._sequence, pod.uid))

    def _back_off(self, pod: QueuedPod) -> None:
        self._place[pod.uid] = "backoff"
        heapq.heappush(self._backoff, (pod.ready_at, pod.uid))

    def promote(self, now: float) -> None:
        """Let those whose pause is over be decided."""
        for paused, place in ((self._backoff, "backoff"), (self._retries, "retry")):
            while paused and paused[0][0] <= now:
                _, uid = heapq.heappop(paused)
                if self._place.get(uid) == place:
                    self._activate(self._pods[uid])

    def _stop_waiting(self, pod: QueuedPod) -> None:
        for need in pod.waits_for:
            waiting = self._waiting_for.get(need)
            if waiting is not None:
                waiting.discard(pod.uid)
                if not waiting:
                    del self._waiting_for[need]
        pod.waits_for = frozenset()
