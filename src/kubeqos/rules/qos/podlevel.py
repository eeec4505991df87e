"""What the cgroups of containers mean for the cgroups above them: weights, protections, and what of them is effective.

Pods compete with pods, so a weight that only the container's cgroup has decides nothing between them, and the kernel
protects memory only as far as every ancestor is protected. Called by the relay, for pods whose containers have classes,
by the node's keeper of cgroups, and by `kubeqos why`. Values are texts as control files have them. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

Contents = Mapping[str, str]
"""What the control files of one cgroup say, by file name."""

CPU, MEMORY, IO = "cpu", "memory", "io"
PROTECTIONS = ("memory.min", "memory.low")
UNLIMITED = 1 << 62
IDLE = "cpu.idle"


@dataclass(frozen=True, slots=True)
class Weight:
    """A control file of weights, which lie between `low` and `high`."""

    name: str
    low: int
    high: int
    normal: int = 100
    """What a cgroup has that nobody gave a weight."""
    by_device: bool = False
    """Whether the same file has weights of single devices, a line each."""


CPU_WEIGHTS: Mapping[int, Weight] = {1: Weight("cpu.shares", 2, 262_144, 1024), 2: Weight("cpu.weight", 1, 10_000)}
IO_WEIGHTS: Mapping[int, tuple[Weight, ...]] = {
    1: (Weight("blkio.bfq.weight", 1, 1000), Weight("blkio.weight", 10, 1000, 500)),
    2: (Weight("io.bfq.weight", 1, 1000, by_device=True), Weight("io.weight", 1, 10_000, by_device=True)),
}
FILES: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    1: {CPU: (IDLE, "cpu.shares"), IO: tuple(one.name for one in IO_WEIGHTS[1])},
    2: {CPU: (IDLE, "cpu.weight"), MEMORY: PROTECTIONS, IO: tuple(one.name for one in IO_WEIGHTS[2])},
}
"""The files that a pod's cgroup has from its containers, by cgroup version and by what a class is about."""


def pod_contents(children: Sequence[Contents], about: Collection[str], version: int) -> dict[str, str]:
    """What the cgroup of a pod has to say, given what those of its containers say; in the order of writing."""
    found: dict[str, str] = {}
    if CPU in about:
        found |= _cpu(children, CPU_WEIGHTS[version])
    if MEMORY in about and version == 2:
        found |= {name: protection_text(sum(amount(one.get(name, "0")) for one in children)) for name in PROTECTIONS}
    for weight in IO_WEIGHTS[version] if IO in about else ():
        if any(weight.name in one for one in children):
            found[weight.name] = _weights(children, weight)
    return found


def _cpu(children: Sequence[Contents], weight: Weight) -> dict[str, str]:
    """Idle containers weigh nothing; a pod of which all are idle is idle itself."""
    awake = [one for one in children if one.get(IDLE) != "1"]
    if children and not awake:
        return {IDLE: "1"}
    total = sum(_number(one.get(weight.name, ""), weight.normal) for one in awake)
    still = {IDLE: "0"} if any(IDLE in one for one in children) else {}  # an idle cgroup refuses a weight
    return {**still, weight.name: str(_within(total, weight))}


def _weights(children: Sequence[Contents], weight: Weight) -> str:
    """One line for all devices, and one for each that somebody has a weight of its own for."""
    read = [_lines(one[weight.name], weight) for one in children if weight.name in one]
    devices = dict.fromkeys(device for _, own in read for device in own)
    lines = [weight_text(sum(usual for usual, _ in read), weight)]
    lines += [f"{device} {_within(sum(own.get(device, usual) for usual, own in read), weight)}" for device in devices]
    return "\n".join(lines)


def _lines(text: str, weight: Weight) -> tuple[int, dict[str, int]]:
    usual, own = weight.normal, {}
    for line in text.splitlines():
        name, _, number = line.strip().rpartition(" ")
        if name in ("", "default"):
            usual = _number(number, weight.normal)
        else:
            own[name] = _number(number, weight.normal)
    return usual, own


def weight_text(total: int, weight: Weight) -> str:
    """A weight for all devices, as its file shows it."""
    return f"default {_within(total, weight)}" if weight.by_device else str(_within(total, weight))


def default_weight(text: str, weight: Weight) -> int:
    """The weight for devices that have none of their own."""
    return _lines(text, weight)[0]


def amount(text: str) -> int:
    """Bytes in a control file; `max` is more than any machine has."""
    return UNLIMITED if text.strip() == "max" else _number(text, 0)


def protection_text(total: int) -> str:
    return "max" if total >= UNLIMITED else str(total)


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.strip().isdecimal() else otherwise


def _within(number: int, weight: Weight) -> int:
    return max(weight.low, min(weight.high, number))


# ---- Protection


@dataclass(frozen=True, slots=True)
class CgroupLevel:
    """One cgroup on the way from a container up: what it asks to have protected, and what its siblings ask with it."""

    name: str
    own: int
    siblings: int
    """Of all children of its parent together, itself among them."""


@dataclass(frozen=True, slots=True)
class Protection:
    """How much of a cgroup's memory the kernel leaves alone, and why not more."""

    asked: int
    effective: int
    because: str = ""

    @property
    def is_whole(self) -> bool:
        return self.effective >= self.asked


def effective_protection(levels: Iterable[CgroupLevel]) -> Protection:
    """What of the last level's protection is effective; levels come from the top down, without the root.

    A cgroup has what it asks for, or its share of what its parent has where the children ask for more than that
    (cgroup v2, memory.min: "proportional to the parent's effective protection").
    """
    given, asked, because = UNLIMITED, 0, ""
    above = "the root"
    for level in levels:
        asked = level.own
        share = level.own if level.siblings <= given else level.own * given // level.siblings
        if share < level.own:
            because = f"{above} has {given} effective bytes and its children ask for {level.siblings}"
        given, above = min(level.own, share), level.name
    return Protection(asked, given if asked else 0, because if given < asked else "")
