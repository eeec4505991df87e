"""How large pools should be: pure policies from facts to sizes.

`fixed` leaves them as configured, `proportional` follows what their containers request, `feedback` follows what they
use and how long they wait. An external QoS system may do better, and sets sizes through the plugin's API instead.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import msgspec


class Policy(enum.StrEnum):
    FIXED = "fixed"
    PROPORTIONAL = "proportional"
    FEEDBACK = "feedback"


class AdvisorConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How to advise; the figures below the policy matter to feedback only."""

    policy: Policy = Policy.FIXED
    period_seconds: float = 5.0
    target: float = 0.7
    """The share of its CPUs that a pool should use."""
    pressure: float = 10.0
    """Per cent of time that tasks wait for a CPU from which a pool counts as too small."""
    band: float = 0.1
    """Changes smaller than this share of a pool are not made."""
    patience: int = 3
    """A pool shrinks only after so many rounds in a row say so; it grows at once."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool as it is. The first pool named is served first; the last takes what is left."""

    size: int
    floor: int = 1
    requested: float = 0.0
    used: float = 0.0
    pressure: float = 0.0


@dataclass(frozen=True)
class Advice:
    """New sizes, why, and what to remember for the next round."""

    sizes: Mapping[str, int]
    because: str
    shrinking: Mapping[str, int] = field(default_factory=dict)


def advise(
    config: AdvisorConfig, pools: Mapping[str, PoolFacts], total: int, shrinking: Mapping[str, int] | None = None
) -> Advice | None:
    """Sizes that add up to `total`, or None when everything may stay; never below a pool's floor."""
    floors = sum(facts.floor for facts in pools.values())
    if config.policy is Policy.FIXED or not pools or floors > total:
        return None
    if config.policy is Policy.PROPORTIONAL:
        advice = Advice(_proportional(pools, total), "in proportion to requests")
    else:
        advice = _feedback(config, pools, total, shrinking or {})
    same = all(pools[name].size == size for name, size in advice.sizes.items())
    return None if same and not advice.shrinking else advice


def _proportional(pools: Mapping[str, PoolFacts], total: int) -> dict[str, int]:
    """Floors first, the rest by requests; rounding goes to the largest remainder, then to the first named."""
    weights = {name: Fraction(facts.requested) for name, facts in pools.items()}
    if not any(weights.values()):
        return {name: facts.size for name, facts in pools.items()}
    spare = total - sum(facts.floor for facts in pools.values())
    exact = {name: spare * weight / sum(weights.values()) for name, weight in weights.items()}
    sizes = {name: pools[name].floor + int(share) for name, share in exact.items()}
    order = sorted(pools, key=lambda name: int(exact[name]) - exact[name])
    for name in order[: total - sum(sizes.values())]:
        sizes[name] += 1
    return sizes


def _feedback(
    config: AdvisorConfig, pools: Mapping[str, PoolFacts], total: int, shrinking: Mapping[str, int]
) -> Advice:
    names = list(pools)
    sizes: dict[str, int] = {}
    votes: dict[str, int] = {}
    reasons = []
    left = total
    for at, name in enumerate(names):
        facts = pools[name]
        rest = sum(pools[other].floor for other in names[at + 1 :])
        wanted = left if at == len(names) - 1 else _wanted(config, facts)
        wanted = max(facts.floor, min(wanted, left - rest))
        if at < len(names) - 1:
            if wanted < facts.size and left - rest >= facts.size:
                votes[name] = shrinking.get(name, 0) + 1
                if votes[name] < config.patience:
                    wanted = facts.size
                else:
                    del votes[name]
            if wanted != facts.size:
                reasons.append(f"{name} uses {facts.used:.1f} of {facts.size} CPUs and waits {facts.pressure:.0f} %")
        sizes[name] = wanted
        left -= wanted
    return Advice(sizes, "; ".join(reasons), votes)


def _wanted(config: AdvisorConfig, facts: PoolFacts) -> int:
    """Enough CPUs to be busy to the target, more while tasks wait; small differences are noise."""
    wanted = math.ceil(facts.used / config.target)
    if facts.pressure > config.pressure:
        wanted = max(wanted, math.ceil(facts.size * (1 + config.band)) + 1)
    near = abs(wanted - facts.size) <= max(1, facts.size * config.band)
    return facts.size if near and facts.pressure <= config.pressure else wanted
