"""The resctrl tree of a simulated node: containers are in the groups of their classes, and counters move."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeqos.cli.local.resctrl import command
from kubeqos.cluster.clusterfile import default_classes, default_plan
from kubeqos.cluster.resctrl import FOLDER, NodeResctrl
from kubeqos.cri.providers.rdt.shown import GroupShown, look
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.errors import InputError
from kubeqos.model.hardware.named import tiny2
from tests.cri.pods import container, pod, update


class World:
    """One simulated node and its tree."""

    def __init__(self, root: Path) -> None:
        [plan, *_] = default_plan().nodes
        assert plan.rdt is not None
        self.root = root
        self.runtime = SimulatedRuntime(tiny2(), plan.offers, logs=False)
        self.tree = NodeResctrl(root, tiny2(), plan.rdt, self.runtime)

    async def started(self, name: str, **classes: str) -> str:
        described = pod(name)
        sandbox = await self.runtime.run_pod_sandbox(described)
        made = await self.runtime.create_container(sandbox, container("main", classes=classes), described)
        await self.runtime.start_container(made)
        await self.tree.look()
        return made

    def groups(self) -> dict[str, GroupShown]:
        return {one.monitor or one.group: one for one in look(self.root)}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "nodes" / "n1" / FOLDER)


async def test_every_class_has_a_group_with_its_share(world: World) -> None:
    found = world.groups()
    assert {"kubeqos.exclusive", "kubeqos.gold", "kubeqos.silver", "kubeqos.bronze", "kubeqos.limited"} <= set(found)
    shares = {name: found[f"kubeqos.{name}"].schemata["MB"] for name in ("gold", "bronze", "limited")}
    assert {name: {pair.partition("=")[2] for pair in text.split(";")} for name, text in shares.items()} == {
        "gold": {"100"},
        "bronze": {"30"},
        "limited": {"10"},
    }
    ways = {name: int(found[f"kubeqos.{name}"].schemata["L3"].split(";")[0][2:], 16) for name in ("exclusive", "gold")}
    assert ways["exclusive"] & ways["gold"] == 0, "nobody else has the ways of the exclusive class"


async def test_containers_are_tasks_and_follow_their_class(world: World) -> None:
    asked, silent = await world.started("a", rdt="gold"), await world.started("b")
    found = world.groups()
    assert (found["kubeqos.gold"].tasks, found["kubeqos.silver"].tasks) == (1, 1), "the default is a class, too"
    assert found[f"kubeqos.{asked}"].group == "kubeqos.gold"
    await world.runtime.update_container_resources(update(asked, classes={"rdt": "bronze"}))
    await world.tree.look()
    found = world.groups()
    assert (found["kubeqos.gold"].tasks, found["kubeqos.bronze"].tasks) == (0, 1)
    await world.runtime.stop_container(silent, grace_seconds=0)
    await world.tree.look()
    found = world.groups()
    assert found["kubeqos.silver"].tasks == 0 and f"kubeqos.{silent}" not in found


async def test_counters_move_with_the_time(world: World) -> None:
    made = await world.started("a", rdt="gold")
    before = world.groups()[f"kubeqos.{made}"].moved_bytes
    await world.tree.look()
    after = world.groups()[f"kubeqos.{made}"]
    assert after.moved_bytes > before and after.occupancy_bytes > 0
    assert world.groups()["kubeqos.bronze"].moved_bytes == 0


async def test_the_tree_is_shown_by_a_command(world: World, tmp_path: Path) -> None:
    made = await world.started("a", rdt="gold")
    shown = CliRunner().invoke(command, ["n1", "--data-dir", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    [gold] = [line.split() for line in shown.output.splitlines() if line.startswith("kubeqos.gold")]
    assert gold[3] == "1"
    wide = CliRunner().invoke(command, ["-o", "wide", "--root", str(world.root)])
    assert made in wide.output
    wrong = CliRunner().invoke(command, ["n2", "--data-dir", str(tmp_path)])
    assert isinstance(wrong.exception, InputError) and wrong.exception.remedy == "those that have: n1"


def test_the_default_classes_are_as_they_were() -> None:
    offered = {name: one.offer for name, one in default_classes().resources.items()}
    assert [one.name for one in offered["rdt"].classes] == ["exclusive", "gold", "silver", "bronze", "limited"]
    assert offered["rdt"].mutable and offered["rdt"].default == "silver"
