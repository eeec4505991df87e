"""Plugins that die, hang, forget, lie and quarrel; agents that die half way. Nothing is lost or owned twice, others are
not held up, and somebody is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import kep80
from kubeqos.plugins import sockets
from kubeqos.plugins.managers import Refusal
from kubeqos.qrm.endpoint import DOUBT_SECONDS
from kubeqos.qrm.messages import METHODS
from kubeqos.qrm.patience import KEEP_SECONDS
from kubeqos.qrm.proto import resourceplugin_pb2 as pb
from kubeqos.qrm.sdk import Allocation, Options, Request, running
from kubeqos.qrm.settings import QrmSettings
from kubeqos.topology.alignment.hints import Policy
from tests.qrm.harness import PluginProcess, plugin_processes, pod, qrm_node, until
from tests.qrm.live import Scripted, bench, cpus, serving_raw

PLUGINS_HANG = True
ROLES = """
reserved: "0-1,40-41"
roles:
  storage-service: {dedicated: true, numa: bind}
"""


def refusal(outcome: Any) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


# ---- Death


async def test_a_plugin_killed_during_allocate(folder: Path) -> None:
    """The pod is refused for now, and is admitted once the plugin is back."""
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            assert cpu.process is not None
            cpu.process.send_signal(signal.SIGSTOP)
            node.submit(pod("web", "storage-service", cpu="20"))
            await asyncio.sleep(0.1)
            cpu.kill()
            await until("noticed", lambda: not node.manager.endpoints.get("cpu").live)  # type: ignore[union-attr]
            assert not node.running("uid-web")
            await until("told", lambda: node.told)
            assert node.told[0][0] == "UnexpectedAdmissionError"
            assert node.told[0][1].startswith("container container0: cpu: plugin cpu")
            cpu.start()
            await until("runs", lambda: node.running("uid-web"))
            assert node.resources("uid-web")["cpuset_cpus"] == "2-21"


async def test_a_plugin_restarted_with_its_state_goes_on(folder: Path) -> None:
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            await node.run(pod("web", "storage-service", cpu="20"))
            cpu.kill()
            await until("noticed", lambda: not node.manager.endpoints.get("cpu").live)  # type: ignore[union-attr]
            cpu.start()
            await node.plugins("cpu")
            next_one = await node.run(pod("next", "storage-service", cpu="10"))
            assert next_one["cpuset_cpus"] == "22-31"
            assert node.calls == []


async def test_a_plugin_restarted_with_an_empty_state_gives_nothing_twice(folder: Path) -> None:
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    async with qrm_node(folder, kep80()) as node:
        with plugin_processes(cpu):
            await node.plugins("cpu")
            await node.run(pod("web", "storage-service", cpu="20"))
            await node.run(pod("db", "storage-service", cpu="4"))
            cpu.kill()
            for file in folder.glob("cpu.state*"):
                file.unlink()
            await until("noticed", lambda: not node.manager.endpoints.get("cpu").live)  # type: ignore[union-attr]
            cpu.start()
            await node.plugins("cpu")
            await node.run(pod("next", "storage-service", cpu="10"))
            held = [node.resources(f"uid-{name}")["cpuset_cpus"] for name in ("web", "db", "next")]
            assert held == ["2-21", "22-25", "26-35"]
            [event] = [event for event in node.events if event.reason == "ResourcePluginForgot"]
            assert event.message == "plugin cpu has lost what it gave to 2 containers and is asked for it again"


# ---- Hanging


async def test_t28_a_hung_plugin_holds_up_only_its_own_pods(folder: Path) -> None:
    async def hang(_request: Request) -> Allocation:
        await asyncio.sleep(3600)
        return Allocation(quantity=100)

    async with bench(folder) as node:
        slow = Scripted("slow", hang)
        async with node.plugin(slow), node.plugin(Scripted("cpu", cpus("0-3"))):
            waiting = asyncio.create_task(node.admit(pod("stuck", slow="1")))
            await until("asked", lambda: slow.asked)
            async with asyncio.timeout(60):
                assert isinstance(await node.admit(pod("web", cpu="1")), list)
                assert await node.told() == []
            waiting.cancel()


async def test_a_plugin_that_hangs_in_allocate_delays_no_other_pod(folder: Path) -> None:
    """It answers everything else, as a plugin does whose policy is stuck in a lock. Only its own pod waits; what it
    gives at last is given to that pod."""
    done = asyncio.Event()

    async def hang(_request: Request) -> Allocation:
        await done.wait()
        return Allocation(envs={"SLOW": "1"})

    slow, options = Scripted("x.io/slow", hang), Options(folder / "r")
    async with (
        qrm_node(folder, kep80()) as node,
        running(slow, options),
        running(Scripted("cpu", cpus("0-3")), options),
    ):
        await node.plugins("x.io/slow", "cpu")
        node.submit(pod("stuck", **{"x.io/slow": "1"}))
        await until("told", lambda: node.told)
        [(reason, message), *_] = node.told
        assert reason == "UnexpectedAdmissionError"
        assert message.startswith("container container0: x.io/slow: plugin x.io/slow has not answered Allocate yet; ")
        async with asyncio.timeout(METHODS["Allocate"][2]):  # the deadline of the call that hangs
            for name in ("web", "api", "db"):
                await node.run(pod(name, cpu="1"))
            node.submit(pod("stuck-too", **{"x.io/slow": "1"}))
            await node.run(pod("last", cpu="1"))
        done.set()
        await node.until_running("uid-stuck")
        await node.until_running("uid-stuck-too")
        assert {one.key: one.value for one in node.config("uid-stuck").envs}["SLOW"] == b"1"
    assert [one.pod for one in slow.asked] == ["stuck", "stuck-too"]  # each was asked for once
    assert "uid-stuck" not in slow.released


async def test_what_nobody_comes_back_for_is_released(folder: Path) -> None:
    """A pod was deleted while a plugin was still busy with it."""
    now = [0.0]
    done = asyncio.Event()

    async def hang(_request: Request) -> Allocation:
        await done.wait()
        return Allocation(quantity=100)

    async with bench(folder, clock=lambda: now[0]) as node, node.plugin(Scripted("slow", hang)) as plugin:
        assert refusal(await node.admit(pod("web", slow="1"))).retry
        done.set()
        await until("given", lambda: plugin.book)
        await node.manager.reconcile()
        assert plugin.released == []
        now[0] += KEEP_SECONDS + 1
        await node.manager.reconcile()
        assert plugin.released == ["uid-web"]


async def test_a_process_that_is_stopped_for_long_delays_no_other_pod(folder: Path) -> None:
    memory = PluginProcess(folder, "memory", kep80(), "{}")
    plugin = Scripted("x.io/a", Allocation(quantity=100))
    async with qrm_node(folder, kep80()) as node, running(plugin, Options(folder / "r")):
        with plugin_processes(memory):
            await node.plugins("memory", "x.io/a")
            assert memory.process is not None
            memory.process.send_signal(signal.SIGSTOP)
            node.submit(pod("stuck", memory="1Gi"))
            silent = "plugin memory hangs: no answer to GetTopologyHints, nor to a probe"
            await until("told", lambda: any(silent in why for _, why, *_ in node.told))
            reasons = node.manager.conditions()["ResourcePluginsReady"]
            assert reasons[0] == "False" and "plugin memory hangs" in reasons[2]
            async with asyncio.timeout(METHODS["Allocate"][2]):
                for attempt in range(20):
                    unasked = pod(f"web-{attempt}", annotations={"katalyst.kubewharf.io/skip_qrm_admit": "true"})
                    await node.run(unasked)
            memory.process.send_signal(signal.SIGCONT)
            await node.until_running("uid-stuck")


async def test_a_stopped_process_is_silent_soon_and_heard_again(folder: Path) -> None:
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    async with bench(folder) as node:
        with plugin_processes(cpu):
            await node.usable("cpu")
            assert cpu.process is not None
            cpu.process.send_signal(signal.SIGSTOP)

            async def known() -> bool:
                outcome = refusal(await node.admit(pod("web", cpu="1"), Policy.BEST_EFFORT))
                assert outcome.retry
                return "plugin cpu hangs: no answer to GetTopologyHints, nor to a probe" in outcome.message

            await until("known that it hangs, at the first time unless this machine is busy", known)
            cpu.process.send_signal(signal.SIGCONT)
            await node.manager.reconcile()
            assert isinstance(await node.admit(pod("web", cpu="1")), list)


async def test_a_slow_plugin_that_answers_probes_is_waited_for(folder: Path) -> None:
    async def slowly(_request: Request) -> Allocation:
        await asyncio.sleep(DOUBT_SECONDS * 1.5)
        return cpus("0-3")

    async with bench(folder) as node, node.plugin(Scripted("cpu", slowly)):
        assert isinstance(await node.admit(pod("web", cpu="1")), list)


async def test_a_plugin_that_never_worked_is_not_waited_for(folder: Path) -> None:
    def broken(_request: Any) -> Any:
        raise RuntimeError("not today")

    async with bench(folder) as node, serving_raw(folder, "x", {"GetResourcePluginOptions": broken}):
        socket = folder / "r" / "x.sock"
        told = await node.manager.endpoints.attach("x", socket, node.manager.reconciler.synchronise)
        assert told is not None and told.startswith("plugin x: GetResourcePluginOptions")

        async def admitted() -> bool:
            return isinstance(await node.admit(pod("web", x="1")), list)

        await until("admitted, whenever the plugin is not just being tried again", admitted)


async def test_two_who_never_worked_at_the_same_time_are_not_waited_for(folder: Path) -> None:
    """A plugin may register in both ways at once: neither attempt is what the other falls back to."""

    async def broken(_request: Any) -> Any:
        await asyncio.sleep(0.05)  # the second attempt begins while the first is under way
        raise RuntimeError("not today")

    aside = folder / "aside"  # where nobody looks for sockets
    async with bench(folder) as node, serving_raw(aside, "x", {"GetResourcePluginOptions": broken}):
        endpoints, socket = node.manager.endpoints, aside / "r" / "x.sock"
        attempts = (endpoints.attach("x", socket, node.manager.reconciler.synchronise) for _ in range(2))
        assert all(await asyncio.gather(*attempts))
        assert list(endpoints) == []
        assert isinstance(await node.admit(pod("web", x="1")), list)


# ---- Nonsense


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (cpus("0-3", 1), "cpu: 2 requested, 1 allocated"),
        (cpus("0-3", float("nan")), "allocated quantity nan is not a quantity"),
        (cpus("0-3", -4), "allocated quantity -4.0 is not a quantity"),
        (cpus("0-3,x"), 'invalid number "x"'),
        (cpus("0-200"), "80-200 do not exist on this machine"),
        (Allocation(property="CpusetMems", result="0-7"), "2-7 do not exist on this machine"),
        (Allocation(property="CpuSpeed", result="1"), "unknown property 'CpuSpeed'"),
        (
            Allocation(property="HugepageLimits", result='{"2MB": "many"}'),
            "HugepageLimits must be a JSON object of bytes",
        ),
        (Allocation(property="HugepageLimits", result='{"two": 1}'), "HugepageLimits must be a JSON object of bytes"),
        (Allocation(property="CpuShares", result="many"), "CpuShares must be a whole number"),
        (Allocation(property="CpuShares", result=str(1 << 70)), "CpuShares is out of range"),
        (Allocation(property="Unified", result="io.weight=1"), "Unified must be a JSON object"),
    ],
)
async def test_t17_nonsense_is_refused_at_admission(folder: Path, given: Allocation, complaint: str) -> None:
    async with bench(folder) as node, node.plugin(Scripted("cpu", given)) as plugin:
        outcome = refusal(await node.admit(pod("web", cpu="2")))
        assert "plugin cpu gave a wrong answer" in outcome.message
        assert complaint in outcome.message
        assert plugin.released == ["uid-web"]


async def test_two_owners_of_one_cpu_are_refused(folder: Path) -> None:
    async with bench(folder) as node, node.plugin(Scripted("cpu", cpus("0-3", exclusive=True))):
        assert isinstance(await node.admit(pod("one", cpu="1")), list)
        outcome = refusal(await node.admit(pod("two", cpu="1")))
        assert "both hold 0-3, which is exclusive" in outcome.message
        assert node.manager.validate() == []


async def test_katalysts_dedicated_cores_are_exclusive(folder: Path) -> None:
    level = {"katalyst.kubewharf.io/qos_level": "dedicated_cores"}
    async with bench(folder) as node, node.plugin(Scripted("cpu", cpus("0-3"))):
        assert isinstance(await node.admit(pod("one", cpu="1", annotations=level)), list)
        refusal(await node.admit(pod("two", cpu="1", annotations=level)))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        (cpus("4-7", exclusive=True), "both hold 4-7, which is exclusive"),
        (cpus("0-500", exclusive=True), "do not exist on this machine"),
        (Allocation(property="CpuSpeed", result="1"), "unknown property"),
    ],
)
async def test_nonsense_in_a_report_leaves_the_last_good_state(
    folder: Path, changed: Allocation, complaint: str
) -> None:
    plugin = Scripted("cpu", lambda request: cpus("0-3" if request.pod == "one" else "4-7", exclusive=True))
    async with bench(folder) as node, node.plugin(plugin):
        await node.admit(pod("one", cpu="1"))
        await node.admit(pod("two", cpu="1"))
        plugin.book["uid-one"]["container0"]["cpu"] = changed
        for _ in range(3):
            assert await node.told() == []
        [event] = node.events  # said once
        assert event.reason == "ResourcePluginAnswer" and event.message.startswith("plugin cpu is in the wrong: ")
        assert complaint in event.message
        assert node.manager.allocations.get("uid-one", "container0").resources["cpu"].result == "0-3"  # type: ignore[union-attr]
        plugin.book["uid-one"]["container0"]["cpu"] = cpus("0-1", exclusive=True)
        assert await node.told() == [("uid-one", "0-1")]


async def test_an_endless_answer_is_refused_while_it_arrives(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = pb.ResourceAllocationResponse()
    huge.allocation_result.resource_allocation["big"].allocation_result = "x" * 2 * sockets.MAX_MESSAGE_BYTES
    async with bench(folder) as node:
        monkeypatch.setattr(sockets, "LIMITS", [("grpc.max_send_message_length", -1)])  # of the plugin alone
        async with serving_raw(folder, "big", {"Allocate": lambda _request: huge}):
            await node.usable("big")
            outcome = refusal(await node.admit(pod("web", big="1"), Policy.BEST_EFFORT))
    assert "RESOURCE_EXHAUSTED" in outcome.message


# ---- Death of the agent


async def test_an_agent_killed_between_allocate_and_checkpoint(folder: Path) -> None:
    """The plugin has given, the ledger does not know: the pod's next admission gets the same, nobody else does."""
    runtime = SimulatedRuntime(kep80(), logs=False)
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    with plugin_processes(cpu):
        async with qrm_node(folder, kep80(), runtime=runtime) as node:
            await node.plugins("cpu")
            await node.run(pod("before", "storage-service", cpu="4"))

            def die(*_: Any) -> None:
                raise asyncio.CancelledError

            node.agent.admission._save = die  # type: ignore[method-assign]
            node.submit(pod("web", "storage-service", cpu="20"))
            await until("given", lambda: "uid-web" in node.manager.allocations)
            await asyncio.sleep(0.1)
            assert not node.running("uid-web")
        async with qrm_node(folder, kep80(), runtime=runtime) as node:
            node.submit(pod("before", "storage-service", cpu="4"))
            await node.plugins("cpu")
            found = await node.run(pod("web", "storage-service", cpu="20"))
            assert found["cpuset_cpus"] == "6-25"
            other = await node.run(pod("other", "storage-service", cpu="4"))
            assert other["cpuset_cpus"] == "26-29"
            assert node.resources("uid-before")["cpuset_cpus"] == "2-5"
    await runtime.close()


