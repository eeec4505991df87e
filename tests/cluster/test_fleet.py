"""Fleets: many real agents in one process, in virtual time."""

from __future__ import annotations

from pathlib import Path

from kubeqos.cluster.fleet import Fleet, NodeShape
from kubeqos.model.hardware.named import laptop8
from tests.node.pods import container, pod, resources


async def test_a_hundred_nodes_live_an_hour(tmp_path: Path) -> None:
    shape = NodeShape(laptop8(), settings={"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"})
    async with Fleet(tmp_path) as fleet:
        nodes = await fleet.add([f"n{number}" for number in range(100)], shape)
        for node in nodes:
            name = node.agent.settings.node_name
            job = container(command=["sh", "-c", "sleep 600"])
            node.pods.set(pod("owner", container(resources=resources(cpu="2", memory="1Gi")), nodeName=name))
            node.pods.set(pod("job", job, nodeName=name, restartPolicy="Never"))
        await fleet.advance(60)
        assert {phase for node in nodes for phase in node.phases().values()} == {"Running"}
        await fleet.advance(3540)
        assert all(sorted(node.phases().values()) == ["Running", "Succeeded"] for node in nodes)
        assert list(fleet.validate()) == []


async def test_the_same_script_gives_the_same_story(tmp_path: Path) -> None:
    stories = []
    for attempt in range(2):
        async with Fleet(tmp_path / str(attempt)) as fleet:
            (node,) = await fleet.add(["n1"], NodeShape(laptop8()))
            crash = {"simulate.kubeqos.io/exit": "after=7s code=1 times=3"}
            uid = node.pods.set(pod("web", uid="web", annotations=crash))
            await fleet.advance(300)
            stories.append(node.agent.core.story(uid))
    assert stories[0] == stories[1] and len(stories[0]) > 10
