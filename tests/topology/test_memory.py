"""Memory by NUMA node: what is charged is what is held, and all of it comes back."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kubeqos.model.cpuset import NumaSet
from kubeqos.model.hardware.named import GIB, MIB, split80
from kubeqos.model.machine import Machine, NumaNode
from kubeqos.topology.alignment.hints import ANYWHERE, Hint
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.memory import Block, MemoryHold, MemoryState, hugepage_resource


def on(*nodes: int) -> NumaSet:
    return NumaSet.of(*nodes)


def good(answer: MemoryState | Unsatisfiable) -> MemoryState:
    assert isinstance(answer, MemoryState), str(answer)
    assert answer.validate() == []
    return answer


@pytest.fixture
def empty() -> MemoryState:
    """Two nodes of 8 GiB."""
    return MemoryState.of(Machine((), (NumaNode(0, 8 * GIB), NumaNode(1, 8 * GIB))))


def test_huge_pages_and_reservations_leave_the_rest() -> None:
    state = MemoryState.of(split80(), {0: {"memory": GIB}})
    assert state.nodes[0].allocatable == {"hugepages-2Mi": 2 * GIB, "memory": 223 * GIB}
    assert state.nodes[1].allocatable["memory"] == 224 * GIB
    assert [hugepage_resource(size) for size in (2 * MIB, GIB, 64 << 10, 1000)] == [
        "hugepages-2Mi",
        "hugepages-1Gi",
        "hugepages-64Ki",
        "hugepages-1000",
    ]


def test_one_container_on_one_node(empty: MemoryState) -> None:
    state = good(empty.allocate("p", "c", {"memory": 3 * GIB}, Hint(on(1), True)))
    assert state.blocks("p", "c") == (Block("memory", 3 * GIB, on(1)),)
    assert state.nodes[1].free == {"memory": 5 * GIB}
    assert state.hints("p", "c", {"memory": 3 * GIB}) == {"memory": (Hint(on(1), True),)}
    assert state.hints("p", "c", {"memory": 4 * GIB}) == {}
    assert state.allocate("p", "c", {"memory": 3 * GIB}, ANYWHERE) is state
    assert state.release("p", "c") == empty
    assert state.release("p", "other") is state


def test_single_and_group_use_of_a_node_exclude_each_other(empty: MemoryState) -> None:
    state = good(empty.allocate("p", "small", {"memory": GIB}, Hint(on(0), True)))
    assert state.hints("q", "big", {"memory": 10 * GIB}) == {}
    refused = state.allocate("q", "big", {"memory": 10 * GIB}, Hint(on(0, 1), True))
    assert str(refused) == "memory: preferred hint violates NUMA node allocation"
    group = good(empty.allocate("q", "big", {"memory": 10 * GIB}, Hint(on(0, 1), True)))
    assert group.nodes[0].group == on(0, 1)
    assert [h.numa for h in group.hints("p", "small", {"memory": GIB})["memory"]] == [on(0, 1)]


def test_a_hint_that_is_too_small_is_widened(empty: MemoryState) -> None:
    state = good(empty.allocate("p", "c", {"memory": 10 * GIB}, Hint(on(1), False)))
    assert state.blocks("p", "c")[0].numa == on(0, 1)
    refused = empty.allocate("p", "c", {"memory": 20 * GIB}, Hint(on(1), False))
    assert "failed to find NUMA nodes to extend" in str(refused)
    assert "no NUMA nodes with enough memory" in str(empty.allocate("p", "c", {"memory": 20 * GIB}, ANYWHERE))


def test_a_later_container_reuses_what_an_init_container_held(empty: MemoryState) -> None:
    state = good(empty.allocate("p", "init", {"memory": 6 * GIB}, Hint(on(0), True), MemoryHold.INIT))
    hints = state.hints("p", "main", {"memory": 7 * GIB})["memory"]
    assert hints[0] == Hint(on(0), True)
    state = good(state.allocate("p", "main", {"memory": 2 * GIB}, Hint(on(0), True)))
    assert state.nodes[0].free == {"memory": 2 * GIB}
    assert state.blocks("p", "init")[0].size == 4 * GIB


def test_what_an_ended_init_container_gave_back_is_not_reused_as_well(empty: MemoryState) -> None:
    state = good(empty.allocate("p", "init", {"memory": 6 * GIB}, Hint(on(0), True), MemoryHold.INIT))
    state = good(state.release("p", "init"))
    state = good(state.allocate("p", "main", {"memory": 5 * GIB}, Hint(on(0), True)))
    assert state.nodes[0].free == {"memory": 3 * GIB}


def test_validate_finds_an_account_that_does_not_add_up(empty: MemoryState) -> None:
    held = good(empty.allocate("p", "c", {"memory": GIB}, Hint(on(0), True)))
    wrong = MemoryState(empty.nodes, held.entries)
    assert wrong.validate() == [
        "node 0: 0 assignments recorded, 1 held",
        f"memory: 0 bytes charged, {GIB} bytes held",
    ]


class MemoryMachine(RuleBasedStateMachine):
    """Allocations by the state's own hints, in any order: nothing is lost, and releasing all restores the start."""

    @initialize(sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), pages=st.integers(0, 1))
    def start(self, sizes: list[int], pages: int) -> None:
        nodes = tuple(NumaNode(2 * i, size * GIB, {GIB: pages}) for i, size in enumerate(sizes))
        self.first = self.state = MemoryState.of(Machine((), nodes))

    @rule(
        pod=st.sampled_from("pq"),
        container=st.sampled_from("abcd"),
        kind=st.sampled_from(MemoryHold),
        size=st.integers(1, 10),
        huge=st.integers(0, 2),
        data=st.data(),
    )
    def allocate(self, pod: str, container: str, kind: MemoryHold, size: int, huge: int, data: st.DataObject) -> None:
        if (pod, container) in self.state.entries:
            return
        request = {"memory": size * GIB} | ({"hugepages-1Gi": huge * GIB} if huge else {})
        hints = self.state.hints(pod, container, request)
        if not hints:
            assert isinstance(self.state.allocate(pod, container, request, ANYWHERE, kind), Unsatisfiable)
            return
        hint = data.draw(st.sampled_from([ANYWHERE, *hints["memory"]]))
        after = self.state.allocate(pod, container, request, hint, kind)
        if isinstance(after, MemoryState):
            self.state = after
        else:  # what a pod may reuse counts in its hints, but is not enough to settle on them
            assert hint == ANYWHERE or any(e.kind is MemoryHold.INIT for e in self.state.entries.values())

    @rule(pod=st.sampled_from("pq"), container=st.sampled_from("abcd"))
    def release(self, pod: str, container: str) -> None:
        self.state = self.state.release(pod, container)

    @invariant()
    def adds_up(self) -> None:
        if hasattr(self, "state"):
            assert self.state.validate() == []

    def teardown(self) -> None:
        if hasattr(self, "state"):
            for pod, container in list(self.state.entries):
                self.state = self.state.release(pod, container)
            assert self.state.nodes == self.first.nodes


MemoryMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestMemoryMachine = MemoryMachine.TestCase
