"""Laws of replicas and rollouts: they hold whatever fails, and in whatever order controllers come to look."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.controllers.podstate import is_going
from kubeqos.controllers.workloads.deployments import complete
from kubeqos.controllers.workloads.replicas import wanted
from kubeqos.controllers.workloads.rollout import Bounds
from tests.controllers.world import World

AMOUNT = st.one_of(st.integers(0, 4), st.sampled_from(["0%", "25%", "50%", "100%"]))
WHICH = st.integers(0, 60)
LOOKS = ["deployment", "deployment", "set", "set", "set", "ready", "ready", "ready", "end", "end"]
CALM = st.lists(st.tuples(st.sampled_from(LOOKS), WHICH), min_size=40, max_size=80)
WILD = st.lists(st.tuples(st.sampled_from([*LOOKS, "fail", "delete", "image"]), WHICH), min_size=30, max_size=80)
SCALED = st.lists(st.tuples(st.sampled_from([*LOOKS, "fail", "delete", "image", "scale"]), WHICH), max_size=60)


def world(size: int, surge: Any, unavailable: Any) -> World:
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    return World(size, strategy={"type": "RollingUpdate", "rollingUpdate": rolling}, revisionHistoryLimit=3)


def rolling(size: int, surge: Any, unavailable: Any) -> World:
    """In the middle of a rollout: the old template runs, the new one was just written."""
    made = world(size, surge, unavailable)
    made.settle()
    made.set_image("v9")
    return made


def take(made: World, what: str, which: int) -> None:
    """One thing happens; pods and sets are chosen by number."""
    going = [name for name, pod in made.pods.items() if is_going(pod)]
    match what:
        case "deployment":
            made.look_at_deployment()
        case "set" if made.sets:
            made.look_at_set(sorted(made.sets)[which % len(made.sets)])
        case "ready" if made.active:
            made.becomes_ready(made.active[which % len(made.active)])
        case "fail" if made.active:
            made.fails(made.active[which % len(made.active)])
        case "delete" if made.active:
            made.ends(made.active[which % len(made.active)])
        case "end" if going:
            made.ends(going[which % len(going)])
        case "image":
            made.set_image(f"v{which % 3}")
        case "scale":
            made.scale(which % 12)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10), AMOUNT, AMOUNT, SCALED)
def test_it_converges_whatever_happened(size: int, surge: Any, unavailable: Any, steps: list[tuple[str, int]]) -> None:
    made = world(size, surge, unavailable)
    for what, which in steps:
        take(made, what, which)
        if what == "deployment":
            assert made.asked <= Bounds.of(made.deployment).maximum
    made.settle()
    replicas = wanted(made.deployment)
    assert len(made.active) == made.available == replicas
    image = made.deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert {made.pods[name]["spec"]["containers"][0]["image"] for name in made.active} <= {image}
    assert complete(made.deployment, made.deployment["status"])
    assert len(made.sets) <= 4, "the new one and three of its history"


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 10), AMOUNT, AMOUNT, WILD)
def test_there_are_never_more_pods_than_replicas_and_surge(
    size: int, surge: Any, unavailable: Any, steps: list[tuple[str, int]]
) -> None:
    made = rolling(size, surge, unavailable)
    most = Bounds.of(made.deployment).maximum
    for what, which in steps:
        take(made, what, which)
        assert len(made.active) <= most


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 10), AMOUNT, AMOUNT, CALM)
def test_a_rollout_without_failures_keeps_the_minimum_available(
    size: int, surge: Any, unavailable: Any, steps: list[tuple[str, int]]
) -> None:
    made = rolling(size, surge, unavailable)
    least = Bounds.of(made.deployment).minimum_available
    for what, which in steps:
        take(made, what, which)
        assert made.available >= least
    made.settle()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10), SCALED)
def test_looking_again_changes_nothing(size: int, steps: list[tuple[str, int]]) -> None:
    made = world(size, "25%", "25%")
    for what, which in steps:
        take(made, what, which)
    made.settle()
    made_before = made._made
    assert not made.look_at_deployment()
    for name in made.sets:
        assert not made.look_at_set(name)
    assert made._made == made_before


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), WILD)
def test_recreate_never_runs_two_templates_at_once(size: int, steps: list[tuple[str, int]]) -> None:
    made = World(size, strategy={"type": "Recreate"})
    made.settle()
    made.set_image("v9")
    for what, which in steps:
        take(made, what, which)
        images = {
            pod["spec"]["containers"][0]["image"]
            for pod in made.pods.values()
            if (pod.get("status") or {}).get("phase") != "Failed"
        }
        assert len(images) <= 1
    made.settle()
    assert made.available == size
