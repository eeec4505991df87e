"""Merge of topology hints: Kubernetes' answer without Kubernetes' cross product.

Upstream folds a comparator over every combination of one hint per resource, which is the product of the list
lengths. The comparator is a total order, so the winner can be found directly: a preferred result is a mask
that every resource prefers (set intersection); otherwise only the set of reachable ANDs matters. Cost grows
linearly with the number of resources. Called by the node agent for each container or pod (see `Scope.units`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubeqos.model.cpuset import NumaSet, iterate_bits
from kubeqos.topology.alignment.hints import Distance, Forced, Hint, Merged, Offer, Policy
from kubeqos.topology.alignment.numeric import ALIGNED, merge_numeric

SMALL = 4096  # pairs up to which Python sets beat the set-up cost of numpy


def merge(
    offers: Iterable[Offer],
    nodes: NumaSet,
    policy: Policy,
    *,
    closest: Distance | None = None,
    aligned: Sequence[str] = ALIGNED,
) -> Merged:
    """Find the best common placement of all offered resources on a machine with these NUMA nodes.

    `closest` turns on prefer-closest-numa-nodes (pass `machine.distance`). `aligned` matters to the numeric
    policy only. Offers without opinion may be left out.
    """
    opinions = [offer for offer in offers if offer.hints is not None]
    if policy is Policy.NONE:
        return Merged(policy, Hint(None, False), admitted=True)
    if policy is Policy.NUMERIC:
        return merge_numeric(opinions, aligned)
    single = policy is Policy.SINGLE_NUMA_NODE
    choices = [_Choice.of(offer, single) for offer in opinions]
    mask, preferred = _best(choices, nodes.mask, None if single else closest)
    forced = _forced(choices, mask, preferred, nodes.mask)
    numa = None if single and mask == nodes.mask else NumaSet(mask)
    return Merged(policy, Hint(numa, preferred), preferred or policy is Policy.BEST_EFFORT, forced=forced)


@dataclass(slots=True)
class _Choice:
    """One resource's hints, sorted into what the search asks for."""

    offer: Offer
    masks: set[int]
    preferred: set[int]
    anywhere: bool = False
    anywhere_preferred: bool = False

    @classmethod
    def of(cls, offer: Offer, single: bool) -> _Choice:
        choice = cls(offer, set(), set())
        for hint in offer.hints or ():
            if hint.numa is None:
                if hint.preferred or not single:
                    choice.anywhere = True
                choice.anywhere_preferred = choice.anywhere_preferred or hint.preferred
            elif not single or (hint.preferred and len(hint.numa) == 1):
                choice.masks.add(hint.numa.mask)
                if hint.preferred:
                    choice.preferred.add(hint.numa.mask)
        if not offer.hints and not single:
            choice.anywhere = True  # upstream counts an impossible resource as "anywhere, not preferred"
        return choice

    def prefers(self, mask: int) -> bool:
        return self.anywhere_preferred or mask in self.preferred


def _best(choices: Sequence[_Choice], everywhere: int, closest: Distance | None) -> tuple[int, bool]:
    def narrow(mask: int) -> tuple[int, ...]:
        return (mask.bit_count(), _distance_sum(mask, closest) if closest else 0, mask)

    agreed = {mask & everywhere for mask in _agreed(choices, everywhere)}
    agreed.discard(0)
    if agreed:
        return min(agreed, key=narrow), True
    widest = max((min(map(int.bit_count, choice.masks)) for choice in choices if choice.masks), default=0)

    def near_widest(mask: int) -> tuple[int, ...]:
        gap = mask.bit_count() - widest
        return (gap > 0, abs(gap), _distance_sum(mask, closest) if closest else 0, mask)

    reachable = _reachable(choices, everywhere)
    return (min(reachable, key=near_widest) if reachable else everywhere), False


def _agreed(choices: Sequence[_Choice], everywhere: int) -> set[int]:
    """The masks that every resource prefers; a resource that prefers "anywhere" agrees with all."""
    picky = [choice.preferred for choice in choices if not choice.anywhere_preferred]
    if picky:
        return set.intersection(*sorted(picky, key=len))
    return {everywhere}.union(*(choice.preferred for choice in choices))


def _reachable(choices: Sequence[_Choice], everywhere: int) -> set[int]:
    """Every non-zero AND of one mask per resource."""
    reached = {everywhere}
    lists = sorted((choice.masks | ({everywhere} if choice.anywhere else set()) for choice in choices), key=len)
    for done, offered in enumerate(lists):
        if len(reached) * len(offered) > SMALL:
            from kubeqos.topology.alignment.andsets import and_all  # numpy is loaded only where it pays

            return and_all(everywhere, [reached, *lists[done:]])
        reached = {have & mask for have in reached for mask in offered}
        reached.discard(0)
    return reached


def _distance_sum(mask: int, closest: Distance) -> int:
    """Masks are compared by average distance only when their sizes are equal, so the sum decides."""
    nodes = list(iterate_bits(mask))
    return sum(closest(a, b) for a in nodes for b in nodes)


def _forced(choices: Sequence[_Choice], mask: int, preferred: bool, everywhere: int) -> tuple[Forced, ...]:
    """Who kept the answer from a better one: the fewest that object to a mask which others prefer."""
    out = [
        Forced(c.offer.provider, c.offer.resource, "no NUMA placement is possible")
        for c in choices
        if not c.offer.hints
    ]
    if out:
        return tuple(out)
    wished = {m for c in choices for m in c.preferred if m & everywhere}
    if preferred:
        wished = {m for m in wished if (m.bit_count(), m) < (mask.bit_count(), mask)}
    if not wished:
        return tuple(
            Forced(c.offer.provider, c.offer.resource, "offers nothing that it prefers")
            for c in choices
            if not preferred and not c.anywhere_preferred and not c.preferred
        )
    votes = dict.fromkeys(wished, 0)
    for choice in choices:
        for m in wished if choice.anywhere_preferred else choice.preferred & wished:
            votes[m] += 1
    best = min(wished, key=lambda m: (-votes[m], m.bit_count(), m))
    fans = " and ".join(c.offer.resource for c in choices if best in c.preferred)
    how = f"does not prefer NUMA {NumaSet(best)}, unlike {fans}"
    return tuple(Forced(c.offer.provider, c.offer.resource, how) for c in choices if not c.prefers(best))
