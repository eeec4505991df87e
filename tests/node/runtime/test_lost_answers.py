"""A runtime that did what it was asked, and whose answer was lost: what it made is found later, and may be too old."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from tests.node.pods import container, pod, resources
from tests.node.world import World


@pytest.mark.parametrize("dies", [False, True], ids=["the agent lives on", "the agent dies"])
async def test_what_was_created_unheard_starts_with_what_it_should_have_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    async with World(tmp_path, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0)) as world:
        create, lost = world.runtime.create_container, []

        async def creates_and_is_not_heard(
            sandbox_id: str, config: cri.ContainerConfig, sandbox: cri.PodSandboxConfig
        ) -> str:
            made = await create(sandbox_id, config, sandbox)
            if not lost:
                lost.append(made)
                raise CallError("CreateContainer", Code.DEADLINE_EXCEEDED, "no answer", endpoint="test")
            return made

        monkeypatch.setattr(world.runtime, "create_container", creates_and_is_not_heard)
        shared = await world.start(pod("shared", container()))
        (unheard,) = lost
        before = CpuSet.parse(world.runtime.core.containers[unheard].resources.cpuset_cpus)
        if dies:
            await world.halt()
            await world.boot()
        owner = await world.start(pod("owner", container(resources=resources(cpu="2", memory="1Gi"))))
        owned = CpuSet.parse(world.running(owner)["main"].resources.cpuset_cpus)
        assert len(owned) == 2 and owned <= before, "it was created on what is another's now"
        await world.advance(60)
        started = world.running(shared)["main"]
        assert started.id == unheard
        assert not CpuSet.parse(started.resources.cpuset_cpus) & owned
