"""Every recorded pod: is it accepted, what are its resources after defaulting, and what is its QoS class?"""

from __future__ import annotations

import json

import pytest

from tests.conformance.pipeline import Answer, causes, post
from tests.conformance.recorded import cases

CASES = cases("podqos")
CHUNKS = 11


def outcome(answer: Answer) -> dict:
    """An answer in the form of the recording."""
    if answer.obj is None:
        wanted = {"code": answer.code, "qosClass": None, "reason": answer.reason, "message": answer.message}
        return {**wanted, "causes": answer.causes}
    spec = answer.obj["spec"]
    resources = {"containers": {one["name"]: one["resources"] for one in spec["containers"]}}
    if spec.get("initContainers"):
        resources["initContainers"] = {one["name"]: one["resources"] for one in spec["initContainers"]}
    if "resources" in spec:
        resources["pod"] = spec["resources"]
    return {"code": 201, "qosClass": answer.obj["status"]["qosClass"], "resources": resources}


def recorded(case: dict) -> dict:
    wanted = {key: case.get(key) for key in ("code", "qosClass", "resources", "reason", "message", "causes")}
    if case["code"] == 201:
        return {key: wanted[key] for key in ("code", "qosClass", "resources")}
    del wanted["resources"]
    return {**wanted, "causes": causes(case)}


def without_order(one: dict) -> dict:
    """A message that joins several errors says what the causes say, in no fixed order."""
    return {**one, "message": None} if len(one.get("causes") or ()) > 1 else one


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_pods_are_classified_as_kubernetes_does(chunk: int):
    wrong = []
    for case in CASES[chunk::CHUNKS]:
        body = json.dumps(case["pod"]).encode()
        got = without_order(outcome(post("/api/v1/namespaces/default/pods?dryRun=All", body)))
        wanted = without_order(recorded(case))
        if got != wanted:
            wrong.append((case["pod"]["spec"], wanted, got))
    assert wrong == []
