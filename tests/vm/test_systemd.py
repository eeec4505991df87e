"""The systemd driver: the pods' slices belong to systemd, which keeps their values and forgets them with the pod."""

from __future__ import annotations

import pytest

from tests.vm.conftest import STOCK
from tests.vm.node import Node, pod
from tests.vm.test_classes import compete

pytestmark = pytest.mark.vm
on_systemd = pytest.mark.parametrize("node", ["systemd"], indirect=True)
on_both_homes = pytest.mark.parametrize("node", ["systemd", STOCK], indirect=True)

MIB = 1 << 20
BURSTABLE = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
WATCHED = ("cpu.weight", "cpu.max", "memory.max", "memory.min", "memory.high")


@on_systemd
@pytest.mark.proves("systemd-driver")
def test_values_are_there_at_once_and_survive_a_reload(node: Node) -> None:
    node.start_pod(pod("kept", resources=BURSTABLE))

    def values() -> list[dict[str, str]]:
        return [{name: level[name] for name in WATCHED} for level in node.levels("kept")]

    before = values()
    assert before[1]["memory.max"] == str(128 * MIB) and before[1]["cpu.max"] == "100000 100000"
    node.vm.run("systemctl", "daemon-reload")
    assert values() == before


@on_systemd
@pytest.mark.proves("systemd-driver")
def test_the_slice_of_a_deleted_pod_is_gone(node: Node) -> None:
    uid = node.start_pod(pod("short", resources=BURSTABLE))["metadata"]["uid"].replace("-", "_")
    listing = ("systemctl", "list-units", "--all", "--plain", "--no-legend", "kubepods*pod*.slice")
    assert uid in node.vm.run(*listing)
    node.delete("short")
    node.until("its slice goes", lambda: uid not in node.vm.run(*listing), seconds=30)


@on_both_homes
@pytest.mark.proves("systemd-driver", "class-cpu", on=("v2", "stock"))
def test_classes_survive_a_reload_and_still_decide(node: Node) -> None:
    first, second = compete(node, ("cpu", "7"), {"cpu-class": "latency"}, {"cpu-class": "batch"})

    def values() -> list[tuple[str, str]]:
        return [(level["cpu.weight"], level["cpu.idle"]) for name in ("first", "second") for level in node.levels(name)]

    before = values()
    assert before[:2] == [("32", "0")] * 2 and before[4:6] == [("0", "1")] * 2, (
        "container and pod, of either; 100m weighs 4"
    )
    node.vm.run("systemctl", "daemon-reload")
    assert values() == before
    used = node.ask("rates", ids=[first, second], seconds=5)
    assert used[first]["cpuMicroseconds"] > 20 * used[second]["cpuMicroseconds"], used
