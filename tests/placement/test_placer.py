"""The placer: what it keeps between decisions never changes an answer, and neither does how it looks at rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from kubeqos.model.annotations.topologysummary import ComputeSummary
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement import placer as placing
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.counted import COUNTED, counted_checks
from kubeqos.placement.findings import COMPANY, Finding
from kubeqos.placement.nodes import PlacedPod
from kubeqos.placement.placer import Placed, Placer
from kubeqos.placement.rows import EVERY_ROW, ManyRows, OneRow
from kubeqos.placement.shape import Shape, compile_shape, with_volumes
from kubeqos.placement.storage.needs import VolumeNeed
from kubeqos.scheduler.reading.objects import node_facts
from tests.placement.playbook import World, classes, given, node, pod
from tests.placement.strategies import nodes, pods

NAMES = tuple(f"n{number}" for number in range(4))
CLUSTERS = st.tuples(*(nodes(name) for name in NAMES))


def cluster_of(raws: tuple[dict[str, Any], ...]) -> Cluster:
    made = Cluster(1)
    for raw in raws:
        made.set_node(node_facts(NodeView.of(raw)))
    return made


class TestKeptResults:
    def test_only_rows_that_changed_are_judged_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = given(*(node(f"n{number}") for number in range(20)))
        placer, shape = Placer(world.cluster), world.shape(pod(cpu="1"))
        placer.place(shape)
        judged: list[int] = []
        real = placing.has_room
        monkeypatch.setattr(placing, "has_room", lambda checks, at: judged.append(at.row) or real(checks, at))
        world.running(pod("x", cpu="1"), on="n7").running(pod("y", cpu="1"), on="n9")
        placer.place(shape)
        assert judged == [world.cluster.row_of["n7"], world.cluster.row_of["n9"]]

    def test_many_changes_are_judged_by_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = given(*(node(f"n{number}") for number in range(20)))
        placer, shape = Placer(world.cluster, few_rows=3), world.shape(pod(cpu="1"))
        placer.place(shape)
        monkeypatch.setattr(placing, "has_room", lambda checks, at: pytest.fail("one row at a time"))
        for number in range(4):
            world.running(pod(f"x{number}", cpu="1"), on=f"n{number}")
        assert placer.place(shape) == Placer(world.cluster).place(shape)

    def test_why_there_is_no_node_is_found_out_once(self) -> None:
        world = given(node("a", cpu="1"))
        placer, shape = Placer(world.cluster), world.shape(pod(cpu="2"))
        assert placer.place(shape) is placer.place(shape)
        world.running(pod("x"), on="a")
        assert placer.place(shape) is not None

    def test_a_new_node_is_seen(self) -> None:
        world = given(node("a", cpu="1"))
        assert world.goes_to(pod(cpu="2")) == ""
        assert world.now(node("b", cpu="2")).goes_to(pod(cpu="2")) == "b"

    def test_a_node_that_is_gone_is_not_chosen(self) -> None:
        world = given(node("a", cpu="64"), node("b"))
        assert world.goes_to(pod(cpu="1")) == "a"
        world.cluster.remove_node("a")
        assert world.goes_to(pod(cpu="1")) == "b"

    def test_shapes_that_were_not_asked_for_lately_are_forgotten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(placing, "_KEPT_SHAPES", 2)
        world = given(node("a"))
        placer = Placer(world.cluster)
        for cpu in ("1", "2", "3"):
            placer.place(world.shape(pod(cpu=cpu)))
        assert [shape.requests["cpu"] for shape in placer._rankings] == [2000, 3000]

    def test_a_cluster_full_of_changes_keeps_its_heap_small(self) -> None:
        world = given(node("a", pods="2000", cpu="64"), node("b", pods="2000", cpu="64"))
        placer, shape = Placer(world.cluster), world.shape(pod(cpu="10m"))
        for number in range(1000):
            answer = placer.place(shape)
            assert isinstance(answer, Placed)
            world.cluster.add_pod(answer.node, PlacedPod(str(number), str(number), shape))
        (ranking,) = placer._rankings.values()
        assert len(ranking._heap) <= 4 * len(world.cluster.alive) + 64 + 2

    def test_a_division_that_is_new_is_judged_by_its_own_rules(self) -> None:
        """What was kept for one row at a time knew only the rules of before."""
        from tests.placement.published.test_pools import as_role, divided

        world = given(node("a", cpu="64"))
        web = as_role("web", "1")
        assert world.fills(web, 2) == ["a", "a"]
        world.now(node("a", cpu="64", topology=divided({"shared": 4, "online": 4})))
        assert world.fills(as_role("web", "1", "more"), 3) == ["a", "a", ""]


class TestOneRowAndMany:
    """A check is one sentence; here it is put to one row at a time and to all at once."""

    @settings(max_examples=150, deadline=None)
    @for_all(CLUSTERS, st.lists(pods(), min_size=1, max_size=8), st.data())
    def test_every_check_says_the_same(
        self, raw: tuple[dict[str, Any], ...], arriving: list[dict[str, Any]], data: st.DataObject
    ) -> None:
        cluster = cluster_of(raw)
        shapes = [compile_shape(PodView.of(each)) for each in arriving]
        for number, shape in enumerate(shapes):
            where = data.draw(st.sampled_from(NAMES))  # whether it fits there or not
            cluster.add_pod(where, PlacedPod(str(number), str(number), shape))
        every = ManyRows(cluster, EVERY_ROW)
        some = np.array(data.draw(st.lists(st.sampled_from(sorted(cluster.rows)), unique=True)), dtype=np.int64)
        for shape in shapes:
            for check in counted_checks(cluster, shape):
                by_columns = check.refuses(every)
                assert [check.refuses(OneRow(row)) for row in sorted(cluster.rows)] == [
                    by_columns[row] for row in sorted(cluster.rows)
                ], check.text
                assert check.refuses(ManyRows(cluster, some)).tolist() == [by_columns[row] for row in some.tolist()]

    @settings(max_examples=100, deadline=None)
    @for_all(CLUSTERS, st.lists(pods(), min_size=1, max_size=4), st.data())
    def test_without_the_way_of_one_row_the_answers_are_the_same(
        self, raw: tuple[dict[str, Any], ...], templates: list[dict[str, Any]], data: st.DataObject
    ) -> None:
        cluster = cluster_of(raw)
        by_columns, by_rows = Placer(cluster, few_rows=0), Placer(cluster, few_rows=10**6)
        shapes = [compile_shape(PodView.of(template)) for template in templates]
        running: list[str] = []
        for step in range(16):
            shape = data.draw(st.sampled_from(shapes))
            one, other = by_columns.place(shape), by_rows.place(shape)
            assert isinstance(one, Placed) == isinstance(other, Placed)
            if isinstance(one, Placed):
                assert one == other
                cluster.add_pod(one.node, PlacedPod(str(step), str(step), shape))
                running.append(str(step))
            else:
                assert not isinstance(other, Placed)
                assert (one.message, one.explanation.waits_for) == (other.message, other.explanation.waits_for)
            if running and data.draw(st.booleans()):
                cluster.remove_pod(running.pop(data.draw(st.integers(0, len(running) - 1))))

    def test_the_way_of_one_row_is_taken_when_it_may_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else the test above would compare columns with columns."""
        taken = []
        real = placing._Ranking._judge_one_by_one
        monkeypatch.setattr(
            placing._Ranking, "_judge_one_by_one", lambda self, *words: taken.append(1) or real(self, *words)
        )
        world = given(node("a"), node("b"))
        for few, times in ((0, 0), (8, 3)):
            taken.clear()
            placer = Placer(world.cluster, few_rows=few)
            for number in range(4):
                answer = placer.place(world.shape(pod(cpu="100m")))
                assert isinstance(answer, Placed)
                name = f"{few}-{number}"
                world.cluster.add_pod(answer.node, PlacedPod(name, name, world.shape(pod(cpu="100m"))))
            assert len(taken) == times

    def test_host_ports_go_that_way_too(self) -> None:
        world = given(node("a"), node("b"))
        assert world.fills(pod(ports=[{"hostPort": 80}]), 3) == ["a", "b", ""]

    def test_every_counted_filter_has_checks(self) -> None:
        from tests.placement.published.test_pools import divided

        offered = classes(rdt={"gold": 1})
        told = msgspec.structs.replace(divided(), compute=ComputeSummary())
        world = given(replace(node("a", container_classes=offered, topology=told), machine=laptop8()))
        busy = world.shape(pod(cpu="1", memory="1Mi", limits=True, uses={"rdt": "gold"}, ports=[{"hostPort": 1}]))
        busy = with_volumes(busy, VolumeNeed(once=("default/c",), attached=(("default/c", "csi"),)))
        assert {name: len(list(checks(world.cluster, busy))) > 0 for name, checks in COUNTED.items()} == dict.fromkeys(
            COUNTED, True
        )

    def test_questions_are_put_only_to_rows_that_are_concerned(self) -> None:
        world = given(node("a"), node("b"), node("c"))
        asked: list[int] = []
        many = ManyRows(world.cluster, EVERY_ROW)
        concerned = many.among({1})
        assert many.ask(concerned, lambda row: not asked.append(row)).tolist() == concerned.tolist()
        assert asked == [1]
        assert OneRow(0).ask(OneRow(0).among({1}), lambda row: pytest.fail("not concerned")) is False
        assert not many.among(set()).any()


