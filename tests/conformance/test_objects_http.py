"""Replay recorded validation, QoS, LimitRange and quota answers through HTTP: the whole server must give them too."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kubeqos.codec import encode_json
from tests.apiserver.live import Answer, LiveServer
from tests.conformance.differences import DIFFERENCES, different_on_purpose
from tests.conformance.recorded import cases

NUMBERS = itertools.count(1)
Case = dict[str, Any]


def namespace(live: LiveServer) -> str:
    name = f"o{next(NUMBERS)}"
    assert live.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    return name


def chunks(items: list[Case], size: int) -> list[tuple[int, list[Case]]]:
    return [(start, items[start : start + size]) for start in range(0, len(items), size)]


def parts(message: str) -> set[str]:
    """A message that joins several errors joins them in no fixed order."""
    head, bracket, rest = message.partition("[")
    return {head, *rest.rstrip("]").split(", ")} if bracket else {message}


def causes(details: Case | None) -> list[tuple[str, ...]]:
    return sorted((c.get("field", ""), c["reason"], c["message"]) for c in (details or {}).get("causes") or ())


def misspelt(case: Case) -> bool:
    """Ruling 9: these refusals name the resource that was meant."""
    spec = case["body"].get("spec") if isinstance(case.get("body"), dict) else None
    hard = spec.get("hard") if isinstance(spec, dict) else None
    if not isinstance(hard, dict):
        return False
    assert ("validation", "quota/hardname") in DIFFERENCES
    return not {"memory.limit", "cpu.limit"}.isdisjoint(hard)


def check_refusal(answer: Answer, want: Case) -> None:
    body = answer.body
    assert body["reason"] == want["reason"], body
    texts = want.get("messages") or [want["message"]]
    assert any(parts(body["message"]) == parts(text) for text in texts), (body["message"], texts)
    if "details" in want or "causes" in want:
        wanted = (want.get("details") or {}).get("causes") or want.get("causes")
        assert causes(body.get("details")) == causes({"causes": wanted})


def resources(pod: Case) -> Case:
    spec = pod["spec"]
    found: Case = {"containers": {c["name"]: c["resources"] for c in spec["containers"]}}
    if spec.get("initContainers"):
        found["initContainers"] = {c["name"]: c["resources"] for c in spec["initContainers"]}
    if "resources" in spec:
        found["pod"] = spec["resources"]
    return found


@pytest.mark.parametrize(("start", "group"), chunks(cases("validation"), 60))
def test_recorded_validation(live: LiveServer, start: int, group: list[Case]) -> None:
    for index, case in enumerate(group, start):
        if different_on_purpose("validation", case) or misspelt(case):
            continue
        body = case["bodyText"] if "bodyText" in case else encode_json(case["body"])
        headers = {"Content-Type": case.get("contentType") or "application/json"}
        answer = live.call(case["method"], case["path"], body, headers)
        assert answer.code == case["code"], (index, case["tag"], answer.body, case.get("message"))
        assert answer.warnings == (case.get("warnings") or []), (index, case["tag"])
        if case["code"] >= 400 and "json: cannot" not in case["message"]:
            check_refusal(answer, case)


@pytest.mark.parametrize(("start", "group"), chunks(cases("podqos"), 300))
def test_recorded_pod_qos(live: LiveServer, start: int, group: list[Case]) -> None:
    for index, case in enumerate(group, start):
        answer = live.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", case["pod"])
        assert answer.code == case["code"], (index, answer.body, case.get("message"))
        if case["code"] == 201:
            assert answer.body["status"]["qosClass"] == case["qosClass"], index
            assert resources(answer.body) == case["resources"], index
        else:
            check_refusal(answer, case)


@pytest.mark.parametrize(("start", "group"), chunks(cases("limitrange"), 200))
def test_recorded_limit_ranges(live: LiveServer, start: int, group: list[Case]) -> None:
    for index, case in enumerate(group, start):
        here = namespace(live)
        base = f"/api/v1/namespaces/{here}"
        if case["kind"] == "object":
            answer = live.call("POST", f"{base}/limitranges", case["limitRange"])
        else:
            for limits in case["limitRanges"]:
                made = live.call("POST", f"{base}/limitranges", limits)
                assert made.code == 201, (index, made.body)
            resource = "pods" if case["kind"] == "pod" else "persistentvolumeclaims"
            answer = live.call("POST", f"{base}/{resource}?dryRun=All", case[case["kind"]])
        assert answer.code == case["code"], (index, answer.body, case.get("message"))
        if case["code"] != 201:
            check_refusal(answer, case)
        elif case["kind"] == "object":
            assert answer.body["spec"] == case["spec"], index
        elif case["kind"] == "pod":
            assert resources(answer.body) == case["resources"], index
            assert (answer.body["metadata"].get("annotations") or {}) == (case.get("annotations") or {}), index
            assert answer.body["status"]["qosClass"] == case["qosClass"], index


@pytest.mark.parametrize(("start", "group"), chunks(cases("quota"), 25))
def test_recorded_quotas(live: LiveServer, start: int, group: list[Case]) -> None:
    for index, case in enumerate(group, start):
        here = namespace(live)
        for priority in case["priorityClasses"]:
            body = {"metadata": {"name": priority["name"]}, "value": priority["value"]}
            live.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for number, step in enumerate(case["steps"]):
            operation, want = step["op"], step["answer"]
            if (reason := different_on_purpose("quota", operation)) is not None:
                print(f"scenario {index} ends at step {number}: {reason}")
                break
            headers = {"Content-Type": operation.get("contentType") or "application/json"}
            path = operation["path"].replace("{ns}", here)
            answer = live.call(operation["verb"], path, operation.get("body"), headers)
            where = (index, number, operation["verb"], operation["path"])
            assert answer.code == want["code"], (where, answer.body, want.get("message"))
            if want["code"] >= 400:
                check_refusal(answer, want)
            items = live.call("GET", f"/api/v1/namespaces/{here}/resourcequotas").body["items"]
            found = {q["metadata"]["name"]: {k: q["status"].get(k) for k in ("hard", "used")} for q in items}
            if found != want["quotas"] and ("quota", path.rpartition("/")[2]) in DIFFERENCES:
                break  # usage differs on purpose from here on
            assert found == want["quotas"], where
