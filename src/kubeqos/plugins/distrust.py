"""What peers said that was not believed: counted, told once, and shown until they say something better.

Resource plugins and compute drivers are foreign code; each answer is checked at the edge of its manager. The manager
keeps one `RefusedAnswers`, from which its Node condition is made. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable

MOST_TEXTS = 16
"""Of one kind of message of one peer: who finds more ways to be wrong is told of no more than these at a time."""


class RefusedAnswers:
    """Refused answers of the peers of one manager, by peer and message."""

    def __init__(self, count: Callable[[str, str], None], tell: Callable[[str, str], None]) -> None:
        """`count` takes peer and message of every refused answer, `tell` peer and words of each that is news."""
        self._count = count
        self._tell = tell
        self._wrong: dict[tuple[str, str], list[str]] = {}

    def refuse(self, peer: str, message: str, what: str) -> None:
        """This message of this peer was not believed."""
        self._count(peer, message)
        known = self._wrong.setdefault((peer, message), [])
        if what not in known:
            known.append(what)
            del known[:-MOST_TEXTS]
            self._tell(peer, what)

    def accept(self, peer: str, message: str) -> None:
        """A message of this kind was as it should be: what was wrong before is over."""
        self._wrong.pop((peer, message), None)

    def forget(self, peer: str) -> None:
        """The peer is gone, or is another one under the same name."""
        self._wrong = {key: told for key, told in self._wrong.items() if key[0] != peer}

    def of(self, peer: str) -> list[str]:
        """What is wrong with a peer now: the last thing for each kind of message."""
        return [told[-1] for (name, _), told in sorted(self._wrong.items()) if name == peer]
