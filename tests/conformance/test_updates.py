"""Every recorded patch that Kubernetes decoded: does validation accept or refuse the change with the same causes?

The text after the first line of a message is a diff of Go structs and is not compared.
"""

from __future__ import annotations

import copy
import json

import pytest

from kubeqos.apiserver.patch.decoding import apply_patch
from kubeqos.model import schema
from kubeqos.rules.defaulting.defaults import apply_defaults
from kubeqos.rules.fielderror import Invalid
from kubeqos.rules.validation import validate
from tests.conformance.pipeline import causes
from tests.conformance.recorded import cases

KINDS = {
    "pods": "Pod",
    "limitranges": "LimitRange",
    "resourcequotas": "ResourceQuota",
    "podtemplates": "PodTemplate",
    "configmaps": "ConfigMap",
    "nodes": "Node",
    "namespaces": "Namespace",
}


def _reached_validation(case: dict) -> bool:
    if case["kind"] == "apply-script":
        return False
    message = case.get("message") or ""
    return case["code"] == 200 or (
        case["code"] == 422 and " is invalid: " in message and ' "" is invalid' not in message
    )


CASES = [case for case in cases("patch") if _reached_validation(case)]


def updated(case: dict, kind: str, subresource: str) -> tuple[dict, dict]:
    """The stored object and the one that the patch makes of it, as the server keeps spec and status apart."""
    shape = schema.kind("", "v1", kind)
    base = json.loads(json.dumps(case["base"]).replace("<time>", "2026-01-01T00:00:00Z"))
    old = schema.normalise(base, shape)
    new = apply_patch(case["type"], copy.deepcopy(base), case["patch"], shape).object
    if subresource == "status":
        return old, {**copy.deepcopy(old), "metadata": new["metadata"], "status": new.get("status")}
    if "status" in old:
        new["status"] = old["status"]
    apply_defaults(kind, new)
    if "namespace" in old["metadata"]:
        new["metadata"].setdefault("namespace", old["metadata"]["namespace"])
    if kind == "Namespace":
        new["spec"] = old["spec"]
    return old, new


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n]['kind']}-{CASES[n]['type']}")
def test_the_change_is_judged_as_kubernetes_does(number: int):
    case = CASES[number]
    resource, _, subresource = case["kind"].partition("/")
    kind = KINDS[resource]
    old, new = updated(case, kind, subresource)
    errors = validate(kind, new, old=old, operation="update", subresource=subresource)
    got = causes(Invalid(kind, "", "", errors).details)
    assert _first_lines(got) == _first_lines(causes(case))


def _first_lines(listed: list[list[str]]) -> list[list[str]]:
    return [[field, reason, message.partition("\n")[0]] for field, reason, message in listed]
