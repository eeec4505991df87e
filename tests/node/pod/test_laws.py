"""Anything may happen in any order: pods come and go, the runtime and a plugin fail or hang, the agent dies and comes
back.

A Hypothesis state machine over the real agent, the simulated runtime and virtual time. After every step the invariants
hold; when the world has calmed down, every pod is where it should be and nothing is leaked.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kubeqos.cri.errors import Code
from kubeqos.cri.simulated.faults import Fault, Faults
from kubeqos.cri.simulated.state import State
from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.admission.managers.cpu import EXCLUSIVE_ANNOTATION
from kubeqos.plugins.managers import NOTHING, AdmittedPod, Grant, Refusal
from tests.node.admission.test_admission import OFFERS, Plugin
from tests.node.pods import container, pod, resources
from tests.node.world import World

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "owner": {"containers": [container(resources=resources(cpu="2", memory="1Gi"))]},
    "classy": {"containers": [container(resources={"qosResources": [{"name": "rdt", "class": "gold"}]})]},
    "job": {"containers": [container(command=["sh", "-c", "sleep 3"])], "restartPolicy": "Never"},
    "crashing": {"containers": [container(command=["sh", "-c", "exit 1"])]},
    "staged": {
        "initContainers": [
            container("proxy", restartPolicy="Always"),
            container("setup", command=["sh", "-c", "sleep 1"], resources=resources(cpu="1", memory="1Gi")),
        ],
        "containers": [container(resources=resources(cpu="1", memory="1Gi")), container("second")],
    },
    "critical": {"containers": [container(resources=resources(cpu="3", memory="1Gi"))], "priority": 2_000_000_000},
    "stubborn": {"annotations": {"simulate.kubeqos.io/stop": "ignore"}, "terminationGracePeriodSeconds": 5},
}
ASKING = {"annotations": {"asks": "plugin"}}
SHAPES |= {f"asking-{name}": SHAPES[name] | ASKING for name in ("plain", "owner", "classy")}
"""Pods that the plugin is asked for; the others have nothing to do with it."""
FAULTY = ["RunPodSandbox", "CreateContainer", "StartContainer", "StopContainer", "UpdateContainerResources", "*"]


class AskedPlugin(Plugin):
    """Serves the pods that ask for it; hangs, fails or refuses in the middle of their admission when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = asyncio.Event()
        self.answers.set()
        self.waiting: set[str] = set()

    def peers(self, pod: AdmittedPod) -> frozenset[str]:
        return frozenset({"plugin"} if "asks" in pod.view.metadata.annotations else ())

    def offers_stand(self, _pod: AdmittedPod) -> bool:
        return True

    async def allocate(self, pod: Any, container: Any, hint: Any) -> Grant | Refusal:
        if not self.peers(pod):
            return NOTHING
        self.waiting.add(pod.uid)
        await self.answers.wait()
        self.waiting.discard(pod.uid)
        return await super().allocate(pod, container, hint)


