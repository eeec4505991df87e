"""Pools partition the machine after any sequence of operations, and say why when they cannot."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80, ragged
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.changes import Held, plan_changes
from kubeqos.topology.pools import Pools
from tests.topology.strategies import machines, subsets


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def good(answer: Pools | Unsatisfiable) -> Pools:
    assert isinstance(answer, Pools), str(answer)
    assert answer.validate() == []
    return answer


def holdings(pools: Pools) -> dict[str, Held]:
    """Each container's CPUs, in the form that `plan_changes` takes."""
    out = {owner: Held(cpus, owner) for owner, cpus in pools.exclusive.items()}
    for container, pool in pools.members.items():
        out[container] = Held(pools.partition[pool], pool if pool in pools.exclusive else None)
    return out


@pytest.fixture
def kep() -> Pools:
    """KEP-3461, example 2: CPUs 0-1 and 40-41 are reserved."""
    return Pools(kep80(), reserved=cpus("0-1,40-41"))


def test_shared_is_what_others_leave(kep: Pools) -> None:
    assert kep.shared == cpus("2-39,42-79")
    pools = good(kep.carve("pod1/main", cpus("2-21")))
    assert pools.shared == cpus("22-39,42-79")
    assert pools.partition["pod1/main"] == cpus("2-21")
    assert pools.give_back("pod1/main") == kep


def test_online_and_offline_pools_of_example_1() -> None:
    pools = good(Pools(kep80()).resize("online", cpus("0-37,40-77")))
    pools = good(good(pools.resize("offline", cpus("38-39,78-79"))).join("pod1/c", "online"))
    pools = good(pools.join("pod2/c", "offline"))
    after = good(good(pools.resize("online", cpus("0-13,40-53"))).resize("offline", cpus("14-39,54-79")))
    assert after.partition["offline"] == cpus("14-39,54-79")
    changes = plan_changes(holdings(pools), holdings(after))
    assert isinstance(changes, tuple)
    assert [(change.container, str(change.cpus)) for change in changes] == [
        ("pod1/c", "0-13,40-53"),
        ("pod2/c", "14-39,54-79"),
    ]


def test_a_sidecar_shares_its_main_containers_cpus(kep: Pools) -> None:
    pools = good(good(kep.carve("p/main", cpus("2-5"))).join("p/side", "p/main"))
    assert holdings(pools)["p/side"] == Held(cpus("2-5"), "p/main")
    assert holdings(pools.give_back("p/main")) == {"p/side": Held(cpus("2-39,42-79"))}


def test_refusals_name_the_owner(kep: Pools) -> None:
    pools = good(kep.carve("a", cpus("2-5")))
    for answer, text in [
        (pools.carve("b", cpus("0,4-6")), "0,4-5 cannot be carved for b: reserved has 0, a has 4-5"),
        (pools.carve("a", cpus("7")), "a already has 2-5"),
        (pools.carve("b", cpus("99")), "99 are not online"),
        (pools.carve("b", CpuSet()), "b is exclusive and has no CPUs"),
        (pools.resize("a", cpus("")), "a is exclusive and has no CPUs"),
        (pools.resize("shared", cpus("8")), "cannot be resized"),
        (pools.resize("batch", cpus("5-8")), "batch cannot have 5: a has 5"),
        (pools.join("c", "reserved"), "c cannot run in pool reserved"),
    ]:
        assert isinstance(answer, Unsatisfiable) and text in str(answer), str(answer)


def test_the_last_shared_cpu_stays_while_someone_runs_on_it(kep: Pools) -> None:
    pools = good(kep.join("web"))
    refused = pools.carve("greedy", kep.shared)
    assert isinstance(refused, Unsatisfiable) and "web runs in shared, which has no CPUs" in str(refused)
    assert isinstance(pools.leave("web").carve("greedy", kep.shared), Pools)


def test_isolated_cpus_are_not_shared() -> None:
    pools = Pools(ragged())
    assert pools.partition["isolated"] == cpus("13")
    assert good(pools.carve("rt", cpus("13"))).partition["isolated"] == CpuSet()


def test_validate_finds_what_a_changed_machine_breaks() -> None:
    smaller = Machine(tuple(cpu for cpu in kep80().cpus if cpu.id < 75), kep80().nodes)
    assert Pools(smaller, exclusive={"a": cpus("70-79")}).validate() == ["a holds 75-79, which are not online"]
    broken = Pools(kep80(), named={"x": cpus("1-2")}, exclusive={"y": cpus("2-3"), "x": cpus("9")})
    assert broken.validate()[:2] == ["y and x both hold 2", "two pools are called x"]


class PoolsMachine(RuleBasedStateMachine):
    """Any sequence of operations keeps the partition, and can be applied safely."""

    @initialize(machine=machines(), data=st.data())
    def start(self, machine: Machine, data: st.DataObject) -> None:
        self.pools = Pools(machine, reserved=data.draw(subsets(machine.online)))

    def accept(self, answer: Pools | Unsatisfiable) -> None:
        if isinstance(answer, Unsatisfiable):
            assert str(answer)
            return
        spare = self.pools.available & answer.available
        changes = plan_changes(holdings(self.pools), holdings(answer), spare)
        assert isinstance(changes, tuple) or "no spare CPU" in str(changes)
        self.pools = answer

    @rule(data=st.data(), owner=st.sampled_from("abc"))
    def carve(self, data: st.DataObject, owner: str) -> None:
        self.accept(self.pools.carve(owner, data.draw(subsets(self.pools.available))))

    @rule(owner=st.sampled_from("abc"))
    def give_back(self, owner: str) -> None:
        self.pools = self.pools.give_back(owner)

    @rule(data=st.data(), name=st.sampled_from(["a", "batch", "web", "reserved"]))
    def resize(self, data: st.DataObject, name: str) -> None:
        self.accept(self.pools.resize(name, data.draw(subsets(self.pools.machine.online))))

    @rule(data=st.data(), container=st.sampled_from(["w1", "w2"]))
    def join(self, data: st.DataObject, container: str) -> None:
        self.accept(self.pools.join(container, data.draw(st.sampled_from(sorted(self.pools.partition)))))

    @rule(container=st.sampled_from(["w1", "w2"]))
    def leave(self, container: str) -> None:
        self.pools = self.pools.leave(container)

    @invariant()
    def partitions_the_machine(self) -> None:
        if not hasattr(self, "pools"):
            return
        parts = list(self.pools.partition.values())
        union = CpuSet()
        for part in parts:
            assert union.isdisjoint(part)
            union |= part
        assert union == self.pools.machine.online


PoolsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestPoolsMachine = PoolsMachine.TestCase
