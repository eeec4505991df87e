"""What managers and plugins say about NUMA placement, and what comes of merging it.

A provider makes one `Offer` per resource: a list of `Hint`s. Three answers look alike and are not: no offer
or `hints=None` means "I do not care", an empty tuple means "no placement is possible", and a hint without
NUMA nodes means "anywhere". Used by the node agent's managers, by QRM (whose wire form keeps the same
distinction) and by `topology.alignment.merge`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.model.cpuset import NumaSet

Distance = Callable[[int, int], int]  # Machine.distance


class Policy(enum.Enum):
    """What to do with the merged hint; the values are Kubernetes' setting names, `numeric` is Katalyst's."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"
    NUMERIC = "numeric"


class Scope(enum.Enum):
    """Whether each container is aligned by itself or the whole pod at once."""

    CONTAINER = "container"
    POD = "pod"

    def units(self, containers: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The groups of containers that share one merge, in the order in which they are decided."""
        if self is Scope.POD:
            return (tuple(containers),) if containers else ()
        return tuple((name,) for name in containers)


@dataclass(frozen=True, slots=True)
class TopologySettings:
    """How the offers of managers are brought together on a node."""

    policy: Policy = Policy.NONE
    scope: Scope = Scope.CONTAINER
    closest: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """One possible placement; `numa` None means anywhere."""

    numa: NumaSet | None
    preferred: bool

    def __str__(self) -> str:
        where = "anywhere" if self.numa is None else f"NUMA {self.numa}"
        return f"{where} ({'preferred' if self.preferred else 'not preferred'})"


ANYWHERE = Hint(None, True)


@dataclass(frozen=True, slots=True)
class Offer:
    """Everything one provider says about one resource; see the module's prologue for None and empty."""

    provider: str
    resource: str
    hints: Sequence[Hint] | None
    peer: str = ""
    """Whom the provider asked: QRM's plugin; empty where the hints are its own."""


@dataclass(frozen=True, slots=True)
class Forced:
    """One resource that kept the merge from a better answer, and how."""

    provider: str
    resource: str
    how: str

    def __str__(self) -> str:
        return f"{self.resource} ({self.provider}): {self.how}"


@dataclass(frozen=True, slots=True)
class Alignment:
    """One merge, for people to see: whose containers, what was offered, what came of it."""

    containers: tuple[str, ...]
    offers: Sequence[Offer]
    merged: Merged


@dataclass(frozen=True)
class Merged:
    """The answer of a merge: where, whether the policy admits it, and who forced it."""

    policy: Policy
    hint: Hint
    admitted: bool
    by_resource: Mapping[str, Hint] = field(default_factory=dict)  # policy numeric gives each resource its own
    forced: tuple[Forced, ...] = ()

    def hint_for(self, resource: str) -> Hint:
        """The placement that this resource is to be allocated with."""
        return self.by_resource.get(resource, self.hint)

    @property
    def because(self) -> str:
        """The decision as one sentence for events and `kubeqos why`."""
        verdict = "admitted" if self.admitted else "Resources cannot be allocated with Topology locality"
        told = "; ".join(map(str, self.forced))
        return f"{verdict}: policy {self.policy.value}, {self.hint}" + (f"; {told}" if told else "")
