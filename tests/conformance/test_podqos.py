"""Every recorded pod: is it accepted, what are its resources after defaulting, and what is its QoS class?"""

from __future__ import annotations

import json
import re

import pytest

from kubeqos.model.quantity import Quantity
from tests.conformance.differences import DIFFERENCES
from tests.conformance.pipeline import Answer, causes, post
from tests.conformance.recorded import cases

CASES = cases("podqos")
CHUNKS = 11
_EXPONENT = re.compile(r"\b[0-9]+e-?[0-9]+\b")


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


def by_value(one: dict) -> dict:
    """The same with amounts in exponent form replaced by their value in the usual form."""
    plain = _EXPONENT.sub(lambda found: str(Quantity.from_nanos(Quantity.parse(found[0]).nanos)), json.dumps(one))
    replaced = json.loads(plain)
    if replaced.get("causes"):
        replaced["causes"].sort()
    return replaced


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_pods_are_classified_as_kubernetes_does(chunk: int):
    wrong = []
    for case in CASES[chunk::CHUNKS]:
        body = json.dumps(case["pod"]).encode()
        got = without_order(outcome(post("/api/v1/namespaces/default/pods?dryRun=All", body)))
        wanted = without_order(recorded(case))
        if got == wanted:
            continue
        listed = ("podqos", "sums of amounts written like 1e1") in DIFFERENCES
        if not (listed and by_value(got) == by_value(wanted)):
            wrong.append((case["pod"]["spec"], wanted, got))
    assert wrong == []
