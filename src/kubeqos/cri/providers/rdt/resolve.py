"""From configuration and machine to schemata, and from what is there to a plan of changes. Pure.

Partitions are exclusive in cache and share bandwidth; classes may overlap inside their partition. The rounding rules
are goresctrl's, so that one configuration means the same here and in a runtime that embeds it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kubeqos.cri.providers.rdt.config import (
    ROOT_CLASS,
    Bandwidth,
    CacheRule,
    Located,
    Mask,
    Percent,
    RdtConfig,
    is_contiguous,
)
from kubeqos.cri.providers.rdt.machine import BandwidthInfo, BandwidthUnit, CacheInfo, CachePart, Capabilities
from kubeqos.errors import ConfigurationError

NO_BANDWIDTH_LIMIT_MBPS = 2**32 - 1
MBPS_PER_EIGHTH_GBPS = 125


@dataclass(frozen=True, slots=True)
class ResctrlPlan:
    """What to change in the resctrl tree, in this order: groups to remove, to make, and schemata to write."""

    remove: tuple[str, ...] = ()
    create: tuple[str, ...] = ()
    schemata: Mapping[str, str] = field(default_factory=dict)
    retire: tuple[str, ...] = ()
    """Groups of removed classes that still hold tasks: they go when those have moved or ended."""


def resolve(config: RdtConfig, machine: Capabilities) -> dict[str, str]:
    """The schemata text of every class."""
    lines: dict[str, list[str]] = {name: [] for name in config.classes()}
    for level in ("L2", "L3"):
        cache = machine.caches.get(level)
        if cache is None:
            _require_unused(config, level)
            continue
        masks = _cache_masks(config, cache)
        for kind in cache.kinds:
            for name, out in lines.items():
                values = ";".join(f"{i}={masks[name, i, kind]:x}" for i in cache.ids)
                out.append(f"{level}{kind.value}:{values}\n")
    if machine.bandwidth is None:
        _require_unused(config, "MB")
    else:
        for name, by_id in _bandwidths(config, machine.bandwidth).items():
            values = ";".join(f"{i}={value}" for i, value in by_id.items())
            lines[name].append(f"MB:{values}\n")
    return {name: "".join(out) for name, out in lines.items()}


def plan_changes(
    schemata: Mapping[str, str], existing: Collection[str], prefix: str, closids: int, busy: Collection[str] = ()
) -> ResctrlPlan:
    """The changes that make our groups equal to the configuration. Groups without our prefix are never named in it.

    `busy` are the groups of ours that still hold tasks: they are not removed from under a running container, and
    while they are there they take their place in the budget.
    """
    wanted = {group_name(name, prefix): text for name, text in schemata.items()}
    ours = {name for name in existing if name.startswith(prefix)}
    foreign = len(set(existing) - ours)
    groups = [name for name in sorted(wanted) if name]
    gone = sorted(ours - set(wanted))
    retire = tuple(name for name in gone if name in busy)
    needed = 1 + foreign + len(retire) + len(groups)
    if closids and needed > closids:
        others = f" and {foreign} groups of other agents" if foreign else ""
        leaving = f" and {len(retire)} removed classes that still hold tasks" if retire else ""
        raise ConfigurationError(
            f"rdt: {len(groups)} classes need {needed} groups with the root group{others}{leaving}, "
            f"and the machine has {closids}",
            remedy=f"configure at most {max(closids - 1 - foreign - len(retire), 0)} classes",
        )
    remove = tuple(name for name in gone if name not in busy)
    return ResctrlPlan(remove, tuple(name for name in groups if name not in ours), wanted, retire)


def group_name(class_name: str, prefix: str) -> str:
    """The directory of a class below the resctrl root; the root itself is the empty name."""
    return "" if class_name in ("", ROOT_CLASS) else prefix + class_name


def _require_unused(config: RdtConfig, resource: str) -> None:
    """A resource the machine lacks may be configured only when marked optional."""
    if resource in config.optional:
        return
    for part in config.partitions.values():
        for allocation in (part.allocation, *(rule.allocation for rule in part.classes.values())):
            rule = allocation.bandwidth if resource == "MB" else allocation.caches.get(resource)
            if rule is not None:
                raise ConfigurationError(
                    f"rdt: {resource} allocation is configured, and this machine does not have it",
                    where=rule.where,
                    remedy=f"set options.{resource.lower()}.optional: true, or leave the allocation out",
                )


def _cache_masks(config: RdtConfig, cache: CacheInfo) -> dict[tuple[str, int, CachePart], int]:
    """The bit mask of each class, per cache id and kind."""
    out: dict[tuple[str, int, CachePart], int] = {}
    for cache_id in cache.ids:
        for kind in cache.kinds:
            bases = _partition_masks(config, cache, cache_id, kind)
            for part_name, part in config.partitions.items():
                for name, rule in part.classes.items():
                    share = _find(rule.allocation.caches.get(cache.level), cache, cache_id, kind)
                    out[name, cache_id, kind] = _class_mask(share, bases[part_name], cache, name)
    return out


def _find(rule: CacheRule | None, cache: CacheInfo, cache_id: int, kind: CachePart) -> Located | None:
    """The share that holds for one cache id, or None for the default (100 %)."""
    if rule is None:
        return None
    unknown = [i for i in rule.shares if i >= 0 and i not in cache.ids]
    if unknown:
        raise ConfigurationError(
            f"rdt: {cache.level} cache id {unknown[0]} does not exist on this machine",
            where=rule.where,
            remedy=f"its cache ids are {', '.join(map(str, cache.ids))}",
        )
    share = rule.find(cache_id, kind)
    if share is None and (cache_id in rule.shares or any(i < 0 for i in rule.shares)):
        raise ConfigurationError(
            f"rdt: only code and data are configured for {cache.level}, and this machine does not split them",
            where=rule.where,
            remedy="add unified, or mount resctrl with cdp",
        )
    return share


def _partition_masks(config: RdtConfig, cache: CacheInfo, cache_id: int, kind: CachePart) -> dict[str, int]:
    shares = {
        name: _find(part.allocation.caches.get(cache.level), cache, cache_id, kind)
        for name, part in config.partitions.items()
    }
    given = {name: share for name, share in shares.items() if share is not None}
    what = f"{cache.level}{kind.value} of cache id {cache_id}"
    if not given:
        return dict.fromkeys(shares, cache.cbm_mask)
    if len(given) < len(shares):
        missing = sorted(set(shares) - set(given))[0]
        raise ConfigurationError(
            f"rdt: partition {missing!r} says nothing about {what}, and other partitions do",
            where=config.partitions[missing].where,
            remedy=f"give every partition a share of {cache.level}, or none",
        )
    if len({type(located.share) for located in given.values()}) > 1:
        raise ConfigurationError(
            f"rdt: partitions mix percentages and bit masks for {what}",
            where=next(iter(given.values())).where,
            remedy="use one form for all partitions",
        )
    if isinstance(next(iter(given.values())).share, Mask):
        return _absolute_partitions(given, cache, what)
    return _relative_partitions(given, cache, what)


def _absolute_partitions(given: Mapping[str, Located], cache: CacheInfo, what: str) -> dict[str, int]:
    taken: dict[str, int] = {}
    for name, located in given.items():
        assert isinstance(located.share, Mask)
        bits = located.share.bits
        _check_mask(bits, cache.cbm_mask, cache, f"partition {name!r}: {what}", located.where)
        for other, mask in taken.items():
            if bits & mask:
                raise ConfigurationError(
                    f"rdt: partitions {other!r} and {name!r} overlap in {what} (bits {bits & mask:#x})",
                    where=located.where,
                    remedy="partitions are exclusive: give each its own bits",
                )
        taken[name] = bits
    return taken


def _relative_partitions(given: Mapping[str, Located], cache: CacheInfo, what: str) -> dict[str, int]:
    """Smallest share first, rounded down, the last takes what remains; laid out in order of the names."""
    requests: dict[str, int] = {}
    for name, located in given.items():
        assert isinstance(located.share, Percent)
        if located.share.is_range:
            raise ConfigurationError(
                f"rdt: partition {name!r} has a range of percentages for {what}",
                where=located.where,
                remedy='a partition takes one percentage like "60%", or a bit mask',
            )
        requests[name] = located.share.high
    total = sum(requests.values())
    if total > 100:
        raise ConfigurationError(
            f"rdt: partitions ask for {total}% of {what}", where=located.where, remedy="the sum must not pass 100%"
        )
    bits_total = available = cache.cbm_mask.bit_length()
    grants: dict[str, int] = {}
    # The smallest first: rounding down would otherwise leave them fewer bits than the hardware allows for one group.
    ascending = sorted(requests.items(), key=lambda item: item[1])
    for number, (name, percent) in enumerate(ascending):
        if available < cache.min_cbm_bits:
            raise ConfigurationError(
                f"rdt: {what} has {bits_total} bits, too few for {len(requests)} partitions",
                where=given[name].where,
                remedy="use fewer partitions",
            )
        bits = max(percent * available // (available * 100 // bits_total), cache.min_cbm_bits)
        last = number == len(ascending) - 1
        grants[name] = available if last or bits > available else bits
        available -= grants[name]
    # By name and not by size, so that another share moves as few neighbours as possible.
    masks: dict[str, int] = {}
    lowest = 0
    for name in sorted(grants):
        masks[name] = ((1 << grants[name]) - 1) << lowest
        lowest += grants[name]
    return masks


def _class_mask(located: Located | None, base: int, cache: CacheInfo, name: str) -> int:
    """A class's bits inside its partition's."""
    if located is None:
        return base
    lowest = (base & -base).bit_length() - 1
    width = base.bit_length() - lowest
    if isinstance(located.share, Mask):
        shifted = located.share.bits << lowest
        _check_mask(shifted, base, cache, f"class {name!r}: {cache.level}", located.where)
        return shifted
    return _percent_mask(located.share, width, cache.min_cbm_bits) << lowest


def _percent_mask(share: Percent, width: int, min_bits: int) -> int:
    low, high = (max(share.low, 1) - 1) * width // 100, (share.high - 1) * width // 100
    gap = min_bits - (high - low + 1)
    if gap > 0:
        down = min(gap, low)
        low -= down
        high += gap - down
    return ((1 << (high - low + 1)) - 1) << low


def _check_mask(bits: int, base: int, cache: CacheInfo, what: str, where: str) -> None:
    if bits & ~base:
        raise ConfigurationError(
            f"rdt: {what} mask {bits:#x} does not fit into {base:#x}",
            where=where,
            remedy=f"use bits inside the {base.bit_count()} that are available",
        )
    if bits.bit_count() < cache.min_cbm_bits or not is_contiguous(bits):
        raise ConfigurationError(
            f"rdt: {what} mask {bits:#x} has fewer than {cache.min_cbm_bits} bits",
            where=where,
            remedy=f"the hardware needs at least {cache.min_cbm_bits} contiguous bits",
        )


def _bandwidths(config: RdtConfig, info: BandwidthInfo) -> dict[str, dict[int, int]]:
    out: dict[str, dict[int, int]] = {}
    for part in config.partitions.values():
        for name, rule in part.classes.items():
            rules = (part.allocation.bandwidth, rule.allocation.bandwidth)
            for given in rules:
                unknown = [i for i in given.by_id if i >= 0 and i not in info.ids] if given else []
                if given and unknown:
                    raise ConfigurationError(
                        f"rdt: MB cache id {unknown[0]} does not exist on this machine",
                        where=given.where,
                        remedy=f"its cache ids are {', '.join(map(str, info.ids))}",
                    )
            where = next((given.where for given in reversed(rules) if given), rule.where)
            out[name] = {
                i: _bandwidth(
                    rules[0].find(i) if rules[0] else None, rules[1].find(i) if rules[1] else None, info, where
                )
                for i in info.ids
            }
    return out


def _bandwidth(part: Bandwidth | None, own: Bandwidth | None, info: BandwidthInfo, where: str) -> int:
    if info.unit is BandwidthUnit.PERCENT:
        for given in (part, own):
            if given and given.percent is None:
                raise ConfigurationError(
                    "rdt: memory bandwidth is given in MBps only, and this machine counts in percent",
                    where=where,
                    remedy='add a percentage such as "50%" to the list, or mount resctrl with mba_MBps',
                )
        percents = [given.percent if given and given.percent else 100 for given in (part, own)]
        return max(percents[0] * percents[1] // 100, info.minimum)
    limits = [given.mbps for given in (part, own) if given and given.mbps]
    if info.unit is BandwidthUnit.MBPS:
        return min(limits, default=NO_BANDWIDTH_LIMIT_MBPS)
    # AMD counts in eighths of a GB/s: a percentage has no meaning there, and 2048 is "no limit".
    if not limits and any(given and (given.percent or 100) < 100 for given in (part, own)):
        raise ConfigurationError(
            "rdt: memory bandwidth is given in percent only, and this machine counts in 1/8 GB/s",
            where=where,
            remedy='add a value such as "1000MBps" to the list',
        )
    return max(-(-min(limits) // MBPS_PER_EIGHTH_GBPS), info.minimum) if limits else 2048
