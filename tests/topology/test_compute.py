"""Attributes of KEP-3675: hard ones hold or the request is refused with a reason; soft ones are tried."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import big384, hybrid20, kep80, laptop8, ragged, regular, split80
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.topology.answers import Allocated, Unsatisfiable
from kubeqos.topology.attributes import (
    CpuRequest,
    DeviceAffinity,
    Isolation,
    MemoryAffinity,
    Siblings,
    violations,
)
from kubeqos.topology.compute import allocate, allocate_claim
from tests.topology.strategies import machine_of_rows, machines_with_free


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def got(answer: Allocated | Unsatisfiable) -> Allocated:
    assert isinstance(answer, Allocated), str(answer)
    return answer


def test_the_claim_of_the_kep_gets_aligned_and_shared_cores() -> None:
    """Five exclusive cores aligned to a device on one NUMA node in sibling pairs, and twenty shared ones."""
    machine = kep80()
    hpc = CpuRequest(
        5,
        exclusive=True,
        siblings=Siblings("CORE-SIBLING-PREFERRED"),
        memory=MemoryAffinity("NUMA-MEM-AFFINITY-BIND-REQUIRED"),
        device=DeviceAffinity("NUMA-DEVICE-AFFINITY-REQUIRED"),
        device_numa=NumaSet.of(1),
    )
    answers = allocate_claim(machine, machine.online, [hpc, CpuRequest(20)])
    assert isinstance(answers, tuple)
    exclusive, shared = answers
    assert (str(exclusive.cpus), str(exclusive.memory)) == ("40-44", "1")
    assert len(shared.cpus) == 20 and shared.cpus.isdisjoint(exclusive.cpus) and not shared.whole


def test_a_claim_is_served_whole_or_not_at_all() -> None:
    machine = laptop8()
    refused = allocate_claim(machine, machine.online, [CpuRequest(3), CpuRequest(6, exclusive=True)])
    assert str(refused) == "not enough cpus available to satisfy request: requested=3, available=2"


def test_denied_siblings_stay_idle() -> None:
    answer = got(allocate(split80(), split80().online, CpuRequest(3, exclusive=True, siblings=Siblings.DENIED)))
    assert (str(answer.cpus), str(answer.whole)) == ("0-2", "0-2,40-42")


def test_required_siblings_make_whole_cores_of_every_size() -> None:
    machine = hybrid20()
    wish = CpuRequest(3, exclusive=True, siblings=Siblings.REQUIRED)
    assert got(allocate(machine, cpus("0-3,12"), wish)).cpus == cpus("0-1,12")
    assert str(allocate(machine, cpus("0-5"), wish)) == (
        "CORE-SIBLING-REQUIRED: 3 cpus cannot be made of whole free cores"
    )


def test_preferred_siblings_use_as_many_whole_cores_as_there_are() -> None:
    wish = CpuRequest(5, exclusive=True, siblings=Siblings.PREFERRED)
    by_threads = replace(wish, threads=True)
    assert got(allocate(laptop8(), cpus("1-6"), by_threads)).cpus == cpus("1-5")
    assert str(allocate(laptop8(), cpus("1-6"), wish)).endswith("requested=5, available=4"), (
        "1 and 6 are parts of cores"
    )
    answer = got(allocate(laptop8(), cpus("0-7"), wish))
    assert (answer.cpus, answer.whole) == (cpus("0-4"), cpus("0-5"))


def test_exclusive_owns_full_cores() -> None:
    """KEP-3675, "Full cores": a sibling of what is owned goes to nobody else, unless the machine's owner wants that."""
    for siblings in Siblings:
        one = CpuRequest(1, exclusive=True, siblings=siblings)
        if siblings is not Siblings.REQUIRED:
            assert got(allocate(laptop8(), cpus("3-7"), one)).whole == cpus("4-5")
            assert violations(laptop8(), cpus("3-7"), one, cpus("3")), "its sibling 2 is somebody else's"
    single = got(allocate(laptop8(), cpus("3"), CpuRequest(1, exclusive=True, threads=True)))
    assert single.cpus == single.whole == cpus("3")


def test_a_left_over_sibling_serves_its_own_claim_only_where_it_is_preferred() -> None:
    shared = CpuRequest(3)
    for siblings, free in ((Siblings.PREFERRED, "1,3-4"), (Siblings.ANY, "")):
        owner = CpuRequest(1, exclusive=True, siblings=siblings)
        answer = allocate_claim(laptop8(), cpus("0-1,3-4"), (owner, shared))
        if free:
            assert isinstance(answer, tuple) and [one.cpus for one in answer] == [cpus("0"), cpus(free)]
        else:
            assert isinstance(answer, Unsatisfiable)


