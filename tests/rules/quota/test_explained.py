"""Which quotas count a pod, by which scope, and what is left after it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.objects import PodView
from kubeqos.rules.quota import Quota, QuotaLedger, charge_pod
from kubeqos.rules.quota.explained import charges, verdicts


def quota(name: str, **spec: Any) -> Quota:
    return Quota.of({"metadata": {"name": name}, "spec": spec})


def pod(cpu: str = "1", **spec: Any) -> PodView:
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu}, **spec.pop("resources", {})}}
    return PodView.of({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": [container], **spec}})


def test_left_is_what_is_left_after_the_charge() -> None:
    ledger = QuotaLedger()
    charge = charge_pod(pod())
    ledger.put("n", quota("q", hard={"pods": "2", "requests.cpu": "1500m"}), [charge])
    (found,) = charges(ledger.quotas("n"), charge)
    assert (found.charged, found.left) == ({"pods": "1", "requests.cpu": "1"}, {"pods": "1", "requests.cpu": "500m"})
    assert found.scopes == () and found.refuses == ""


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, ("NotBestEffort", "NotTerminating")),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high", "mid"]}]
                }
            },
            ("PriorityClass In (high, mid)",),
        ),
    ],
)
def test_scopes_are_told_as_they_are_written(spec: dict[str, Any], text: tuple[str, ...]) -> None:
    (found,) = charges([quota("q", hard={"pods": "2"}, **spec)], charge_pod(pod(priorityClassName="high")))
    assert found.scopes == text


def test_who_refuses_says_so_and_who_agrees_does_not() -> None:
    quotas = [quota("full", hard={"pods": "0"}), quota("roomy", hard={"pods": "5"})]
    full, roomy = verdicts(quotas, charge_pod(pod()))
    assert full.refuses == "exceeded quota: full, requested: pods=1, used: pods=0, limited: pods=0"
    assert (roomy.refuses, roomy.left) == ("", {"pods": "5"})


def test_classes_are_charged_beside_amounts() -> None:
    listed = {"container": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 2}, {"name": "free"}]}]}
    asks = {"qosResources": [{"name": "rdt", "class": "gold"}]}
    (found,) = verdicts([quota("q", hard={"pods": "1"}, qosResources=listed)], charge_pod(pod(resources=asks)))
    assert found.charged == {"pods": "1", "container.rdt/gold": "1"}
    assert found.left == {"pods": "1", "container.rdt/gold": "2"}
