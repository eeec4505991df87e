"""A plugin that hangs, in whatever call: its own pods wait, and everybody else goes on before it is heard of again.

Nothing is measured: all patience is made endless, so whoever waited for the plugin at all would wait for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.resources import PODS
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import kep80
from kubeqos.node.admission.ledger import FileLedger
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.run import serve_node
from kubeqos.node.server.podresources import SERVICE
from kubeqos.node.server.proto import podresources_pb2 as pb
from kubeqos.plugins import REGISTRY
from kubeqos.plugins.sockets import call, dial
from kubeqos.qrm import endpoint, endpoints, patience
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.qrm.sdk import Allocation, Capacity, Options, Refuse, Request, running
from kubeqos.qrm.settings import QrmSettings
from kubeqos.topology.alignment.hints import Hint, Scope
from tests.apiserver.live import LiveServer, live_server
from tests.qrm.harness import PluginProcess, QrmNode, container, plugin_processes, pod, pod_of, qrm_node, until
from tests.qrm.live import Scripted, cpus
from tests.qrm.test_node import phase, whole_node

PLUGINS_HANG = True
SLOW = {"x.io/slow": "1"}
ENDLESS = 600.0


class Hanging(Scripted):
    """Hangs in one of its methods until it is freed, and answers all others."""

    def __init__(self, where: str, **traits: Any) -> None:
        super().__init__("x.io/slow", Allocation(envs={"SLOW": "1"}), **traits)
        self.where = where
        self.entered, self.freed = asyncio.Event(), asyncio.Event()
        self.refuses = ""

    async def _stop(self, where: str) -> None:
        if where == self.where and not self.freed.is_set():
            self.entered.set()
            await self.freed.wait()

    async def hints(self, _request: Request) -> None:
        await self._stop("hints")

    async def allocate(self, request: Request) -> Any:
        await self._stop("allocate")
        if self.refuses:
            raise Refuse(self.refuses)
        return await super().allocate(request)

    async def release(self, pod_uid: str) -> None:  # type: ignore[override]
        await self._stop("release")
        super().release(pod_uid)

    async def allocations(self) -> Any:
        await self._stop("report")
        return self.book

    async def pre_start(self, _pod_uid: str, _container: str) -> None:
        await self._stop("start")

    async def capacity(self) -> Capacity:
        await self._stop("capacity")
        return Capacity(40, 40, node=True)


class HangingForPods(Hanging):
    """The same for pods as a whole."""

    async def pod_hints(self, _request: Request) -> None:
        await self._stop("pod hints")

    async def allocate_pod(self, request: Request) -> Any:
        await self._stop("allocate pod")
        return await super().allocate(request)


@pytest.fixture(autouse=True)
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WAIT_SECONDS", ENDLESS)
    monkeypatch.setattr(endpoint, "DOUBT_SECONDS", ENDLESS)
    monkeypatch.setattr(endpoints, "RELEASE_SECONDS", ENDLESS)


@contextlib.asynccontextmanager
async def hung(folder: Path, slow: Hanging, *others: Scripted, **options: Any) -> AsyncIterator[QrmNode]:
    """A node with a plugin that will hang and others that will not."""
    settings = QrmSettings(reconcile_seconds=0.1, capacity_seconds=3600, deadline_seconds=ENDLESS)
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(qrm_node(folder, kep80(), settings=settings, **options))
        for plugin in (slow, *others):
            await stack.enter_async_context(running(plugin, Options(folder / "r")))
        stack.callback(slow.freed.set)
        await node.plugins(*(plugin.resource for plugin in others))
        yield node


async def others_go_on(node: QrmNode, slow: Hanging) -> None:
    """Pods that ask nothing of it come, run and go."""
    await node.run(pod("bare"))
    await node.run(pod("web", cpu="1"))
    for name in ("bare", "web"):
        node.remove(f"uid-{name}")
    await until("they are gone", lambda: not {"uid-bare", "uid-web"} & node.agent.core.pods.keys())
    await node.run(pod("next", cpu="1"))
    assert slow.entered.is_set() and not slow.freed.is_set()
    assert node.agent.validate() == []


@pytest.mark.parametrize("where", ["hints", "allocate", "pod hints", "allocate pod", "start"])
async def test_pods_start_while_a_plugin_hangs(folder: Path, where: str) -> None:
    """The pod that waits for it needs a healthy plugin too, which all the others need as well."""
    slow, cpu = HangingForPods(where) if "pod" in where else Hanging(where), Scripted("cpu", cpus("0-3"))
    scope = Scope.POD if "pod" in where else Scope.CONTAINER
    async with hung(folder, slow, cpu, scope=scope) as node:
        await node.plugins("x.io/slow")
        node.submit(pod("stuck", cpu="1", **SLOW))
        await slow.entered.wait()
        await others_go_on(node, slow)
        assert not node.running("uid-stuck")
        slow.freed.set()
        await node.until_running("uid-stuck")
        assert {one.key: one.value for one in node.config("uid-stuck").envs}["SLOW"] == b"1"


async def test_pods_come_and_go_while_a_plugin_hangs_in_a_release(folder: Path) -> None:
    slow = Hanging("release")
    async with hung(folder, slow, Scripted("cpu", cpus("0-3"))) as node:
        await node.plugins("x.io/slow")
        await node.run(pod("first", **SLOW))
        node.remove("uid-first")
        await slow.entered.wait()
        await others_go_on(node, slow)
        assert slow.released == []
        slow.freed.set()
        await until("it has heard of all", lambda: {"uid-first", "uid-bare", "uid-web"} <= {*slow.released})
        await until("everything is released", lambda: not node.manager.endpoints.unreleased)


async def test_the_room_of_a_pod_that_goes_is_there_for_the_next(folder: Path) -> None:
    """A release that is on its way is not overtaken by the next pod's questions."""
    events: list[str] = []
    leaving, left = asyncio.Event(), asyncio.Event()

    class Single(Scripted):
        async def hints(self, request: Request) -> tuple[Hint, ...] | None:
            events.append(f"hints {request.pod}")
            return () if self.book else None

        async def release(self, pod_uid: str) -> None:  # type: ignore[override]
            leaving.set()
            await left.wait()
            events.append(f"release {pod_uid}")
            super().release(pod_uid)

    slow, one = Hanging("nowhere"), Single("x.io/one", Allocation(quantity=100))
    async with hung(folder, slow, one) as node:
        await node.run(pod("first", **{"x.io/one": "1"}))
        node.remove("uid-first")
        await leaving.wait()
        node.submit(pod("second", **{"x.io/one": "1"}))
        await until("it is being admitted", lambda: "uid-second" in node.agent.admission._held.reserved)
        left.set()
        await node.until_running("uid-second")
    assert events == ["hints first", "release uid-first", "hints second"]


