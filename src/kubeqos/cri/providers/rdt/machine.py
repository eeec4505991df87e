"""What a machine's resctrl can do, as values. `files.discover` reads it, `resolve` decides with it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class CachePart(enum.Enum):
    """Which part of a cache a bit mask is for: all of it, or code and data apart (CDP)."""

    UNIFIED = ""
    CODE = "CODE"
    DATA = "DATA"


class BandwidthUnit(enum.Enum):
    """How the machine counts memory bandwidth in the MB line."""

    PERCENT = "percent"
    MBPS = "MBps"
    EIGHTH_GBPS = "1/8 GB/s"


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """One cache level that can be allocated."""

    level: str
    ids: tuple[int, ...]
    cbm_mask: int
    min_cbm_bits: int
    num_closids: int
    cdp: bool = False

    @property
    def kinds(self) -> tuple[CachePart, ...]:
        return (CachePart.CODE, CachePart.DATA) if self.cdp else (CachePart.UNIFIED,)


@dataclass(frozen=True, slots=True)
class BandwidthInfo:
    """Memory bandwidth allocation."""

    ids: tuple[int, ...]
    unit: BandwidthUnit
    minimum: int
    granularity: int
    num_closids: int


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Everything resctrl offers on one machine."""

    caches: Mapping[str, CacheInfo] = field(default_factory=dict)
    bandwidth: BandwidthInfo | None = None
    num_rmids: int = 0
    mon_features: tuple[str, ...] = ()

    @property
    def num_closids(self) -> int:
        """Groups the hardware has room for, the root group included."""
        counts = [cache.num_closids for cache in self.caches.values()]
        if self.bandwidth:
            counts.append(self.bandwidth.num_closids)
        return min(counts, default=0)
