"""What the scheduler tells the record of a pod: the score table, reasons with nodes, the nearest miss, and victims."""

from __future__ import annotations

from kubeqos.scheduler.effects import Bind, Evict, PodKey, Report
from tests.scheduler.test_core import Story, bound, node, pod


def test_the_best_three_are_told_with_their_parts() -> None:
    story = Story()
    for name in ("a", "b", "c", "d"):
        story.core.node_changed(node(name), name, 0)
    story.see(pod("p"))
    (bind,) = story.decide()
    assert isinstance(bind, Bind)
    assert [one.node for one in bind.best] == ["a", "b", "c"]
    assert all(sum(one.parts.values()) == one.points for one in bind.best)
    assert bind.because.endswith("; next b {0}, c {0}".format(bind.best[0].points))


def test_the_first_of_a_burst_are_told_the_table_and_then_some_in_each_second() -> None:
    story = Story()
    for number in range(150):
        story.core.node_changed(node(f"n{number}"), f"n{number}", 0)

    def told(turn: str) -> list[bool]:
        story.see(*(pod(f"{turn}-{number}", cpu="1m") for number in range(600)))
        binds = [one for one in story.core.step(story.now, 600) if isinstance(one, Bind)]
        assert len(binds) == 600 and all(one.because for one in binds)
        return [bool(one.best) for one in binds]

    assert told("a") == [True] * 512 + [False] * 88
    story.now += 2
    assert told("b") == [True] * 100 + [False] * 500


def test_reasons_name_nodes_and_the_nearest_miss_is_a_number() -> None:
    story = Story()
    for name in ("a", "b", "c", "d", "e"):
        story.core.node_changed(node(name, cpu="2" if name == "c" else "1"), name, 0)
    story.see(pod("p", cpu="8"))
    (report,) = story.decide()
    assert isinstance(report, Report) and report.waiting is not None
    (refused,) = report.waiting.refused
    assert (refused.reason, refused.count, refused.nodes) == ("Insufficient cpu", 5, ("a", "b", "c"))
    assert report.waiting.nearest == ("needs 8 cpu, most free is 2 on c",)


def test_victims_and_preemptor_are_told_to_each_other() -> None:
    story = Story()
    story.core.node_changed(node("n", cpu="1"), "n", 0)
    story.see(pod("low", cpu="1"))
    story.decide()
    story.see(bound(pod("low", cpu="1"), "n"), pod("high", cpu="1", priority=10))
    evict, report = story.decide()
    assert isinstance(evict, Evict) and evict.because == "priority 0 is below 10"
    assert isinstance(report, Report) and report.victims == (PodKey("low", "default", "low"),)
    assert report.waiting is not None and report.waiting.nearest == ("needs 1 cpu, most free is 0 on n",)
