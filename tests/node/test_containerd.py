"""The node agent on real containerd: real processes on the CPUs they own, a real OOM kill."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeqos.codec import decode_json
from kubeqos.cri.client import CriClient
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from tests.cri.containerd import CGROUPS, Containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.node.pods import container, pod, resources
from tests.node.test_live import until
from tests.shared import cgroups

pytestmark = pytest.mark.containerd


class RealNode:
    def __init__(self, agent: NodeAgent, pods: LocalPods, events: Sequence[tuple[str, str]] = ()) -> None:
        self.agent = agent
        self.pods = pods
        self.events = events
        """What the node has told: reason and message of each."""

    def status(self, uid: str) -> dict[str, Any]:
        found: dict[str, Any] = (self.pods.pods.get(uid) or {}).get("status") or {}
        return found

    def container(self, uid: str, name: str = "main") -> dict[str, Any]:
        return next((one for one in self.status(uid).get("containerStatuses", ()) if one["name"] == name), {})

    async def running(self, uid: str) -> None:
        async def runs() -> bool:
            return self.status(uid).get("phase") == "Running" and all(
                one["ready"] for one in self.status(uid)["containerStatuses"]
            )

        await until(f"{uid} runs; story: {self.agent.core.story(uid)[-5:]}", runs)

    async def gone(self, uid: str) -> None:
        self.pods.end(uid, self.agent.now(), 1)

        async def went() -> bool:
            return uid not in self.pods.pods

        await until(f"{uid} goes; story: {self.agent.core.story(uid)[-5:]}", went)

    async def cpus(self, uid: str, name: str = "main") -> CpuSet:
        """Where the kernel lets the container's process run."""
        identity = self.container(uid, name)["containerID"].rpartition("/")[2]
        answer = await self.agent.runtime.container_status(identity, verbose=True)
        lines = Path(f"/proc/{decode_json(answer.info['info'].encode())['pid']}/status").read_text().splitlines()
        return CpuSet.parse(next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:")))


@contextlib.asynccontextmanager
async def real_node(
    containerd: Containerd, folder: Path, *, relay: Path | None = None, **settings: Any
) -> AsyncIterator[RealNode]:
    """A node of this machine; `relay` is the socket of one that stands before containerd."""
    machine = read_machine(Path("/sys"), name="n1")
    pods = LocalPods()
    chosen = NodeSettings(
        "n1",
        folder / "state",
        log_dir=folder / "logs",
        cgroup_root=containerd.cgroup_parent,
        cgroup_fs=CGROUPS,
        **settings,
    )
    endpoint = containerd.endpoint if relay is None else f"unix://{relay}"
    async with CriClient(endpoint, relist_seconds=0.1) as client:
        events: list[tuple[str, str]] = []
        hosting = Hosting(pods=pods, on_event=lambda reason, message: events.append((reason, message)))
        agent = NodeAgent(assemble(chosen, client, machine, hosting))
        task = asyncio.create_task(agent.run())
        try:
            await asyncio.wait_for(agent.ready.wait(), 60)
            node = RealNode(agent, pods, events)
            yield node
            assert agent.validate() == []
            for uid in list(pods.pods):
                await node.gone(uid)
            assert not await client.list_containers() and not await client.list_pod_sandboxes()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert agent.cgroups is not None
            agent.cgroups.files.remove(f"{containerd.cgroup_parent}/kubepods")  # tiers outlive agents


def busybox(name: str, script: str, **fields: Any) -> dict[str, Any]:
    command = ["sh", "-c", f"trap 'exit 0' TERM; {script}"]
    return container(name, image=BUSYBOX_IMAGE, imagePullPolicy="IfNotPresent", command=command, **fields)


SLEEP = "while true; do sleep 0.1; done"


async def somebody_else_moves(node: RealNode, uid: str, pod_cgroup: str, cpus: CpuSet) -> None:
    """Write a container's cpuset, as a stranger does."""
    identity = node.container(uid)["containerID"].rpartition("/")[2]
    cgroups.file(f"{pod_cgroup}/{identity}", "cpuset.cpus").write_text(str(cpus))


@pytest.mark.proves("exclusive-cpus", "pod-cgroups")
async def test_a_guaranteed_pod_owns_its_cpus_and_the_kernel_says_so(containerd: Containerd, tmp_path: Path) -> None:
    online = read_machine(Path("/sys")).online
    reserved = CpuSet.of(online.first())
    settings = {"cpu_manager_policy": "static", "reserved_cpus": reserved, "relist_seconds": 1.0}
    async with real_node(containerd, tmp_path, **settings) as node:
        shared = node.pods.set(pod("shared", busybox("main", SLEEP), hostNetwork=True))
        await node.running(shared)
        assert await node.cpus(shared) == online
        owner = node.pods.set(
            pod("owner", busybox("main", SLEEP, resources=resources(cpu="1", memory="64Mi")), hostNetwork=True)
        )
        await node.running(owner)
        owned = await node.cpus(owner)
        assert len(owned) == 1 and not owned & reserved
        pod_cgroup = f"{containerd.cgroup_parent}/kubepods/pod{owner}"
        assert cgroups.value(pod_cgroup, "cpu.quota") == "-1"  # it owns its CPU
        assert cgroups.value(pod_cgroup, "memory.limit") == str(64 << 20)
        assert await node.cpus(shared) == online - owned
        await somebody_else_moves(node, shared, f"{containerd.cgroup_parent}/kubepods/besteffort/pod{shared}", online)

        async def left_again() -> bool:
            return await node.cpus(shared) == online - owned

        await until("it is moved off what is owned", left_again)
        assert node.agent.books.counts["cpuset_cpus"] == 1
        await node.gone(owner)

        async def widened() -> bool:
            return await node.cpus(shared) == online

        await until("the shared pool gets its CPUs back", widened)


@pytest.mark.proves("oom")
async def test_a_memory_hog_is_killed_and_restarted_alone(containerd: Containerd, tmp_path: Path) -> None:
    async with real_node(containerd, tmp_path) as node:
        limit = {"limits": {"memory": "24Mi"}, "requests": {"memory": "24Mi"}}
        hog = busybox("hog", "sleep 1; tail /dev/zero", resources=limit)
        uid = node.pods.set(pod("mixed", hog, busybox("calm", SLEEP), hostNetwork=True))
        await node.running(uid)
        calm = node.container(uid, "calm")["containerID"]

        async def killed() -> Any:
            found = node.container(uid, "hog")
            ended = found["lastState"].get("terminated") or found["state"].get("terminated")
            return ended if found["restartCount"] >= 1 and ended else None

        ended = await until("the hog is killed and restarted", killed)
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
        assert node.container(uid, "calm")["containerID"] == calm


@pytest.mark.proves("oom")
async def test_a_child_that_runs_out_of_memory_is_told_although_its_container_goes_on(
    containerd: Containerd, tmp_path: Path
) -> None:
    """Cgroup v1 kills one process and no more, as cgroup v2 does where the setting says so."""
    async with real_node(containerd, tmp_path, single_process_oom_kill=True) as node:
        limit = {"limits": {"memory": "24Mi"}, "requests": {"memory": "24Mi"}}
        check = {"exec": {"command": ["busybox", "test", "-f", "/survived"]}, "periodSeconds": 1}
        parent = busybox("main", f"(tail /dev/zero); echo > /survived; {SLEEP}", resources=limit, readinessProbe=check)
        uid = node.pods.set(pod("parent", parent, hostNetwork=True))
        await node.running(uid)
        assert node.agent.cgroups is not None
        await node.agent.cgroups.reconcile()
        assert [told for told in node.events if told[0] == "OOMKilling"] == [
            ("OOMKilling", "memory ran out: 1 process of the pod killed")
        ]
        assert node.container(uid)["restartCount"] == 0 and "running" in node.container(uid)["state"]


async def test_the_kernel_kills_in_the_order_of_qos_classes(containerd: Containerd, tmp_path: Path) -> None:
    """pod-qos: a machine without memory (here: the cgroup that all pods live in) loses BestEffort first."""
    async with real_node(containerd, tmp_path) as node:
        hold = "x=$(head -c 8000000 /dev/zero | tr '\\0' x); echo > /held; " + SLEEP
        amounts = {"memory": "256Mi", "cpu": "100m"}  # far more than it holds
        guaranteed = {"limits": amounts, "requests": amounts}
        # One that asks for most of the machine has a score far below that of who asks for nothing.
        burstable = {"requests": {"memory": str(7 * sum(one.memory_bytes for one in node.agent.machine.nodes) // 10)}}
        kinds = {"guaranteed": guaranteed, "burstable": burstable, "best-effort": {}}
        check = {"exec": {"command": ["busybox", "test", "-f", "/held"]}, "periodSeconds": 1}
        uids = {}
        for name, resources in kinds.items():
            main = busybox("main", hold, resources=resources, readinessProbe=check)
            uids[name] = node.pods.set(pod(name, main, hostNetwork=True, restartPolicy="Never"))
            await node.running(uids[name])
        whole = CGROUPS / "memory" / containerd.cgroup_parent.strip("/")

        def ended(name: str) -> Any:
            return node.container(uids[name]).get("state", {}).get("terminated")

        async def two_ended() -> bool:
            return all(ended(name) for name in ("best-effort", "burstable"))

        async def ended_ns(name: str) -> int:
            identity = node.container(uids[name])["containerID"].rpartition("/")[2]
            return (await node.agent.runtime.container_status(identity)).status.finished_at

        try:
            # From here on nobody gets more: who does makes the kernel look for somebody to kill.
            (whole / "memory.limit_in_bytes").write_text((whole / "memory.usage_in_bytes").read_text())
            grow = busybox("main", hold.replace("8000000", "12000000"), resources=guaranteed)
            uids["grows"] = node.pods.set(pod("grows", grow, hostNetwork=True))
            await until("two are killed", two_ended)
        finally:
            (whole / "memory.limit_in_bytes").write_text("-1")
        assert [ended(name)["reason"] for name in ("best-effort", "burstable")] == ["OOMKilled", "OOMKilled"]
        times = {name: await ended_ns(name) for name in kinds if ended(name)}
        assert sorted(times, key=times.__getitem__)[:2] == ["best-effort", "burstable"]


@pytest.mark.proves("probes-and-hooks")
async def test_a_job_succeeds_and_its_last_words_are_kept(containerd: Containerd, tmp_path: Path) -> None:
    async with real_node(containerd, tmp_path) as node:
        job = busybox("main", "echo all done > /dev/termination-log")
        uid = node.pods.set(pod("job", job, hostNetwork=True, restartPolicy="Never"))

        async def succeeded() -> Any:
            return (
                node.container(uid).get("state", {}).get("terminated")
                if node.status(uid).get("phase") == "Succeeded"
                else None
            )

        ended = await until("the job succeeds", succeeded)
        assert (ended["exitCode"], ended["reason"], ended["message"]) == (0, "Completed", "all done\n")


@pytest.mark.proves("probes-and-hooks")
async def test_probes_and_hooks_are_real(containerd: Containerd, tmp_path: Path) -> None:
    """A command, an HTTP request and a connection, each to a real process; a word before it goes."""
    port = free_port()
    script = f"busybox mkdir /www; echo up > /www/alive; busybox httpd -p {port} -h /www; {SLEEP}"
    farewell = tmp_path / "farewell"
    farewell.mkdir()
    main = busybox(
        "main",
        script,
        startupProbe={"tcpSocket": {"port": port}, "periodSeconds": 1, "failureThreshold": 20},
        livenessProbe={"httpGet": {"path": "/alive", "port": port}, "periodSeconds": 1, "failureThreshold": 2},
        readinessProbe={"exec": {"command": ["busybox", "test", "-f", "/ready"]}, "periodSeconds": 1},
        lifecycle={
            "postStart": {"exec": {"command": ["busybox", "touch", "/farewell/hello"]}},
            "preStop": {"exec": {"command": ["busybox", "touch", "/farewell/bye"]}},
        },
        volumeMounts=[{"name": "farewell", "mountPath": "/farewell"}],
    )
    volumes = [{"name": "farewell", "hostPath": {"path": str(farewell)}}]
    async with real_node(containerd, tmp_path) as node:
        uid = node.pods.set(pod("web", main, hostNetwork=True, volumes=volumes))

        async def started() -> bool:
            return bool(node.container(uid).get("started")) and (farewell / "hello").exists()

        await until("the startup probe passes", started)
        assert node.container(uid)["ready"] is False
        identity = node.container(uid)["containerID"].rpartition("/")[2]
        assert (await node.agent.runtime.exec_sync(identity, ["busybox", "touch", "/ready"])).exit_code == 0
        await node.running(uid)
        await node.agent.runtime.exec_sync(identity, ["busybox", "rm", "/www/alive"])

        async def restarted() -> bool:
            return bool(node.container(uid).get("restartCount", 0) == 1 and node.container(uid).get("started"))

        await until("the liveness probe has it restarted", restarted)
        assert (farewell / "bye").exists()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.proves("restart")
async def test_a_new_agent_finds_what_the_old_one_started(containerd: Containerd, tmp_path: Path) -> None:
    async with real_node(containerd, tmp_path) as node:
        uid = node.pods.set(pod("web", busybox("main", SLEEP), hostNetwork=True))
        await node.running(uid)
        before = node.container(uid)["containerID"]
        kept = dict(node.pods.pods)
        node.pods.pods.clear()  # so that leaving the block ends nothing
        await node.agent.stop()
        async with CriClient(containerd.endpoint) as client:
            assert len(await client.list_containers()) == 1
            pods = LocalPods()
            pods.pods.update(kept)
            agent = NodeAgent(assemble(node.agent.settings, client, node.agent.machine, Hosting(pods=pods)))
            task = asyncio.create_task(agent.run())
            await asyncio.wait_for(agent.ready.wait(), 60)
            again = RealNode(agent, pods)
            await again.running(uid)
            assert again.container(uid)["containerID"] == before and again.container(uid)["restartCount"] == 0
            await again.gone(uid)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