async def test_an_agent_killed_between_two_updates(folder: Path) -> None:
    """Half of the containers were told: after the restart all are, and no CPU had two owners meanwhile."""
    runtime = SimulatedRuntime(kep80(), logs=False)
    pools = "pools: {a: {size: 40}, b: {size: 40}}\nroles: {a: {pool: a}, b: {pool: b}}\n"
    cpu = PluginProcess(folder, "cpu", kep80(), pools)
    pods = [pod(f"{role}{n}", role, cpu="1") for role in "ab" for n in range(3)]
    with plugin_processes(cpu):
        async with qrm_node(folder, kep80(), runtime=runtime, settings=QrmSettings(reconcile_seconds=3600)) as node:
            await node.plugins("cpu")
            for raw in pods:
                await node.run(raw)
            assert cpu.set_pool("a=10", "b=70").returncode == 0
            assert await node.manager.reconcile()
            told = 0
            update = runtime.update_container_resources

            async def dying(request: Any) -> None:
                nonlocal told
                told += 1
                if told > 2:
                    await asyncio.Event().wait()  # until the agent is gone
                await update(request)

            runtime.update_container_resources = dying  # type: ignore[method-assign]
            await node.agent.updater.reconcile()
            await until("two were told, and nobody else will be", lambda: told == 3)
            runtime.update_container_resources = update  # type: ignore[method-assign]
            sets = [node.resources(raw["metadata"]["uid"])["cpuset_cpus"] for raw in pods]
            assert sets == ["0-5,40-43"] * 2 + ["0-19,40-59"] + ["20-39,60-79"] * 3
        async with qrm_node(folder, kep80(), runtime=runtime) as node:
            for raw in pods:
                node.submit(raw)
            await node.plugins("cpu")
            wanted = ["0-5,40-43"] * 3 + ["6-39,44-79"] * 3

            def sets_now() -> bool:
                return [node.resources(raw["metadata"]["uid"])["cpuset_cpus"] for raw in pods] == wanted

            await until("everybody was told", sets_now)
    await runtime.close()


