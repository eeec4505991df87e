"""What a node agent is given by whoever runs it, beside its settings: time, a ledger, onlookers; and what it counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kubeqos.clock import Clock
from kubeqos.node.admission.ledger import Ledger


@dataclass(slots=True)
class Activity:
    """How many effects are being carried out; nodes of a fleet share one."""

    count: int = 0


@dataclass(slots=True)
class Counters:
    """What metrics read."""

    effects: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    damaged_checkpoints: int = 0


@dataclass(slots=True)
class Surroundings:
    """What simulations and tests replace: time, the ledger, and who looks on."""

    clock: Clock | None = None
    ledger: Ledger | None = None
    on_event: Callable[[str, str], None] | None = None
    """Called with the reason and message of every event."""
    activity: Activity = field(default_factory=Activity)
