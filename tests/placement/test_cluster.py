"""The columnar snapshot: what is charged, given back, remembered and forgotten."""

from __future__ import annotations

import pytest

from kubeqos.errors import KubeqosError
from kubeqos.placement.cluster import NO_CLASS, Cluster
from kubeqos.placement.indexes import Interner, LabelIndex
from kubeqos.placement.nodes import PlacedPod
from kubeqos.placement.rows import EVERY_ROW
from tests.placement.playbook import World, classes, given, node, pod


def used(world: World, name: str, resource: str = "cpu") -> int:
    return int(world.cluster.column(resource).used[world.cluster.row_of[name]])


class TestPods:
    def test_a_pod_is_charged_where_it_is_and_given_back(self) -> None:
        world = given(node("a"), node("b")).running(pod("x", cpu="1500m", memory="1Gi"), on="b")
        assert (used(world, "a"), used(world, "b")) == (0, 1500)
        assert used(world, "b", "memory") == 1 << 30
        assert used(world, "b", "pods") == 1
        world.gone("x")
        assert (used(world, "b"), used(world, "b", "memory"), used(world, "b", "pods")) == (0, 0, 0)
        assert world.cluster.where == {}

    def test_nobody_is_placed_twice(self) -> None:
        world = given(node("a"), node("b")).running(pod("x"), on="a")
        with pytest.raises(KubeqosError, match="pod 'x' is already placed on a"):
            world.running(pod("x"), on="b")

    def test_a_pod_on_a_node_without_its_class_takes_none(self) -> None:
        world = given(node("a")).running(pod("x", uses={"rdt": "gold"}), on="a")
        assert list(world.cluster.rows[world.cluster.where["x"]].keys_of(world.cluster.remove_pod("x"))) == []

    def test_the_classes_that_a_pod_holds(self) -> None:
        world = given(node("a", container_classes=classes(rdt={"gold": 2}))).running(
            pod("x", uses={"rdt": "gold"}), on="a"
        )
        row = world.cluster.rows[world.cluster.where["x"]]
        assert list(row.keys_of(row.pods["x"])) == [("container", "rdt", "gold")]

    def test_the_cluster_as_if_some_were_gone(self) -> None:
        world = given(node("a")).running(pod("x", cpu="1"), pod("y", cpu="2"), on="a")
        clock = world.cluster.clock
        with world.cluster.without(["x", "y"]):
            assert used(world, "a") == 0
            assert world.cluster.where == {}
        assert (used(world, "a"), sorted(world.cluster.where), world.cluster.clock) == (3000, ["x", "y"], clock)

    def test_and_as_it_was_when_that_goes_wrong(self) -> None:
        world = given(node("a")).running(pod("x", cpu="1"), on="a")
        with pytest.raises(ZeroDivisionError), world.cluster.without(["x"]):
            raise ZeroDivisionError
        assert used(world, "a") == 1000


class TestNodes:
    def test_a_node_that_changes_keeps_its_pods(self) -> None:
        world = given(node("a", cpu="4")).running(pod("x", cpu="1"), on="a")
        world.now(node("a", cpu="8"))
        assert (used(world, "a"), int(world.cluster.cpu.capacity[0])) == (1000, 8000)
        assert world.goes_to(pod(cpu="7")) == "a"

    def test_a_resource_that_a_node_loses_is_gone(self) -> None:
        world = given(node("a", gpu="2"))
        assert world.goes_to(pod(gpu="1")) == "a"
        assert world.now(node("a")).goes_to(pod(gpu="1")) == ""

    def test_classes_are_counted_anew_when_the_level_changes(self) -> None:
        wide = pod("x", pod_uses={"rdt": "gold"})
        world = given(node("a", container_classes=classes(rdt={"gold": 1}))).running(wide, on="a")
        assert world.goes_to(pod("y", pod_uses={"rdt": "gold"})) == ""
        world.now(node("a", pod_classes=classes(rdt={"gold": 2})))
        assert world.goes_to(pod("y", pod_uses={"rdt": "gold"})) == "a"

    def test_a_node_that_goes_takes_its_pods_along(self) -> None:
        world = given(node("a"), node("b")).running(pod("x", cpu="1"), on="a")
        world.cluster.remove_node("a")
        assert world.cluster.where == {}
        assert world.goes_to(pod(cpu="1")) == "b"

    def test_the_next_node_in_its_row_inherits_nothing(self) -> None:
        rich = node("a", labels={"disk": "ssd"}, taints=["x=y:NoSchedule"], unschedulable=True, gpu="4",
                    container_classes=classes(rdt={"gold": 1}), drivers=["d"], images={"app": 1 << 30})  # fmt: skip
        world = given(rich)
        world.cluster.remove_node("a")
        world.now(node("b"))
        assert world.cluster.row_of == {"b": 0}
        assert world.goes_to(pod()) == "b"
        for wanted in (pod(gpu="1"), pod(uses={"rdt": "gold"}), pod(spec={"nodeSelector": {"disk": "ssd"}})):
            assert world.goes_to(wanted) == ""
        assert world.goes_to(pod(), claim_drivers=["d"]) == ""
        assert world.weighing(images=1).points(pod(image="app")) == 0

    def test_it_grows_with_its_nodes(self) -> None:
        world = given(*(node(f"n{number}", cpu=str(number + 1), labels={"n": str(number)}) for number in range(9)))
        assert len(world.cluster.alive) == 16
        assert int(world.cluster.alive.sum()) == 9
        assert world.goes_to(pod(cpu="9")) == "n8"
        assert world.goes_to(pod(spec={"nodeSelector": {"n": "5"}})) == "n5"

    def test_columns_that_come_late_cover_everybody(self) -> None:
        cluster = Cluster(2)
        cluster.set_node(node("a"))
        assert cluster.class_column(("container", "rdt", "gold")).capacity.tolist() == [NO_CLASS, NO_CLASS]  # type: ignore[arg-type]
        assert cluster.column("example.com/gpu").capacity.tolist() == [0, 0]
        assert cluster.level_column("rdt").tolist() == [0, 0]
        assert cluster.driver_column("d").tolist() == [False, False]


