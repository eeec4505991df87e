"""Fleets: many real agents in one process, in virtual time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import PODS
from kubeqos.client.transport.pool import MOST
from kubeqos.cluster.fleet import Fleet, NodeShape
from kubeqos.codec import decode_json
from kubeqos.model.hardware.named import laptop8
from tests.client.test_informer import until
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


def phases(fleet: Fleet) -> Counter[str]:
    return Counter(phase for node in fleet.nodes.values() for phase in node.phases().values())


async def test_a_fleet_has_one_client_and_one_watch_at_an_api_server(tmp_path: Path) -> None:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        api = HttpApi.from_kubeconfig(server.kubeconfig)
        names = [f"n{number}" for number in range(20)]
        async with Fleet(tmp_path / "fleet", virtual=False, api=api) as fleet:
            await fleet.add(names, NodeShape(laptop8()))
            for name in names:
                raw = pod(f"web-{name}", container(), nodeName=name)
                del raw["metadata"]["uid"]
                await api.create(PODS, raw, "default")
            await until(lambda: phases(fleet) == {"Running": 20})
            assert all(len(node.pods.pods) == 1 for node in fleet.nodes.values())
            listed = [decode_json(raw) for raw in (await api.list(PODS, "default")).items]
            assert {one["status"]["phase"] for one in listed} == {"Running"}
            assert server.watching.active == 1
            assert len(api.transport.pool) <= MOST
            await api.delete(PODS, "web-n3", "default", grace_seconds=0)
            await until(lambda: not fleet.nodes["n3"].pods.pods)
            assert list(fleet.validate()) == []
        await api.close()
