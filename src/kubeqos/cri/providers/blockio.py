"""Block I/O classes: devices by glob, weights and throttles, as cgroup v1 or v2 files (goresctrl's configuration).

Parse → resolve globs to device numbers → render writes. Globs are resolved through a function, so all of this is pure;
`enforcing.host` has the real one. Globs are resolved again at each assignment, so a hot-plugged disk is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.cri.enforcing.host import V1
from kubeqos.cri.providers.effects import CgroupWrite, Effect, write
from kubeqos.document import Doc
from kubeqos.model.reading import amount

Device = tuple[int, int]
FindDevices = Callable[[str], Sequence[Device]]

MIN_WEIGHT, MAX_WEIGHT = 10, 1000
NEUTRAL_WEIGHT = 100
THROTTLES: Mapping[str, tuple[str, str]] = {
    # configuration key: (cgroup v1 file, io.max key)
    "ThrottleReadBps": ("blkio.throttle.read_bps_device", "rbps"),
    "ThrottleWriteBps": ("blkio.throttle.write_bps_device", "wbps"),
    "ThrottleReadIOPS": ("blkio.throttle.read_iops_device", "riops"),
    "ThrottleWriteIOPS": ("blkio.throttle.write_iops_device", "wiops"),
}


@dataclass(frozen=True, slots=True)
class DeviceRule:
    """One item of a class: what holds for the devices of some globs (no glob: the default weight)."""

    devices: tuple[str, ...] = ()
    weight: int = 0
    throttles: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BlockIo:
    """A class resolved to device numbers."""

    weight: int = 0
    device_weights: Mapping[Device, int] = field(default_factory=dict)
    throttles: Mapping[tuple[str, Device], int] = field(default_factory=dict)


def parse_classes(doc: Doc) -> dict[str, tuple[DeviceRule, ...]]:
    """`Classes: {name: [entry, …]}`."""
    classes = doc.fields(("Classes",)).get("Classes")
    if classes is None:
        doc.fail("no classes", "add the key Classes")
    return {name: tuple(_parse_entry(item) for item in entry.elements()) for name, entry in classes.items().items()}


def _parse_entry(doc: Doc) -> DeviceRule:
    fields = doc.fields(("Devices", "Weight", *THROTTLES))
    devices = tuple(item.text() for item in fields["Devices"].elements()) if "Devices" in fields else ()
    throttles = {key: amount(fields[key]) for key in THROTTLES if key in fields}
    if throttles and not devices:
        doc.fail(f"{next(iter(throttles))} without Devices", "name the devices that are throttled")
    if not throttles and "Weight" not in fields:
        doc.fail("sets neither a weight nor a throttle", f"use Weight or one of {', '.join(THROTTLES)}")
    weight = fields["Weight"].integer(MIN_WEIGHT, MAX_WEIGHT) if "Weight" in fields else 0
    return DeviceRule(devices, weight, throttles)


def resolve(entries: Sequence[DeviceRule], find: FindDevices) -> BlockIo:
    """Globs to device numbers; a later entry overrides an earlier one for the same device."""
    weight = 0
    weights: dict[Device, int] = {}
    throttles: dict[tuple[str, Device], int] = {}
    for entry in entries:
        if not entry.devices:
            weight = entry.weight or weight
            continue
        for device in dict.fromkeys(d for pattern in entry.devices for d in find(pattern)):
            if entry.weight:
                weights[device] = entry.weight
            for key, value in entry.throttles.items():
                throttles[key, device] = value
    return BlockIo(weight, weights, throttles)


def transition(old: BlockIo, new: BlockIo, cgroup_version: int) -> tuple[Effect, ...]:
    """The writes that take a running container from one class to another."""
    return (
        *_weights(old, new, cgroup_version),
        *_device_weights(old, new, cgroup_version),
        *_throttles(old, new, cgroup_version),
    )


def io_weight(weight: int) -> int:
    """cgroup v2 io.weight (1..10000) of a BFQ-style weight (10..1000)."""
    return 1 + (weight - 10) * 9999 // 990


def _weights(old: BlockIo, new: BlockIo, version: int) -> list[Effect]:
    weight, needed = (new.weight, True) if new.weight else (NEUTRAL_WEIGHT, False)
    if not new.weight and not old.weight:
        return []
    if version == V1:
        return [CgroupWrite("blkio", (("blkio.bfq.weight", str(weight)), ("blkio.weight", str(weight))), needed)]
    neutral = io_weight(weight) if needed else 100
    return [CgroupWrite("", (("io.bfq.weight", str(weight)), ("io.weight", f"default {neutral}")), needed, every=True)]


def _device_weights(old: BlockIo, new: BlockIo, version: int) -> list[Effect]:
    effects: list[Effect] = []
    for device in sorted({*old.device_weights, *new.device_weights}):
        number, weight = _name(device), new.device_weights.get(device)
        needed = weight is not None
        if version == V1:
            line = f"{number} {weight or 0}"
            files = (("blkio.bfq.weight_device", line), ("blkio.weight_device", line))
            effects.append(CgroupWrite("blkio", files, needed))
        else:
            bfq, plain = (str(weight), str(io_weight(weight))) if weight else ("default", "default")
            files = (("io.bfq.weight", f"{number} {bfq}"), ("io.weight", f"{number} {plain}"))
            effects.append(CgroupWrite("", files, needed, every=True))
    return effects


def _throttles(old: BlockIo, new: BlockIo, version: int) -> list[Effect]:
    effects: list[Effect] = []
    for key, device in sorted({*old.throttles, *new.throttles}):
        value = new.throttles.get((key, device))
        v1_file, v2_key = THROTTLES[key]
        needed = value is not None
        if version == V1:
            effects.append(write("blkio", v1_file, f"{_name(device)} {value or 0}", needed=needed))
        else:
            effects.append(write("", "io.max", f"{_name(device)} {v2_key}={value or 'max'}", needed=needed))
    return effects


def _name(device: Device) -> str:
    return f"{device[0]}:{device[1]}"
