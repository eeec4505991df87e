"""Every recorded refusal and acceptance of single objects: codes, messages, causes and warnings."""

from __future__ import annotations

import json

import pytest

from tests.conformance.differences import DIFFERENCES
from tests.conformance.pipeline import Answer, causes, post
from tests.conformance.recorded import cases

CASES = cases("validation")


def header(warning: str) -> str:
    """A warning as the header carries it."""
    escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def compare(answer: Answer, case: dict) -> None:
    assert (answer.code, answer.reason) == (case["code"], case.get("reason")), answer.message
    assert [header(one) for one in answer.warnings] == case.get("warnings", [])
    if case["code"] != 422:
        assert answer.message == case.get("message")
        return
    wanted = case["details"]
    assert answer.causes == causes(wanted)
    assert [answer.details.get(key) for key in ("name", "group", "kind")] == [
        wanted.get(key) for key in ("name", "group", "kind")
    ]
    # The order of several errors comes from hash iteration; the causes above say that they are the same.
    alone = len(wanted["causes"]) == 1
    assert answer.message == case["message"] if alone else answer.message.partition(": [")[0] in case["message"]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{n}-{CASES[n]['tag']}")
def test_the_answer_is_that_of_kubernetes(number: int):
    case = CASES[number]
    text = case.get("bodyText")
    body = text.encode() if text is not None else json.dumps(case["body"]).encode()
    answer = post(case["path"], body, case.get("contentType", "application/json"))
    misspelt = {"memory.limit", "cpu.limit"} & set(_hard(case))
    if misspelt:
        assert ("validation", "quota/hardname") in DIFFERENCES
        with pytest.raises(AssertionError):
            compare(answer, case)
        assert answer.code == case["code"]
        return
    compare(answer, case)


def _hard(case: dict) -> dict:
    body = case.get("body")
    return ((body or {}).get("spec") or {}).get("hard") or {} if case["tag"].startswith("quota/") else {}
