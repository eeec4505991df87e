"""CPU allocation on regular and irregular machines: right size, inside what is free, whole units where it matters."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import big384, hybrid20, kep80, laptop8, regular, split80
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable
from kubeqos.topology.cpus import CpuOptions, allocate_cpus, take_cpus
from kubeqos.topology.distributed import take_distributed
from kubeqos.topology.packed import take_in_steps, take_packed
from tests.topology.strategies import machines_with_free

EVENLY = CpuOptions(distribute_across_numa=True)


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def got(answer: Allocated | Unsatisfiable) -> str:
    assert isinstance(answer, Allocated), str(answer)
    return str(answer.cpus)


def test_packed_fills_whole_cores_of_one_node() -> None:
    assert got(allocate_cpus(split80(), split80().online, 6)) == "0-2,40-42"
    assert got(allocate_cpus(kep80(), cpus("2-39,42-79"), 20)) == "2-21"  # KEP-3461, example 2


def test_packed_prefers_what_is_already_broken() -> None:
    machine = laptop8()
    assert got(allocate_cpus(machine, cpus("1-7"), 1)) == "1"


def test_spread_takes_one_thread_of_each_core() -> None:
    assert got(allocate_cpus(split80(), split80().online, 4, CpuOptions(distribute_across_cores=True))) == "0-3"


def test_distributed_gives_every_node_the_same() -> None:
    machine = split80()
    answer = allocate_cpus(machine, machine.online, 60, EVENLY)
    assert isinstance(answer, Allocated)
    assert {node: len(inside & answer.cpus) for node, inside in machine.numa_cpus.items()} == {0: 30, 1: 30}


def test_align_by_uncore_cache_stays_in_one_cache() -> None:
    machine = big384()
    broken = machine.online - cpus("0-2")
    answer = allocate_cpus(machine, broken, 14, CpuOptions(prefer_align_by_uncore_cache=True))
    assert isinstance(answer, Allocated)
    assert sum(1 for cache in machine.uncores.values() if cache & answer.cpus) == 1


def test_the_numa_hint_is_used_first() -> None:
    machine = split80()
    node1 = machine.numa_cpus[1]
    assert got(allocate_cpus(machine, machine.online, 4, aligned=node1)) == "20-21,60-61"
    wide = allocate_cpus(machine, machine.online, 44, aligned=node1)
    assert isinstance(wide, Allocated) and node1 <= wide.cpus


def test_align_by_socket_widens_the_hint_to_its_socket() -> None:
    machine = regular(sockets=2, numa_per_socket=2, cores_per_uncore=2, threads=1)  # nodes 0-1, 2-3 | 4-5, 6-7
    free = cpus("0,4-6")
    aligned = machine.numa_cpus[3]
    assert got(allocate_cpus(machine, free, 2, aligned=aligned)) == "0,6"
    assert got(allocate_cpus(machine, free, 2, CpuOptions(align_by_socket=True), aligned=aligned)) == "4-5"


def test_full_cores_only() -> None:
    machine = split80()
    whole = CpuOptions(full_pcpus_only=True)
    odd = allocate_cpus(machine, machine.online, 5, whole)
    assert str(odd) == "SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2"
    short = allocate_cpus(machine, cpus("0-3,40-41"), 6, whole)
    assert "available physical CPUs = 4, requested CPUs = 6" in str(short)
    assert got(allocate_cpus(machine, cpus("0-3,40-41"), 4, whole)) == "0-1,40-41"
    assert "cannot be made of whole free cores" in str(allocate_cpus(hybrid20(), cpus("0-11"), 3, whole))


def test_options_that_contradict_each_other() -> None:
    everything = CpuOptions(True, True, True, True, True)
    assert [str(conflict) for conflict in everything.conflicts()] == [
        "full-pcpus-only: cannot be combined with distribute-cpus-across-cores",
        "distribute-cpus-across-numa: cannot be combined with distribute-cpus-across-cores",
        "prefer-align-cpus-by-uncorecache: cannot be combined with distribute-cpus-across-cores",
        "prefer-align-cpus-by-uncorecache: cannot be combined with distribute-cpus-across-numa",
    ]
    assert CpuOptions(full_pcpus_only=True, distribute_across_numa=True).conflicts() == ()


# Three defects of upstream, each with the right answer.


def test_a_half_taken_core_is_never_taken_whole_on_an_irregular_machine() -> None:
    """Upstream takes a core for free when its free threads equal the average core (one of a big core's two)."""
    machine = hybrid20()  # 20 CPUs on 14 cores: the average core has one thread
    free = machine.online - cpus("0,2,4")
    for count in range(1, len(free) + 1):
        answer = take_cpus(machine, free, count)
        assert answer is not None and answer <= free and len(answer) == count


def test_a_combination_of_nodes_is_not_overwritten_by_a_later_one() -> None:
    """Upstream's best combination of four or more nodes can change under its feet; the share must stay even."""
    machine = regular(sockets=8, cores_per_uncore=4, threads=1)
    free = machine.online - cpus("0-1,8-9,21")
    answer = take_cpus(machine, free, 13, EVENLY)
    assert answer is not None and len(answer) == 13 and answer <= free
    shares = sorted(len(inside & answer) for inside in machine.numa_cpus.values() if inside & answer)
    assert shares[-1] - shares[0] <= 1


def test_a_remainder_that_does_not_divide_into_groups_ends() -> None:
    """Upstream loops for ever when half-used cores leave enough CPUs but not enough whole groups."""
    machine = regular(sockets=2, cores_per_uncore=3)
    free = cpus("0-2,6,3-5,9,10,7")
    mask = take_distributed(machine.layout, free.mask, 8, group=2)
    assert CpuSet(mask) <= free and mask.bit_count() == 8


def test_many_nodes_are_distributed_over_without_trying_every_combination() -> None:
    machine = regular(sockets=34, cores_per_uncore=2)
    for options in (EVENLY, CpuOptions(distribute_across_numa=True, align_by_socket=True)):
        answer = take_cpus(machine, machine.online - cpus("0,7,19"), 70, options)
        assert answer is not None and len(answer) == 70


OPTIONS = st.builds(
    CpuOptions,
    full_pcpus_only=st.booleans(),
    distribute_across_numa=st.booleans(),
    distribute_across_cores=st.booleans(),
    align_by_socket=st.booleans(),
    prefer_align_by_uncore_cache=st.booleans(),
)


@settings(max_examples=400)
@given(machines_with_free(), st.integers(1, 40), OPTIONS, st.data())
def test_an_allocation_is_what_was_asked_for(
    case: tuple[Machine, CpuSet], count: int, options: CpuOptions, data: st.DataObject
) -> None:
    machine, free = case
    node = data.draw(st.sampled_from(sorted(machine.numa_cpus)))
    answer = allocate_cpus(machine, free, count, options, aligned=machine.numa_cpus[node])
    if isinstance(answer, Unsatisfiable):
        assert answer.reasons
        assert count > len(free) or options.full_pcpus_only
        return
    assert len(answer.cpus) == count and answer.cpus <= free
    if options.full_pcpus_only:
        assert machine.whole_cores(answer.cpus) == answer.cpus
    assert (free - answer.cpus) | answer.cpus == free  # releasing restores exactly


@settings(max_examples=300)
@given(machines_with_free(), st.integers(1, 4), st.booleans(), st.data())
def test_steps_in_one_go_take_what_single_steps_take(
    case: tuple[Machine, CpuSet], group: int, spread: bool, data: st.DataObject
) -> None:
    machine, free = case
    node = data.draw(st.sampled_from(sorted(machine.layout.numas)))
    inside = free.mask & machine.layout.numas[node]
    steps = data.draw(st.integers(0, inside.bit_count() // group))
    one_by_one = 0
    for _ in range(steps):
        one_by_one |= take_packed(machine.layout, inside & ~one_by_one, group, spread=spread)
    assert take_in_steps(machine.layout, inside, steps, group, spread=spread) == one_by_one


@pytest.mark.parametrize("options", [CpuOptions(), EVENLY, CpuOptions(distribute_across_cores=True)])
def test_asking_again_gives_the_same_answer(options: CpuOptions) -> None:
    machine = big384()
    free = machine.online - cpus("5,77-91,200-210")
    assert take_cpus(machine, free, 33, options) == take_cpus(machine, free, 33, options)
