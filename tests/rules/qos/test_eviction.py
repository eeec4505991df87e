"""pod-qos: who is evicted first, and what counts as running short."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.errors import ConfigurationError
from kubeqos.model.objects import PodSpec, convert
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.eviction import Candidate, PodUsage, Ranking, eviction_message, rank, thresholds

MI = 1 << 20


def candidate(
    name: str, used: int | None, request: str = "0", limit: str | None = None, *, static: bool = False, **more: Any
) -> Candidate:
    requests = {} if request == "0" else {"memory": request, "cpu": "1"}
    limits = {} if limit is None else {"memory": limit, "cpu": "1"}
    fields = {"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}], **more}
    usage = None if used is None else PodUsage(memory_working_set=used * MI)
    return Candidate.of(name, convert(fields, PodSpec), usage, static=static)


def order(ranking: Ranking, *candidates: Candidate) -> list[str]:
    return [place.candidate.name for place in rank("memory.available", candidates, ranking)]


def test_best_effort_goes_before_burstable_and_guaranteed_last() -> None:
    pods = (
        candidate("guaranteed", 200, "100Mi", "100Mi"),
        candidate("burstable", 500, "100Mi"),
        candidate("best-effort", 1),
    )
    assert order(Ranking.QOS, *pods) == ["best-effort", "burstable", "guaranteed"]


def test_a_pod_within_its_request_is_no_candidate() -> None:
    assert order(Ranking.QOS, candidate("modest", 90, "100Mi"), candidate("greedy", 110, "100Mi")) == ["greedy"]


def test_inside_a_class_lower_priority_goes_first_then_the_larger_excess() -> None:
    pods = (
        candidate("important", 900, "100Mi", priority=10),
        candidate("small", 150, "100Mi"),
        candidate("large", 300, "100Mi"),
    )
    assert order(Ranking.QOS, *pods) == ["large", "small", "important"]


def test_critical_and_static_pods_are_never_evicted() -> None:
    pods = (candidate("critical", 900, priority=2_000_000_000), candidate("static", 900, static=True))
    assert order(Ranking.QOS, *pods) == []


def test_upstream_ignores_the_class_itself() -> None:
    pods = (candidate("best-effort", 1, priority=5), candidate("burstable", 500, "100Mi"))
    assert order(Ranking.UPSTREAM, *pods) == ["burstable", "best-effort"]


def test_every_place_says_why() -> None:
    (place,) = rank("memory.available", [candidate("p", 300, "100Mi")])
    assert place.because == f"Burstable, priority 0, uses {200 * MI} more memory than requested"


class TestThresholds:
    def test_a_threshold_is_met_strictly_below_it(self) -> None:
        (threshold,) = thresholds({"memory.available": "100Mi"})
        assert threshold.met(100 * MI - 1, 0)
        assert not threshold.met(100 * MI, 0)

    def test_percentages_are_of_the_capacity_and_the_extremes_switch_off(self) -> None:
        (threshold,) = thresholds({"nodefs.available": "10%", "imagefs.available": "0%"})
        assert threshold.met(99, 1000)
        assert not threshold.met(100, 1000)

    def test_minimum_reclaim_is_asked_on_top_once_evicting(self) -> None:
        (threshold,) = thresholds({"memory.available": "100Mi"}, minimum_reclaim={"memory.available": "50Mi"})
        assert not threshold.met(120 * MI, 0)
        assert threshold.met(120 * MI, 0, until_reclaimed=True)

    @pytest.mark.parametrize(
        "settings",
        [
            {"hard": {"disk.available": "1Gi"}},
            {"hard": {"memory.available": "120%"}},
            {"hard": {"memory.available": "lots"}},
            {"hard": {"memory.available": "-1"}},
            {"hard": {}, "soft": {"memory.available": "1Gi"}},
        ],
    )
    def test_wrong_settings_are_refused_with_a_reason(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r"available"):
            thresholds(**settings)


def test_the_message_is_kubernetes() -> None:
    text = eviction_message(
        "memory.available",
        Quantity.parse("100Mi"),
        Quantity.parse("88Mi"),
        [("c", Quantity.parse("200Mi"), Quantity.parse("100Mi"))],
    )
    assert text == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 88Mi. "
        "Container c was using 200Mi, request is 100Mi, has larger consumption of memory. "
    )
