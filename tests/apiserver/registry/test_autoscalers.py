"""Autoscalers in both forms: nothing is lost on the way through the older one (tests/stock asks a real server)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeqos.apiserver.registry.views import AUTOSCALER_VIEW
from kubeqos.codec import decode_json
from tests.apiserver.live import LiveServer
from tests.stock.autoscalers import CONDITION, METRICS, RULES, SEEN, STATUS, newer, older

PATH = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
ALPHA = "autoscaling.alpha.kubernetes.io/"


@pytest.mark.parametrize("metric", METRICS, ids=lambda one: str(one["type"]))
def test_every_metric_survives_the_older_form(metric: dict[str, Any]) -> None:
    first = AUTOSCALER_VIEW.stored(older("x") | {"spec": {"maxReplicas": 1, "scaleTargetRef": {"name": "d"}}})
    first["spec"]["metrics"] = [copy.deepcopy(metric)]
    first["status"] = {**STATUS, "currentMetrics": SEEN[:2], "conditions": [CONDITION]}
    shown = AUTOSCALER_VIEW.shown(AUTOSCALER_VIEW.stored(AUTOSCALER_VIEW.shown(first)))  # amounts in canonical form
    assert "metrics" not in shown["spec"]
    again = AUTOSCALER_VIEW.stored(shown)
    assert AUTOSCALER_VIEW.shown(again) == shown
    assert again["status"]["conditions"] == [CONDITION]
    [kept] = again["spec"]["metrics"]
    assert kept["type"] == metric["type"]


def test_what_is_written_in_one_form_is_read_in_the_other(live: LiveServer) -> None:
    rest = {f"{ALPHA}behavior": RULES, "mine": "stays"}
    made = live.call("POST", PATH.format("v1"), older("a", rest, targetCPUUtilizationPercentage=33))
    assert (made.code, made.body["apiVersion"]) == (201, "autoscaling/v1")
    found = live.call("GET", PATH.format("v2") + "/a").body
    assert found["spec"]["metrics"][0]["resource"]["target"] == {"type": "Utilization", "averageUtilization": 33}
    assert found["spec"]["behavior"]["scaleDown"]["selectPolicy"] == "Min"
    assert found["metadata"]["annotations"] == {"mine": "stays"}
    live.call("POST", PATH.format("v2"), newer("b", metrics=METRICS))
    [one] = [each for each in live.call("GET", PATH.format("v1")).body["items"] if each["metadata"]["name"] == "b"]
    assert one["spec"]["targetCPUUtilizationPercentage"] == 50
    assert len(decode_json(one["metadata"]["annotations"][f"{ALPHA}metrics"].encode())) == len(METRICS) - 1
    assert live.call("DELETE", PATH.format("v1") + "/b").code == 200
    assert live.call("GET", PATH.format("v2") + "/b").code == 404


def test_an_applier_of_one_form_is_in_the_way_of_one_of_the_other(live: LiveServer) -> None:
    def applied(version: str, manager: str, **spec: Any) -> Any:
        body = (newer if version == "v2" else older)("c", **spec)
        where = f"{PATH.format(version)}/c?fieldManager={manager}"
        return live.call("PATCH", where, body, {"Content-Type": "application/apply-patch+yaml"})

    assert applied("v2", "first").code == 201
    refused = applied("v1", "second", maxReplicas=6)
    assert (refused.code, refused.body["details"]["causes"][0]["field"]) == (409, ".spec.maxReplicas")
    assert applied("v1", "second").code == 200
