"""Merges of hints and what came of them, in the form of the decision record. Pure; called by `node.decided`.

Bounded, because a machine of eight NUMA nodes offers 255 sets for each resource: the narrowest stand in the record, and
containers that were told the same share one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.decisions import MOST_HINTS, MOST_MERGES, GivenResource, HintMerge, HintOffer
from kubeqos.plugins.managers import ContainerRef, ResourceManager, TellsResources
from kubeqos.topology.alignment.hints import Alignment, Hint, Offer, Policy

ANYWHERE = "anywhere"


def because(alignments: Iterable[Alignment]) -> str:
    """What the topology policy found, each thing once."""
    return "; ".join(dict.fromkeys(one.merged.because for one in alignments))


def merges(alignments: Sequence[Alignment]) -> tuple[HintMerge, ...]:
    """The merges that had something to merge."""
    alike: list[Alignment] = []
    for one in alignments:
        if one.merged.policy is Policy.NONE or not one.offers:
            continue
        same = next((n for n, known in enumerate(alike) if _alike(known, one)), None)
        if same is None:
            alike.append(one)
        else:
            alike[same] = replace(one, containers=alike[same].containers + one.containers)
    return tuple(map(_merge, alike[:MOST_MERGES]))


def _alike(one: Alignment, other: Alignment) -> bool:
    return one.merged == other.merged and list(one.offers) == list(other.offers)


def _merge(one: Alignment) -> HintMerge:
    merged = one.merged
    return HintMerge(
        containers=one.containers,
        policy=merged.policy.value,
        result=_where(merged.hint.numa),
        preferred=merged.hint.preferred,
        admitted=merged.admitted,
        # Plugins are asked in the order in which they came; people find things by name.
        offers=tuple(map(_offer, sorted(one.offers, key=lambda offer: offer.resource))),
        by_resource={name: _where(hint.numa) for name, hint in merged.by_resource.items()},
        forced=tuple(map(str, merged.forced)),
    )


def _offer(offer: Offer) -> HintOffer:
    by = f"plugin {offer.peer}" if offer.peer else offer.provider
    if offer.hints is None:
        return HintOffer(offer.resource, by, indifferent=True)
    shown = sorted(offer.hints, key=_width)[:MOST_HINTS]
    preferred, possible = (tuple(_where(hint.numa) for hint in shown if hint.preferred is yes) for yes in (True, False))
    return HintOffer(offer.resource, by, preferred, possible, len(offer.hints) - len(shown))


def _width(hint: Hint) -> tuple[bool, int, int]:
    """Preferred ones first, then the narrow."""
    mask = hint.numa.mask if hint.numa is not None else 0
    return not hint.preferred, mask.bit_count(), mask


def _where(numa: NumaSet | None) -> str:
    return ANYWHERE if numa is None else str(numa)


def given(managers: Iterable[ResourceManager], container: ContainerRef) -> Iterator[GivenResource]:
    """What each manager gave a container, by whom it was chosen."""
    for manager in managers:
        if isinstance(manager, TellsResources):
            yield from (GivenResource(*one) for one in manager.given(container))
        elif (grant := manager.grant(container)) is not None and grant.because:
            yield GivenResource(manager.name, grant.because, f"the {manager.name} manager")
