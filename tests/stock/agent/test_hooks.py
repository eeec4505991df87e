"""What the agent answers a runtime, on a cgroup tree of plain files: no runtime, no root."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.classes.classfile import ClassFile
from kubeqos.cri.classes.keeper import ClassRefused
from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, ClassProvider, Edit, Level, Subject
from kubeqos.cri.providers.remote import serve
from kubeqos.errors import KubeqosError
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.stock.agent.agent import Settings, read_reachable
from kubeqos.stock.agent.annotations import MARK
from kubeqos.stock.agent.hooks import ClassHooks
from kubeqos.stock.agent.report import status_of
from tests.qrm.harness import until

CLASSES = """
resources:
  cpu-class: {provider: cpu, default: normal, capacity: {high: 1}, classes: {high: {weight: 400}, normal: {weight: 50}}}
  ulimits: {provider: ulimits, classes: {few-files: {nofile: "64:128"}}}
  network: {provider: network, classes: {fast: {priority: 9}}}
"""


class Node:
    def __init__(self, hooks: ClassHooks, root: Path, file: ClassFile) -> None:
        self.hooks, self.root, self.file = hooks, root, file
        self.broken: list[tuple[str, str]] = []

    def pod(self, asked: str, name: str = "web") -> nri.PodSandbox:
        annotations = {"qos.kubeqos.io/container.main": asked} if asked else {}
        return nri.PodSandbox(id=f"s-{name}", name=name, uid=f"u-{name}", namespace="team", annotations=annotations)

    def container(self, pod: nri.PodSandbox, id: str = "", **more: Any) -> nri.Container:
        id = id or f"c-{pod.name}"
        made = nri.Container(id=id, pod_sandbox_id=pod.id, name="main", **more)
        made.linux.cgroups_path = f"/kubepods/pod{pod.uid}/{id}"
        made.linux.resources.cpu.shares.value = 512
        folder = self.root / made.linux.cgroups_path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in {"cpu.weight": "20", "cgroup.procs": "1\n", "cpu.idle": "0"}.items():
            for where in (folder, folder.parent):
                (where / file).write_text(text)
        return made

    def weight(self, container: nri.Container) -> str:
        return (self.root / container.linux.cgroups_path.lstrip("/") / "cpu.weight").read_text()

    async def run(self, asked: str, name: str = "web") -> tuple[nri.Container, nri.ContainerAdjustment]:
        pod = self.pod(asked, name)
        container = self.container(pod)
        answer = await self.hooks.create_container(nri.CreateContainerRequest(pod=pod, container=container))
        await self.hooks.start_container(nri.StartContainerRequest(pod=pod, container=container))
        assert answer is not None
        return container, answer.adjust


async def made_node(root: Path, classes: str) -> Node:
    (root / "classes.yaml").write_text(classes)
    host = Host(root, version=V2)
    settings = Settings("node", root / "classes.yaml", LocalMachine(host))

    def broken(subject: Subject, reason: str) -> None:
        made.broken.append((subject.id, reason))

    hooks = ClassHooks(await read_reachable(settings), host, broken, lambda: None)
    made = Node(hooks, root, ClassFile(settings.classes, partial(read_reachable, settings), hooks.keeper))
    return made


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return await made_node(tmp_path, CLASSES)


async def test_a_class_is_in_the_request_and_in_the_cgroup(node: Node) -> None:
    container, adjust = await node.run("cpu-class=high")
    assert adjust.linux.resources.cpu.shares.value == 2073  # of the weight 80
    assert MARK in adjust.annotations
    assert node.weight(container) == "80"  # four times what 512 shares weigh


async def test_an_update_is_scaled_from_what_is_asked_for_now(node: Node) -> None:
    container, _ = await node.run("cpu-class=high")
    asked = nri.LinuxResources()
    asked.cpu.shares.value = 1024
    await node.hooks.update_container(nri.UpdateContainerRequest(container=container, linux_resources=asked))
    await node.hooks.post_update_container(nri.PostUpdateContainerRequest(container=container))
    assert node.weight(container) == "156"


async def test_what_was_scaled_before_a_restart_is_not_scaled_again(node: Node) -> None:
    pod = node.pod("cpu-class=high")
    container, adjust = await node.run("cpu-class=high")
    container.annotations.update(adjust.annotations)
    container.linux.resources.cpu.shares.value = adjust.linux.resources.cpu.shares.value
    container.state, container.pid = nri.CONTAINER_RUNNING, 1
    await node.hooks.synchronize([pod], [container])
    assert node.weight(container) == "80"
    container.linux.resources.cpu.shares.value = 1024  # an update came while nobody was here
    await node.hooks.synchronize([pod], [container])
    assert node.weight(container) == "156"


async def test_room_is_given_back_when_a_container_ends(node: Node) -> None:
    first, _ = await node.run("cpu-class=high")
    with pytest.raises(KubeqosError, match="insufficient class 'high'"):
        await node.run("cpu-class=high", "second")
    await node.hooks.stop_container(nri.StopContainerRequest(container=first))
    await node.run("cpu-class=high", "third")
    await node.hooks.remove_container(nri.RemoveContainerRequest(container=first))
    assert node.hooks.holders.used("cpu-class", "high") == 1
    assert node.hooks.keeper.table.validate() == []


async def test_what_an_update_wrote_over_is_written_again(node: Node) -> None:
    container, _ = await node.run("cpu-class=high")
    (node.root / container.linux.cgroups_path.lstrip("/") / "cpu.weight").write_text("20")
    await node.hooks.post_update_container(nri.PostUpdateContainerRequest(container=container))
    assert node.weight(container) == "80"


async def test_what_others_wrote_is_put_right(node: Node) -> None:
    container, _ = await node.run("cpu-class=high")
    (node.root / container.linux.cgroups_path.lstrip("/") / "cpu.weight").write_text("20")
    await node.hooks.keeper.put_right()
    assert node.weight(container) == "80"


async def test_what_ran_already_is_brought_into_its_class_or_told_of(node: Node) -> None:
    late, never = node.pod("cpu-class=high", "late"), node.pod("ulimits=few-files", "never")
    running = {"state": nri.CONTAINER_RUNNING, "pid": 1}
    containers = [node.container(late, **running), node.container(never, **running)]
    await node.hooks.synchronize([late, never], containers)
    assert node.weight(containers[0]) == "80"
    [(told, reason)] = node.broken
    assert told == "c-never"
    assert "started without its class ulimits=few-files" in reason


async def test_the_report_says_what_is_offered_used_and_out_of_reach(node: Node) -> None:
    await node.run("cpu-class=high")
    status = status_of(node.hooks.keeper.catalog, node.hooks.holders, None, 0.0)
    told = {one["class"]: one for one in status["classes"] if one["resource"] == "cpu-class"}
    assert told["high"] == {
        "resource": "cpu-class", "class": "high", "level": "container", "mutable": True, "used": 1, "capacity": 1,
    }  # fmt: skip
    assert "capacity" not in told["normal"]
    [condition] = status["conditions"]
    assert condition["status"] == "False"
    assert "only the relay can do" in condition["message"]
    again = status_of(node.hooks.keeper.catalog, node.hooks.holders, status, 100.0)
    assert again == status, "nothing new is nothing to write"


async def test_what_changes_in_the_class_file_is_put_in_force_while_pods_run(node: Node) -> None:
    container, _ = await node.run("cpu-class=high")
    before, file = node.weight(container), node.root / "classes.yaml"
    assert not await node.file.look(), "nothing is new"
    file.write_text(CLASSES.replace("400", "200"))
    assert await node.file.look()
    assert int(node.weight(container)) < int(before), "who runs in the class has its new meaning"
    file.write_text("resources: 7")
    assert not await node.file.look(), "it cannot be read"
    file.write_text(CLASSES.replace("high", "higher"))
    assert await node.file.look()
    [offer] = [one for one in node.hooks.keeper.catalog.offers.values() if one.name == "cpu-class"]
    assert "high" in offer.retired, "somebody has it"
    with pytest.raises(ClassRefused, match="high"):
        await node.run("cpu-class=high", "second")
    await node.run("cpu-class=higher", "third")


async def test_others_have_as_much_time_as_the_runtime_leaves(node: Node) -> None:
    assert node.hooks.keeper.hook_seconds == 1.5
    await node.hooks.configure(nri.ConfigureRequest(request_timeout=8000))
    assert node.hooks.keeper.hook_seconds == 6
    await node.hooks.configure(nri.ConfigureRequest())
    assert node.hooks.keeper.hook_seconds == 1.5


async def test_a_resize_of_memory_is_followed_and_nothing_is_left_of_who_is_gone(tmp_path: Path) -> None:
    node = await made_node(tmp_path, "resources: {memory: {provider: memory, classes: {kept: {min: 50%}}}}")
    pod = node.pod("memory=kept")
    container = node.container(pod)
    container.linux.resources.memory.limit.value = 1 << 20
    file = tmp_path / container.linux.cgroups_path.lstrip("/") / "memory.min"
    file.write_text("0")
    await node.hooks.create_container(nri.CreateContainerRequest(pod=pod, container=container))
    await node.hooks.start_container(nri.StartContainerRequest(pod=pod, container=container))
    assert file.read_text() == str(1 << 19)
    asked = nri.LinuxResources()
    asked.memory.limit.value = 1 << 22
    await node.hooks.update_container(nri.UpdateContainerRequest(container=container, linux_resources=asked))
    await node.hooks.post_update_container(nri.PostUpdateContainerRequest(container=container))
    assert file.read_text() == str(1 << 21)
    stranger = nri.Container(id="stranger")
    await node.hooks.start_container(nri.StartContainerRequest(pod=pod, container=stranger))
    await node.hooks.remove_container(nri.RemoveContainerRequest(container=container))
    assert not len(node.hooks.holders) and not node.hooks.keeper._locks


class Turbo(ClassProvider):
    """A vendor's provider."""

    async def advertise(self) -> Sequence[Advertisement]:
        return [Advertisement("example.com/turbo", Level.CONTAINER, True, (ClassInfo("high"),))]

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        return Edit(annotations={"turbo.example.com/class": class_name})


