"""What was decided about each pod, kept for those who ask: the last lines of the last pods. Pure."""

from __future__ import annotations

from collections import OrderedDict

_LENGTH = 32
_KEPT = 10_000


class Stories:
    """Lines by pod."""

    def __init__(self) -> None:
        self._stories: OrderedDict[str, list[tuple[float, str]]] = OrderedDict()

    def story(self, uid: str, ahead: float = 0.0) -> list[str]:
        """Oldest first; `ahead` is how far the clock of the reader is before the one that was told."""
        return [f"{at + ahead:.3f} {line}" for at, line in self._stories.get(uid, ())]

    def tell(self, uid: str, now: float, line: str) -> None:
        story = self._stories.get(uid)
        if story is None:
            story = self._stories[uid] = []  # most have two lines, and a deque has room for 64
            if len(self._stories) > _KEPT:
                self._stories.popitem(last=False)
        story.append((now, line))
        del story[:-_LENGTH]
