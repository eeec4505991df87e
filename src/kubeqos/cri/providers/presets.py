"""Classes that are rows of numbers: ulimits, memory, cpu and network, from one table of settings.

Each kind is a list of settings; a setting says how its value is read from `classes.yaml`, which cgroup file (v1, v2),
process limit, request field or annotation carries it, and what value takes it away again. Everything here is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kubeqos.cri.enforcing.host import V1
from kubeqos.cri.providers.effects import CgroupWrite, Effect, SetRlimit, write
from kubeqos.cri.providers.protocol import ClassRefusal, Edit, Level, Subject
from kubeqos.document import Doc
from kubeqos.model.reading import amount

UNLIMITED = -1
KERNEL_SHARES = 1024
MIN_SHARES, MAX_SHARES = 2, 262144
MAX_WEIGHT = 10000
RLIMITS = (
    *("as", "core", "cpu", "data", "fsize", "memlock", "msgqueue", "nice", "nofile", "nproc"),
    *("rss", "rtprio", "rttime", "sigpending", "stack"),
)


@dataclass(frozen=True, slots=True)
class Value:
    """What a class says for one setting: a number, a text, a pair, or a share of the container's memory limit."""

    number: int = 0
    text: str = ""
    hard: int = 0
    percent_of_limit: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """A cgroup file that carries a setting: name, rendering, and the value that takes it away."""

    controller: str
    name: str
    render: Callable[[int, Subject], str]
    neutral: Callable[[Subject], str]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a class and where its value goes."""

    key: str
    read: Callable[[Doc], Value]
    v1: File | None = None
    v2: File | None = None
    rlimit: bool = False
    request_field: Callable[[int, Subject, int], tuple[str, int]] | None = None
    """The field of the request that carries the value, for this subject and this version of cgroups."""
    annotation: str = ""


@dataclass(frozen=True, slots=True)
class ClassFamily:
    """A family of classes: at which level, whether a running subject can be moved, and its settings."""

    name: str
    level: Level
    mutable: bool
    settings: tuple[Setting, ...]
    free_annotations: bool = False

    def setting(self, key: str) -> Setting:
        return next(s for s in self.settings if s.key == key)


Preset = Mapping[str, Value]
"""The values of one class, by setting."""


def _number(low: int, high: int) -> Callable[[Doc], Value]:
    return lambda doc: Value(doc.integer(low, high))


def _flag(doc: Doc) -> Value:
    return Value(int(doc.boolean()))


def _bytes(doc: Doc) -> Value:
    """A quantity, `max`, or a percentage of the container's memory limit."""
    text = doc.text()
    if text == "max":
        return Value(UNLIMITED)
    if text.endswith("%"):
        share = text[:-1]
        if not share.isdecimal() or not 1 <= int(share) <= 100:
            doc.fail(f"expected a percentage from 1% to 100% of the memory limit, found {text!r}")
        return Value(percent_of_limit=int(share))
    return Value(amount(doc))


def _rlimit(doc: Doc) -> Value:
    """`soft:hard`, or one value for both; `unlimited` is allowed for each."""
    soft, _, hard = doc.text().partition(":")
    parts = []
    for text in (soft, hard or soft):
        if text != "unlimited" and not text.isdecimal():
            doc.fail(f"expected a whole number or unlimited, found {text!r}", "write it like 1024:65536")
        parts.append(UNLIMITED if text == "unlimited" else int(text))
    if parts[1] != UNLIMITED and (parts[0] == UNLIMITED or parts[0] > parts[1]):
        doc.fail("the soft limit is above the hard limit", "write it as soft:hard with soft ≤ hard")
    return Value(parts[0], hard=parts[1])


def _bandwidth(doc: Doc) -> Value:
    amount(doc)
    return Value(text=doc.text())


def _decimal(number: int, _subject: Subject) -> str:
    return "max" if number == UNLIMITED else str(number)


def _plain(number: int, _subject: Subject) -> str:
    return str(number)


def shares_of_weight(weight: int) -> int:
    """cgroup v1 shares of a v2 weight (reference: shares = (w − 1)·262142 / 9999 + 2)."""
    return (weight - 1) * 262142 // 9999 + 2


def weight_of_shares(shares: int) -> int:
    return 1 + (max(shares, 2) - 2) * 9999 // 262142


