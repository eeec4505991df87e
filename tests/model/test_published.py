"""What a node publishes about its machine comes back as it was, and damage is said in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.errors import InputError
from kubeqos.model.annotations.published import (
    Assignments,
    Holding,
    decode_assignments,
    decode_machine,
    encode_assignments,
    encode_machine,
)
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import MACHINES
from kubeqos.model.machine import Machine
from tests.topology.strategies import machines

NAMES = st.text("abcdefghijklmnopqrstuvwxyz/-", min_size=1, max_size=12)
CPUS = st.sets(st.integers(0, 200), max_size=8).map(CpuSet.from_ids)
NODES = st.sets(st.integers(0, 63), max_size=3).map(NumaSet.from_ids)
HOLDINGS = st.builds(Holding, CPUS, st.booleans(), NODES, st.text(max_size=5), CPUS)


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


@pytest.mark.parametrize("build", MACHINES.values(), ids=MACHINES)
def test_every_known_machine_fits_into_an_annotation_and_comes_back(build: object) -> None:
    assert callable(build)
    machine = build()
    text = encode_machine(machine)
    assert decode_machine(text) == machine
    assert len(text) < 64 << 10  # all annotations of an object together may have 256 KiB


@settings(max_examples=40)
@given(machines())
def test_any_machine_comes_back(machine: Machine) -> None:
    assert decode_machine(encode_machine(machine)) == machine


@settings(max_examples=60)
@given(st.dictionaries(NAMES, CPUS, max_size=4), st.dictionaries(NAMES, HOLDINGS, max_size=4))
def test_any_assignment_comes_back(pools: dict[str, CpuSet], containers: dict[str, Holding]) -> None:
    assert decode_assignments(encode_assignments(Assignments(pools, containers))) == Assignments(pools, containers)


def test_no_cpu_has_two_owners() -> None:
    placed = Assignments(
        {"reserved": cpus("0"), "shared": cpus("1-7")},
        {"default/db/main": Holding(cpus("2-3"), True), "default/web/main": Holding(cpus("1,4-7"))},
    )
    assert placed.owners() == {"reserved": cpus("0"), "shared": cpus("1,4-7"), "default/db/main": cpus("2-3")}
    assert placed.sharing() == {"default/web/main": Holding(cpus("1,4-7"))}


def test_members_of_a_newer_writer_are_passed_over() -> None:
    text = '{"pools": {"a": "0"}, "containers": {"n/p/c": {"cpus": "1", "colour": "red"}}, "later": 1}'
    assert decode_assignments(text) == Assignments({"a": cpus("0")}, {"n/p/c": Holding(cpus("1"))})


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("{", "annotation kubeqos.io/assignments is not JSON", None),
        ('{"pools": []}', "expected an object", "pools"),
        ("[]", "expected an object", "pools"),
        ('{"pools": {"a": "3-1"}}', 'invalid range "3-1"', "pools.a"),
        ('{"containers": {"x": 3}}', "expected an object", "containers.x"),
        ('{"containers": {"x": {"mems": "?"}}}', "kubeqos.io/assignments", "containers.x.mems"),
    ],
)
def test_damage_is_named(text: str, what: str, where: str | None) -> None:
    with pytest.raises(InputError) as caught:
        decode_assignments(text)
    assert what in caught.value.what
    assert caught.value.where == where
