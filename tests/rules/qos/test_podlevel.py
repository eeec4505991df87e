"""What containers' cgroups mean for those above them: weights add up, protection is no more than ancestors give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.rules.qos.podlevel import CPU, IO, MEMORY, CgroupLevel, amount, effective_protection, pod_contents

MIB = 1 << 20


@pytest.mark.parametrize(
    ("children", "contents"),
    [
        ([{"cpu.weight": "800", "cpu.idle": "0"}], {"cpu.idle": "0", "cpu.weight": "800"}),
        ([{"cpu.weight": "800"}, {"cpu.weight": "39"}], {"cpu.weight": "839"}),
        ([{"cpu.weight": "9000"}, {"cpu.weight": "9000"}], {"cpu.weight": "10000"}),
        ([{"cpu.weight": "1", "cpu.idle": "1"}], {"cpu.idle": "1"}),
        ([{"cpu.idle": "1"}, {"cpu.weight": "7", "cpu.idle": "0"}], {"cpu.idle": "0", "cpu.weight": "7"}),
    ],
)  # fmt: skip
def test_a_pod_weighs_what_its_containers_weigh(children: list[dict[str, str]], contents: dict[str, str]) -> None:
    assert pod_contents(children, {CPU}, 2) == contents


def test_on_cgroup_v1_shares_add_up() -> None:
    assert pod_contents([{"cpu.shares": "20948"}, {"cpu.shares": "2"}], {CPU, MEMORY}, 1) == {"cpu.shares": "20950"}


def test_a_pod_protects_what_its_containers_protect() -> None:
    children = [{"memory.min": str(100 * MIB), "memory.low": "0"}, {"memory.min": str(20 * MIB), "memory.low": "max"}]
    assert pod_contents(children, {MEMORY}, 2) == {"memory.min": str(120 * MIB), "memory.low": "max"}


def test_both_kinds_of_io_weights_go_up_each_by_itself_and_by_device() -> None:
    children = [
        {"io.bfq.weight": "default 800", "io.weight": "default 7980\n8:16 9000"},
        {"io.bfq.weight": "default 100\n8:0 300", "io.weight": "default 100"},
    ]
    assert pod_contents(children, {IO}, 2) == {
        "io.bfq.weight": "default 900\n8:0 1000",
        "io.weight": "default 8080\n8:16 9100",
    }
    assert pod_contents([{"blkio.bfq.weight": "700"}], {IO}, 1) == {"blkio.bfq.weight": "700"}


def test_a_kernel_without_the_files_is_asked_for_nothing() -> None:
    assert pod_contents([{}], {IO}, 2) == {} and pod_contents([{"cpu.weight": "5"}], set(), 2) == {}


# ---- Protection


def test_ancestors_without_protection_leave_nothing() -> None:
    """The issue's case: 120 MB on the container, 0 above."""
    found = effective_protection(
        [CgroupLevel("/kubepods", 0, 0), CgroupLevel("/kubepods/pod1", 0, 0), CgroupLevel("c", 120, 120)]
    )
    assert (found.asked, found.effective, found.is_whole) == (120, 0, False)
    assert found.because == "/kubepods/pod1 has 0 effective bytes and its children ask for 120"


def test_children_that_ask_for_more_than_their_parent_has_share_it() -> None:
    found = effective_protection([CgroupLevel("/kubepods", 100, 100), CgroupLevel("/kubepods/pod1", 150, 200)])
    assert found.effective == 75 and "ask for 200" in found.because
    assert effective_protection([CgroupLevel("/kubepods", 200, 200), CgroupLevel("/kubepods/pod1", 150, 200)]).is_whole


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5))
def test_effective_is_never_more_than_asked_nor_than_any_ancestor_has(levels: list[tuple[int, int]]) -> None:
    chain = [CgroupLevel(str(index), own, own + others) for index, (own, others) in enumerate(levels)]
    found = effective_protection(chain)
    assert 0 <= found.effective <= min(one.own for one in chain)
    assert found.is_whole == (found.because == "")


def test_max_is_more_than_anything() -> None:
    assert amount("max") > amount(str(1 << 60)) and amount("") == 0
