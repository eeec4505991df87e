"""goresctrl's YAML form of cache and bandwidth classes, parsed strictly. Pure.

Masks are written "0xff0", as bit numbers "4-11", or as percentages "60%" and "25-75%"; per cache id with a mapping
keyed by `all`, an id or a list of ids; with CDP as `{unified, code, data}`. Bandwidth is a list such as
["50%", "1000MBps"].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kubeqos.cri.providers.rdt.machine import CachePart
from kubeqos.document import Doc

ALL = -1
"""The key of an allocation that holds for every cache id without one of its own."""
ROOT_CLASS = "system/default"
_ALLOCATION_KEYS = ("l2Allocation", "l3Allocation", "mbAllocation")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_PERCENT = re.compile(r"(?:(\d+)-)?(\d+)%")
_NUMBERS = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


@dataclass(frozen=True, slots=True)
class Percent:
    """A share of the bits above: from `low` to `high` percent (a plain share has low 0)."""

    low: int
    high: int

    @property
    def is_range(self) -> bool:
        return self.low > 0


@dataclass(frozen=True, slots=True)
class Mask:
    """Bits by number: absolute for a partition, relative to its partition for a class."""

    bits: int


Share = Percent | Mask


@dataclass(frozen=True, slots=True)
class Located:
    """A share and the line it was written on, for errors found while resolving."""

    share: Share
    where: str


@dataclass(frozen=True, slots=True)
class CacheRule:
    """The shares of one cache level by cache id and by kind."""

    shares: Mapping[int, Mapping[CachePart, Located]]
    where: str

    def find(self, cache_id: int, kind: CachePart) -> Located | None:
        kinds = self.shares.get(cache_id, self.shares.get(ALL, {}))
        return kinds.get(kind) or kinds.get(CachePart.UNIFIED)


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What is asked of memory bandwidth, in each unit that was given."""

    percent: int | None = None
    mbps: int | None = None


@dataclass(frozen=True, slots=True)
class BandwidthRule:
    by_id: Mapping[int, Bandwidth]
    where: str

    def find(self, cache_id: int) -> Bandwidth | None:
        return self.by_id.get(cache_id, self.by_id.get(ALL))


@dataclass(frozen=True, slots=True)
class Allocation:
    """The rules of one partition or class; a missing one means 100 % of what is above."""

    caches: Mapping[str, CacheRule] = field(default_factory=dict)
    bandwidth: BandwidthRule | None = None


@dataclass(frozen=True, slots=True)
class ClassRule:
    allocation: Allocation
    where: str
    deny_pod_annotation: bool = False
    deny_container_annotation: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    allocation: Allocation
    classes: Mapping[str, ClassRule]
    where: str


@dataclass(frozen=True, slots=True)
class RdtConfig:
    partitions: Mapping[str, Partition]
    optional: frozenset[str] = frozenset()
    """Which of L2, L3, MB may be missing on the machine."""

    def classes(self) -> dict[str, ClassRule]:
        return {name: rule for part in self.partitions.values() for name, rule in part.classes.items()}


def parse_rdt(doc: Doc) -> RdtConfig:
    fields = doc.fields(("options", "partitions"))
    optional = set()
    if "options" in fields:
        for key, option in fields["options"].fields(("l2", "l3", "mb")).items():
            flag = option.fields(("optional",)).get("optional")
            if flag is not None and flag.boolean():
                optional.add(key.upper())
    if "partitions" not in fields:
        doc.fail("no partitions", "add the key partitions with at least one class")
    seen: dict[str, str] = {}
    partitions = {
        name: _parse_partition(part, name, seen) for name, part in sorted(fields["partitions"].items().items())
    }
    return RdtConfig(partitions, frozenset(optional))


def _parse_partition(doc: Doc, name: str, seen: dict[str, str]) -> Partition:
    fields = doc.fields((*_ALLOCATION_KEYS, "classes"))
    classes: dict[str, ClassRule] = {}
    for given, child in (fields["classes"].items() if "classes" in fields else {}).items():
        class_name = given or ROOT_CLASS
        if class_name != ROOT_CLASS and ("/" in class_name or class_name in (".", "..", "mon_groups", "info")):
            child.fail("a class becomes a directory, and this name cannot be one", "choose a name without '/'")
        if class_name in seen:
            child.fail(f"class {class_name!r} is already in partition {seen[class_name]!r}", "rename one of them")
        seen[class_name] = name
        classes[class_name] = _parse_class(child)
    return Partition(_parse_allocation(fields), classes, doc.where)


