"""`kubeqos classes drain`: only retired classes, lowest priority first, and never against a budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cli.change.drain import NotDrained, drain
from kubeqos.client.light import LightApi
from kubeqos.errors import InputError
from kubeqos.gates import FeatureGates
from tests.apiserver.live import LiveServer, live_server

PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "data", FeatureGates.parse("QOSResources=true")) as server:
        assert server.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}}).code == 201
        offers(server, "gold", "silver")
        yield server


def offers(live: LiveServer, *classes: str) -> None:
    told = [{"name": "rdt", "mutable": True, "classes": [{"name": name} for name in classes]}]
    status = {"status": {"qosResources": {"containerQoSResources": told}}}
    assert live.call("PATCH", "/api/v1/nodes/n1/status", status, MERGE).code == 200


def holds(live: LiveServer, name: str, priority: int) -> None:
    cls = {"metadata": {"name": f"p{priority}"}, "value": priority}
    live.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", cls)
    container = {"name": "c", "image": "x", "resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}
    spec = {"nodeName": "n1", "priorityClassName": f"p{priority}", "containers": [container]}
    body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": {**spec, "terminationGracePeriodSeconds": 0}}
    assert live.call("POST", PODS, body).code == 201
    runs = {
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    }  # else no budget counts
    assert live.call("PATCH", f"{PODS}/{name}/status", runs, MERGE).code == 200


def budget(live: LiveServer, name: str, allowed: int) -> None:
    home = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    body: dict[str, Any] = {"metadata": {"name": name}, "spec": {"minAvailable": 1}}
    body["spec"]["selector"] = {"matchLabels": {"app": name}}
    assert live.call("POST", home, body).code == 201
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    answer = live.call("PATCH", f"{home}/{name}/status", {"status": {**status, "observedGeneration": 1}}, MERGE)
    assert answer.code == 200, answer.body


def left(live: LiveServer) -> list[str]:
    return [
        one["metadata"]["name"]
        for one in live.call("GET", PODS).body["items"]
        if "deletionTimestamp" not in one["metadata"]
    ]


def test_a_retired_class_is_drained_by_priority_as_budgets_allow(
    live: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    api = LightApi.from_kubeconfig(live.kubeconfig)
    for name, priority in (("high", 100), ("low", 1), ("kept", 50)):
        holds(live, name, priority)
    budget(live, "kept", 0)
    with pytest.raises(InputError, match="rdt=gold is still on offer on n1"):
        drain(api, "rdt=gold", 0)
    offers(live, "silver")
    with pytest.raises(NotDrained, match="budgets keep default/kept in rdt=gold"):
        drain(api, "rdt=gold", 0, dry_run=True)
    assert sorted(left(live)) == ["high", "kept", "low"]
    capsys.readouterr()
    with pytest.raises(NotDrained, match="budgets keep default/kept in rdt=gold"):
        drain(api, "rdt=gold", 0)
    assert capsys.readouterr().out.splitlines() == [
        "pod/low evicted from default, priority 1",
        "pod/high evicted from default, priority 100",
    ]
    assert left(live) == ["kept"]
    with pytest.raises(InputError, match="is not a class"):
        drain(api, "rdt", 0)
