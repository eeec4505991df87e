"""What a RuntimeClass adds to a pod, and what a pod may not say against it: the words are a real server's."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.annotations.wellknown import RUNTIME_HANDLER_ANNOTATION
from kubeqos.model.objects import PodView
from kubeqos.rules.defaulting.runtimeclass import apply_runtime_class, handler_of, overhead_refusal, write_handler

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


def test_a_pod_says_which_handler_runs_it() -> None:
    def handler(annotations: dict[str, str], **spec: str) -> str | None:
        return handler_of(PodView.of({"metadata": {"annotations": annotations}, "spec": spec}))

    written = {RUNTIME_HANDLER_ANNOTATION: "kata"}
    assert handler(written, runtimeClassName="boxed") == "kata"
    assert handler({}, runtimeClassName="boxed") is None, "nobody has said"
    assert handler(written) == "", "a pod without RuntimeClass has the default one, whatever it claims"


def test_nobody_claims_a_handler() -> None:
    metadata: dict[str, Any] = {"annotations": {RUNTIME_HANDLER_ANNOTATION: "runc", "a": "b"}}
    write_handler(metadata, "kata")
    assert metadata == {"annotations": {RUNTIME_HANDLER_ANNOTATION: "kata", "a": "b"}}
    write_handler(metadata, None)
    assert metadata == {"annotations": {"a": "b"}}
    bare: dict[str, Any] = {"annotations": {RUNTIME_HANDLER_ANNOTATION: "runc"}}
    write_handler(bare, None)
    assert bare == {}
