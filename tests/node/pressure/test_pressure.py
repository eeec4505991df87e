"""A node under pressure: when it says so, what it frees first, and who has to go."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.model.objects import PodView
from kubeqos.node.pressure.samples import ContainerSample, NodeSample, PodSample, Supply
from kubeqos.node.pressure.thresholds import (
    ActivePod,
    Effect,
    EvictPod,
    Pressure,
    PressureSettings,
    Reclaim,
    SetConditions,
)
from kubeqos.rules.qos.eviction import Filesystems, Ranking, thresholds

MI = 1 << 20
CAPACITY = 1000 * MI


def pod(
    name: str, *, request: int = 0, limit: int = 0, priority: int = 0, static: bool = False, **spec: Any
) -> ActivePod:
    resources: dict[str, Any] = {}
    if request:
        resources["requests"] = {"memory": f"{request}Mi"}
    if limit:
        resources["limits"] = {"memory": f"{limit}Mi", "cpu": "1"}
        resources.setdefault("requests", {})["cpu"] = "1"
    raw = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}], **spec},
    }
    return ActivePod(PodView.of(raw), static)


def sample(at: float, available: int, **used: int) -> NodeSample:
    """Memory left, and memory per pod, in Mi."""
    pods = {
        name: PodSample(
            name, "default", name, [ContainerSample("c", memory_working_set=mi * MI)], memory_working_set=mi * MI
        )
        for name, mi in used.items()
    }
    return NodeSample(at, {"memory.available": Supply(available * MI, CAPACITY)}, pods)


def defence(hard: str = "100Mi", **more: Any) -> Pressure:
    kinds = ("soft", "soft_grace_seconds", "minimum_reclaim")
    limits = thresholds({"memory.available": hard} if hard else {}, *(more.pop(kind, None) for kind in kinds))
    return Pressure(PressureSettings(limits, enforce_allocatable=False, **more))


def victims(effects: list[Effect]) -> list[str]:
    return [effect.uid for effect in effects if isinstance(effect, EvictPod)]


def test_a_healthy_node_says_so_once_and_does_nothing() -> None:
    node = defence()
    (said,) = node.step(sample(0, 500, a=100), [pod("a")], 0)
    assert isinstance(said, SetConditions) and said.conditions["MemoryPressure"][0] == "False"
    assert node.step(sample(10, 500, a=100), [pod("a")], 10) == []


def test_what_a_container_used_is_known_after_its_end_and_forgotten_with_its_pod() -> None:
    node = defence()
    node.step(sample(0, 500, a=100), [pod("a")], 0)
    node.step(sample(10, 500), [pod("a")], 10)  # it was killed meanwhile, and nobody has asked yet
    assert node.memory == {"a": {"c": 100 * MI}}
    node.step(sample(20, 500), [], 20)
    assert node.memory == {}


@pytest.mark.proves("eviction")
def test_memory_pressure_evicts_best_effort_first_with_kubernetes_words() -> None:
    node = defence()
    pods = [pod("burst", request=50), pod("best"), pod("sure", request=300, limit=300)]
    said, event, gone = node.step(sample(0, 88, burst=200, best=100, sure=290), pods, 0)
    assert isinstance(said, SetConditions) and isinstance(gone, EvictPod)
    assert said.conditions["MemoryPressure"][:2] == ("True", "KubeletHasInsufficientMemory")
    assert event.reason == "EvictionThresholdMet"  # type: ignore[union-attr]
    assert gone.uid == "best" and gone.grace_seconds == 1
    assert gone.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 88Mi. "
        "Container c was using 100Mi, request is 0, has larger consumption of memory. "
    )
    assert gone.annotations == {
        "starved_resource": "memory",
        "offending_containers": "c",
        "offending_containers_usage": "100Mi",
    }
    assert gone.condition["reason"] == "TerminationByKubelet"


@pytest.mark.proves("eviction")
def test_upstream_ranking_looks_at_priority_before_class() -> None:
    pods = [pod("burst", request=50, priority=-1), pod("best", priority=10)]
    low = sample(0, 10, burst=200, best=100)
    assert victims(defence(ranking=Ranking.UPSTREAM).step(low, pods, 0)) == ["burst"]
    assert victims(defence(ranking=Ranking.QOS).step(low, pods, 0)) == ["best"]


@pytest.mark.proves("eviction")
def test_one_pod_at_a_time_until_it_is_gone() -> None:
    node = defence()
    a, b = pod("a"), pod("b")
    assert victims(node.step(sample(0, 10, a=200, b=100), [a, b], 0)) == ["a"]
    assert victims(node.step(sample(10, 10, a=200, b=100), [a, b], 10)) == []
    assert victims(node.step(sample(20, 50, b=100), [b], 20)) == ["b"]


def test_a_pod_that_does_not_go_holds_up_the_next_for_thirty_seconds_only() -> None:
    node = defence()
    a, b = pod("a"), pod("b", priority=1)
    assert victims(node.step(sample(0, 10, a=200, b=100), [a, b], 0)) == ["a"]
    assert victims(node.step(sample(29, 10, a=200, b=100), [a, b], 29)) == []
    assert victims(node.step(sample(31, 10, a=200, b=100), [a, b], 31)) == ["a"]


def test_an_old_sample_evicts_nobody_twice() -> None:
    node = defence()
    low = sample(0, 10, a=200, b=100)
    assert victims(node.step(low, [pod("a"), pod("b")], 0)) == ["a"]
    assert victims(node.step(low, [pod("b")], 5)) == []


def test_soft_thresholds_wait_for_their_grace_but_the_condition_does_not() -> None:
    node = defence(
        "", soft={"memory.available": "300Mi"}, soft_grace_seconds={"memory.available": 60.0}, max_pod_grace_seconds=20
    )
    a = pod("a", terminationGracePeriodSeconds=45)
    assert victims(node.step(sample(0, 200, a=300), [a], 0)) == [] and node.conditions == ("MemoryPressure",)
    assert victims(node.step(sample(59, 200, a=300), [a], 59)) == []
    (gone,) = [e for e in node.step(sample(60, 200, a=300), [a], 60) if isinstance(e, EvictPod)]
    assert gone.grace_seconds == 20


def test_relief_restarts_the_grace_of_a_soft_threshold() -> None:
    node = defence("", soft={"memory.available": "300Mi"}, soft_grace_seconds={"memory.available": 60.0})
    a = pod("a")
    node.step(sample(0, 200, a=300), [a], 0)
    node.step(sample(30, 400, a=300), [a], 30)
    assert victims(node.step(sample(70, 200, a=300), [a], 70)) == []


def test_minimum_reclaim_goes_on_beyond_the_threshold() -> None:
    node = defence(minimum_reclaim={"memory.available": "200Mi"})
    a, b = pod("a"), pod("b")
    assert victims(node.step(sample(0, 90, a=60, b=50), [a, b], 0)) == ["a"]
    assert victims(node.step(sample(10, 150, b=50), [b], 10)) == ["b"]  # above 100Mi, below 300Mi
    node = defence(minimum_reclaim={"memory.available": "200Mi"})
    assert victims(node.step(sample(0, 150, a=60), [a], 0)) == []  # never crossed: nothing to reclaim


def test_the_condition_outlives_its_cause_by_the_transition_period() -> None:
    node = defence(transition_seconds=300.0)
    node.step(sample(0, 10), [], 0)
    node.step(sample(10, 900), [], 10)
    assert node.conditions == ("MemoryPressure",)
    node.step(sample(299, 900), [], 299)
    assert node.conditions == ("MemoryPressure",)
    (said,) = node.step(sample(301, 900), [], 301)
    assert isinstance(said, SetConditions) and node.conditions == ()


@pytest.mark.proves("eviction")
def test_pods_within_their_requests_stay_under_the_qos_ranking() -> None:
    node = defence()
    assert victims(node.step(sample(0, 10, a=90), [pod("a", request=100)], 0)) == []
    assert "no pod may be evicted" in node.story[-1]


DISK = {"nodefs.available": Supply(1, 100), "imagefs.available": Supply(1, 100)}


@pytest.mark.parametrize(
    ("signal", "filesystems", "steps"),
    [
        ("nodefs.available", Filesystems(), ("containers", "images")),
        ("imagefs.available", Filesystems(image=True), ("containers", "images")),
        ("imagefs.available", Filesystems(image=True, split=True), ("images",)),
        ("nodefs.available", Filesystems(image=True, split=True), ("containers",)),
    ],
)
def test_unused_things_go_before_pods(signal: str, filesystems: Filesystems, steps: tuple[str, ...]) -> None:
    node = Pressure(PressureSettings(thresholds({signal: "10%"})))
    a = PodSample("a", "default", "a", [ContainerSample("c", rootfs=(50, 1))])
    short = NodeSample(0, {signal: Supply(1, 100)}, {"a": a}, filesystems=filesystems)
    *_, reclaim = node.step(short, [pod("a")], 0)
    assert reclaim == Reclaim(signal, steps)
    enough = NodeSample(1, {signal: Supply(50, 100)}, {"a": a}, filesystems=filesystems)
    assert node.reclaimed(reclaim, enough, [pod("a")], 1) == []


def test_a_pod_goes_when_unused_things_were_not_enough() -> None:
    node = Pressure(PressureSettings(thresholds({"nodefs.available": "10%"})))
    a = PodSample("a", "default", "a", [ContainerSample("c", rootfs=(50, 1))])
    *_, reclaim = node.step(NodeSample(0, {"nodefs.available": Supply(1, 100)}, {"a": a}), [pod("a")], 0)
    assert isinstance(reclaim, Reclaim)
    after = NodeSample(1, {"nodefs.available": Supply(5, 100)}, {"a": a})
    assert victims(node.reclaimed(reclaim, after, [pod("a")], 1)) == ["a"]
    assert node.conditions == ("DiskPressure",)


def test_memory_is_dealt_with_before_disk() -> None:
    node = Pressure(PressureSettings(thresholds({"nodefs.available": "10%", "memory.available": "100Mi"})))
    low = sample(0, 10, a=500)
    low = NodeSample(0, {**low.levels, "nodefs.available": Supply(1, 100)}, low.pods)
    assert victims(node.step(low, [pod("a")], 0)) == ["a"]
    assert node.conditions == ("MemoryPressure", "DiskPressure")


def test_what_pods_together_may_use_is_watched_too() -> None:
    node = Pressure(PressureSettings(thresholds({"memory.available": "100Mi"})))
    levels = {"memory.available": Supply(500 * MI, CAPACITY), "allocatableMemory.available": Supply(50 * MI, 800 * MI)}
    short = NodeSample(0, levels, sample(0, 0, a=500).pods)
    assert victims(node.step(short, [pod("a")], 0)) == ["a"]


@pytest.mark.parametrize(
    ("volumes", "limits", "used", "message"),
    [
        (
            [{"name": "v", "emptyDir": {"sizeLimit": "10Mi"}}],
            {},
            PodSample("a", "d", "a", volumes=[("v", 11 * MI, 1)]),
            'Usage of EmptyDir volume "v" exceeds the limit "10Mi". ',
        ),
        (
            [],
            {"ephemeral-storage": "10Mi"},
            PodSample("a", "d", "a", [ContainerSample("c", rootfs=(6 * MI, 1), logs=(5 * MI, 1))]),
            "Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. ",
        ),
        (
            [],
            {"ephemeral-storage": "10Mi"},
            PodSample("a", "d", "a", [ContainerSample("c", rootfs=(5 * MI, 1), logs=(5 * MI, 1))]),
            "",
        ),
    ],
)
def test_pods_over_their_own_disk_limits_go_without_any_pressure(
    volumes: list[Any], limits: dict[str, str], used: PodSample, message: str
) -> None:
    raw = {
        "metadata": {"name": "a", "namespace": "d", "uid": "a"},
        "spec": {"volumes": volumes, "containers": [{"name": "c", "resources": {"limits": limits}}]},
    }
    node = defence()
    found = node.step(NodeSample(0, {}, {"a": used}), [ActivePod(PodView.of(raw))], 0)
    assert [e.message for e in found if isinstance(e, EvictPod)] == ([message] if message else [])


@pytest.mark.parametrize(
    ("conditions", "candidate", "admitted"),
    [
        ((), pod("a"), True),
        (("MemoryPressure",), pod("a"), False),
        (("MemoryPressure",), pod("a", request=10), True),
        (
            ("MemoryPressure",),
            pod("a", tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}]),
            True,
        ),
        (("MemoryPressure",), pod("a", static=True), True),
        (("MemoryPressure",), pod("a", priority=2_000_000_000), True),
        (("DiskPressure",), pod("a", request=10), False),
        (("MemoryPressure", "DiskPressure"), pod("a", request=10), False),
    ],
)
def test_whom_a_short_node_still_takes(conditions: tuple[str, ...], candidate: ActivePod, admitted: bool) -> None:
    node = defence()
    node.conditions = conditions
    answer = node.admit(candidate)
    assert (answer is None) is admitted
    if answer is not None:
        assert answer.reason == "Evicted"
        assert answer.message == f"The node had condition: [{' '.join(conditions)}]. "


# ---- Laws

_pods = st.lists(
    st.tuples(
        st.integers(0, 300),  # memory in use
        st.sampled_from([0, 50, 200]),  # request
        st.sampled_from([0, 5, 2_000_000_000]),  # priority
        st.booleans(),  # static
    ),
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(_pods, st.sampled_from(list(Ranking)), st.integers(0, 300), st.sampled_from([None, "150Mi"]))
@pytest.mark.proves("eviction")
def test_laws_of_eviction(drawn: list[Any], ranking: Ranking, kernel: int, reclaim: str | None) -> None:
    """Never a critical or static pod, never two at once, and not one more than needed."""
    minimum = {"memory.available": reclaim} if reclaim else None
    node = defence(ranking=ranking, minimum_reclaim=minimum)
    living = {f"p{i}": (pod(f"p{i}", request=r, priority=p, static=s), u) for i, (u, r, p, s) in enumerate(drawn)}
    wanted = 100 + (150 if reclaim else 0)
    started = False
    for turn in range(len(drawn) + 3):
        used = {name: mi for name, (_, mi) in living.items()}
        left = max(0, 1000 - kernel - sum(used.values()) - 200)
        effects = node.step(sample(turn * 10.0, left, **used), [one for one, _ in living.values()], turn * 10.0)
        assert node.validate() == []
        gone = victims(effects)
        assert len(gone) <= 1
        if gone:
            assert left < (wanted if started else 100)
            victim, _ = living.pop(gone[0])
            assert not victim.static and (victim.view.spec.priority or 0) < 2_000_000_000
            started = True
        elif left < 100:
            movable = [one for one, mi in living.values() if not one.static and (one.view.spec.priority or 0) < 10]
            assert ranking is Ranking.QOS or not movable
