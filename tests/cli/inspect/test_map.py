"""`kubeqos map`: what is drawn for a node's assignments."""

from __future__ import annotations

from kubeqos.cli.inspect.map import drawn
from kubeqos.model.annotations.published import Assignments, Holding
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import laptop8


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def cores(assignments: Assignments) -> str:
    return next(line for line in drawn(laptop8(), assignments).splitlines() if "L3 0" in line)


def test_containers_that_share_a_part_of_the_machine_own_it_together() -> None:
    placed = Assignments(
        {}, {"a/online/c": Holding(cpus("0-3")), "a/other/c": Holding(cpus("0-3")), "b/job/c": Holding(cpus("4-5"))}
    )
    text = drawn(laptop8(), placed)
    assert "    L3 0  AA AA BB ..  0-7" in text
    assert "A a/online/c and 1 more     4  0-3" in text
    assert "B b/job/c               " in text


def test_containers_that_may_run_anywhere_or_overlap_own_nothing() -> None:
    assert cores(Assignments({}, {"a/p/c": Holding(cpus("0-7"))})) == "    L3 0  .. .. .. ..  0-7"
    overlap = Assignments({}, {"a/p/c": Holding(cpus("0-3")), "a/q/c": Holding(cpus("2-5"))})
    assert cores(overlap) == "    L3 0  .. .. .. ..  0-7"


def test_pools_and_exclusive_containers_come_first() -> None:
    placed = Assignments(
        {"reserved": cpus("0"), "shared": cpus("1-7")},
        {"a/db/c": Holding(cpus("2-3"), True, NumaSet.of(0)), "a/web/c": Holding(cpus("1,4-7"))},
    )
    assert cores(placed) == "    L3 0  #. AA .. ..  0-7"
    assert drawn(laptop8(), placed).endswith("a/web/c     1,4-7         all")
