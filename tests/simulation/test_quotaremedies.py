"""What would let a refused pod in: every remedy holds on the engine that refused it."""

from __future__ import annotations

from typing import Any

from kubeqos.simulation.quotaremedies import quota_remedies


def quota(name: str = "q", hard: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"hard": hard or {}, **spec}}


def pod(name: str, cpu: str = "1", classes: tuple[tuple[str, str], ...] = (), limit: str = "") -> dict[str, Any]:
    resources: dict[str, Any] = {"requests": {"cpu": cpu}}
    if limit:
        resources["limits"] = {"cpu": limit}
    if classes:
        resources["qosResources"] = [{"name": resource, "class": cls} for resource, cls in classes]
    container = {"name": "c", "image": "app", "resources": resources}
    return {"metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": {"containers": [container]}}


def changes(asked: dict[str, Any], quotas: list[dict[str, Any]], *lives: dict[str, Any]) -> list[str] | None:
    found = quota_remedies(asked, quotas, lives)
    return None if found is None else [change for change, _ in found]


def test_one_more_pod_needs_one_more_in_the_quota_or_one_less_beside_it() -> None:
    assert changes(pod("b"), [quota(hard={"pods": "1"})], pod("a")) == [
        "raise pods of quota q by 1 to 2",
        "delete one of a",
    ]


def test_what_is_left_may_be_enough_for_a_smaller_one() -> None:
    found = quota_remedies(pod("b", "3", limit="3"), [quota(hard={"requests.cpu": "4"})], [pod("a", "2")])
    assert found is not None
    assert [change for change, _ in found] == [
        "raise requests.cpu of quota q by 1 to 5",
        "lower cpu requests from 3 to 2",
        "delete one of a",
    ]
    assert found[1][1]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}


def test_every_quota_that_refuses_is_raised_in_one_change() -> None:
    quotas = [quota("one", {"pods": "0"}), quota("two", {"requests.cpu": "500m"})]
    assert changes(pod("b"), quotas) == ["raise pods of quota one by 1 to 1, requests.cpu of quota two by 500m to 1"]


def test_another_class_may_be_allowed() -> None:
    allowed = [{"name": "rdt", "classes": [{"name": "gold", "capacity": 0}, {"name": "silver", "capacity": 1}]}]
    quotas = [quota(qosResources={"container": allowed})]
    asked = pod("b", classes=(("rdt", "gold"),))
    assert changes(asked, quotas) == [
        "raise container.rdt/gold of quota q by 1 to 1",
        "ask for rdt=silver instead of rdt=gold",
    ]
    assert changes(pod("b", classes=(("rdt", "bronze"),)), quotas) == ["ask for rdt=silver instead of rdt=bronze"]


def test_a_quota_of_another_scope_has_nothing_to_say() -> None:
    assert changes(pod("b"), [quota(hard={"pods": "0"}, scopes=["BestEffort"])]) is None
