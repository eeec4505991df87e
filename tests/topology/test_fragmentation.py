"""Scattered free CPUs are measured."""

from __future__ import annotations

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80, laptop8
from kubeqos.topology.fragmentation import fragmentation


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


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
