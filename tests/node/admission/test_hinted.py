"""Merges in the decision record: nothing is lost that decides, and nothing grows beyond its bound."""

from __future__ import annotations

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.decisions import MOST_HINTS, MOST_MERGES, HintMerge, HintOffer, NodeAdmission, fits
from kubeqos.node.admission.hinted import because, merges
from kubeqos.topology.alignment.hints import Alignment, Hint, Offer, Policy
from kubeqos.topology.alignment.merge import merge

TWO = NumaSet.of(0, 1)


def aligned(container: str, *offers: Offer, nodes: NumaSet = TWO, policy: Policy = Policy.RESTRICTED) -> Alignment:
    return Alignment((container,), offers, merge(offers, nodes, policy))


def offer(resource: str, *hints: tuple[NumaSet, bool], peer: str = "") -> Offer:
    return Offer("qrm" if peer else resource, resource, tuple(Hint(*hint) for hint in hints), peer)


ZERO, ONE = NumaSet.of(0), NumaSet.of(1)


def test_every_offer_stands_there_with_who_made_it_and_what_came_of_it() -> None:
    cpu = offer("cpu", (ZERO, True), (ONE, True), (TWO, False))
    nic = offer("NIC", (ONE, True), peer="NIC")
    (told,) = merges([aligned("app", cpu, nic, Offer("memory", "memory", None))])
    assert told == HintMerge(
        containers=("app",),
        policy="restricted",
        result="1",
        preferred=True,
        offers=(
            HintOffer("NIC", "plugin NIC", ("1",)),
            HintOffer("cpu", "cpu", ("0", "1"), ("0-1",)),
            HintOffer("memory", "memory", indifferent=True),
        ),
        forced=("NIC (qrm): does not prefer NUMA 0, unlike cpu",),
    )


def test_a_refused_merge_says_who_forced_it() -> None:
    found = aligned("app", offer("cpu", (ZERO, True)), offer("memory", (ONE, True)))
    (told,) = merges([found])
    assert not told.admitted and told.forced
    assert because([found]).startswith("Resources cannot be allocated with Topology locality")


def test_nowhere_and_no_opinion_are_told_apart() -> None:
    (told,) = merges([aligned("app", Offer("cpu", "cpu", ()), Offer("memory", "memory", None))])
    nowhere, indifferent = told.offers
    assert (nowhere.preferred, nowhere.possible, nowhere.indifferent) == ((), (), False)
    assert indifferent.indifferent


def test_containers_that_were_told_the_same_share_one_entry() -> None:
    one = offer("cpu", (ZERO, True))
    (told,) = merges([aligned("a", one), aligned("b", one)])
    assert told.containers == ("a", "b")
    assert merges([aligned("a"), aligned("b", one, policy=Policy.NONE)]) == ()


def test_the_record_stays_short_enough_to_be_kept() -> None:
    eight = NumaSet.from_ids(range(8))
    every = [(NumaSet(mask), mask.bit_count() == 1) for mask in range(1, 256)]
    units = [
        aligned(
            f"container-{number}", *(offer(f"example.com/resource-{n + number}", *every) for n in range(4)), nodes=eight
        )
        for number in range(30)
    ]
    told = merges(units)
    assert len(told) == MOST_MERGES
    for one in told[0].offers:
        assert len(one.preferred) + len(one.possible) == MOST_HINTS and one.more == 255 - MOST_HINTS
        assert one.preferred == tuple(map(str, range(8)))
    assert fits(NodeAdmission(node="n1", admitted=True, hints=told))
