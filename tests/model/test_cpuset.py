"""CpuSet and NumaSet: algebra of one kind, kernel list format, and no mixing."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.errors import InputError
from kubeqos.model.cpuset import CpuSet, NumaSet

ids = st.sets(st.integers(0, 400), max_size=60)


@settings(deadline=None)
@given(ids)
def test_prints_what_it_parses(members: set[int]) -> None:
    cpus = CpuSet.from_ids(members)
    assert CpuSet.parse(str(cpus)) == cpus
    assert list(cpus) == sorted(members)
    assert CpuSet.from_mask(cpus.mask) == cpus
    assert [i for i in range(401) if i in cpus] == sorted(members)


@settings(deadline=None)
@given(ids, ids)
def test_behaves_like_a_set_of_ints(a: set[int], b: set[int]) -> None:
    left, right = CpuSet.from_ids(a), CpuSet.from_ids(b)
    for op in (operator.or_, operator.and_, operator.sub, operator.xor):
        assert set(op(left, right)) == op(a, b)
    for compare in (operator.le, operator.lt, operator.ge, operator.gt, operator.eq):
        assert compare(left, right) == compare(a, b)
    assert set(CpuSet.union((left, right, left))) == a | b
    assert left.isdisjoint(right) == a.isdisjoint(b)
    assert list(left.lowest(3)) == sorted(a)[:3]
    assert bool(left) == bool(a) and len(left) == len(a)


@pytest.mark.parametrize("op", [operator.or_, operator.and_, operator.sub, operator.xor, operator.le, operator.lt])
def test_cpus_and_numa_nodes_never_mix(op: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(TypeError):
        op(CpuSet.of(0), NumaSet.of(0))
    assert CpuSet.of(0) != NumaSet.of(0)


def test_refusals_say_what_and_where() -> None:
    with pytest.raises(InputError, match='invalid range "7-3"') as refused:
        CpuSet.parse("0,7-3")
    assert refused.value.where == 'list "0,7-3"'
    with pytest.raises(InputError, match='invalid number "x" in "1-x"'):
        CpuSet.parse("1-x")
    with pytest.raises(InputError, match="no first member"):
        CpuSet().first()
    with pytest.raises(InputError, match="out of range"):
        CpuSet.parse("70000")
    with pytest.raises(InputError, match="out of range"):
        CpuSet.of(-1)