def _parse_class(doc: Doc) -> ClassRule:
    fields = doc.fields((*_ALLOCATION_KEYS, "kubernetes"))
    deny = {}
    if "kubernetes" in fields:
        known = ("denyPodAnnotation", "denyContainerAnnotation")
        deny = {key: flag.boolean() for key, flag in fields["kubernetes"].fields(known).items()}
    return ClassRule(
        _parse_allocation(fields),
        doc.where,
        deny.get("denyPodAnnotation", False),
        deny.get("denyContainerAnnotation", False),
    )


def _parse_allocation(fields: Mapping[str, Doc]) -> Allocation:
    caches = {
        level: _parse_cache(fields[key])
        for level, key in (("L2", "l2Allocation"), ("L3", "l3Allocation"))
        if key in fields
    }
    return Allocation(caches, _parse_bandwidth(fields["mbAllocation"]) if "mbAllocation" in fields else None)


def _parse_cache(doc: Doc) -> CacheRule:
    if not doc.is_mapping:
        return CacheRule({ALL: {CachePart.UNIFIED: _parse_share(doc)}}, doc.where)
    shares: dict[int, Mapping[CachePart, Located]] = {}
    for key, child in doc.items().items():
        kinds = _parse_kinds(child)
        for cache_id in _cache_ids(child, key):
            shares[cache_id] = kinds
    return CacheRule(shares, doc.where)


def _parse_kinds(doc: Doc) -> dict[CachePart, Located]:
    if not doc.is_mapping:
        return {CachePart.UNIFIED: _parse_share(doc)}
    names = {"unified": CachePart.UNIFIED, "code": CachePart.CODE, "data": CachePart.DATA}
    kinds = {names[key]: _parse_share(child) for key, child in doc.fields(names).items()}
    if CachePart.UNIFIED not in kinds and len(kinds) < 2:
        doc.fail("code and data must both be given", "add the other one, or unified for both")
    return kinds


def _parse_share(doc: Doc) -> Located:
    text = doc.text()
    if percent := _PERCENT.fullmatch(text):
        low, high = int(percent[1] or 0), int(percent[2])
        if not (low <= high and 1 <= high <= 100):
            doc.fail(f"{text!r} is not a share between 1% and 100%")
        return Located(Percent(low, high), doc.where)
    if _HEX.fullmatch(text):
        bits = int(text, 16)
    elif _NUMBERS.fullmatch(text):
        bits = sum(1 << number for number in set(_numbers(text)))
    else:
        doc.fail(f"{text!r} is not a cache share", 'write it like "60%", "0xff0" or "4-11"')
    if not bits:
        doc.fail("an empty bit mask", "set at least one bit")
    if not is_contiguous(bits):
        doc.fail(f"the bits of {text!r} are not contiguous", "resctrl takes one unbroken range of bits")
    return Located(Mask(bits), doc.where)


def is_contiguous(bits: int) -> bool:
    lowest = bits & -bits
    return bits > 0 and (bits // lowest) & (bits // lowest + 1) == 0


def _cache_ids(doc: Doc, key: str) -> list[int]:
    if key == "all":
        return [ALL]
    if not _NUMBERS.fullmatch(key):
        doc.fail(f"{key!r} is not a cache id", 'use "all", an id like 0, or ids like "2-3"')
    return _numbers(key)


def _numbers(text: str) -> list[int]:
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out.extend(range(int(first), int(last or first) + 1))
    return out


def _parse_bandwidth(doc: Doc) -> BandwidthRule:
    if not doc.is_mapping:
        return BandwidthRule({ALL: _parse_bandwidth_values(doc)}, doc.where)
    by_id: dict[int, Bandwidth] = {}
    for key, child in doc.items().items():
        value = _parse_bandwidth_values(child)
        for cache_id in _cache_ids(child, key):
            by_id[cache_id] = value
    return BandwidthRule(by_id, doc.where)


def _parse_bandwidth_values(doc: Doc) -> Bandwidth:
    percent = mbps = None
    for item in doc.elements():
        text = item.text()
        if text.endswith("%") and text[:-1].isdecimal() and 1 <= int(text[:-1]) <= 100:
            percent = int(text[:-1])
        elif text.endswith("MBps") and text[:-4].isdecimal() and int(text[:-4]) > 0:
            mbps = int(text[:-4])
        else:
            item.fail(f"{text!r} is not a bandwidth", 'write it like "50%" or "1000MBps"')
    return Bandwidth(percent, mbps)