async def test_a_provider_that_starts_after_the_agent_is_taken_in_and_one_that_goes_is_told_of(
    short_path: Path,
) -> None:
    socket = short_path / "turbo.sock"
    classes = f"resources: {{example.com/turbo: {{endpoint: 'unix://{socket}'}}}}\n"
    node = await made_node(short_path, classes)

    def told() -> tuple[list[str], list[bool]]:
        status = status_of(node.hooks.keeper.catalog, node.hooks.holders, None, 0.0)
        return [one["class"] for one in status["classes"]], [one["healthy"] for one in status["plugins"]]

    assert told() == ([], [False])
    with pytest.raises(ClassRefused, match=r"example\.com/turbo"):
        await node.run("example.com/turbo=high", "early")
    provider = await serve(Turbo(), str(socket))
    await until("taken in", node.file.look)
    assert told() == (["high"], [])
    _, adjust = await node.run("example.com/turbo=high", "late")
    assert adjust.annotations["turbo.example.com/class"] == "high"
    await provider.stop(None)
    await until("gone", node.file.look)
    assert told() == ([], [False])
    with pytest.raises(ClassRefused, match=r"example\.com/turbo"):
        await node.run("example.com/turbo=high", "too-late")
    provider = await serve(Turbo(), str(socket))
    await until("back", node.file.look)
    await node.run("example.com/turbo=high", "again")
    await provider.stop(None)
