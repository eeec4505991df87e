"""What pods leave behind when they have ended, and that it may go without changing what is said about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cri.errors import Code
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.faults import Fault, Faults
from kubeqos.model.cpuset import CpuSet
from kubeqos.node.run import serve_node
from tests.node.pods import container, pod, resources
from tests.node.world import World


async def test_under_disk_pressure_the_remains_of_ended_pods_go_first(tmp_path: Path) -> None:
    """As in Kubernetes; of a pod that lives on, the instance before the present one stays for its log."""
    async with World(tmp_path) as node, serve_node(node.agent) as services:
        job = await node.start(pod("job", container(command=["sh", "-c", "exit 3"]), restartPolicy="Never"))
        crashed = {"simulate.kubeqos.io/exit": "after=1s code=1 times=1"}
        web = await node.start(pod("web", annotations=crashed))
        await node.advance(15)
        before = node.status(job)
        assert (before["phase"], node.container(web)["restartCount"]) == ("Failed", 1)
        await services.housekeeper.remove_dead_containers()
        await node.advance(15)
        left = list(node.runtime.core.containers.values())
        assert sorted(one.config.metadata.attempt for one in left) == [0, 1] and {one.name for one in left} == {"main"}
        assert services.housekeeper.freed.containers == 1
        assert node.status(job) == before  # all that was said about it stays true
        assert node.container(web)["lastState"]["terminated"]["exitCode"] == 1
        await node.end(job)
        await node.advance(2)
        assert job not in node.pods.pods and job not in node.agent.core.pods


async def test_a_finished_pod_keeps_its_status_whoever_removes_its_containers(tmp_path: Path) -> None:
    async with World(tmp_path) as node:
        job = await node.start(pod("job", container(command=["true"]), restartPolicy="Never"))
        await node.advance(2)
        before = node.status(job)
        assert before["phase"] == "Succeeded"
        for identity in list(node.runtime.core.containers):
            await node.runtime.remove_container(identity)
        for identity in list(node.runtime.core.sandboxes):
            await node.runtime.remove_pod_sandbox(identity)
        await node.advance(30)
        assert node.status(job) == before
        await node.halt()
        await node.boot()
        await node.advance(30)
        assert node.status(job) == before and not node.runtime.core.containers


@pytest.mark.parametrize("method", ["RemoveContainer", "RemovePodSandbox"])
async def test_a_pod_goes_though_the_runtime_cannot_remove_its_remains(tmp_path: Path, method: str) -> None:
    """They have stopped: its CPUs are free and its name is free at once. The remains go as soon as the runtime can."""
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.parse("0-3")) as node:
        owner = pod("owner", container(resources=resources(cpu="4", memory="1Gi")))
        first = await node.start(owner)
        await node.advance(2)
        cpus = node.running(first)["main"].resources.cpuset_cpus
        node.runtime.faults = Faults(fault={method: Fault(Code.FAILED_PRECONDITION, 1.0)})
        await node.end(first, grace=1)
        await node.advance(3)
        assert first not in node.pods.pods and node.runtime.core.sandboxes
        second = await node.start(pod("owner", container(resources=resources(cpu="4", memory="1Gi"))))
        await node.advance(3)
        assert node.running(second)["main"].resources.cpuset_cpus == cpus
        await node.halt()
        await node.boot()
        await node.advance(40)
        assert {one.config.metadata.uid for one in node.runtime.core.sandboxes.values()} == {first, second}
        node.runtime.faults = None
        await node.advance(40)
        assert {one.config.metadata.uid for one in node.runtime.core.sandboxes.values()} == {second}
        assert first not in node.agent.core.pods and node.status(second)["phase"] == "Running"


async def test_after_a_reboot_everything_is_started_again(tmp_path: Path) -> None:
    """The machine lost power: nothing of what ran is left, but the API and the ledger remember."""
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as node:
        owner = await node.start(pod("owner", container(resources=resources(cpu="2", memory="1Gi"))))
        web = await node.start(pod("web", initContainers=[container("setup", command=["true"])]))
        done = await node.start(pod("done", container(command=["true"]), restartPolicy="Never"))
        await node.advance(3)
        cpus = node.running(owner)["main"].resources.cpuset_cpus
        await node.halt()
        await node.runtime.close()
        node.runtime = SimulatedRuntime(node.machine, clock=node.clock, logs=False)
        await node.boot()
        await node.advance(5)
        assert node.running(owner)["main"].resources.cpuset_cpus == cpus
        assert node.status(owner)["phase"] == node.status(web)["phase"] == "Running"
        assert node.conditions(web)["Ready"] == "True"
        assert node.container(owner)["restartCount"] == node.container(web, "setup")["restartCount"] == 1
        assert node.status(done)["phase"] == "Succeeded" and not node.running(done)
