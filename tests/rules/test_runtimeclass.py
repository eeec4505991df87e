"""What a RuntimeClass adds to a pod, and what a pod may not say against it: the words are a real server's."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.rules.runtimeclass import apply_runtime_class, overhead_refusal

FIXED = {"overhead": {"podFixed": {"cpu": "100m"}}}


@pytest.mark.parametrize(
    ("overhead", "runtime_class", "said"),
    [
        ({"cpu": "100m"}, FIXED, None),
        ({"cpu": "200m"}, FIXED, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        ({"cpu": "1"}, {}, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ],
)
def test_a_pods_overhead_is_that_of_its_class(overhead: Any, runtime_class: Any, said: str | None) -> None:
    assert overhead_refusal(overhead, runtime_class) == said


def test_a_class_adds_overhead_nodes_and_tolerations_once() -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    runtime_class = {**FIXED, "scheduling": {"nodeSelector": {"kind": "vm"}, "tolerations": [toleration]}}
    spec: dict[str, Any] = {"nodeSelector": {"zone": "a"}}
    for _ in range(2):
        assert apply_runtime_class(spec, runtime_class) is None
    assert spec == {
        "nodeSelector": {"zone": "a", "kind": "vm"},
        "overhead": {"cpu": "100m"},
        "tolerations": [toleration],
    }
    assert "conflict" in (apply_runtime_class({"nodeSelector": {"kind": "bare"}}, runtime_class) or "")
