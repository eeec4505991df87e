"""CPU and memory hints on machines with too many NUMA nodes to list every mask."""

from __future__ import annotations

from itertools import combinations

from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import GIB, big384, regular, superchip34
from kubeqos.topology.alignment.cpuhints import cpu_hints
from kubeqos.topology.alignment.hints import Hint, Offer, Policy
from kubeqos.topology.alignment.merge import merge
from kubeqos.topology.memory import MemoryState


def test_eight_nodes_list_every_mask() -> None:
    machine = big384()
    hints = cpu_hints(machine, machine.online, 1)
    assert len(hints) == 255
    assert sum(hint.preferred for hint in hints) == 8


def test_thirty_four_nodes_list_the_smallest_masks_and_all_nodes() -> None:
    machine = regular(sockets=34, cores_per_uncore=2)  # 34 nodes of four CPUs
    singles = cpu_hints(machine, machine.online, 4)
    assert len(singles) == 35 and singles[-1] == Hint(machine.numa, False)
    pairs = cpu_hints(machine, machine.online, 7)
    assert [h.numa for h in pairs if h.preferred] == [NumaSet.from_ids(c) for c in combinations(range(34), 2)]
    assert cpu_hints(machine, machine.online, 137) == ()


def test_half_of_many_nodes_does_not_explode() -> None:
    machine = regular(sockets=34, cores_per_uncore=2)
    hints = cpu_hints(machine, machine.online, 68)
    assert 1 < len(hints) <= 2001
    assert all(len(h.numa or ()) == 17 for h in hints[:-1])


def test_nodes_of_reusable_cpus_stay_in() -> None:
    machine = regular(sockets=12, cores_per_uncore=2)
    reused = machine.numa_cpus[7]
    hints = cpu_hints(machine, machine.online - reused, 6, reusable=reused)
    assert hints and all(h.numa is not None and 7 in h.numa for h in hints)


def test_full_nodes_are_not_offered_where_masks_are_chosen() -> None:
    machine = regular(sockets=12, cores_per_uncore=2)
    free = machine.online - machine.numa_cpus[3]
    assert all(h.numa is not None and 3 not in h.numa for h in cpu_hints(machine, free, 4)[:-1])


def test_a_superchip_admits_in_one_piece() -> None:
    machine = superchip34()
    memory = MemoryState.of(machine)
    offers = [
        Offer("cpu", "cpu", cpu_hints(machine, machine.online, 16)),
        Offer("memory", "memory", memory.hints("p", "c", {"memory": 20 * GIB})["memory"]),
    ]
    merged = merge(offers, machine.numa, Policy.RESTRICTED)
    assert merged.admitted and merged.hint.numa == NumaSet.of(0)


def test_memory_hints_of_many_nodes() -> None:
    state = MemoryState.of(superchip34())
    large = state.hints("p", "c", {"memory": 500 * GIB})["memory"]
    assert large[0] == Hint(NumaSet.of(0, 1), True)
    assert all(h.numa is not None and len(h.numa) == 2 for h in large[:-1])
    assert state.hints("p", "c", {"memory": 9000 * GIB}) == {}
    assert state.hints("p", "c", {"memory": 1, "hugepages-1Gi": 1}) == {}


def test_no_cpus_no_hints() -> None:
    assert cpu_hints(big384(), CpuSet(), 1) == ()
