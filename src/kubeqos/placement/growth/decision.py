"""One look at a cluster: what to add, or what it can do without, and what that costs. Pure.

Growth comes first: while a pod waits that more nodes would help, nothing is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.groups import NodeGroup, Occupant, Waiting
from kubeqos.placement.growth.scaledown import USED_AT_MOST, ScaleDown, unneeded
from kubeqos.placement.growth.scaleup import ScaleUp, rehearse


@dataclass(frozen=True, slots=True)
class Decision:
    """Nodes to add and to take away, by group, with the reasons in `up` and `down`."""

    groups: tuple[NodeGroup, ...]
    up: ScaleUp
    down: ScaleDown

    @property
    def bill(self) -> float:
        """What all groups cost now."""
        return sum(group.bill for group in self.groups)

    @property
    def bill_after(self) -> float:
        """What they would cost then."""
        added = sum(group.cost * self.up.added[group.name] for group in self.groups)
        return self.bill + added - sum(one.saves for one in self.down.removals)

    def removed_from(self, group: str) -> int:
        return sum(one.group == group for one in self.down.removals)


def decide(
    cluster: Cluster,
    waiting: Sequence[Waiting],
    groups: Sequence[NodeGroup],
    occupants: Mapping[str, Sequence[Occupant]],
    used_at_most: float = USED_AT_MOST,
) -> Decision:
    """What the cluster needs; nobody waits for what is taken away, and what is added is all used."""
    up = rehearse(cluster, waiting, groups)
    # Who waits and finds a place as it is now will be there in a moment: its node is not to go meanwhile.
    down = ScaleDown() if any(up.added.values()) or up.placed else unneeded(cluster, groups, occupants, used_at_most)
    return Decision(tuple(groups), up, down)
