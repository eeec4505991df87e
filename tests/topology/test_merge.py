"""The merge equals upstream's cross product wherever that is affordable, and says who forced the answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.hardware.named import big384
from kubeqos.topology.alignment.andsets import and_all
from kubeqos.topology.alignment.hints import ANYWHERE, Distance, Hint, Offer, Policy, Scope
from kubeqos.topology.alignment.merge import merge

AND_POLICIES = [Policy.BEST_EFFORT, Policy.RESTRICTED, Policy.SINGLE_NUMA_NODE]


def numa(*nodes: int) -> NumaSet:
    return NumaSet.of(*nodes)


def yes(*nodes: int) -> Hint:
    return Hint(numa(*nodes), True)


def no(*nodes: int) -> Hint:
    return Hint(numa(*nodes), False)


def offer(resource: str, *hints: Hint, provider: str = "manager") -> Offer:
    return Offer(provider, resource, hints)


# The rules of upstream's fold, spelled out over every combination of one hint per resource.


def cross_product(
    offers: Sequence[Offer], nodes: NumaSet, policy: Policy, closest: Distance | None
) -> tuple[Hint, bool]:
    lists = [list(o.hints) or [Hint(None, False)] for o in offers if o.hints is not None]
    single = policy is Policy.SINGLE_NUMA_NODE
    if single:
        lists = [[h for h in hints if h.preferred and (h.numa is None or len(h.numa) == 1)] for hints in lists]
    least = [min((len(h.numa) for h in hints if h.numa is not None), default=0) for hints in lists]
    widest = max(least, default=0)
    best: Hint | None = None
    for chosen in product(*lists):
        given_masks = [h.numa for h in chosen if h.numa is not None]
        merged = nodes
        for mask in given_masks:
            merged &= mask
        preferred = all(h.preferred for h in chosen) and len(set(given_masks)) <= 1
        hint = Hint(merged, preferred)
        if merged and (best is None or beats(hint, best, widest, None if single else closest)):
            best = hint
    best = best or Hint(nodes, False)
    admitted = policy is Policy.BEST_EFFORT or best.preferred
    return (Hint(None, best.preferred) if single and best.numa == nodes else best), admitted


def beats(new: Hint, old: Hint, widest: int, closest: Distance | None) -> bool:
    assert new.numa is not None and old.numa is not None
    if new.preferred != old.preferred:
        return new.preferred
    a, b = len(new.numa), len(old.numa)
    if not new.preferred and a != b:
        groups = [0 if size == widest else 1 if size < widest else 2 for size in (a, b)]
        if groups[0] != groups[1]:
            return groups[0] < groups[1]
        return a > b if a < widest else a < b
    if a != b:
        return a < b
    if closest:
        far = [sum(closest(i, j) for i in mask for j in mask) / len(mask) ** 2 for mask in (new.numa, old.numa)]
        if far[0] != far[1]:
            return far[0] < far[1]
    return new.numa.mask < old.numa.mask


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Offer], NumaSet]:
    ids = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True))
    nodes = NumaSet.from_ids(ids)
    masks = st.sets(st.sampled_from(ids), min_size=1).map(NumaSet.from_ids)
    hints = st.builds(Hint, st.one_of(masks, masks, masks, st.none()), st.booleans())
    lists = st.one_of(st.none(), st.lists(hints, max_size=6))
    offers = [Offer("p", f"r{i}", draw(lists)) for i in range(draw(st.integers(0, 4)))]
    return offers, nodes


@settings(max_examples=700)
@given(problems(), st.sampled_from(AND_POLICIES), st.one_of(st.none(), st.integers(0, 50)))
def test_merge_equals_the_cross_product(problem: tuple[list[Offer], NumaSet], policy: Policy, seed: int | None) -> None:
    offers, nodes = problem
    chance = random.Random(seed)
    table = {(a, b): 10 if a == b else chance.choice([11, 12, 20, 21, 31]) for a in nodes for b in nodes}
    closest = (lambda a, b: table[a, b]) if seed is not None else None
    merged = merge(offers, nodes, policy, closest=closest)
    assert (merged.hint, merged.admitted) == cross_product(offers, nodes, policy, closest)


@pytest.mark.parametrize("nodes", [NumaSet(0b11111), NumaSet.of(0, 3, 9, 40, 63)])
def test_long_lists_take_the_same_road(nodes: NumaSet) -> None:
    chance = random.Random(7)
    every = [NumaSet.from_ids(c) for k in range(1, 6) for c in combinations(nodes, k)]
    offers = [offer(f"r{i}", *[Hint(m, len(m) == i + 1) for m in chance.sample(every, 28)]) for i in range(3)]
    merged = merge(offers, nodes, Policy.RESTRICTED)
    assert (merged.hint, merged.admitted) == cross_product(offers, nodes, Policy.RESTRICTED, None)


@settings(max_examples=80)
@given(st.data(), st.sampled_from([0b111111, (1 << 40) | 0b10111, (1 << 21) - 1]))
def test_all_ways_to_and_lists_agree(data: st.DataObject, start: int) -> None:
    masks = st.sets(st.integers(1, 63) | st.integers(0, start).map(lambda m: m & start), min_size=1, max_size=90)
    lists = [data.draw(masks) for _ in range(data.draw(st.integers(1, 3)))]
    expected = {start}
    for offered in lists:
        expected = {have & mask for have in expected for mask in offered}
    assert and_all(start, lists) == expected - {0}


def test_too_narrow_beats_too_wide() -> None:
    """No AND has the two nodes that the pickiest resource needs: one node is taken rather than three."""
    offers = [offer("cpu", no(3, 4), no(0, 1, 2)), offer("gpu", no(0, 1, 2), no(3))]
    merged = merge(offers, NumaSet(0b11111), Policy.BEST_EFFORT)
    assert merged.hint == no(3) == cross_product(offers, NumaSet(0b11111), Policy.BEST_EFFORT, None)[0]


def test_sixty_four_nodes() -> None:
    nodes = NumaSet((1 << 64) - 1)
    offers = [offer("cpu", yes(63), yes(5)), offer("nic", no(63, 62), yes(63)), Offer("x", "gpu", None)]
    assert merge(offers, nodes, Policy.RESTRICTED).hint == yes(63)


def test_three_kinds_of_saying_nothing() -> None:
    nodes = numa(0, 1)
    indifferent = [offer("cpu", yes(0)), Offer("p", "memory", None)]
    impossible = [offer("cpu", yes(0)), offer("memory")]
    assert merge(indifferent, nodes, Policy.RESTRICTED).admitted
    refused = merge(impossible, nodes, Policy.RESTRICTED)
    assert not refused.admitted
    assert [str(forced) for forced in refused.forced] == ["memory (manager): no NUMA placement is possible"]
    assert merge([], nodes, Policy.SINGLE_NUMA_NODE).hint == Hint(None, True)


def test_policy_none_admits_everything_anywhere() -> None:
    merged = merge([offer("cpu")], numa(0, 1), Policy.NONE)
    assert (merged.hint, merged.admitted) == (Hint(None, False), True)


def test_the_answer_names_who_forced_it() -> None:
    nodes = numa(0, 1)
    cpu, memory = offer("cpu", yes(0), yes(1), no(0, 1)), offer("memory", yes(0), yes(1), no(0, 1))
    gpu = offer("gpu", yes(1), provider="devices")
    merged = merge([cpu, memory, gpu], nodes, Policy.RESTRICTED)
    assert merged.hint == yes(1)
    assert [str(f) for f in merged.forced] == ["gpu (devices): does not prefer NUMA 0, unlike cpu and memory"]
    assert merge([cpu, memory], nodes, Policy.RESTRICTED).forced == ()


def test_a_refusal_names_the_odd_one_out() -> None:
    nodes = numa(0, 1)
    merged = merge([offer("cpu", yes(0)), offer("memory", yes(0)), offer("gpu", yes(1))], nodes, Policy.RESTRICTED)
    assert not merged.admitted
    assert merged.because == (
        "Resources cannot be allocated with Topology locality: policy restricted, NUMA 0-1 (not preferred); "
        "gpu (manager): does not prefer NUMA 0, unlike cpu and memory"
    )
    nobody = merge([offer("cpu", no(0))], nodes, Policy.SINGLE_NUMA_NODE)
    assert [f.how for f in nobody.forced] == ["offers nothing that it prefers"]


def test_prefer_closest_picks_neighbours() -> None:
    pairs = [NumaSet.from_ids(c) for c in combinations(range(8), 2)]
    far = offer("cpu", *[Hint(m, True) for m in pairs if m != numa(0, 1) and m.mask >= numa(0, 4).mask])
    nodes = NumaSet(255)
    assert merge([far], nodes, Policy.RESTRICTED).hint == yes(0, 4)
    assert merge([far], nodes, Policy.RESTRICTED, closest=big384().distance).hint == yes(4, 5)


def test_scopes_group_containers() -> None:
    assert Scope.CONTAINER.units(["init", "main"]) == (("init",), ("main",))
    assert Scope.POD.units(["init", "main"]) == (("init", "main"),)
    assert Scope.POD.units([]) == ()


# The numeric policy: equal masks for cpu and memory, nested masks for the rest.


def numeric_by_hand(offers: Sequence[Offer]) -> tuple[int, int] | None:
    """The best (preferred hints, widest mask) over every combination, or None when none is lawful."""
    best: tuple[int, int] | None = None
    for chosen in product(*[o.hints or () for o in offers]):
        pairs = list(zip(offers, chosen, strict=True))
        aligned = [h for o, h in pairs if o.resource in ("cpu", "memory")]
        masks = [h.numa for h in chosen if h.numa is not None]
        if len({h.numa for h in aligned if h.numa is not None}) > 1:
            continue
        if aligned and not any(h.preferred for h in aligned):
            continue
        if any(not (a <= b or b <= a) for a, b in combinations(masks, 2)):
            continue
        score = (-sum(h.preferred for h in chosen), max(map(len, masks), default=0))
        best = min(best or score, score)
    return best


@st.composite
def numeric_problems(draw: st.DrawFn) -> list[Offer]:
    names = draw(st.permutations(["cpu", "memory", "nic", "gpu"]))[: draw(st.integers(1, 4))]
    masks = st.sets(st.integers(0, 2), min_size=1).map(NumaSet.from_ids)
    hints = st.builds(Hint, masks, st.booleans())
    return [Offer("p", name, draw(st.lists(hints, max_size=5))) for name in names]


@settings(max_examples=400)
@given(numeric_problems())
def test_numeric_equals_the_cross_product(offers: list[Offer]) -> None:
    merged = merge(offers, NumaSet(7), Policy.NUMERIC)
    expected = numeric_by_hand(offers)
    assert merged.admitted == (expected is not None)
    if expected is None:
        assert merged.forced
        return
    placed = [merged.hint_for(o.resource) for o in offers]
    assert all(any(h == offered for offered in o.hints or ()) for o, h in zip(offers, placed, strict=True))
    widest = max((len(h.numa) for h in placed if h.numa is not None), default=0)
    assert (-sum(h.preferred for h in placed), widest) == expected


def test_numeric_lets_a_nic_be_wider_than_the_cpus() -> None:
    merged = merge(
        [offer("cpu", yes(0)), offer("memory", no(0)), offer("nic", no(1), yes(0, 1))], numa(0, 1), Policy.NUMERIC
    )
    assert merged.admitted
    assert (merged.hint_for("cpu"), merged.hint_for("nic")) == (yes(0), yes(0, 1))
    assert merged.hint_for("disk") == ANYWHERE


def test_numeric_refusals() -> None:
    nodes = numa(0, 1)
    apart = merge([offer("cpu", yes(0)), offer("memory", yes(1))], nodes, Policy.NUMERIC)
    assert "cpu and memory share no NUMA mask that one of them prefers" in apart.because
    beside = merge([offer("cpu", yes(0)), offer("nic", yes(1))], nodes, Policy.NUMERIC)
    assert [str(f) for f in beside.forced] == [
        "nic (manager): its NUMA masks do not nest with those of the other resources"
    ]
    assert not merge([offer("cpu")], nodes, Policy.NUMERIC).admitted
