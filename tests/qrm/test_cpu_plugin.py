"""The CPU plugin's decisions, as values: roles, pools, followers, whole nodes; and laws that hold on any machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.errors import ConfigurationError
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import MACHINES, kep80, laptop8, regular
from kubeqos.model.machine import Machine
from kubeqos.qrm.plugins.cpu.config import CpuConfig
from kubeqos.qrm.plugins.cpu.layout import lay_out
from kubeqos.qrm.plugins.cpu.state import CpuState
from kubeqos.qrm.plugins.cpu.statefile import from_json, to_json
from kubeqos.qrm.plugins.roles import read_config
from kubeqos.qrm.sdk.values import Kind, Request
from kubeqos.topology.alignment.hints import Hint
from kubeqos.topology.answers import Unsatisfiable

CONFIG = """
reserved: "0-1,40-41"
pools:
  online: {size: 20}
  offline: {size: 10, floor: 2}
roles:
  web: {pool: online}
  etl: {pool: offline}
  storage: {dedicated: true, numa: bind}
  index: {dedicated: true, numa: bind, beside: [storage]}
  hpc: {dedicated: true, numa: exclusive}
  pinned: {dedicated: true, fullCores: true}
"""


def config(text: str = CONFIG) -> CpuConfig:
    return read_config(text, CpuConfig, "cpu.yaml")


@pytest.fixture
def state() -> CpuState:
    return CpuState.of(kep80(), config())


def ask(uid: str, role: str = "", cpus: float = 1, numa: str = "", container: str = "main", **more: object) -> Request:
    hint = Hint(NumaSet.parse(numa) if numa else None, True)
    return Request(uid, "cpu", cpus, container=container, role=role, hint=hint, **more)  # type: ignore[arg-type]


def granted(state: CpuState | Unsatisfiable) -> CpuState:
    assert isinstance(state, CpuState), state
    assert state.validate() == []
    return state


def cpus(state: CpuState, uid: str, container: str = "main") -> str:
    found = state.allocation((uid, container))
    return found.result if found else ""


# ---- Stories


def test_pools_lie_side_by_side_on_every_numa_node(state: CpuState) -> None:
    assert {name: str(found) for name, found in state.pools.named.items()} == {
        "online": "2-11,42-51",
        "offline": "12-17,52-55",
    }


def test_roles_choose_pools_and_the_others_share_the_rest(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "web")))
    state = granted(state.allocate(ask("b", "etl")))
    state = granted(state.allocate(ask("c", "nobody")))
    assert [cpus(state, uid) for uid in "abc"] == ["2-11,42-51", "12-17,52-55", "18-39,56-79"]


def test_a_pool_promises_no_more_than_it_has(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "etl", 8)))
    refused = state.allocate(ask("b", "etl", 3))
    assert str(refused) == "not enough cpus in pool offline: requested=11, available=10"
    granted(state.allocate(ask("b", "etl", 3, kind=Kind.INIT)))


def test_roles_keep_apart_and_equals_share(state: CpuState) -> None:
    assert state.hints(ask("a", "storage", 10)) == (
        Hint(NumaSet.of(0), True),
        Hint(NumaSet.of(1), True),
        Hint(NumaSet.of(0, 1), False),
    )
    state = granted(state.allocate(ask("a", "storage", 10, numa="0")))
    assert state.hints(ask("b", "storage", 10)) is not None
    alone = state.hints(ask("c", "hpc", 10))
    assert alone == (Hint(NumaSet.of(1), True),)
    beside = state.hints(ask("d", "index", 10))
    assert beside is not None and Hint(NumaSet.of(0), True) in beside


def test_whole_numa_nodes(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "hpc", 2, numa="1")))
    assert cpus(state, "a") == "56-79"
    assert state.hints(ask("b", "storage", 1)) == (Hint(NumaSet.of(0), True),)


def test_too_much_for_one_node_spans_two() -> None:
    state = CpuState.of(kep80(), config('{reserved: "0-1,40-41", roles: {big: {dedicated: true, numa: bind}}}'))
    assert state.hints(ask("a", "big", 50)) == (Hint(NumaSet.of(0, 1), True),)


def test_a_follower_waits_for_its_main_container(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "storage", 1, container="proxy", kind=Kind.SIDECAR)))
    assert cpus(state, "a", "proxy") == ""
    state = granted(state.allocate(ask("a", "storage", 4, numa="0")))
    assert cpus(state, "a", "proxy") == cpus(state, "a") == "18-21"
    assert granted(state.release("a")).pools == CpuState.of(kep80(), config()).pools


def test_whole_cores_or_nothing(state: CpuState) -> None:
    assert "SMT Alignment Error" in str(state.allocate(ask("a", "pinned", 3)))
    assert cpus(granted(state.allocate(ask("a", "pinned", 4))), "a") == "18-21"


def test_asking_again_changes_nothing_and_asking_for_more_moves(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "storage", 4, numa="0")))
    assert state.allocate(ask("a", "storage", 4, numa="0")) is state
    assert len(CpuSet.parse(cpus(granted(state.allocate(ask("a", "storage", 6, numa="0"))), "a"))) == 6


def test_katalysts_levels_mean_the_same(state: CpuState) -> None:
    marks = {
        "katalyst.kubewharf.io/qos_level": "dedicated_cores",
        "katalyst.kubewharf.io/memory_enhancement": '{"numa_binding": "true"}',
    }
    state = granted(state.allocate(ask("a", "", 4, annotations=marks)))
    assert cpus(state, "a") == "18-21"
    pool = {"katalyst.kubewharf.io/cpu_enhancement": '{"cpuset_pool": "offline"}'}
    state = granted(state.allocate(ask("b", "", 1, annotations=pool)))
    assert cpus(state, "b") == "12-17,52-55"


# ---- Pools


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({"online": CpuSet.parse("0-5")}, "online and reserved both hold 0-1"),
        ({"online": 70}, "not enough cpus for the pools: requested=70, available=66"),
        ({"offline": 1}, "offline has 1 CPUs, its floor is 2"),
        ({"online": CpuSet.parse("60-90")}, "80-90, which are not online"),
        ({"night": 3}, "there is no pool night (known: online, offline)"),
        ({"online": CpuSet.parse("2-13")}, "offline and online both hold 12-13"),
    ],
)
def test_a_resize_is_checked_as_a_whole(state: CpuState, wanted: dict[str, CpuSet | int], complaint: str) -> None:
    refused = state.resize(wanted)
    assert isinstance(refused, Unsatisfiable)
    text = str(refused)
    assert complaint in text or complaint.replace("offline and online", "online and offline") in text


def test_a_resize_cannot_take_what_is_exclusive(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "storage", 4, numa="0")))
    assert "both hold 18-21" in str(state.resize({"online": CpuSet.parse("2-11,18-21,42-51")}))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("roles: {web: {pool: nowhere}}", "role web: there is no pool nowhere"),
        ("roles: {web: {pool: shared, dedicated: true}}", "both a pool and CPUs of its own"),
        ("pools: {shared: {size: 2}}", "shared is a name of ours"),
        ("pools: {a: {size: 100}}", "pools do not fit on the machine"),
        ('pools: {a: {cpus: "0-3"}, b: {cpus: "3-5"}}', "both hold 3"),
        ("default: nowhere", "default: there is no pool nowhere"),
    ],
)
def test_wrong_configurations_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        CpuState.of(kep80(), config(text))


def test_a_mistake_in_the_file_names_its_line() -> None:
    with pytest.raises(ConfigurationError) as raised:
        config("pools:\n  a: {size: 2}\n  b: {size: much}\n")
    assert raised.value.where == "cpu.yaml:3  pools.b.size"


# ---- Laws

ROLES = ("web", "etl", "storage", "index", "hpc", "pinned", "")
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("ask"), st.integers(0, 5), st.sampled_from(ROLES), st.integers(1, 12), st.sampled_from(list(Kind))
        ),
        st.tuples(st.just("release"), st.integers(0, 5)),
        st.tuples(st.just("resize"), st.integers(1, 40), st.integers(1, 40)),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_whatever_happens_the_partition_holds_and_survives_a_restart(script: list[tuple[object, ...]]) -> None:
    state = CpuState.of(kep80(), config())
    for step in script:
        after: CpuState | Unsatisfiable
        if step[0] == "ask":
            _, pod, role, count, kind = step
            after = state.allocate(ask(f"pod-{pod}", str(role), float(count), container=str(kind), kind=kind))  # type: ignore[arg-type]
        elif step[0] == "release":
            after = state.release(f"pod-{step[1]}")
        else:
            after = state.resize({"online": step[1], "offline": step[2]})  # type: ignore[dict-item]
        if isinstance(after, CpuState):
            assert after.validate() == []
            state = after
    again, repaired = from_json(state.machine, state.config, to_json(state))
    assert repaired == []
    assert again.allocations() == state.allocations()
    assert to_json(again) == to_json(state)
    for pod in range(6):
        state = state.release(f"pod-{pod}")
    assert not state.entries and not state.pools.exclusive and not state.pools.members


machines = st.one_of(
    st.sampled_from([name for name in MACHINES if name not in ("superchip34", "big384")]).map(lambda n: MACHINES[n]()),
    st.builds(
        lambda s, n, c, t: regular(sockets=s, numa_per_socket=n, cores_per_uncore=c, threads=t),
        *(st.integers(1, 3), st.integers(1, 2), st.integers(1, 6), st.integers(1, 2)),
    ),
)


@settings(max_examples=80, deadline=None)
@given(machines, st.lists(st.integers(0, 12), min_size=1, max_size=4))
def test_a_layout_gives_everybody_exactly_their_size(machine: Machine, sizes: list[int]) -> None:
    wanted = {f"p{at}": size for at, size in enumerate(sizes)}
    placed = lay_out(machine, machine.online, wanted)
    if sum(sizes) > len(machine.online):
        assert isinstance(placed, Unsatisfiable)
        return
    assert not isinstance(placed, Unsatisfiable)
    assert {name: len(found) for name, found in placed.items()} == wanted
    union = 0
    for found in placed.values():
        assert not union & found.mask
        union |= found.mask
    assert CpuSet(union) <= machine.online


def test_a_state_of_another_machine_is_named_and_left_out(state: CpuState) -> None:
    state = granted(state.allocate(ask("a", "storage", 4, numa="0")))
    small, repaired = from_json(laptop8(), config("roles: {storage: {dedicated: true}}"), to_json(state))
    assert [text.split(":")[0] for text in repaired] == ["a/main"]
    assert small.validate() == []
