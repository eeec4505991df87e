"""What goes wrong, drawn from a seed: a list of faults, so that some of them can be left out (`shrink`)."""

from __future__ import annotations

import random
from dataclasses import dataclass

LONG_SECONDS, SHORT_SECONDS = 240.0, 90.0
"""How long things go wrong; then they must settle."""
MOST_NODES = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong: what, where, when, for how long, and how badly."""

    at: float
    kind: str
    target: str
    seconds: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.kind} {self.target} for {self.seconds:.3f} s ({self.amount:.4g})"


@dataclass(frozen=True, slots=True)
class Shape:
    """A cluster: nodes by name, and what kind each of them is; and for how long things go wrong in it."""

    nodes: dict[str, str]
    seconds: float = LONG_SECONDS

    def components(self) -> list[str]:
        plugins = {"qrm": ("plugins",), "cci": ("driver",)}
        own = [f"{part}-{node}" for node, kind in self.nodes.items() for part in ("node", *plugins.get(kind, ()))]
        return ["api", "scheduler", "controllers", *own]


def shape_of(seed: int) -> Shape:
    """Few nodes mostly, and faults close together, because that is explored sooner; every tenth has many nodes, every
    third as much time as faults need to be forgotten before the next one comes."""
    chance = random.Random(f"shape {seed}")
    count = chance.randint(10, MOST_NODES) if seed % 10 == 9 else chance.randint(2, 5)
    kinds = ["default", *chance.choices(["default", "default", "qrm", "cci"], k=count - 1)]
    nodes = {f"n{number}": kind for number, kind in enumerate(kinds, start=1)}
    return Shape(nodes, LONG_SECONDS if seed % 3 == 0 else SHORT_SECONDS)


def faults_of(seed: int) -> list[Fault]:
    """Between three and fifteen faults, in the order in which they happen."""
    chance, shape = random.Random(f"faults {seed}"), shape_of(seed)
    kinds = {
        "crash": 6.0, "power cut": 2.0, "crash in write": 2.0, "gone": 0.5, "disk full": 1.0, "disk broken": 0.7,
        "weather": 3.0, "partition": 2.0, "clock jump": 0.7, "reboot": 1.0, "wipe": 0.3,
        "node disk full": 1.0, "runtime hangs": 1.0,
    }  # fmt: skip
    names = chance.choices(list(kinds), list(kinds.values()), k=chance.randint(3, 15))
    return sorted((_fault(kind, chance, shape) for kind in names), key=lambda fault: fault.at)


def _fault(kind: str, chance: random.Random, shape: Shape) -> Fault:
    at, node = chance.uniform(1.0, shape.seconds - 20), chance.choice(list(shape.nodes))
    short, long = chance.uniform(0.1, 10), chance.uniform(10, 90)
    match kind:
        case "crash":  # so many steps of the component after that time: any await of it
            return Fault(at, kind, chance.choice(shape.components()), short, float(chance.randint(0, 400)))
        case "power cut" | "crash in write":
            return Fault(at, kind, "api", short, float(chance.randint(0, 30)))
        case "gone":
            return Fault(at, "crash", "api", chance.uniform(60, 200), 0.0)
        case "disk full" | "disk broken":
            return Fault(at, kind, "api", long if kind == "disk full" else short)
        case "weather":
            target = chance.choice(["*", "scheduler", "controllers", f"node-{node}", f"runtime-{node}"])
            return Fault(at, kind, target, long, chance.choice([0.01, 0.05, 0.2]))
        case "partition":
            return Fault(at, kind, chance.choice(["scheduler", "controllers", f"node-{node}"]), long)
        case "clock jump":
            return Fault(at, kind, "*", 0.0, chance.choice([-3600.0, -30.0, -1.0, 1.0, 30.0, 3600.0]))
        case "reboot" | "wipe":
            return Fault(at, kind, node, short)
        case "node disk full":
            return Fault(at, kind, node, long)
        case _:
            return Fault(at, kind, f"runtime-{node}", long)
