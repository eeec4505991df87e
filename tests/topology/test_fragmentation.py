"""Scattered free CPUs are measured, and the fewest moves that help are found."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80, laptop8, regular
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Refused
from kubeqos.topology.attributes import CpuRequest, MemoryAffinity, Siblings, violations
from kubeqos.topology.compute import allocate
from kubeqos.topology.fragmentation import Rebalanced, Tenant, fragmentation, plan_moves
from tests.topology.strategies import machines

ONE_NODE = MemoryAffinity.BIND_REQUIRED


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def tenant(name: str, text: str, **attributes: object) -> Tenant:
    held = cpus(text)
    return Tenant(name, held, CpuRequest(len(held), exclusive=True, **attributes))  # type: ignore[arg-type]


def test_an_empty_machine_is_not_fragmented() -> None:
    machine = kep80()
    measured = fragmentation(machine, machine.online)
    assert (measured.free, measured.in_whole_cores, measured.largest_numa) == (80, 80, 40)
    assert measured.score == 0
    assert fragmentation(machine, CpuSet()).score == 0


def test_half_of_each_core_is_as_scattered_as_it_gets() -> None:
    machine = laptop8()
    measured = fragmentation(machine, cpus("0,2,4,6"))
    assert measured.in_whole_cores == 0
    assert str(measured).startswith("4 free, 0 in whole cores; largest block 4 in one cache")
    spread = fragmentation(kep80(), cpus("0-9,40-49"))
    assert (spread.largest_numa, spread.score) == (10, 0.5)


def test_one_small_move_makes_room_on_a_node() -> None:
    machine = regular(sockets=2, cores_per_uncore=4, threads=1)  # two nodes of four CPUs
    big, small = tenant("big", "0-1"), tenant("small", "4")
    plan = plan_moves(machine, cpus("2-3,5-7"), [big, small], CpuRequest(4, exclusive=True, memory=ONE_NODE))
    assert isinstance(plan, Rebalanced)
    assert [(move.tenant, str(move.before), str(move.after.cpus)) for move in plan.moves] == [("small", "4", "2")]
    assert plan.answer.cpus == cpus("4-7")


def test_nothing_moves_when_it_fits() -> None:
    machine = kep80()
    plan = plan_moves(machine, machine.online, [], CpuRequest(8, exclusive=True))
    assert isinstance(plan, Rebalanced) and plan.moves == ()


def test_refusals_say_whether_moving_could_help() -> None:
    machine = regular(sockets=2, cores_per_uncore=4, threads=1)
    hopeless = plan_moves(machine, machine.online, [], CpuRequest(5, exclusive=True, memory=ONE_NODE))
    assert isinstance(hopeless, Refused) and "on one NUMA node" in str(hopeless)
    full = [tenant("a", "0-2"), tenant("b", "4-6")]
    stuck = plan_moves(machine, cpus("3,7"), full, CpuRequest(4, exclusive=True, memory=ONE_NODE))
    assert isinstance(stuck, Refused) and "no set of moves makes room" in str(stuck)


def test_a_cut_search_still_finds_moves_node_by_node() -> None:
    machine = regular(sockets=4, cores_per_uncore=8, threads=1)  # four nodes of eight CPUs, every second one taken
    tenants = [tenant(f"t{i:02}", str(i)) for i in range(0, 32, 2)]
    free = machine.online - cpus(",".join(str(t.cpus) for t in tenants))
    plan = plan_moves(machine, free, tenants, CpuRequest(8, exclusive=True, memory=ONE_NODE), tries=5)
    assert isinstance(plan, Rebalanced) and not plan.fewest
    assert len(plan.moves) == 4 and len(plan.answer.cpus) == 8


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Machine, CpuSet, list[Tenant], CpuRequest]:
    machine = draw(machines(most_nodes=3))
    available = machine.online - machine.isolated
    tenants = []
    for index in range(draw(st.integers(1, 4))):
        wish = CpuRequest(
            draw(st.integers(1, 4)),
            exclusive=True,
            siblings=draw(st.sampled_from([Siblings.ANY, Siblings.DENIED])),
        )
        spot = draw(st.sampled_from(list(available) or [0]))
        scattered = CpuSet.from_ids(cpu for cpu in available if cpu >= spot)
        placed = allocate(machine, scattered, wish)
        if isinstance(placed, Allocated):
            tenants.append(Tenant(f"t{index}", placed.whole, wish))
            available -= placed.whole
    request = CpuRequest(draw(st.integers(1, 6)), exclusive=True, memory=draw(st.sampled_from([ONE_NODE])))
    return machine, available, tenants, request


@settings(max_examples=150)
@given(crowded())
def test_moves_are_lawful_and_no_smaller_set_would_do(
    case: tuple[Machine, CpuSet, list[Tenant], CpuRequest],
) -> None:
    machine, available, tenants, request = case
    plan = plan_moves(machine, available, tenants, request)
    if isinstance(plan, Refused):
        return
    held = {t.name: t.cpus for t in tenants}
    wishes = {t.name: t.request for t in tenants}
    for move in plan.moves:
        held[move.tenant] = move.after.whole
        assert violations(machine, machine.online, wishes[move.tenant], move.after.cpus) == ()
    assert violations(machine, machine.online, request, plan.answer.cpus) == ()
    parts = [*held.values(), plan.answer.whole]
    assert sum(map(len, parts)) == len(CpuSet.from_ids(cpu for part in parts for cpu in part))
    for fewer in combinations(tenants, len(plan.moves) - 1) if plan.moves else ():
        kept = [t for t in tenants if t not in fewer]
        assert isinstance(plan_moves(machine, available, list(fewer), request), Refused), (fewer, kept)