class TestFindings:
    def test_a_text_of_numbers_is_made_once_per_distinct_numbers(self) -> None:
        made: list[int] = []

        def text(size: int) -> str:
            made.append(size)
            return f"size {size}"

        refused = np.array([True, True, True, False])
        finding = Finding(refused, text, np.array([7, 9, 7, 7]))
        assert dict(finding.counted(np.ones(4, dtype=np.bool_))) == {"size 7": 2, "size 9": 1}
        assert sorted(made) == [7, 9]
        assert finding.describe(1) == "size 9"

    def test_only_rows_that_are_asked_about_count(self) -> None:
        finding = Finding(np.array([True, True, False]), "no")
        assert list(finding.counted(np.array([False, True, True]))) == [("no", 1)]
        assert list(finding.counted(np.array([False, False, True]))) == []

    def test_what_is_refused_can_be_resolved_where_it_says(self) -> None:
        finding = Finding(np.array([True, True, False]), "no", resolvable=np.array([True, False, True]))
        assert finding.resolvable().tolist() == [True, False, False]

    def test_company_comes_as_well_as_goes(self) -> None:
        assert Finding(np.array([True]), "no", waits_for=COMPANY).comes_by_itself
        assert not Finding(np.array([True]), "no", waits_for="cpu").comes_by_itself