def scaled_shares(percent: int, subject: Subject) -> int:
    """The CPU shares of a container in a class (v1): so many per cent of those that its own request makes.

    Two pods of one class share a CPU as they would without classes.
    """
    return min(max((subject.cpu_shares or KERNEL_SHARES) * percent // 100, MIN_SHARES), MAX_SHARES)


def scaled_weight(percent: int, subject: Subject) -> int:
    """The same as a weight (v2), of which a small request has few: it is the weight that is scaled there."""
    return min(max(int(_own_weight(subject)) * percent // 100, 1), MAX_WEIGHT)


def _scaled_request(percent: int, subject: Subject, cgroup_version: int) -> tuple[str, int]:
    if cgroup_version == V1:
        return "cpu_shares", scaled_shares(percent, subject)
    return "cpu_shares", shares_of_weight(scaled_weight(percent, subject))


def _fixed(value: str) -> Callable[[Subject], str]:
    return lambda _subject: value


def _own_shares(subject: Subject) -> str:
    return str(subject.cpu_shares or KERNEL_SHARES)


def _own_weight(subject: Subject) -> str:
    return str(weight_of_shares(subject.cpu_shares) if subject.cpu_shares else 100)


MEMORY = ClassFamily(
    "memory",
    Level.CONTAINER,
    mutable=True,
    settings=(
        Setting("min", _bytes, v2=File("", "memory.min", _decimal, _fixed("0"))),
        Setting(
            "low",
            _bytes,
            v1=File("memory", "memory.soft_limit_in_bytes", _plain, _fixed("-1")),
            v2=File("", "memory.low", _decimal, _fixed("0")),
        ),
        Setting("high", _bytes, v2=File("", "memory.high", _decimal, _fixed("max"))),
        Setting("swap", _bytes, v2=File("", "memory.swap.max", _decimal, _fixed("max"))),
        Setting("oomGroup", _flag, v2=File("", "memory.oom.group", _plain, _fixed("0"))),
    ),
)

CPU = ClassFamily(
    "cpu",
    Level.CONTAINER,
    mutable=True,
    settings=(
        Setting(
            "weight",
            _number(1, MAX_WEIGHT),
            v1=File("cpu", "cpu.shares", lambda w, subject: str(scaled_shares(w, subject)), _own_shares),
            v2=File("", "cpu.weight", lambda w, subject: str(scaled_weight(w, subject)), _own_weight),
            request_field=_scaled_request,
        ),
        Setting(
            "burstMicroseconds",
            _number(0, 10**9),
            v1=File("cpu", "cpu.cfs_burst_us", _plain, _fixed("0")),
            v2=File("", "cpu.max.burst", _plain, _fixed("0")),
        ),
        Setting(
            "idle", _flag, v1=File("cpu", "cpu.idle", _plain, _fixed("0")), v2=File("", "cpu.idle", _plain, _fixed("0"))
        ),
    ),
)

ULIMITS = ClassFamily(
    "ulimits",
    Level.CONTAINER,
    mutable=False,
    settings=tuple(Setting(name, _rlimit, rlimit=True) for name in RLIMITS),
)

NETWORK = ClassFamily(
    "network",
    Level.POD,
    mutable=False,
    settings=(
        Setting("priority", _number(0, 2**31 - 1), annotation="network.kubeqos.io/priority"),
        Setting("ingressBandwidth", _bandwidth, annotation="kubernetes.io/ingress-bandwidth"),
        Setting("egressBandwidth", _bandwidth, annotation="kubernetes.io/egress-bandwidth"),
    ),
    free_annotations=True,
)

KINDS: Mapping[str, ClassFamily] = {kind.name: kind for kind in (MEMORY, CPU, ULIMITS, NETWORK)}


def parse_preset(kind: ClassFamily, fields: Mapping[str, Doc], cgroup_version: int) -> Preset:
    """The values of one class; a setting this machine's cgroups cannot carry is an error, never ignored."""
    out: dict[str, Value] = {}
    for key, doc in fields.items():
        if key == "annotations" and kind.free_annotations:
            out |= {f"annotation:{name}": Value(text=value.text()) for name, value in doc.items().items()}
            continue
        setting = kind.setting(key)
        if cgroup_version == V1 and setting.v2 and not setting.v1:
            doc.fail(
                f"{setting.v2.name} needs cgroup v2, and this machine runs cgroup v1",
                "boot with the unified cgroup hierarchy, or leave this setting out",
            )
        out[key] = setting.read(doc)
    return out


def check_preset(preset: Preset, subject: Subject, class_name: str) -> ClassRefusal | None:
    """A percentage of the memory limit needs a memory limit."""
    shares = [key for key, value in preset.items() if value.percent_of_limit]
    if shares and subject.level is Level.CONTAINER and not subject.memory_limit_bytes:
        return ClassRefusal(
            f"class {class_name!r} sets memory {shares[0]} to a share of the memory limit, and the container has none",
            "set resources.limits.memory, or choose another class",
        )
    return None


def number_for(value: Value, subject: Subject) -> int:
    if not value.percent_of_limit:
        return value.number
    # Page-floored, as the kernel would do (pod-qos, memory.high).
    return subject.memory_limit_bytes * value.percent_of_limit // 100 // 4096 * 4096


def edit_for(kind: ClassFamily, preset: Preset, subject: Subject, cgroup_version: int) -> Edit:
    """What the create request can already carry, so that the subject never runs without it."""
    annotations: dict[str, str] = {}
    resources: dict[str, int | str] = {}
    unified: dict[str, str] = {}
    for key, value in preset.items():
        if key.startswith("annotation:"):
            annotations[key.removeprefix("annotation:")] = value.text
            continue
        setting = kind.setting(key)
        if setting.annotation:
            annotations[setting.annotation] = value.text or str(value.number)
        if setting.request_field:
            name, number = setting.request_field(value.number, subject, cgroup_version)
            resources[name] = number
        elif setting.v2 and cgroup_version != V1:
            unified[setting.v2.name] = setting.v2.render(number_for(value, subject), subject)
    return Edit(annotations, resources, unified)


def transition(kind: ClassFamily, old: Preset, new: Preset, subject: Subject, cgroup_version: int) -> Sequence[Effect]:
    """The writes that take a running subject from one class to another; an empty preset is the system default."""
    effects: list[Effect] = []
    for setting in kind.settings:
        file = setting.v1 if cgroup_version == V1 else setting.v2
        value = new.get(setting.key)
        if setting.rlimit and value:
            effects.append(SetRlimit(setting.key, value.number, value.hard))
        elif file and value:
            effects.append(write(file.controller, file.name, file.render(number_for(value, subject), subject)))
        elif file and setting.key in old:
            effects.append(_cleared(file, subject))
    return tuple(sorted(effects, key=_idle_first))


def _cleared(file: File, subject: Subject) -> CgroupWrite:
    return write(file.controller, file.name, file.neutral(subject), needed=False)


def _idle_first(effect: Effect) -> int:
    """An idle cgroup refuses a weight, so idle is turned off before and turned on after the weight is written."""
    if not isinstance(effect, CgroupWrite) or effect.choices[0][0] != "cpu.idle":
        return 1
    return 0 if effect.choices[0][1] == "0" else 2