def test_kinds_of_cores() -> None:
    machine = hybrid20()
    fast = CpuRequest(2, exclusive=True, kind=CoreKind.PERFORMANCE)
    slow = CpuRequest(9, kind=CoreKind.EFFICIENCY)
    assert got(allocate(machine, machine.online, fast)).cpus <= machine.performance
    assert str(allocate(machine, machine.online, slow)) == "not enough efficiency cpus: requested=9, available=8"


def test_isolated_cpus_go_to_those_who_ask() -> None:
    machine = ragged()  # 13 is isolated
    plain = CpuRequest(8, exclusive=True)
    assert str(allocate(machine, machine.online, plain)).endswith("requested=8, available=7")
    isolated = CpuRequest(1, exclusive=True, isolation=Isolation.REQUIRED)
    assert got(allocate(machine, machine.online, isolated)).cpus == cpus("13")
    both = CpuRequest(8, exclusive=True, isolation=Isolation.ALLOWED)
    assert got(allocate(machine, machine.online, both)).cpus == machine.online


def test_memory_bind_prefers_the_fullest_node_that_fits() -> None:
    machine = split80()
    wish = CpuRequest(4, exclusive=True, memory=MemoryAffinity.BIND_REQUIRED)
    for broken, fullest in (("20-30", NumaSet.of(1)), ("0-10", NumaSet.of(0))):
        answer = got(allocate(machine, machine.online - cpus(broken), wish))
        assert machine.numa_of(answer.cpus) == answer.memory == fullest


def test_interleave_covers_every_node_evenly() -> None:
    machine = big384()
    wish = CpuRequest(20, exclusive=True, memory=MemoryAffinity.INTERLEAVE_REQUIRED)
    answer = got(allocate(machine, machine.online, wish))
    shares = [len(inside & answer.cpus) for inside in machine.numa_cpus.values()]
    assert sorted(shares) == [2, 2, 2, 2, 3, 3, 3, 3] and answer.memory == machine.numa


def test_interleave_in_whole_cores_of_different_size() -> None:
    rows = [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (2, 0, 0, 0, 0), (3, 3, 0, 1, 1), (4, 4, 0, 1, 1)]
    machine = machine_of_rows(rows)  # a core of three threads on node 0, two of one thread on node 1
    wish = CpuRequest(4, siblings=Siblings.REQUIRED, memory=MemoryAffinity.INTERLEAVE_REQUIRED)
    assert got(allocate(machine, machine.online, wish)).cpus == cpus("0-3")
    even = CpuRequest(8, siblings=Siblings.REQUIRED, memory=MemoryAffinity.INTERLEAVE_REQUIRED)
    assert got(allocate(kep80(), kep80().online, even)).cpus == cpus("0-3,40-43")


def test_a_range_is_served_as_far_as_it_goes() -> None:
    machine = regular(sockets=2, cores_per_uncore=4, threads=1)
    wish = CpuRequest(2, 8, exclusive=True, memory=MemoryAffinity.BIND_REQUIRED)
    assert got(allocate(machine, cpus("0-1,4-6"), wish)).cpus == cpus("4-6")
    assert len(got(allocate(machine, cpus("0-7"), CpuRequest(1, 6))).cpus) == 6


def test_wishes_are_dropped_one_by_one_and_named() -> None:
    machine = regular(sockets=2, cores_per_uncore=4, threads=1)
    wish = CpuRequest(
        5,
        exclusive=True,
        memory=MemoryAffinity.BIND_PREFERRED,
        device=DeviceAffinity.PREFERRED,
        device_numa=NumaSet.of(0),
    )
    answer = got(allocate(machine, machine.online, wish))
    assert answer.because == (
        "NUMA-DEVICE-AFFINITY-PREFERRED not met",
        "NUMA-MEM-AFFINITY-BIND-PREFERRED not met",
    )
    near = got(
        allocate(machine, machine.online - cpus("0"), CpuRequest(3, device=wish.device, device_numa=NumaSet.of(1)))
    )
    assert machine.numa_of(near.cpus) == NumaSet.of(1) and near.because == ()


