"""Topology decisions are those of the real kubelet: hint merge, CPU allocators, CPU hints, memory manager."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.cpuset import NumaSet
from kubeqos.topology.hints import Hint, Offer, Policy
from kubeqos.topology.merge import merge
from tests.conformance.recorded import cases


def hint(recorded: list[Any]) -> Hint:
    mask, preferred = recorded
    return Hint(None if mask is None else NumaSet(mask), preferred)


def offers(providers: list[dict[str, Any] | None]) -> list[Offer]:
    return [
        Offer(f"provider{i}", resource, None if hints is None else [hint(h) for h in hints])
        for i, provider in enumerate(providers)
        for resource, hints in (provider or {}).items()
    ]


@pytest.mark.parametrize("case", cases("topology_merge"), ids=lambda c: f"id{c['id']}")
def test_merge(case: dict[str, Any]) -> None:
    table = case.get("distances")
    merged = merge(
        offers(case["providers"]),
        NumaSet.from_ids(case["nodes"]),
        Policy(case["policy"]),
        closest=(lambda a, b: table[a][b]) if case["prefer_closest"] else None,
    )
    assert (merged.hint, merged.admitted) == (hint(case["hint"]), case["admit"])
