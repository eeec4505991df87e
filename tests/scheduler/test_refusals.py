"""Nodes that refuse what they are sent: equal pods are kept off for a while, then one is sent to see."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from kubeqos.codec import encode_json
from kubeqos.model.annotations.topologysummary import Division, Rules, TopologySummary, encode_topology
from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.scheduler.effects import Bind, Report
from kubeqos.scheduler.metrics import Metrics
from kubeqos.scheduler.refusals import FIRST_PAUSE, LONGEST_PAUSE, NodeBackoffs
from tests.scheduler.test_core import Story, bound, brief, node, pod

LATELY = "1 node(s) refused equal pods lately (UnexpectedAdmissionError)"


def refused(raw: dict[str, Any], by: str) -> dict[str, Any]:
    reason = {"reason": "UnexpectedAdmissionError", "message": "Pod was rejected: plugin x: no"}
    return {**bound(raw, by), "status": {"phase": "Failed", **reason}}


def running(raw: dict[str, Any], on: str) -> dict[str, Any]:
    return {**bound(raw, on), "status": {"phase": "Running"}}


def one_node() -> Story:
    story = Story()
    story.core.node_changed(node("n", cpu="100"), "n", 0.0)
    return story


def send(story: Story, *names: str) -> list[str]:
    """Pods that come, and those of all that wait that are given a node."""
    story.see(*(pod(name) for name in names))
    return [effect.pod.name for effect in story.decide() if isinstance(effect, Bind)]


def test_after_a_refusal_equal_pods_wait_and_others_do_not() -> None:
    story = one_node()
    assert send(story, "a") == ["a"]
    story.see(refused(pod("a"), "n"))
    story.see(pod("b"))
    (told,) = story.decide()
    assert isinstance(told, Report) and told.message.startswith(f"0/1 nodes are available: {LATELY}.")
    assert "refused by n (UnexpectedAdmissionError): equal pods are kept off it for 5 s" in story.core.story("a")[-1]
    story.see(pod("other", cpu="200m"))
    assert brief(story.decide()) == [("bind", "other", "n")]


def noted(name: str, **annotations: str) -> dict[str, Any]:
    raw = pod(name)
    raw["metadata"]["annotations"] = {f"vendor.example.com/{key}": value for key, value in annotations.items()}
    return raw


def test_one_bad_annotation_keeps_no_good_pods_away() -> None:
    """A plugin sees all annotations, whether placement knows them or not: only equal ones are one question."""
    story = one_node()
    bad = noted("bad", device="no-such")
    story.see(bad)
    assert brief(story.decide()) == [("bind", "bad", "n")]
    placed = {"kubeqos.io/placement": "best of all", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    failed = refused(bad, "n")
    failed["metadata"] = {**failed["metadata"], "annotations": {**bad["metadata"]["annotations"], **placed}}
    story.see(failed)
    story.see(noted("again", device="no-such"), noted("good", device="eth0"), pod("plain"))
    effects = story.decide()
    assert sorted(one.pod.name for one in effects if isinstance(one, Bind)) == ["good", "plain"]
    (told,) = [one for one in effects if isinstance(one, Report)]
    assert told.pod.name == "again" and LATELY in told.message


def test_a_trial_with_annotations_that_runs_ends_the_matter() -> None:
    story = one_node()
    story.see(noted("a", device="x"))
    story.decide()
    story.see(refused(noted("a", device="x"), "n"))
    story.see(noted("b", device="x"), noted("c", device="x"))
    assert [one for one in story.decide() if isinstance(one, Bind)] == []
    story.now = 5.0
    ((_, tried, _),) = [one for one in brief(story.decide()) if one[0] == "bind"]
    story.see(running(noted(tried, device="x"), "n"))
    assert len([one for one in story.decide() if isinstance(one, Bind)]) == 1
    assert len(story.core.refusals) == 0 and not story.core.cluster.kept_off


def test_one_is_sent_to_see_and_the_pause_doubles() -> None:
    story = one_node()
    send(story, "a")
    story.see(refused(pod("a"), "n"))
    assert send(story, "b", "c") == []
    sent_at = []
    for _ in range(4):
        due = story.core.next_wake
        assert due is not None
        story.now = due
        (tried,) = [effect.pod.name for effect in story.decide() if isinstance(effect, Bind)]
        sent_at.append(story.now)
        story.see(refused(pod(tried), "n"))
        assert send(story, f"{tried}+") == []
    assert sent_at == [5.0, 15.0, 35.0, 75.0]


def test_a_pod_that_is_let_in_ends_the_matter() -> None:
    story = one_node()
    send(story, "a")
    story.see(refused(pod("a"), "n"))
    assert send(story, "b", "c", "d") == []
    story.now = 5.0
    (tried,) = send(story)
    story.see(bound(pod(tried), "n"))
    assert send(story) == []
    story.see(running(pod(tried), "n"))
    assert sorted([tried, *send(story)]) == ["b", "c", "d"]
    assert len(story.core.refusals) == 0 and not story.core.cluster.kept_off


def test_what_is_freed_there_ends_the_pause_early() -> None:
    story = one_node()
    story.see(bound(pod("old", cpu="300m"), "n"))
    send(story, "a")
    story.now = 10.0
    story.see(refused(pod("a"), "n"))
    assert send(story, "b") == []
    story.now = 12.0
    story.gone("old")
    assert send(story) == ["b"]


def test_what_a_node_says_anew_ends_the_pause_but_not_at_once() -> None:
    story = one_node()
    send(story, "a")
    story.see(refused(pod("a"), "n"))
    assert send(story, "b") == []
    story.now = 0.2
    summary = TopologySummary(pools={"x": Division(Rules("p"), pools={"p": 1.0})})
    story.core.node_changed(node("n", cpu="100", **{TOPOLOGY_ANNOTATION: encode_topology(summary)}), "n", story.now)
    assert send(story) == []
    story.now = 1.0
    assert send(story) == ["b"]


def test_pods_on_their_way_do_not_make_the_pause_longer() -> None:
    story = one_node()
    names = [f"p{number}" for number in range(10)]
    assert len(send(story, *names)) == 10
    for name in names:
        story.see(refused(pod(name), "n"))
    assert story.core.next_wake == FIRST_PAUSE
    assert story.core.refusals.counts == {"UnexpectedAdmissionError": 10}


def test_a_node_that_goes_takes_its_refusals_with_it() -> None:
    story = one_node()
    send(story, "a")
    story.see(refused(pod("a"), "n"))
    story.core.node_changed(None, "n", 1.0)
    story.core.node_changed(node("n", cpu="100"), "n", 1.0)
    assert send(story, "b") == ["b"]


@pytest.mark.parametrize("how", ["the node goes", "a pod runs there"])
def test_a_pause_that_nobody_waits_for_wakes_the_scheduler_once(how: str) -> None:
    """With a time in the past it would be woken without end."""
    story = one_node()
    send(story, "p1")
    story.see(refused(pod("p1"), "n"))
    story.now += FIRST_PAUSE
    story.core.tick(story.now)
    assert send(story, "p2") == ["p2"]
    if how == "the node goes":
        story.core.node_changed(None, "n", story.now)
    else:
        story.see(running(pod("p2"), "n"))
    assert len(story.core.refusals) == 0
    for _ in range(10):
        due = story.core.next_wake
        if due is not None:
            story.now = max(story.now, due)
            story.core.tick(story.now)
            assert story.core.next_wake is None or story.core.next_wake > story.now
    assert story.core.next_wake is None


def test_refusals_are_counted_for_metrics() -> None:
    story = one_node()
    metrics = Metrics(story.core)
    send(story, "a")
    story.see(refused(pod("a"), "n"))
    text = generate_latest(metrics.registry).decode()
    assert 'kubeqos_scheduler_refused_pods_total{reason="UnexpectedAdmissionError"} 1.0' in text
    assert "kubeqos_scheduler_kept_off 1.0" in text


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 40)), min_size=1, max_size=60), st.booleans())
def test_a_node_that_always_refuses_is_tried_ever_more_seldom(steps: list[tuple[str, float]], churn: bool) -> None:
    """Whatever happens: without anything freed, no more tries than doublings; with it, at most one a second."""
    refusals, now, tries = NodeBackoffs(), 0.0, Counter[str]()
    for asks, pause in steps:
        now += pause
        list(refusals.over(now))
        closed = any(one.closed for (_, what), one in refusals._known.items() if what == asks)
        if not closed:
            uid = f"{asks}{tries[asks]}"
            refusals.sent("n", asks, uid, now)
            refusals.refused("n", asks, "No", uid, now)
            tries[asks] += 1
        if churn:
            refusals.eased("n", now)
    doublings = 1
    waited = FIRST_PAUSE
    while waited <= now:
        doublings += 1
        waited += min(FIRST_PAUSE * 2**doublings, LONGEST_PAUSE)
    assert max(tries.values()) <= (now + 1 if churn else doublings + 1)


def test_memory_is_bounded() -> None:
    refusals = NodeBackoffs(kept=10)
    forgotten = [refusals.refused("n", number, "No", str(number), 0.0)[1] for number in range(25)]
    assert len(refusals) == 10
    assert [one.asks for some in forgotten for one in some] == list(range(15))
    assert encode_json(refusals.counts) == b'{"No":25}'
