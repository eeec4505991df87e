"""LimitRanges are completed, complete pods and judge pods and claims as a recorded server did."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

import pytest

from kubeqos.rules.offline import Answer, Offline
from kubeqos.rules.requests import RequestRefused
from tests.conformance.recorded import cases

LINES = list(enumerate(cases("limitrange")))
SHAPES = {"object": "limitRange", "pod": "pod", "pvc": "pvc"}


@pytest.mark.parametrize(("index", "case"), LINES, ids=[f"{case['kind']}{index}" for index, case in LINES])
def test_case(index: int, case: dict[str, Any]) -> None:
    cluster = Offline()
    for limit_range in case.get("limitRanges", ()):
        assert cluster.apply(limit_range).ok
    answer = cluster.apply(case[SHAPES[case["kind"]]])
    if case["code"] != 201:
        refused = answer.outcome
        assert isinstance(refused, RequestRefused), answer.line
        assert (refused.code, refused.reason) == (case["code"], case["reason"])
        assert said(refused.message) == said(case["message"])
        assert causes(refused.details) == causes(case)
        return
    assert answer.ok, answer.line
    compare = {"object": compare_object, "pod": compare_pod}.get(case["kind"])
    if compare:
        compare(answer, case)


def compare_object(answer: Answer, case: dict[str, Any]) -> None:
    assert answer.object is not None
    assert answer.object["spec"] == case["spec"]


def compare_pod(answer: Answer, case: dict[str, Any]) -> None:
    pod = answer.object
    assert pod is not None
    resources: dict[str, Any] = {}
    for key in ("containers", "initContainers"):
        if pod["spec"].get(key):
            resources[key] = {one["name"]: one.get("resources", {}) for one in pod["spec"][key]}
    if "resources" in pod["spec"]:
        resources["pod"] = pod["spec"]["resources"]
    assert resources == case["resources"]
    assert pod["metadata"].get("annotations", {}) == case["annotations"]
    assert pod["status"]["qosClass"] == case["qosClass"]


def said(message: str) -> tuple[str, frozenset[str]]:
    """A message with the parts that it joins as a set: their order means nothing."""
    head, _, rest = message.partition(": ")
    parts = rest[1:-1] if rest.startswith("[") else rest
    return head, frozenset(re.split(r", (?=minimum |maximum |\S+ max limit |spec\.)", parts))


def causes(details: Any) -> list[tuple[str, str, str]]:
    return sorted((one["reason"], one["field"], one["message"]) for one in deepcopy(details.get("causes") or []))
