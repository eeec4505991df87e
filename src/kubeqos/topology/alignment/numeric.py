"""The numeric policy of QRM: resources keep their own masks instead of being ANDed into one.

The aligned resources (cpu and memory unless configured otherwise) must sit on equal masks, and at least one
of them must prefer that mask. The masks of all resources must be nested (of any two, one contains the other),
so that cpu may sit on node 0 while a NIC is offered for nodes 0 and 1. Among what is left, more preferred
hints win, then the smallest maximum number of NUMA nodes, then the lowest masks. Called through
`topology.alignment.merge.merge`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubeqos.model.cpuset import NumaSet
from kubeqos.topology.alignment.hints import ANYWHERE, Forced, Hint, Merged, Offer, Policy

ALIGNED = ("cpu", "memory")

Placed = tuple[int | None, bool]  # mask (None: anywhere), preferred
Score = tuple[int, int, tuple[int, ...]]


def merge_numeric(offers: Sequence[Offer], aligned: Sequence[str] = ALIGNED) -> Merged:
    """One hint per resource, or a refusal that names who could not agree."""
    refused = Hint(None, False)
    stuck = [offer for offer in offers if not offer.hints]
    if stuck:
        forced = tuple(Forced(o.provider, o.resource, "no NUMA placement is possible") for o in stuck)
        return Merged(Policy.NUMERIC, refused, admitted=False, forced=forced)
    together = [offer for offer in offers if offer.resource in aligned]
    others = sorted((o for o in offers if o.resource not in aligned), key=lambda o: len(o.hints or ()))
    search = _Search([_options(offer) for offer in others])
    for placements in _aligned_placements(together):
        search.extend(placements, 0)
    if search.best is None:
        return Merged(Policy.NUMERIC, refused, admitted=False, forced=_disagreement(together, others))
    placed = {
        offer.resource: Hint(None if mask is None else NumaSet(mask), preferred)
        for offer, (mask, preferred) in zip([*together, *others], search.best, strict=True)
    }
    return Merged(Policy.NUMERIC, ANYWHERE, admitted=True, by_resource=placed)


class _Search:
    """Depth first over the resources that need not be aligned, cut off where the best cannot be beaten."""

    def __init__(self, options: list[list[Placed]]) -> None:
        self.options = options
        self.best: list[Placed] | None = None
        self._score: Score = (1, 0, ())

    def extend(self, chosen: list[Placed], depth: int) -> None:
        preferred = sum(good for _, good in chosen)
        widest = max((mask.bit_count() for mask, _ in chosen if mask is not None), default=0)
        masks = tuple(-1 if mask is None else mask for mask, _ in chosen)
        hopeful = (-(preferred + len(self.options) - depth), widest, masks)
        if hopeful > (*self._score[:2], self._score[2][: len(masks)]):
            return
        if depth == len(self.options):
            if self.best is None or hopeful < self._score:
                self.best, self._score = chosen, hopeful
            return
        for option in self.options[depth]:
            if all(_nested(option[0], mask) for mask, _ in chosen):
                self.extend([*chosen, option], depth + 1)


def _nested(a: int | None, b: int | None) -> bool:
    return a is None or b is None or a & b in (a, b)


def _options(offer: Offer) -> list[Placed]:
    """Distinct placements of one resource, the most promising first."""
    best: dict[int | None, bool] = {}
    for hint in offer.hints or ():
        mask = None if hint.numa is None else hint.numa.mask
        best[mask] = best.get(mask, False) or hint.preferred
    return sorted(best.items(), key=lambda o: (not o[1], o[0].bit_count() if o[0] else 0, o[0] or 0))


def _aligned_placements(together: Sequence[Offer]) -> Iterator[list[Placed]]:
    """Every mask on which all aligned resources can sit, with each one's preference."""
    tables = [dict(_options(offer)) for offer in together]
    if not tables:
        yield []
        return
    masks = {mask for table in tables for mask in table}
    for mask in sorted(masks, key=lambda m: (m or 0).bit_count()):
        if all(mask in table or None in table for table in tables):
            placed = [(mask, table.get(mask, False) or table.get(None, False)) for table in tables]
            if any(preferred for _, preferred in placed):
                yield placed


def _disagreement(together: Sequence[Offer], others: Sequence[Offer]) -> tuple[Forced, ...]:
    if not any(True for _ in _aligned_placements(together)):
        names = " and ".join(offer.resource for offer in together)
        how = f"{names} share no NUMA mask that one of them prefers"
        return tuple(Forced(offer.provider, offer.resource, how) for offer in together)
    how = "its NUMA masks do not nest with those of the other resources"
    return tuple(Forced(offer.provider, offer.resource, how) for offer in others)
