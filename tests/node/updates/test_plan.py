"""Which writes lead from what containers have to what they should have: every moment between is as good as the ends."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.node.updates.plan import Had, Update, cpus_of, plan
from kubeqos.plugins.managers import ContainerKey, Grant
from kubeqos.qrm.allocations import clashes
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.changes import Held

ALL = CpuSet.parse("0-7")
T = TypeVar("T")


def grant(cpus: str, own: str = "", **properties: str) -> Grant:
    return Grant({"cpuset_cpus": cpus, **properties}, exclusive=CpuSet.parse(own))


def has(cpus: str, own: str = "") -> Had:
    return Had(CpuSet.parse(cpus), grant(cpus, own))


def key(name: str) -> ContainerKey:
    return name, "main"


def planned(had: dict[str, Had], wanted: dict[str, Grant], online: CpuSet = ALL) -> list[tuple[str, str]]:
    found = plan(_keyed(had), _keyed(wanted), online)
    assert not isinstance(found, Unsatisfiable), found
    return [(update.key[0], str(update.grant.properties["cpuset_cpus"])) for update in found]


def _keyed(table: dict[str, T]) -> dict[ContainerKey, T]:
    return {key(name): value for name, value in table.items()}


def test_nothing_changes_nothing() -> None:
    assert planned({"web": has("0-7")}, {"web": grant("0-7")}) == []


def test_who_gains_comes_after_who_loses() -> None:
    had = {"a-owner": has("0-1", "0-1"), "web": has("2-7")}
    assert planned(had, {"a-owner": grant("0-3", "0-3"), "web": grant("4-7")}) == [("web", "4-7"), ("a-owner", "0-3")]


def test_who_is_not_created_yet_is_not_told_and_who_is_nobodys_affair_stays() -> None:
    assert planned({"web": has("0-7"), "gone": has("0-1")}, {"web": grant("2-7"), "new": grant("0-1", "0-1")}) == [
        ("web", "2-7")
    ]


def test_what_a_container_has_may_be_unknown() -> None:
    assert planned({"web": Had(ALL)}, {"web": grant("0-7")}) == [("web", "0-7")]


def test_cores_of_its_own_stay_while_those_beside_them_move() -> None:
    """A claim of exclusive and shared cores: only the shared ones make room."""
    had = {"mixed": has("0-3", "0-1"), "web": has("2-7")}
    assert planned(had, {"mixed": grant("0-1,4-5", "0-1"), "web": grant("4-7"), "new": grant("2-3", "2-3")}) == [
        ("web", "4-7"),
        ("mixed", "0-1,4-5"),
    ]


def test_owners_that_swap_get_a_step_in_between() -> None:
    had = {"a": has("0-1", "0-1"), "b": has("2-3", "2-3")}
    steps = planned(had, {"a": grant("2-3", "2-3"), "b": grant("0-1", "0-1")})
    assert len(steps) > 2 and dict(steps) == {"a": "2-3", "b": "0-1"}


def test_other_values_come_with_the_cpus_or_alone() -> None:
    had = {key("web"): has("0-7"), key("db"): has("0-7")}
    wanted = {key("web"): grant("0-3", cpu_shares="9"), key("db"): grant("0-7", cpu_shares="9")}
    assert plan(had, wanted, ALL) == [Update(key("web"), wanted[key("web")]), Update(key("db"), wanted[key("db")])]


def test_two_owners_of_one_cpu_are_refused() -> None:
    wanted = {key("a"): grant("0-1", "0-1"), key("web"): grant("1-7")}
    refused = plan({key("a"): has("0", "0"), key("web"): has("0-7")}, wanted, ALL)
    assert isinstance(refused, Unsatisfiable) and "a/main is exclusive" in str(refused)


def test_a_resize_of_hundreds_is_planned_by_groups() -> None:
    names = [f"p{n:03}" for n in range(400)]
    had = {name: has("0-37" if n % 2 else "38-39") for n, name in enumerate(names)}
    wanted = {name: grant("0-13" if n % 2 else "14-39") for n, name in enumerate(names)}
    steps = planned(had, wanted, CpuSet.parse("0-39"))
    assert [cpus for _, cpus in steps] == ["0-13"] * 200 + ["14-39"] * 200


Table = dict[int, tuple[int, bool]]
sets = st.dictionaries(st.integers(0, 5), st.tuples(st.integers(1, 255), st.booleans()), max_size=6)


@settings(max_examples=150, deadline=None)
@given(sets, sets)
def test_no_cpu_has_two_owners_at_any_moment(before: Table, after: Table) -> None:
    """Groups are planned as one, and every write on the way is as good as the ends."""

    def held(table: Table, owners: Table) -> dict[ContainerKey, Held]:
        return {key(f"p{n}"): Held(CpuSet(mask), f"p{n}" if owners[n][1] else None) for n, (mask, _) in table.items()}

    before = {n: one for n, one in before.items() if n in after}
    now, new = held(before, after), held(after, after)
    if clashes(now) or clashes(new):
        return
    had = {each: Had(one.cpus) for each, one in now.items()}
    wanted = {
        each: Grant({"cpuset_cpus": str(one.cpus)}, exclusive=one.cpus if one.owner else NO_CPUS)
        for each, one in new.items()
    }
    updates = plan(had, wanted, ALL)
    if isinstance(updates, Unsatisfiable):
        return
    for update in updates:
        cpus = cpus_of(update.grant)
        assert cpus
        now[update.key] = Held(cpus, new[update.key].owner)
        assert clashes(now) == []
    assert all(now[each].cpus == new[each].cpus for each in now)
