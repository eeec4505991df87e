"""Nodes that refuse what the scheduler sends them: who is kept off which node, and for how long. Pure.

A resource plugin of another maker decides by rules that nobody publishes, on anything that it sees of a pod. When a
node refuses one, pods with the same requests and the same annotations are kept off it for a pause that doubles with
every refusal; then one of them may try, and when it is let in the matter is forgotten. What is freed there, or what the
node says anew about itself, ends the pause early, though not sooner than a second after the last refusal: a node that
always refuses gets a pod a second at the very most.

    OFF (until due) → OPEN (one may try) → OFF, on trial → forgotten, when it runs
                                               ↘ OFF (longer), when it was refused
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
SHORTEST_PAUSE = 1.0
_KEPT = 4096

_REJECTED = "Pod was rejected: "


def is_refusal(phase: str, message: str) -> bool:
    """Whether a pod's status says that its node did not let it in, in the words of every kubelet."""
    return phase == "Failed" and message.startswith(_REJECTED)


@dataclass(slots=True)
class NodeBackoff:
    """How long pods that ask for the same are kept off a node that refused one."""

    node: str
    asks: Hashable
    reason: str
    pause: float = FIRST_PAUSE
    refused_at: float = 0.0
    due: float = 0.0
    closed: bool = True
    trial: str = ""
    """The uid of the pod that was sent to see."""


class NodeBackoffs:
    """What is remembered of them, at most so many: the oldest are forgotten first."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._kept = kept
        self._known: OrderedDict[tuple[str, Hashable], NodeBackoff] = OrderedDict()
        self._due: list[tuple[float, int, tuple[str, Hashable]]] = []
        self._sequence = 0
        self.counts: dict[str, int] = {}
        """By reason, for metrics."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def closed(self) -> int:
        """How many pauses last."""
        return sum(one.closed for one in self._known.values())

    def refused(
        self, node: str, asks: Hashable, reason: str, uid: str, now: float
    ) -> tuple[NodeBackoff, list[NodeBackoff]]:
        """A node refused a pod: what holds from now on, and what had to be forgotten for it.

        Pods that were on their way when the pause began do not make it longer: only one that was sent to see does.
        """
        self.counts[reason] = self.counts.get(reason, 0) + 1
        key = (node, asks)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = NodeBackoff(node, asks, reason)
        elif known.trial == uid or not known.closed:
            known.pause = min(known.pause * 2, LONGEST_PAUSE)
        else:
            known.reason, known.refused_at = reason, now
            return known, []
        self._known.move_to_end(key)
        known.reason, known.refused_at, known.trial = reason, now, ""
        self._close(key, known, now + known.pause)
        forgotten = [self._known.popitem(last=False)[1]] if len(self._known) > self._kept else []
        return known, forgotten

    def sent(self, node: str, asks: Hashable, uid: str, now: float) -> NodeBackoff | None:
        """A pod goes to a node whose pause is over: the others wait to see what becomes of it."""
        known = self._known.get((node, asks))
        if known is None or known.closed:
            return None
        known.trial = uid
        self._close((node, asks), known, now + min(known.pause * 2, LONGEST_PAUSE))
        return known

    def runs(self, node: str, asks: Hashable, uid: str) -> NodeBackoff | None:
        """A pod runs on a node. If it was sent to see, the matter is forgotten; others may have been let in before."""
        known = self._known.get((node, asks))
        return self._known.pop((node, asks)) if known is not None and known.trial == uid else None

    def eased(self, node: str, now: float) -> None:
        """Something was freed on a node, or it says something new of itself: pauses end early."""
        for key, known in self._known.items():
            if known.node == node and known.closed and not known.trial:
                early = max(now, known.refused_at + SHORTEST_PAUSE)
                if early < known.due:
                    self._close(key, known, early)

    def gone(self, node: str) -> None:
        """The node itself is gone."""
        for key in [key for key in self._known if key[0] == node]:
            del self._known[key]

    def over(self, now: float) -> Iterator[NodeBackoff]:
        """Pauses that have ended."""
        while self._due and self._due[0][0] <= now:
            due, _, key = heapq.heappop(self._due)
            known = self._known.get(key)
            if known is not None and known.closed and known.due == due:
                known.closed, known.trial = False, ""
                yield known

    @property
    def next_due(self) -> float | None:
        """When the next pause may end."""
        return self._due[0][0] if self._due else None

    def _close(self, key: tuple[str, Hashable], known: NodeBackoff, due: float) -> None:
        known.closed, known.due = True, due
        self._sequence += 1
        heapq.heappush(self._due, (due, self._sequence, key))