class TestBecause:
    """Why a node won, by score, and who came next."""

    def because(self, world: World, raw: dict[str, Any], shape: Shape | None = None) -> str:
        placer, asked = Placer(world.cluster, world.weights), shape or world.shape(raw)
        answer = placer.place(asked)
        assert isinstance(answer, Placed)
        told = placer.because(asked, answer)
        assert placer.place(asked) == answer  # asking changes nothing
        return told

    def test_parts_add_up_and_the_next_two_are_named(self) -> None:
        world = given(*(node(name, cpu=cpu) for name, cpu in zip("abcd", ("8", "4", "2", "1"), strict=True)))
        told = self.because(world, pod(cpu="1", memory="1Gi"))
        assert told == "best of the nodes that fit, with 162 points (resources 87, balance 75); next b 152, c 133"

    def test_a_single_node_has_nobody_behind_it(self) -> None:
        told = self.because(given(node("a")), pod(cpu="1", memory="2Gi"))
        assert told == "best of the nodes that fit, with 150 points (resources 75, balance 75)"

    def test_nodes_that_were_compared_are_told_alike(self) -> None:
        world = given(node("a", taints=["x=y:PreferNoSchedule"]), node("b"))
        told = self.because(world, pod(cpu="1", memory="2Gi"))
        assert told == "best of the nodes that fit, with 450 points (resources 75, balance 75, taints 300); next a 150"