# ---- Death of the agent, as a process


class AgentProcess:
    """`tests.qrm.doomed_agent` on a runtime that outlives it."""

    def __init__(self, folder: Path, moment: str = "never") -> None:
        command = [sys.executable, "-m", "tests.qrm.doomed_agent", str(folder), moment]
        with (folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    async def dies(self) -> None:
        assert await asyncio.to_thread(self.process.wait, 30) == -signal.SIGKILL

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def sets_of(runtime: SimulatedRuntime) -> dict[str, str]:
    """The CPUs of every running container, by pod."""
    return {
        runtime.core.sandboxes[one.sandbox_id].config.metadata.name: one.resources.cpuset_cpus
        for one in runtime.core.containers.values()
        if one.state.name == "RUNNING"
    }


@contextlib.asynccontextmanager
async def lasting_runtime(folder: Path, pods: list[dict[str, Any]]) -> AsyncIterator[SimulatedRuntime]:
    """A runtime on a socket, and the pods that agents are to run on it."""
    (folder / "pods.json").write_text(json.dumps(pods))
    runtime = SimulatedRuntime(kep80(), logs=False)
    async with serving(runtime, f"unix://{folder}/cri.sock"):
        yield runtime
    await runtime.close()


async def test_an_agent_process_killed_between_allocate_and_checkpoint(folder: Path) -> None:
    cpu = PluginProcess(folder, "cpu", kep80(), ROLES)
    pods = [pod(name, "storage-service", cpu="10") for name in ("web", "other")]
    async with lasting_runtime(folder, pods[:1]) as runtime:
        with plugin_processes(cpu):
            doomed = AgentProcess(folder, "checkpoint:uid-web")
            await doomed.dies()
            given = json.loads(cpu.state.read_text())
            assert "uid-web" in json.dumps(given)  # the plugin has given
            assert sets_of(runtime) == {}  # and nothing was started
            (folder / "pods.json").write_text(json.dumps(pods))
            agent = AgentProcess(folder)
            try:
                await until("both run", lambda: len(sets_of(runtime)) == 2)
            finally:
                agent.stop()
    assert sets_of(runtime) == {"web": "2-11", "other": "12-21"}


async def test_an_agent_process_killed_between_two_updates(folder: Path) -> None:
    config = "pools: {a: {size: 40}, b: {size: 40}}\nroles: {a: {pool: a}, b: {pool: b}}\n"
    cpu = PluginProcess(folder, "cpu", kep80(), config)
    pods = [pod(f"{role}{number}", role, cpu="1") for role in "ab" for number in range(3)]
    async with lasting_runtime(folder, pods) as runtime:
        with plugin_processes(cpu):
            doomed = AgentProcess(folder, "update:2")
            try:
                await until("all run", lambda: len(sets_of(runtime)) == 6)
                assert cpu.set_pool("a=10", "b=70").returncode == 0
                await doomed.dies()
            finally:
                doomed.stop()
            told = list(sets_of(runtime).values())
            assert told.count("0-5,40-43") == 2 and told.count("20-39,60-79") == 3  # narrowed first, and half way
            agent = AgentProcess(folder)
            wanted = {raw["metadata"]["name"]: "0-5,40-43" for raw in pods[:3]}
            wanted |= {raw["metadata"]["name"]: "6-39,44-79" for raw in pods[3:]}
            try:
                await until("everybody was told", lambda: sets_of(runtime) == wanted)
            finally:
                agent.stop()
