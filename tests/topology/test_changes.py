"""Writing several CPU sets: safe at the ends and at every moment in between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.changes import CpuChange, Held, plan_changes


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def shared(text: str) -> Held:
    return Held(cpus(text))


def exclusive(owner: str, text: str) -> Held:
    return Held(cpus(text), owner)


def replay(before: dict[str, Held], after: dict[str, Held], changes: tuple[CpuChange, ...]) -> None:
    """Walk the writes and check every moment: nobody empty, nobody inside an exclusive owner's CPUs."""
    now = {name: held.cpus for name, held in before.items() if name in after}
    owner = {name: held.owner for name, held in after.items()}
    for change in changes:
        assert change.cpus, f"{change.container} left without CPUs"
        entered = change.cpus - now.get(change.container, CpuSet())
        now[change.container] = change.cpus
        for other, held in now.items():
            if other != change.container and {owner[other], owner[change.container]} != {None}:
                if owner[other] == owner[change.container]:
                    continue
                assert not entered & held, f"{change.container} entered {entered & held} of {other}"
    assert now == {name: held.cpus for name, held in after.items()}


def test_whoever_gives_is_narrowed_before_whoever_receives_is_started() -> None:
    before = {"web": shared("0-79")}
    after = {"web": shared("8-79"), "hpc": exclusive("hpc", "0-7")}
    assert plan_changes(before, after) == (CpuChange("web", cpus("8-79")), CpuChange("hpc", cpus("0-7")))


def test_pools_of_kep_3461_example_1_are_resized_without_a_gap() -> None:
    before = {"online": shared("0-37,40-77"), "offline": shared("38-39,78-79")}
    after = {"online": shared("0-13,40-53"), "offline": shared("14-39,54-79")}
    changes = plan_changes(before, after)
    assert changes == (CpuChange("online", cpus("0-13,40-53")), CpuChange("offline", cpus("14-39,54-79")))


def test_a_container_that_ends_gives_way_at_once() -> None:
    before = {"old": exclusive("old", "0-3"), "web": shared("4-7")}
    assert plan_changes(before, {"web": shared("0-7")}) == (CpuChange("web", cpus("0-7")),)


def test_nothing_changes_nothing_is_written() -> None:
    same = {"a": exclusive("a", "0-1"), "b": shared("2-3")}
    assert plan_changes(same, dict(same)) == ()


def test_two_owners_swap_through_a_step_in_between() -> None:
    before = {"a": exclusive("a", "0-1"), "b": exclusive("b", "2-3")}
    after = {"a": exclusive("a", "2-3"), "b": exclusive("b", "0-1")}
    changes = plan_changes(before, after)
    assert isinstance(changes, tuple)
    replay(before, after, changes)
    assert [change.final for change in changes if change.container == "b"] == [False, True]


def test_single_cpus_are_swapped_over_a_spare_one_or_not_at_all() -> None:
    before = {"a": exclusive("a", "0"), "b": exclusive("b", "1")}
    after = {"a": exclusive("a", "1"), "b": exclusive("b", "0")}
    changes = plan_changes(before, after, spare=cpus("5"))
    assert isinstance(changes, tuple)
    replay(before, after, changes)
    refused = plan_changes(before, after)
    assert isinstance(refused, Unsatisfiable) and "a, b swap CPUs" in str(refused)


def test_a_sidecar_may_overlap_the_exclusive_set_it_belongs_to() -> None:
    before = {"main": exclusive("main", "0-1"), "side": exclusive("main", "0-1")}
    after = {"main": exclusive("main", "0-3"), "side": exclusive("main", "0-3")}
    changes = plan_changes(before, after)
    assert isinstance(changes, tuple) and len(changes) == 2


def test_an_empty_target_is_refused() -> None:
    refused = plan_changes({"a": shared("0")}, {"a": shared("")})
    assert isinstance(refused, Unsatisfiable) and "a would be left without CPUs" in str(refused)


def test_a_target_that_breaks_a_promise_is_refused() -> None:
    refused = plan_changes({}, {"a": exclusive("a", "0-1"), "web": shared("1-3")})
    assert isinstance(refused, Unsatisfiable) and "a is exclusive and web would share 1 with it" in str(refused)


def test_a_container_becomes_exclusive_among_those_it_shared_with() -> None:
    before = {"a": shared("0-7"), "b": shared("0-7")}
    after = {"a": exclusive("a", "0-3"), "b": shared("4-7")}
    assert plan_changes(before, after) == (CpuChange("b", cpus("4-7")), CpuChange("a", cpus("0-3")))


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Held]:
    """Containers c0…c5 over ten CPUs: some exclusive and disjoint, some sharing the rest."""
    home = [draw(st.integers(0, 5)) for _ in range(10)]
    out: dict[str, Held] = {}
    rest = CpuSet.from_ids(cpu for cpu in range(10) if home[cpu] >= 3)
    for index in range(3):
        mine = CpuSet.from_ids(cpu for cpu in range(10) if home[cpu] == index)
        if mine:
            out[f"c{index}"] = Held(mine, f"c{index}")
    for index in (3, 4):
        if rest and draw(st.booleans()):
            out[f"c{index}"] = Held(rest)
    return out


@settings(max_examples=400)
@given(layouts(), layouts(), st.booleans())
def test_every_moment_is_safe(before: dict[str, Held], after: dict[str, Held], spare: bool) -> None:
    changes = plan_changes(before, after, spare=cpus("90") if spare else None)
    if isinstance(changes, Unsatisfiable):
        assert not spare
        return
    replay(before, after, changes)


@pytest.mark.parametrize("size", [3, 5])
def test_a_ring_of_owners_turns(size: int) -> None:
    before = {f"o{i}": exclusive(f"o{i}", f"{2 * i}-{2 * i + 1}") for i in range(size)}
    after = {f"o{i}": Held(before[f"o{(i + 1) % size}"].cpus, f"o{i}") for i in range(size)}
    changes = plan_changes(before, after)
    assert isinstance(changes, tuple)
    replay(before, after, changes)
    assert len(changes) <= size + 2
