"""The text map shows every CPU once, and its owner, on any machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import MACHINES, big384, hybrid20, ragged, regular, tiny2
from kubeqos.model.machine import Machine
from kubeqos.topology.map import LETTERS, render_map
from kubeqos.topology.pools import Pools
from tests.topology.strategies import machines, subsets


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def test_the_smallest_machine() -> None:
    assert render_map(tiny2(), {"web": cpus("0")}) == (
        "tiny2: 2 CPUs, 2 cores, 1 L3 cache, 1 NUMA node, 1 socket\n"
        "socket 0\n"
        "  NUMA 0  4 GiB\n"
        "    L3 0  A .  0-1\n"
        "\n"
        "A web     1  0\n"
    )


def test_pools_of_an_irregular_machine() -> None:
    pools = Pools(ragged(), reserved=cpus("0")).carve("pod/main", cpus("5-6"))
    assert isinstance(pools, Pools)
    assert render_map(ragged(), pools.partition).splitlines() == [
        "ragged: 8 CPUs, 5 cores, 3 L3 caches, 4 NUMA nodes, 2 sockets; isolated 13; offline 3-4",
        "socket 0",
        "  NUMA 0  8 GiB",
        "    L3 0  #. .  0-2",
        "  NUMA 2  4 GiB",
        "    L3 1  AA.  5-7",
        "socket 3",
        "  NUMA 5  0 B",
        "    L3 4  . !  12-13",
        "NUMA 6  32 GiB  memory only",
        "",
        "A pod/main     2  5-6",
        "# reserved     1  0",
        ". shared       4  1-2,7,12",
        "! isolated     1  13",
    ]


def test_kinds_of_cores_have_lines_of_their_own() -> None:
    lines = render_map(hybrid20()).splitlines()
    assert "    L3 0 performance  .. .. .. .. .. ..  0-11" in lines
    assert "    L3 0 efficiency   . . . . . . . .  12-19" in lines


def test_a_large_machine_stays_on_one_screen() -> None:
    lines = render_map(big384(), {"pod": big384().numa_cpus[3]}).splitlines()
    assert len(lines) < 45
    assert "    L3 9   AA AA AA AA AA AA AA AA  72-79,264-271" in lines


def test_more_owners_than_letters_share_a_star() -> None:
    machine = regular(cores_per_uncore=80, threads=1)
    drawn = render_map(machine, {f"pod{i:02}": CpuSet.of(i) for i in range(80)})
    assert drawn.count("* pod") == 80 - len(LETTERS)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_fits_the_screen_in_plain_ascii(name: str) -> None:
    machine = MACHINES[name]()
    drawn = render_map(machine, {"shared": machine.online})
    assert drawn.isascii()
    assert max(map(len, drawn.splitlines())) <= 100


@settings(max_examples=60)
@given(machines(), st.data())
def test_every_cpu_is_drawn_once(machine: Machine, data: st.DataObject) -> None:
    mine = data.draw(subsets(machine.online))
    body = [line for line in render_map(machine, {"me": mine}).splitlines() if line.startswith("    ")]
    shown = CpuSet()
    for line in body:
        numbers = CpuSet.parse(line.split()[-1])
        assert shown.isdisjoint(numbers)
        shown |= numbers
        drawn = line[: line.rindex("  ")]
        assert drawn.count("A") == len(numbers & mine)
    assert shown == machine.online
