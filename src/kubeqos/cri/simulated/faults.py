"""Faults of a simulated runtime: slow calls, failing calls, calls that never return.

    --latency 'StartContainer=5ms-20ms'   --fault 'CreateContainer=UNAVAILABLE@10%'   --fault 'Status=HANG'

`*` stands for every call. What happens to which call follows from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from kubeqos.cri.errors import Code
from kubeqos.cri.runtime import METHODS
from kubeqos.cri.simulated.process.script import read_code
from kubeqos.errors import InputError
from kubeqos.model.timestamps import parse_duration

ANY = "*"
HANG = "HANG"


@dataclass(frozen=True, slots=True)
class Latency:
    """A call takes between so many nanoseconds longer."""

    low_ns: int
    high_ns: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A call fails with this code, or never returns when there is none, in this share of cases."""

    code: Code | None
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one call before it reaches the runtime."""

    delay_ns: int = 0
    fault: Fault | None = None


@dataclass(slots=True)
class Faults:
    """Rules by method; they may be changed while the runtime runs."""

    latency: dict[str, Latency] = field(default_factory=dict)
    fault: dict[str, Fault] = field(default_factory=dict)
    seed: int = 0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def fate(self, method: str) -> Fate:
        """Draw what happens to the next call of a method."""
        latency = self.latency.get(method) or self.latency.get(ANY)
        fault = self.fault.get(method) or self.fault.get(ANY)
        delay = self._random.randint(latency.low_ns, latency.high_ns) if latency else 0
        strikes = fault is not None and self._random.random() < fault.share
        return Fate(delay, fault if strikes else None)


def parse_faults(latencies: Iterable[str], faults: Iterable[str], seed: int = 0) -> Faults | None:
    """Rules as the command line gives them; None when there are none."""
    slow = dict(_rule("latency", text) for text in latencies)
    bad = dict(_rule("fault", text) for text in faults)
    if not slow and not bad:
        return None
    return Faults(
        {method: _latency(text) for method, text in slow.items()},
        {method: _fault(text) for method, text in bad.items()},
        seed,
    )


def _rule(kind: str, text: str) -> tuple[str, str]:
    method, equals, value = text.partition("=")
    known = {m.name for m in METHODS} | {ANY}
    if not equals or method not in known:
        raise InputError(
            f"--{kind} {text!r}: expected METHOD=…", remedy=f"METHOD is one of: {', '.join(sorted(known))}"
        )
    return method, value


def _latency(text: str) -> Latency:
    low, dash, high = text.partition("-")
    first = parse_duration(low)
    latency = Latency(first, parse_duration(high) if dash else first)
    if latency.high_ns < latency.low_ns:
        raise InputError(f"latency {text!r} ends before it begins", remedy="write the shorter duration first")
    return latency


def _fault(text: str) -> Fault:
    code, at, share = text.partition("@")
    percent = share.removesuffix("%")
    if at and not (percent.replace(".", "", 1).isdigit() and float(percent) <= 100):
        raise InputError(f"fault {text!r}: {share!r} is not a share", remedy="write it like UNAVAILABLE@10%")
    return Fault(None if code == HANG else read_code(code), float(percent) / 100 if at else 1.0)
