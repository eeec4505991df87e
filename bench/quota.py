"""Quota and admission: one pod against 20 scoped quotas, and the whole admission pipeline under one quota."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from bench.machine import describe
from kubeqos.model.objects import PodView
from kubeqos.rules.admission import admit
from kubeqos.rules.quota import Quota, QuotaLedger, charge_pod, decide
from kubeqos.rules.requests import AdmissionRequest, Admitted, ClusterFacts, Operation

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web-1", "namespace": "team", "labels": {"app": "web"}},
    "spec": {
        "containers": [
            {
                "name": "web",
                "image": "registry.example/web:1",
                "resources": {
                    "requests": {"cpu": "250m", "memory": "128Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi"},
                },
            }
        ]
    },
}
SCOPES = (["NotTerminating"], ["NotBestEffort"], ["Terminating"], ["NotTerminating", "NotBestEffort"], ["BestEffort"])


def scoped_quotas(count: int) -> list[Quota]:
    """Quotas over pods, requests and limits; every third selects a priority class besides."""
    quotas = []
    for number in range(count):
        scopes = SCOPES[number % len(SCOPES)]
        hard = {"pods": "100000"}
        if scopes != ["BestEffort"]:
            hard |= {"requests.cpu": "100k", "limits.cpu": "200k", "requests.memory": "100Ti", "limits.memory": "200Ti"}
        spec: dict[str, Any] = {"hard": hard, "scopes": scopes}
        if number % 3 == 0:
            expression = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}
            spec["scopeSelector"] = {"matchExpressions": [expression]}
        quotas.append(Quota.of({"metadata": {"name": f"q{number:02}"}, "spec": spec}))
    return quotas


def best_us(work: Callable[[], object], number: int = 2000) -> float:
    """Microseconds of the fastest of several runs."""
    return min(timeit.repeat(work, number=number, repeat=7)) / number * 1e6


def admit_copy(around: ClusterFacts) -> Admitted:
    outcome = admit(AdmissionRequest(Operation.CREATE, "pods", "Pod", "", "team", new=deepcopy(POD)), around)
    assert isinstance(outcome, Admitted), outcome
    return outcome


def main() -> None:
    pod = PodView.of(POD)
    quotas = scoped_quotas(20)
    ledger = QuotaLedger()
    ledger.put("team", scoped_quotas(1)[0], ())
    around = ClusterFacts(quotas=ledger.quotas("team"))
    copying = best_us(lambda: deepcopy(POD))
    decision = best_us(lambda: decide(quotas, None, charge_pod(pod)))
    print(f"quota decision, 20 scoped quotas: {decision:6.1f} µs  (target ≤ 150 µs)")
    pipeline = best_us(lambda: admit_copy(around)) - copying
    print(f"admission of a pod, one quota:    {pipeline:6.1f} µs  (target ≤ 120 µs)")


if __name__ == "__main__":
    print(describe())
    main()