async def test_others_are_adjusted_while_a_plugin_hangs_in_its_report(folder: Path) -> None:
    slow, cpu = Hanging("nowhere"), Scripted("cpu", cpus("0-3"))
    async with hung(folder, slow, cpu) as node:
        await node.plugins("x.io/slow")
        await node.run(pod("stuck", **SLOW))
        await node.run(pod("web", cpu="1"))
        slow.where = "report"
        await slow.entered.wait()
        for wanted in ("0-7", "0-1", "4-5"):
            cpu.book["uid-web"]["container0"]["cpu"] = cpus(wanted)
            await until(wanted, lambda wanted=wanted: node.resources("uid-web")["cpuset_cpus"] == wanted)
        await others_go_on(node, slow)


async def test_what_others_gave_is_listed_while_a_plugin_hangs(folder: Path) -> None:
    slow, cpu, socket = Hanging("nowhere"), Scripted("cpu", cpus("0-3", 4)), folder / "pr.sock"
    async with hung(folder, slow, cpu) as node:
        await node.plugins("x.io/slow")
        await node.run(pod("stuck", **SLOW))
        await node.run(pod("web", cpu="4"))
        slow.where = "report"
        await slow.entered.wait()
        services = ServiceSettings(pod_resources_socket=socket)
        async with serve_node(node.agent, services), dial(socket) as channel:
            asked = pb.ListPodResourcesRequest()
            listed = await call(channel, f"/{SERVICE}/List", asked, pb.ListPodResourcesResponse, seconds=ENDLESS)
            given = {
                one.name: [got.resource_name for got in one.containers[0].resources] for one in listed.pod_resources
            }
            assert given == {"stuck": [], "web": ["cpu"]}
            wanted = pb.AllocatableResourcesRequest()
            path = f"/{SERVICE}/GetAllocatableResources"
            await call(channel, path, wanted, pb.AllocatableResourcesResponse, seconds=ENDLESS)
        await others_go_on(node, slow)


