"""pod-qos: the class of a pod and what it needs in all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.model.objects import PodSpec, PodView, convert
from kubeqos.rules.qos.podqos import QosClass, effective_limits, effective_requests, qos_class

AMOUNTS = st.sampled_from(["0", "100m", "1", "1Gi", "500Mi"])
LISTS = st.dictionaries(st.sampled_from(["cpu", "memory", "ephemeral-storage"]), AMOUNTS)
CONTAINERS = st.builds(lambda requests, limits: {"resources": {"requests": requests, "limits": limits}}, LISTS, LISTS)


def pod(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **more: Any) -> PodView:
    def named(prefix: str, each: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
        return [{"name": f"{prefix}{index}", **container} for index, container in enumerate(each)]

    spec = {"containers": named("c", containers), "initContainers": named("i", init), **more}
    return PodView.of({"metadata": {"name": "p"}, "spec": spec})


def asks(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": requests or {}, "limits": limits or {}}, **more}


FULL = {"cpu": "1", "memory": "1Gi"}


class TestClass:
    @pytest.mark.parametrize(
        ("containers", "expected"),
        [
            ([asks(FULL, FULL)], QosClass.GUARANTEED),
            ([asks({"cpu": "1000m", "memory": "1024Mi"}, FULL)], QosClass.GUARANTEED),
            ([asks(FULL, FULL), asks()], QosClass.BURSTABLE),
            ([asks({"cpu": "500m"}, {"cpu": "1"})], QosClass.BURSTABLE),
            ([asks({"cpu": "1"}, {"cpu": "1"})], QosClass.BURSTABLE),
            ([asks({"ephemeral-storage": "1Gi"})], QosClass.BEST_EFFORT),
            ([asks({"cpu": "0"}, {"memory": "0"})], QosClass.BEST_EFFORT),
            ([], QosClass.BEST_EFFORT),
        ],
    )
    def test_by_requests_and_limits(self, containers: list[dict[str, Any]], expected: QosClass) -> None:
        assert qos_class(pod(*containers)).qos_class is expected

    def test_init_containers_and_sidecars_count(self) -> None:
        assert qos_class(pod(asks(FULL, FULL), init=(asks(),))).qos_class is QosClass.BURSTABLE

    def test_pod_level_resources_speak_for_the_pod(self) -> None:
        decided = qos_class(pod(asks(), resources={"requests": FULL, "limits": FULL}))
        assert decided.qos_class is QosClass.GUARANTEED
        assert decided.because.startswith("spec.resources")

    def test_the_reason_names_the_container_and_the_numbers(self) -> None:
        decided = qos_class(pod(asks(FULL, FULL), asks({"cpu": "500m"}, {"cpu": "1"})))
        assert decided.because == "container 'c1': cpu request 500m ≠ limit 1"

    @given(st.lists(CONTAINERS, max_size=4), st.randoms())
    def test_never_depends_on_the_order_of_containers(self, containers: list[dict[str, Any]], random: Any) -> None:
        shuffled = list(containers)
        random.shuffle(shuffled)
        assert qos_class(pod(*containers)).qos_class is qos_class(pod(*shuffled)).qos_class


class TestEffective:
    def amounts(self, **fields: Any) -> dict[str, str]:
        return {name: str(amount) for name, amount in effective_requests(convert(fields, PodSpec)).items()}

    def test_app_containers_add_up_and_init_containers_peak(self) -> None:
        found = pod(asks({"cpu": "1"}), asks({"cpu": "500m"}), init=(asks({"cpu": "2", "memory": "1Gi"}),))
        assert {n: str(a) for n, a in effective_requests(found.spec).items()} == {"cpu": "2", "memory": "1Gi"}

    def test_a_sidecar_stays_and_loads_what_comes_after_it(self) -> None:
        sidecar = asks({"cpu": "300m"}, restartPolicy="Always")
        found = pod(asks({"cpu": "1"}), init=(sidecar, asks({"cpu": "1"})))
        assert str(effective_requests(found.spec)["cpu"]) == "1300m"

    def test_overhead_is_added_to_requests_and_to_limits_that_exist(self) -> None:
        found = pod(asks({"cpu": "1"}, {"memory": "1Gi"}), overhead={"cpu": "100m", "memory": "10Mi"})
        assert str(effective_requests(found.spec)["cpu"]) == "1100m"
        limits = effective_limits(found.spec)
        assert str(limits["memory"]) == "1034Mi"
        assert "cpu" not in limits