def test_no_device_no_device_affinity() -> None:
    machine = split80()
    assert allocate(machine, machine.online, CpuRequest(2, device=DeviceAffinity.REQUIRED))


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (CpuRequest(0), "cores: must be at least 1, not 0"),
        (CpuRequest(4, 2), "cores: range 4-2 is empty"),
        (
            CpuRequest(1, siblings=Siblings.DENIED),
            "CORE-SIBLING-DENIED: keeps whole cores from others and needs EXCLUSIVE",
        ),
        (CpuRequest(1, isolation=Isolation.REQUIRED), "isolated CPUs are handed out only as EXCLUSIVE"),
        (CpuRequest(99), "not enough cpus available to satisfy request: requested=99, available=80"),
        (
            CpuRequest(50, memory=MemoryAffinity.BIND_REQUIRED),
            "not enough cpus on one NUMA node (NUMA-MEM-AFFINITY-BIND-REQUIRED): requested=50, available=40",
        ),
        (
            CpuRequest(41, device=DeviceAffinity.REQUIRED, device_numa=NumaSet.of(0)),
            "not enough cpus on NUMA 0 (NUMA-DEVICE-AFFINITY-REQUIRED): requested=41, available=40",
        ),
        (
            CpuRequest(41, exclusive=True, siblings=Siblings.DENIED),
            "not enough whole free cores (CORE-SIBLING-DENIED): requested=41, available=40",
        ),
        (CpuRequest(1, memory=MemoryAffinity.INTERLEAVE_REQUIRED), "1 cpus cannot cover 2 NUMA nodes"),
        (
            CpuRequest(30, exclusive=True, siblings=Siblings.DENIED, memory=MemoryAffinity.BIND_REQUIRED),
            "CORE-SIBLING-DENIED and NUMA-MEM-AFFINITY-BIND-REQUIRED: can each be met for 30 cpus, but not together",
        ),
    ],
)
def test_refusals_say_which_demand_failed(request_: CpuRequest, reason: str) -> None:
    refused = allocate(split80(), split80().online, request_)
    assert isinstance(refused, Unsatisfiable) and reason in str(refused)


def test_interleave_names_the_node_without_cpus() -> None:
    machine = split80()
    wish = CpuRequest(8, memory=MemoryAffinity.INTERLEAVE_REQUIRED)
    assert "NUMA nodes 1 have no free cpu" in str(allocate(machine, machine.numa_cpus[0], wish))


@st.composite
def requests(draw: st.DrawFn) -> CpuRequest:
    exclusive = draw(st.booleans())
    count = draw(st.integers(1, 7))
    return CpuRequest(
        count,
        draw(st.sampled_from([None, None, count + 2])),
        exclusive=exclusive,
        siblings=draw(st.sampled_from([s for s in Siblings if exclusive or s is not Siblings.DENIED])),
        memory=draw(st.sampled_from(MemoryAffinity)),
        device=draw(st.sampled_from(DeviceAffinity)),
        device_numa=draw(st.sets(st.integers(0, 9), max_size=2).map(NumaSet.from_ids)),
        kind=draw(st.sampled_from([None, None, *CoreKind])),
        isolation=draw(st.sampled_from([Isolation.NO, Isolation.ALLOWED])),
    )


@settings(max_examples=400)
@given(machines_with_free(), requests())
def test_an_answer_keeps_every_hard_promise(case: tuple[Machine, CpuSet], request_: CpuRequest) -> None:
    machine, free = case
    answer = allocate(machine, free, request_)
    if isinstance(answer, Allocated):
        assert violations(machine, free, request_, answer.cpus) == ()
        assert answer.whole <= free and (not request_.exclusive or answer.cpus <= answer.whole)
    else:
        assert answer.reasons and str(answer)


@settings(max_examples=200)
@given(machines_with_free(), requests())
def test_a_refusal_is_never_premature(case: tuple[Machine, CpuSet], request_: CpuRequest) -> None:
    """Where every subset can be tried by hand, none satisfies a request that was refused."""
    machine, free = case
    free = free.lowest(11)
    if isinstance(allocate(machine, free, request_), Allocated):
        return
    for size in range(request_.count, (request_.most or request_.count) + 1):
        for subset in combinations(free, size):
            assert violations(machine, free, request_, CpuSet.from_ids(subset))


@settings(max_examples=100)
@given(machines_with_free(), st.lists(requests(), max_size=4))
def test_groups_of_a_claim_do_not_step_on_each_other(case: tuple[Machine, CpuSet], claim: list[CpuRequest]) -> None:
    machine, free = case
    answers = allocate_claim(machine, free, claim)
    if isinstance(answers, Unsatisfiable):
        return
    for (one, first), (_, second) in combinations(zip(claim, answers, strict=True), 2):
        assert first.whole.isdisjoint(second.whole)
        if one.exclusive:
            assert first.whole.isdisjoint(second.cpus)