async def test_plugins_register_while_another_hangs_as_it_is_introduced(folder: Path) -> None:
    slow = Hanging("capacity")
    async with hung(folder, slow, Scripted("cpu", cpus("0-3"))) as node:
        await slow.entered.wait()
        async with running(Scripted("x.io/late", Allocation(quantity=100)), Options(folder / "r")):
            await node.plugins("x.io/late")
            await node.run(pod("modern", **{"x.io/late": "1"}))
        await others_go_on(node, slow)


async def test_a_refusal_that_rests_on_a_reservation_waits_for_its_end(folder: Path) -> None:
    """Two pods for which the node is too small: the second may run if the first, which waits for a plugin, may not."""
    slow = Hanging("allocate")
    async with hung(folder, slow, Scripted("cpu", cpus("0-3"))) as node:
        await node.plugins("x.io/slow")
        node.submit(pod("large", cpu="60", **SLOW))
        await slow.entered.wait()
        node.submit(pod("large-too", cpu="60"))
        why = await node.refused(pod("huge", cpu="100"))
        assert why.startswith("OutOfcpu") and "used: 60000" in why  # it never fits: told at once
        await others_go_on(node, slow)
        assert not node.running("uid-large-too") and not node.status("uid-large-too").get("reason")
        slow.refuses = "none left"
        slow.freed.set()
        await node.until_running("uid-large-too")
        assert "none left" in node.status("uid-large")["message"]


async def test_hints_that_others_made_old_are_heard_anew(folder: Path) -> None:
    """A pod hears one plugin's hints and waits for another plugin; meanwhile the first one gives to somebody else."""
    events: list[str] = []

    class Heard(Scripted):
        def hints(self, request: Request) -> None:
            events.append(f"hints {request.pod}")

        async def allocate(self, request: Request) -> Any:
            events.append(f"allocate {request.pod}")
            return await super().allocate(request)

    slow = Hanging("hints")
    async with hung(folder, slow, Heard("cpu", cpus("0-3"))) as node:
        await node.plugins("x.io/slow")
        node.submit(pod("stuck", cpu="1", **SLOW))
        await slow.entered.wait()
        await until("heard", lambda: events)
        await node.run(pod("web", cpu="1"))
        slow.freed.set()
        await node.until_running("uid-stuck")
    assert events == ["hints stuck", "hints web", "allocate web", "hints stuck", "allocate stuck"]


async def test_pods_of_one_plugin_keep_their_order(folder: Path) -> None:
    """They would wait for it anyway, and none of them is asked for twice."""
    slow = Hanging("hints")
    async with hung(folder, slow) as node:
        await node.plugins("x.io/slow")
        names = [f"p{number}" for number in range(6)]
        for name in names:
            node.submit(pod(name, **SLOW))
        await slow.entered.wait()
        slow.freed.set()
        for name in names:
            await node.until_running(f"uid-{name}")
    assert [one.pod for one in slow.asked] == names


async def test_an_agent_that_dies_while_a_pod_waits_gives_its_reservation_back(folder: Path) -> None:
    """The ledger was written for others meanwhile: what it knows of the pod is a reservation, which is nobody's now."""
    runtime = SimulatedRuntime(kep80(), logs=False)
    sets = {"stuck": "0-3", "web": "4-7", "next": "0-3"}
    cpu = Scripted("cpu", lambda request: cpus(sets[request.pod], exclusive=True))
    slow, stuck = Hanging("allocate"), pod("stuck", cpu="1", **SLOW)
    async with hung(folder, slow, cpu, runtime=runtime) as node:
        await node.plugins("x.io/slow")
        node.submit(stuck)
        await slow.entered.wait()
        await until("cpu has given", lambda: "uid-stuck" in cpu.book)
        await node.run(pod("web", cpu="1"))
        assert FileLedger(folder / "node").load().reserved == ("uid-stuck",)
        node.agent.abort()
    slow = Hanging("nowhere")
    async with hung(folder, slow, cpu, runtime=runtime) as node:
        node.submit(pod("web", cpu="1"))
        await until("cpu has heard", lambda: "uid-stuck" in cpu.released)
        assert (await node.run(pod("next", cpu="1")))["cpuset_cpus"] == "0-3"
        await node.until_running("uid-web")
        assert "LedgerRepaired" not in [reason for reason, _ in node.told]
    await runtime.close()