class TestChanges:
    def test_every_change_is_told_once(self) -> None:
        world = given(node("a"), node("b"))
        clock = world.cluster.clock
        world.running(pod("x"), pod("y"), on="a").running(pod("z"), on="b").gone("x")
        a, b = (world.cluster.row_of[name] for name in "ab")
        assert world.cluster.changed_since(clock) == [a, b]
        assert world.cluster.changed_since(world.cluster.clock) == []

    def test_too_long_ago_to_tell(self) -> None:
        world = given(node("a"))
        clock, shape = world.cluster.clock, world.shape(pod())
        for number in range(2000):
            world.cluster.add_pod("a", PlacedPod(str(number), str(number), shape))
        assert world.cluster.changed_since(clock) is None
        assert len(world.cluster.changes) < 1500
        assert world.cluster.clock == clock + 2000

    def test_a_node_itself_changes_less_often_than_its_pods(self) -> None:
        world = given(node("a"))
        told = world.cluster.facts_clock
        world.running(pod("x"), on="a")
        assert world.cluster.facts_clock == told
        world.now(node("a", cpu="5"))
        assert world.cluster.facts_clock == world.cluster.clock > told

    def test_divisions_are_counted(self) -> None:
        world = given(node("a"))
        assert world.cluster.divisions == (0, 1, False)


class TestIndexes:
    def test_equal_values_have_one_number(self) -> None:
        interner = Interner[str]()
        assert [interner.number(each) for each in "abca"] == [0, 1, 2, 0]
        assert (interner.known("c"), interner.known("d"), len(interner)) == (2, None, 3)

    def test_labels_by_key(self) -> None:
        labels = LabelIndex(3)
        labels.write(0, {"zone": "a"})
        labels.write(1, {"zone": "b", "disk": "ssd"})
        assert labels.equal("zone", "a", EVERY_ROW).tolist() == [True, False, False]
        assert labels.equal("zone", "c", EVERY_ROW).tolist() == [False, False, False]
        assert labels.equal("nothing", "x", EVERY_ROW).tolist() == [False, False, False]
        assert labels.matching("disk", lambda value: value is None, EVERY_ROW).tolist() == [True, False, True]
        labels.write(1, {})
        assert labels.equal("zone", "b", EVERY_ROW).tolist() == [False, False, False]
        assert labels.values("zone") == [None, "a", "b"]

    def test_labels_of_rows_that_come_later(self) -> None:
        labels = LabelIndex(1)
        labels.write(0, {"zone": "a"})
        labels.grow(3)
        labels.write(2, {"zone": "a"})
        assert labels.equal("zone", "a", EVERY_ROW).tolist() == [True, False, True]

    def test_groups_count_pods_by_labels_and_forget_the_last(self) -> None:
        world = given(node("a"), node("b"))
        world.running(pod("x", labels={"app": "w"}), pod("y", labels={"app": "w"}), on="a")
        world.running(pod("z", labels={"app": "d"}), on="b")
        groups, rows = world.cluster.groups, len(world.cluster.alive)
        assert groups.counts(rows, lambda _, labels: labels.get("app") == "w").tolist()[:2] == [2, 0]
        assert groups.counts(rows, lambda namespace, _: namespace == "default").sum() == 3
        world.gone("x", "y", "z")
        assert groups.counts(rows, lambda *_: True).sum() == 0