class NodeMachine(RuleBasedStateMachine):
    """One node and everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="kubeqos-"))
        self.serial = 0

    def run(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    @initialize()
    def boot(self) -> None:
        async def start() -> World:
            world = World(self.folder, offers=OFFERS, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0))
            world.managers = [AskedPlugin()]
            await world.boot()
            return world

        self.world = self.run(start())
        self.plugin: AskedPlugin = self.world.managers[0]

    @rule(shape=st.sampled_from(sorted(SHAPES)))
    def create(self, shape: str) -> None:
        self.serial += 1
        self.run(self.world.start(pod(f"{shape}-{self.serial}", uid=f"{shape}-{self.serial}", **SHAPES[shape])))

    @precondition(lambda self: self.world.pods.pods)
    @rule(data=st.data(), grace=st.sampled_from([None, 0, 1, 60]))
    def delete(self, data: st.DataObject, grace: int | None) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.pods.pods)))
        self.run(self.world.end(uid, grace))

    @precondition(lambda self: self.world.pods.pods)
    @rule(data=st.data())
    def delete_by_force(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.world.pods.pods)))

        async def remove() -> None:
            self.world.pods.remove(uid)
            await self.world.settle()

        self.run(remove())

    @rule(seconds=st.sampled_from([1, 5, 20]))
    def wait(self, seconds: int) -> None:
        self.run(self.world.advance(seconds))

    @rule(method=st.sampled_from(FAULTY), code=st.sampled_from([Code.UNAVAILABLE, Code.UNKNOWN]))
    def runtime_fails(self, method: str, code: Code) -> None:
        self.world.runtime.faults = Faults(fault={method: Fault(code, 0.5)}, seed=self.serial)

    @rule(answer=st.sampled_from(["refuse", "raise"]))
    def plugin_fails(self, answer: str) -> None:
        later = Refusal("UnexpectedAdmissionError", "come back later", retry=True)
        self.plugin.answer = later if answer == "refuse" else RemoteError("gone")

    @rule()
    def plugin_hangs(self) -> None:
        self.plugin.answers.clear()

    @rule(owners=st.booleans())
    def others_start_while_it_hangs(self, owners: bool) -> None:
        """Whoever does not ask the plugin runs, or is refused for good, before it is heard of again."""
        self.plugin_hangs()
        self.calm_down_runtime()
        self.serial += 2
        stuck, free = f"asking-owner-{self.serial}", f"{'owner' if owners else 'plain'}-{self.serial + 1}"
        self.run(self.world.start(pod(stuck, uid=stuck, **SHAPES["asking-owner"])))
        self.run(self.world.start(pod(free, uid=free, **SHAPES["owner" if owners else "plain"])))
        self.run(self.world.settle())
        status = self.world.status(free)
        waits_for_room = status.get("phase") in (None, "Pending") and owners and self.plugin.waiting
        assert status.get("phase") in ("Running", "Failed") or waits_for_room, self.world.agent.core.story(free)

    @rule()
    def calm_down(self) -> None:
        self.plugin.answers.set()
        self.world.runtime.faults = None
        self.plugin.answer = Grant({"cpuset_mems": "0"})

    @rule()
    def restart(self) -> None:
        self.calm_down_runtime()
        self.run(self._reboot())

    def calm_down_runtime(self) -> None:
        """An agent that cannot reach its runtime waits in real time, which has no place here."""
        self.world.runtime.faults = None

    async def _reboot(self) -> None:
        await self.world.halt()
        await self.world.boot()

    @precondition(lambda self: self.world.runtime.core.sandboxes)
    @rule(data=st.data())
    def sandbox_dies(self, data: st.DataObject) -> None:
        identity = data.draw(st.sampled_from(sorted(self.world.runtime.core.sandboxes)))
        self.world.runtime.faults = None
        self.run(self.world.runtime.stop_pod_sandbox(identity))
        self.run(self.world.settle())

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "world"):
            self.world.validate()
            self.no_cpu_has_two_owners()

    def no_cpu_has_two_owners(self) -> None:
        core = self.world.runtime.core
        running = [one for one in core.containers.values() if one.state is State.RUNNING]
        for one in running:
            if EXCLUSIVE_ANNOTATION in one.config.annotations:
                mine = core.sandboxes[one.sandbox_id].config.metadata.uid
                for other in running:
                    if core.sandboxes[other.sandbox_id].config.metadata.uid != mine:
                        both = CpuSet.parse(one.resources.cpuset_cpus) & CpuSet.parse(other.resources.cpuset_cpus)
                        assert not both, f"{mine} shares {both}"

    def teardown(self) -> None:
        try:
            if hasattr(self, "world"):
                self.calm_down()
                self.run(self._settle_and_end())
        finally:
            if hasattr(self, "world"):
                self.run(self.world.halt())
            self.loop.close()
            shutil.rmtree(self.folder)

    async def _settle_and_end(self) -> None:
        world = self.world
        await world.advance(70)
        for uid, raw in world.pods.pods.items():
            status = raw.get("status") or {}
            assert status.get("phase") in ("Running", "Pending", "Succeeded", "Failed"), (uid, status)
            if uid.startswith(("plain", "stubborn", "asking-plain")) and "deletionTimestamp" not in raw["metadata"]:
                assert status["phase"] in ("Running", "Failed"), (uid, status, world.agent.core.story(uid))
        for uid in list(world.pods.pods):
            await world.end(uid, 1)
        await world.advance(70)
        agent = world.agent
        stories = {uid: agent.core.story(uid)[-6:] for uid in agent.core.pods}
        assert not world.pods.pods and not agent.core.pods, stories
        assert not world.runtime.core.containers and not world.runtime.core.sandboxes
        assert not agent.cpus.owned and not agent.classes.used() and not agent.admission.entries  # type: ignore


NodeMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)
TestNodeMachine = NodeMachine.TestCase
