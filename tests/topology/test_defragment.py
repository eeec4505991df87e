"""Plans to bring free CPUs together: worked out by hand, and the laws that hold on any machine."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80, laptop8, regular
from kubeqos.model.machine import Machine
from kubeqos.topology.defragment import Defragmentation, defragment
from tests.topology.strategies import machines


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def plan(machine: Machine, bound: dict[str, str] | None = None, stays: str = "", **owners: str) -> Defragmentation:
    held = {name: cpus(text) for name, text in owners.items()}
    free = machine.online
    for taken in held.values():
        free -= taken
    inside = {name: cpus((bound or {})[name]) if name in (bound or {}) else machine.online for name in held}
    return defragment(machine, held, free, {name: region for name, region in inside.items() if name != stays})


def told(found: Defragmentation) -> dict[str, str]:
    return {move.owner: str(move.after) for move in found.moves}


def test_one_owner_moves_beside_another_and_a_numa_node_is_free() -> None:
    found = plan(kep80(), a="0-9", b="40-49")
    assert len(found.moves) == 1
    assert (found.before.largest_numa, found.after.largest_numa) == (30, 40)


def test_the_smaller_one_moves() -> None:
    assert list(told(plan(kep80(), small="0-3", large="40-59"))) == ["small"]


def test_who_may_not_move_stays_and_the_other_goes_to_it() -> None:
    found = plan(kep80(), stays="small", small="0-3", large="40-59")
    assert list(told(found)) == ["large"]
    assert found.moves[0].after <= kep80().numa_cpus[0]


def test_who_is_bound_moves_inside_its_numa_node_only() -> None:
    inside = str(kep80().numa_cpus[0])
    assert told(plan(kep80(), {"a": inside, "b": str(kep80().numa_cpus[1])}, a="0-9", b="40-49")) == {}


def test_an_owner_of_two_numa_nodes_comes_together() -> None:
    found = plan(kep80(), wide="0-3,40-43")
    (move,) = found.moves
    assert len(kep80().numa_of(move.after)) == 1
    assert found.after.largest_numa == 40


def test_half_cores_are_put_together() -> None:
    found = plan(laptop8(), a="0", b="2")  # threads of two cores, so two half cores are left
    assert found.after.in_whole_cores == found.before.in_whole_cores + 2


def test_whole_cores_stay_whole() -> None:
    machine = regular(sockets=2, cores_per_uncore=4, threads=2)
    core = [cpu.id for cpu in machine.cpus if cpu.core == machine.cpus[0].core]
    other = [cpu.id for cpu in machine.cpus if cpu.numa != machine.cpus[0].numa][:1]
    found = plan(machine, whole=",".join(map(str, core)), half=str(other[0]))
    for move in found.moves:
        if move.owner == "whole":
            assert machine.whole_cores(move.after) == move.after


def test_a_machine_that_is_as_good_as_it_can_be_is_left_alone() -> None:
    assert plan(kep80(), a="0-9").moves == ()
    assert plan(kep80(), a="0-39", b="40-79").moves == ()
    assert plan(kep80()).moves == ()


@settings(max_examples=60, deadline=None)
@given(machines(), st.data())
def test_laws(machine: Machine, data: st.DataObject) -> None:
    order = data.draw(st.permutations(sorted(machine.online)))
    owners: dict[str, CpuSet] = {}
    for number, size in enumerate(data.draw(st.lists(st.integers(1, 6), max_size=5))):
        taken, order = order[:size], order[size:]
        if taken:
            owners[f"o{number}"] = CpuSet.from_ids(taken)
    free = CpuSet.from_ids(order)
    stays = set(data.draw(st.lists(st.sampled_from(sorted(owners) or ["none"]), max_size=2)))
    found = defragment(machine, owners, free, {name: machine.online for name in owners if name not in stays})
    after = dict(owners)
    for move in found.moves:
        assert move.owner not in stays and move.before == owners[move.owner] != move.after
        assert len(move.after) == len(move.before)
        assert len(machine.numa_of(move.after)) <= len(machine.numa_of(move.before))
        after[move.owner] = move.after
    assert sum(map(len, after.values())) == len(CpuSet.from_ids(cpu for one in after.values() for cpu in one))
    assert all(one <= free | CpuSet.from_ids(cpu for held in owners.values() for cpu in held) for one in after.values())
    assert found.after.largest_numa >= found.before.largest_numa and found.after.free == found.before.free
    assert len({move.owner for move in found.moves}) == len(found.moves)
    again = defragment(
        machine,
        after,
        machine.online - CpuSet.from_ids(cpu for one in after.values() for cpu in one),
        {name: machine.online for name in owners if name not in stays},
    )
    assert not found.moves or again.moves == ()  # what was carried out needs no second plan
