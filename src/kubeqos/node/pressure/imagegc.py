"""Which images go: those that nobody uses, when the disk fills up or they have lain unused for long. Pure.

The rules are the kubelet's: above the high threshold images are removed, the longest unused first, until the disk is
down to the low threshold; an image that has just come is spared, because a container is about to be made from it; with
a maximum age, unused images go even from an empty disk. `node.pressure.housekeeping` asks and removes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kubeqos.node.pressure.samples import Supply

SPACE, AGE = "space", "age"


@dataclass(frozen=True, slots=True)
class ImageGcSettings:
    """When images are removed. A high threshold of 100 % leaves it to disk pressure; a maximum age of 0 is none."""

    high_percent: int = 85
    low_percent: int = 80
    minimum_age_seconds: float = 120.0
    maximum_age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the runtime. `names` are all that containers may call it by."""

    id: str
    size_bytes: int
    names: frozenset[str] = frozenset()
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    image: Image
    came: float
    used: float


@dataclass(frozen=True, slots=True)
class Removal:
    """What is to go, with the reason of each, and how much was wanted back at all."""

    images: Sequence[tuple[Image, str]] = ()
    wanted_bytes: int = 0

    @property
    def freed_bytes(self) -> int:
        return sum(image.size_bytes for image, why in self.images if why == SPACE)

    @property
    def shortfall(self) -> str:
        """What to tell people when there was too little to remove; empty when there was enough."""
        if self.freed_bytes >= self.wanted_bytes:
            return ""
        return (
            "Failed to garbage collect required amount of images. Attempted to free "
            f"{self.wanted_bytes} bytes, but only found {self.freed_bytes} bytes eligible to free."
        )


@dataclass(slots=True)
class ImageGc:
    """What is known about one node's images."""

    settings: ImageGcSettings = field(default_factory=ImageGcSettings)
    began: float | None = None
    _known: dict[str, _Known] = field(default_factory=dict)

    def look(self, images: Iterable[Image], in_use: Iterable[str], now: float) -> None:
        """Note which images are there, and which of them somebody uses (by any of their names)."""
        self.began = now if self.began is None else self.began
        used = frozenset(in_use)
        found: dict[str, _Known] = {}
        for image in images:
            known = self._known.get(image.id) or _Known(image, now, now)
            busy = image.pinned or image.id in used or not used.isdisjoint(image.names)
            found[image.id] = replace(known, image=image, used=float("inf") if busy else min(known.used, now))
        self._known = found

    def collect(self, level: Supply | None, now: float) -> Removal:
        """What goes as a matter of routine."""
        old = [(one.image, AGE) for one in self._unused(now) if self._outlived(one, now)]
        wanted = self._too_much(level)
        young = [one for one in self._unused(now) if not self._outlived(one, now)]
        return Removal((*old, *_up_to(wanted, young)), wanted)

    def reclaim(self, now: float) -> Removal:
        """What goes when the disk is short: everything that is unused."""
        return Removal([(one.image, SPACE) for one in self._unused(now)])

    def _unused(self, now: float) -> list[_Known]:
        """The images that may go, the longest unused first."""
        spare = self.settings.minimum_age_seconds
        free = [one for one in self._known.values() if one.used <= now and now - one.came >= spare]
        return sorted(free, key=lambda one: (one.used, one.came, one.image.id))

    def _outlived(self, one: _Known, now: float) -> bool:
        """An agent that has just started has not seen for how long an image was unused."""
        longest = self.settings.maximum_age_seconds
        return longest > 0 and self.began is not None and now - self.began > longest and now - one.used > longest

    def _too_much(self, level: Supply | None) -> int:
        """Bytes above the low threshold, once the high one is reached."""
        if level is None or level.capacity <= 0 or self.settings.high_percent >= 100:
            return 0
        percent = 100 - level.available * 100 // level.capacity
        if percent < self.settings.high_percent:
            return 0
        return max(0, level.capacity * (100 - self.settings.low_percent) // 100 - level.available)


def _up_to(wanted_bytes: int, images: Iterable[_Known]) -> Iterable[tuple[Image, str]]:
    freed = 0
    for one in images:
        if freed >= wanted_bytes:
            return
        freed += one.image.size_bytes
        yield one.image, SPACE