# ---- Processes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path) as live:
        yield live


class VendorProcess(PluginProcess):
    """A plugin that only some pods ask for; the built-in ones are asked by every pod."""

    def __init__(self, folder: Path, registry: Path) -> None:
        super().__init__(folder, "link", kep80(), "")
        self.command = [sys.executable, "-m", "tests.qrm.vendor_plugin", str(registry)]


def asking(name: str, **requests: str) -> dict[str, Any]:
    raw = pod_of(name, [container("main") | {"resources": {"requests": requests, "limits": requests}}])
    for key in ("uid", "generation"):
        del raw["metadata"][key]
    return raw


async def test_a_stopped_process_delays_nobody_else_through_the_api_server(server: LiveServer, folder: Path) -> None:
    """SIGSTOP hits a vendor's plugin. Pods that do not ask it come, run and go before it is let go on."""
    registry = folder / "s" / REGISTRY
    cpu, vendor = PluginProcess(folder, "cpu", kep80(), "{}"), VendorProcess(folder, registry)
    cpu.command[cpu.command.index("--registry") + 1] = str(registry)
    async with whole_node(server, folder, QrmSettings(deadline_seconds=ENDLESS)) as (agent, api):
        with plugin_processes(cpu, vendor):
            [manager] = [one for one in agent.managers if isinstance(one, QosResourceManager)]
            for name in ("cpu", "x.io/link"):
                await until(name, lambda name=name: (found := manager.endpoints.get(name)) and found.usable)
            assert vendor.process is not None
            vendor.process.send_signal(signal.SIGSTOP)
            await api.create(PODS, asking("stuck", cpu="1", **{"x.io/link": "1"}))
            await until("it is being admitted", lambda: agent.admission._held.reserved)
            for number in range(5):
                for name, requests in ((f"bare-{number}", {}), (f"web-{number}", {"cpu": "1"})):
                    await api.create(PODS, asking(name, **requests))
                    await until(f"{name} runs", lambda name=name: phase(api, name, "Running"))
            await api.delete(PODS, "web-0", "default", grace_seconds=0)
            names = lambda: {one.view.metadata.name for one in agent.core.pods.values()}  # noqa: E731
            await until("web-0 is gone", lambda: "web-0" not in names())
            assert await phase(api, "stuck", "Pending")
            assert agent.validate() == []
            vendor.process.send_signal(signal.SIGCONT)
            await until("stuck runs", lambda: phase(api, "stuck", "Running"))


async def test_a_stopped_nic_plugin_delays_only_the_roles_that_it_serves(folder: Path) -> None:
    """As in `kubeqos up`: pods that name no such role are admitted without a word to it."""
    nic = PluginProcess(folder, "nic", kep80(), "roles: [near]")
    async with qrm_node(folder, kep80(), settings=QrmSettings(deadline_seconds=ENDLESS)) as node:
        with plugin_processes(PluginProcess(folder, "cpu", kep80(), "{}"), nic):
            await node.plugins("cpu", "NIC")
            assert nic.process is not None
            nic.process.send_signal(signal.SIGSTOP)
            node.submit(pod_of("near", [container("main")], role="near"))
            await until("it is being admitted", lambda: "uid-near" in node.agent.admission._held.reserved)
            for name, role in (("web", ""), ("far", "another")):
                node.submit(pod_of(name, [container("main")], role=role))
                await node.until_running(f"uid-{name}")
            nic.process.send_signal(signal.SIGCONT)
            await node.until_running("uid-near")
