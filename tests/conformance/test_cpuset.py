"""CPU sets read, print and combine as Kubernetes' own cpuset package does."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.errors import InputError
from kubeqos.model.cpuset import MAX_ID, CpuSet
from tests.conformance.differences import DIFFERENCES
from tests.conformance.recorded import cases

LINES = cases("cpuset")


def too_large(canonical: str) -> bool:
    """The one kind of set that is refused on purpose."""
    ids = [int(number) for item in canonical.split(",") if item for number in item.split("-")]
    return max(ids, default=0) > MAX_ID and ("cpuset", f"ids above {MAX_ID}") in DIFFERENCES


@pytest.mark.parametrize("case", [c for c in LINES if c["kind"] == "parse"], ids=lambda c: f"id{c['id']}")
def test_parse(case: dict[str, Any]) -> None:
    if "error" in case or too_large(case["out"]):
        with pytest.raises(InputError):
            CpuSet.parse(case["in"])
        return
    parsed = CpuSet.parse(case["in"])
    assert (str(parsed), len(parsed)) == (case["out"], case["size"])


@pytest.mark.parametrize("case", [c for c in LINES if c["kind"] == "op"], ids=lambda c: f"id{c['id']}")
def test_algebra(case: dict[str, Any]) -> None:
    a, b = CpuSet.parse(case["a"]), CpuSet.parse(case["b"])
    assert str(a | b) == case["union"]
    assert str(a & b) == case["intersection"]
    assert str(a - b) == case["difference"]
    assert (a <= b, b <= a, a == b) == (case["a_subset_of_b"], case["b_subset_of_a"], case["equal"])
    assert list(a) == case["a_list"]
