"""PreStartContainer: before every start of a container, and never at admission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.model.hardware.named import kep80
from kubeqos.plugins.managers import Refusal, StartHook
from kubeqos.qrm.messages import METHODS
from kubeqos.qrm.sdk import Allocation, Options, Refuse, running
from kubeqos.qrm.settings import OnError, QrmSettings
from kubeqos.topology.alignment.hints import Policy
from tests.qrm.harness import admitted, pod, qrm_node, refs, until
from tests.qrm.live import Bench, Scripted, bench

DISK = {"x.io/disk": "1"}


class Preparing(Scripted):
    """Writes down when it was asked to prepare; says no while it is told to."""

    def __init__(self) -> None:
        super().__init__("x.io/disk", Allocation(envs={"DISK": "/dev/x"}))
        self.prepared: list[tuple[str, str]] = []
        self.ready = True

    def pre_start(self, pod_uid: str, container: str) -> None:
        if not self.ready:
            raise Refuse("the disk is still being wiped")
        self.prepared.append((pod_uid, container))


async def start(node: Bench, raw: dict[str, Any]) -> Refusal | None:
    known = admitted(raw)
    return await node.manager.before_start(known, refs(known)[0], "id", "/cgroup")


async def test_plugins_prepare_before_each_start(folder: Path) -> None:
    plugin = Preparing()
    async with bench(folder) as node, node.plugin(plugin):
        assert isinstance(node.manager, StartHook)
        await node.admit(pod("web", **DISK))
        assert plugin.prepared == []
        for _ in range(2):  # the container was restarted
            assert await start(node, pod("web", **DISK)) is None
        assert await start(node, pod("other", cpu="1")) is None
    assert plugin.prepared == [("uid-web", "container0")] * 2
    assert METHODS["PreStartContainer"][2] == 30


async def test_a_start_that_is_held_back_is_no_refused_pod(folder: Path) -> None:
    plugin = Preparing()
    plugin.ready = False
    async with qrm_node(folder, kep80()) as node, running(plugin, Options(folder / "r")):
        await node.plugins("x.io/disk")
        node.submit(pod("web", **DISK))
        why = "container container0: x.io/disk: plugin x.io/disk: PreStartContainer: the disk is still being wiped"
        await until("told", lambda: ("Failed", f"Error: {why} (FAILED_PRECONDITION)") in node.told)

        def waits() -> bool:
            [container] = node.status("uid-web").get("containerStatuses") or [{}]
            waiting = container.get("state", {}).get("waiting", {})
            return waiting.get("reason") == "PreStartHookError" and waiting["message"].startswith(why)

        await until("shown", waits)
        assert node.status("uid-web")["phase"] == "Pending"
        assert not node.running("uid-web")
        plugin.ready = True
        await node.until_running("uid-web")
    assert plugin.prepared == [("uid-web", "container0")]
    assert plugin.released == []


async def test_a_plugin_that_is_away_holds_its_containers_back_also_after_a_restart(folder: Path) -> None:
    plugin, raw = Preparing(), pod("web", **DISK)
    async with bench(folder) as node:
        async with node.plugin(plugin):
            await node.admit(raw)
        await node.gone("x.io/disk")
        refusal = await start(node, raw)
        assert refusal is not None and refusal.retry and "plugin x.io/disk is not connected" in refusal.message
        saved = node.manager.save()
    async with bench(folder) as node:
        await node.manager.restore(saved, {"uid-web": admitted(raw)})
        assert await start(node, raw) is not None
        async with node.plugin(plugin):
            assert await start(node, raw) is None


async def test_a_setting_lets_it_pass(folder: Path) -> None:
    plugin = Preparing()
    plugin.ready = False
    async with bench(folder, QrmSettings(on_error={"x.io/disk": OnError.IGNORE})) as node, node.plugin(plugin):
        assert await start(node, pod("web", **DISK)) is None
        [event] = node.events
        assert event.reason == "ResourceIgnored" and "the disk is still being wiped" in event.message


async def test_an_implicit_plugin_that_is_away_after_a_restart_is_still_waited_for(folder: Path) -> None:
    plugin = Scripted("NIC", Allocation(), implicit=True)
    async with bench(folder) as node, node.plugin(plugin):
        saved = node.manager.save()
    async with bench(folder) as node:
        await node.manager.restore(saved, {})
        outcome = await node.admit(pod("web", cpu="1"), Policy.BEST_EFFORT)
        assert isinstance(outcome, Refusal) and outcome.retry and "plugin NIC is not connected" in outcome.message
