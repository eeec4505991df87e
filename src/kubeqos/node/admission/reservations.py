"""Pods on their way in: what each has taken so far is reserved for it, and whom it may wait for.

Admissions of a node run beside each other. Whoever hands out resources in this process answers at once; a plugin or a
driver (a peer) is waited for, by the pod that needs it alone. A pod takes its turn behind another one only when it
needs all that the other needs: what holds up the other would hold it up as well. So pods of the same peers follow each
other in the order in which they came, and nobody waits for a peer that is none of his own. Called by
`node.admission.transaction`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass, field

NOBODY: frozenset[str] = frozenset()


@dataclass(eq=False, slots=True)
class Reservation:
    """One pod between its first question and the ledger.

    QUEUED → HOLDING → entered into the ledger, or given back (and perhaps HOLDING once more)
    """

    uid: str
    peers: frozenset[str] = NOBODY
    over: asyncio.Event = field(default_factory=asyncio.Event)
    decided: asyncio.Event | None = None
    """While it holds something: set when that is the pod's for good, or nobody's."""

    def goes_before(self, other: Reservation) -> bool:
        """Whether a later one has to wait for this one."""
        return self.uid == other.uid or (bool(self.peers) and self.peers <= other.peers)

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """For the duration of a block something is reserved that may yet be given back."""
        decided = self.decided = asyncio.Event()
        try:
            yield
        finally:
            self.decided = None
            decided.set()


class Reservations:
    """The pods of one node that are being admitted, resized or released, in the order in which they came."""

    def __init__(self) -> None:
        self._open: list[Reservation] = []

    @contextlib.asynccontextmanager
    async def turn(self, uid: str, peers: frozenset[str] = NOBODY) -> AsyncIterator[Reservation]:
        """A pod's turn, once those have had theirs that go before it."""
        mine = Reservation(uid, peers)
        earlier = [one for one in self._open if one.goes_before(mine)]
        self._open.append(mine)
        try:
            for one in earlier:
                await one.over.wait()
            yield mine
        finally:
            self._open.remove(mine)
            mine.over.set()

    def undecided(self, mine: Reservation) -> list[asyncio.Event]:
        """What others hold and may yet give back."""
        return [one.decided for one in self._open if one is not mine and one.decided is not None]

    def validate(self, reserved: Collection[str]) -> list[str]:
        """Broken invariants; `reserved` are the pods for which something is set aside."""
        holding = [one.uid for one in self._open if one.decided is not None]
        wrong = [f"pod {uid} is being admitted twice" for uid in set(holding) if holding.count(uid) > 1]
        if set(holding) != set(reserved):
            wrong.append(f"reserved for {sorted(reserved)}, and {sorted(holding)} are being admitted")
        return wrong
