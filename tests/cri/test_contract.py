"""One contract: what the node agent relies on holds on real containerd and on the simulated runtime.

Three worlds: containerd and the simulated runtime behind a socket, through our client, and the simulated runtime in
this process, as fleets use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from kubeqos.cri.client import CriClient
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import tiny2
from tests.cri.containerd import Containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.cri.pods import container, pod, shell, update

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
# The name of a setting in both worlds: containerd's are in the kernel, the simulated runtime shows files of version 2.
MEANINGS = {"shares": "cpu.shares", "quota": "cpu.quota", "cpus": "cpuset.cpus", "memory": "memory.limit"}


@dataclass
class World:
    """A runtime under test: the client, and how to read what it did to a container's cgroup."""

    client: Runtime
    folder: Path
    cgroup_parent: str
    read: Callable[[str, str], str]

    async def start_pod(self, name: str, **options: object) -> tuple[str, cri.PodSandboxConfig]:
        config = pod(
            name,
            log_directory=str(self.folder / "logs" / name),
            cgroup_parent=self.cgroup_parent,
            host_network=True,
            **options,  # type: ignore[arg-type]
        )
        return await self.client.run_pod_sandbox(config), config

    async def start(self, name: str, config: cri.ContainerConfig) -> str:
        """A pod with one running container; returns the container's id."""
        sandbox, sandbox_config = await self.start_pod(name)
        identity = await self.client.create_container(sandbox, config, sandbox_config)
        await self.client.start_container(identity)
        return identity

    async def ended(self, container_id: str) -> cri.ContainerStatus:
        """The status of a container once it has ended."""
        for _ in range(400):
            status = (await self.client.container_status(container_id)).status
            if status.state == cri.CONTAINER_EXITED:
                return status
            await asyncio.sleep(0.025)
        raise AssertionError(f"{container_id} did not end")

    async def log(self, pod_name: str, file: str = "main_0.log", lines: int = 1) -> list[list[str]]:
        path = self.folder / "logs" / pod_name / file
        for _ in range(400):
            if path.exists() and len(path.read_text().splitlines()) >= lines:
                break
            await asyncio.sleep(0.025)
        return [line.split(" ", 3) for line in path.read_text().splitlines()]


def v2_files(root: Path, container_id: str) -> dict[str, str]:
    folder = next(path for path in root.rglob(container_id))
    return {file.name: file.read_text().strip() for file in folder.iterdir()}


def simulated_reader(root: Path) -> Callable[[str, str], str]:
    """Reads v2 files back in the units of the request."""

    def read(container_id: str, setting: str) -> str:
        files = v2_files(root, container_id)
        weight = int(files["cpu.weight"])
        values = {
            "shares": str(((weight - 1) * 262142) // 9999 + 2),
            "quota": files["cpu.max"].split()[0],
            "cpus": files["cpuset.cpus"],
            "memory": files["memory.max"],
        }
        return values[setting]

    return read


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=["in-process", "simulated", pytest.param("containerd", marks=pytest.mark.containerd)],
)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    if request.param != "containerd":
        with tempfile.TemporaryDirectory(prefix="kubeqos-") as name:
            folder = Path(name)
            runtime = SimulatedRuntime(tiny2(), cgroup_root=folder / "cgroup")
            read = simulated_reader(folder / "cgroup")
            async with serving(runtime, f"unix://{folder}/cri.sock") as endpoint, CriClient(endpoint) as client:
                chosen = runtime if request.param == "in-process" else client
                yield World(chosen, folder, "/kubepods/pod1", read)
            runtime.core.validate()
            await runtime.close()
    else:
        real: Containerd = request.getfixturevalue("containerd")
        async with CriClient(real.endpoint, relist_seconds=0.05) as client:
            yield World(
                client,
                real.folder,
                real.cgroup_parent,
                lambda container_id, setting: real.cgroup_value(MEANINGS[setting], container_id),
            )


# ---- Runtime


async def test_a_runtime_says_who_it_is_and_that_it_is_ready(world: World) -> None:
    version = await world.client.version()
    assert version.runtime_api_version == "v1"
    assert version.runtime_name
    conditions = {c.type: c.status for c in (await world.client.status()).status.conditions}
    assert conditions["RuntimeReady"]
    assert conditions["NetworkReady"]


async def test_images_are_found_by_name(world: World) -> None:
    image = await world.client.image_status(BUSYBOX_IMAGE)
    assert image is not None
    assert BUSYBOX_IMAGE in image.repo_tags
    await world.start("imaged", container(command=["sleep", "100"]))
    assert BUSYBOX_IMAGE in [tag for image in await world.client.list_images() for tag in image.repo_tags]
    assert (await world.client.image_fs_info()).image_filesystems


# ---- Sandboxes


async def test_a_sandbox_is_ready_then_not_ready_then_gone(world: World) -> None:
    sandbox, config = await world.start_pod("lifecycle", labels={"app": "x"}, annotations={"note": "y"})
    status = (await world.client.pod_sandbox_status(sandbox)).status
    assert (status.state, status.metadata) == (cri.SANDBOX_READY, config.metadata)
    assert (dict(status.labels), dict(status.annotations)) == ({"app": "x"}, {"note": "y"})
    assert status.created_at > 0
    await world.client.stop_pod_sandbox(sandbox)
    await world.client.stop_pod_sandbox(sandbox)
    assert (await world.client.pod_sandbox_status(sandbox)).status.state == cri.SANDBOX_NOTREADY
    await world.client.remove_pod_sandbox(sandbox)
    await world.client.remove_pod_sandbox(sandbox)
    with pytest.raises(CallError) as gone:
        await world.client.pod_sandbox_status(sandbox)
    assert gone.value.code is Code.NOT_FOUND


async def test_one_pod_attempt_has_one_sandbox(world: World) -> None:
    _, config = await world.start_pod("twice")
    with pytest.raises(CallError, match="reserved"):
        await world.client.run_pod_sandbox(config)
    config.metadata.attempt += 1
    assert await world.client.run_pod_sandbox(config)


async def test_a_sandbox_without_metadata_is_refused(world: World) -> None:
    with pytest.raises(CallError):
        await world.client.run_pod_sandbox(cri.PodSandboxConfig())


async def test_sandboxes_are_listed_by_id_state_and_labels(world: World) -> None:
    first, _ = await world.start_pod("listed-a", labels={"test": "listed", "which": "a"})
    second, _ = await world.start_pod("listed-b", labels={"test": "listed", "which": "b"})
    await world.client.stop_pod_sandbox(second)

    async def ids(**matching: object) -> set[str]:
        wanted = cri.PodSandboxFilter(**matching)  # type: ignore[arg-type]
        return {item.id for item in await world.client.list_pod_sandboxes(wanted)}

    assert await ids(label_selector={"test": "listed"}) == {first, second}
    assert await ids(label_selector={"test": "listed", "which": "b"}) == {second}
    assert await ids(id=first) == {first}
    ready = cri.PodSandboxStateValue(state=cri.SANDBOX_READY)
    assert await ids(label_selector={"test": "listed"}, state=ready) == {first}
    assert await ids(id="0" * 64) == set()


async def test_stopping_a_sandbox_ends_its_containers_and_removing_it_removes_them(world: World) -> None:
    sandbox, config = await world.start_pod("cascade")
    identity = await world.client.create_container(sandbox, container(command=["sleep", "100"]), config)
    await world.client.start_container(identity)
    await world.client.stop_pod_sandbox(sandbox)
    status = (await world.client.container_status(identity)).status
    assert (status.state, status.exit_code) == (cri.CONTAINER_EXITED, 137)
    await world.client.remove_pod_sandbox(sandbox)
    with pytest.raises(CallError) as gone:
        await world.client.container_status(identity)
    assert gone.value.code is Code.NOT_FOUND


# ---- Containers


async def test_a_container_is_created_then_running_then_exited_then_gone(world: World) -> None:
    sandbox, config = await world.start_pod("stages")
    wanted = container("main", shell("sleep 0.3; exit 7"), labels={"tier": "web"})
    identity = await world.client.create_container(sandbox, wanted, config)
    created = (await world.client.container_status(identity)).status
    assert (created.state, created.started_at, created.finished_at) == (cri.CONTAINER_CREATED, 0, 0)
    await world.client.start_container(identity)
    running = (await world.client.container_status(identity)).status
    assert running.state == cri.CONTAINER_RUNNING
    assert running.created_at <= running.started_at
    ended = await world.ended(identity)
    assert (ended.exit_code, ended.reason) == (7, "Error")
    assert ended.finished_at > ended.started_at
    assert (ended.metadata.name, dict(ended.labels)) == ("main", {"tier": "web"})
    await world.client.remove_container(identity)
    await world.client.remove_container(identity)
    with pytest.raises(CallError) as gone:
        await world.client.container_status(identity)
    assert gone.value.code is Code.NOT_FOUND


async def test_a_container_that_succeeds_is_completed(world: World) -> None:
    ended = await world.ended(await world.start("success", container(command=["true"])))
    assert (ended.exit_code, ended.reason) == (0, "Completed")


async def test_a_container_starts_once(world: World) -> None:
    identity = await world.start("once", container(command=["sleep", "100"]))
    with pytest.raises(CallError, match="CONTAINER_RUNNING"):
        await world.client.start_container(identity)
    await world.client.stop_container(identity)
    with pytest.raises(CallError, match="CONTAINER_EXITED"):
        await world.client.start_container(identity)


async def test_stop_waits_for_the_grace_period_and_then_kills(world: World) -> None:
    identity = await world.start("stubborn", container(command=shell("trap '' TERM; sleep 100")))
    await world.client.stop_container(identity, grace_seconds=1)
    status = (await world.client.container_status(identity)).status
    assert (status.state, status.exit_code) == (cri.CONTAINER_EXITED, 137)
    assert status.finished_at - status.started_at >= 900_000_000
    await world.client.stop_container(identity, grace_seconds=1)


async def test_a_running_container_can_be_removed(world: World) -> None:
    identity = await world.start("removed", container(command=["sleep", "100"]))
    await world.client.remove_container(identity)
    assert not await world.client.list_containers(cri.ContainerFilter(id=identity))


async def test_a_name_is_free_again_for_the_next_attempt(world: World) -> None:
    sandbox, config = await world.start_pod("attempts")
    await world.client.create_container(sandbox, container("main"), config)
    with pytest.raises(CallError, match="reserved"):
        await world.client.create_container(sandbox, container("main"), config)
    again = await world.client.create_container(sandbox, container("main", attempt=1), config)
    assert (await world.client.container_status(again)).status.metadata.attempt == 1


async def test_containers_are_listed_by_sandbox_state_and_labels(world: World) -> None:
    sandbox, config = await world.start_pod("many")
    configs = [container(name, ["sleep", "100"], labels={"test": "many", "c": name}) for name in ("a", "b")]
    first, second = [await world.client.create_container(sandbox, wanted, config) for wanted in configs]
    await world.client.start_container(second)

    async def ids(**matching: object) -> set[str]:
        wanted = cri.ContainerFilter(**matching)  # type: ignore[arg-type]
        return {item.id for item in await world.client.list_containers(wanted)}

    running = cri.ContainerStateValue(state=cri.CONTAINER_RUNNING)
    assert await ids(pod_sandbox_id=sandbox) == {first, second}
    assert await ids(pod_sandbox_id=sandbox, state=running) == {second}
    assert await ids(label_selector={"test": "many", "c": "a"}) == {first}


async def test_a_stopped_sandbox_takes_no_container(world: World) -> None:
    sandbox, config = await world.start_pod("closed")
    await world.client.stop_pod_sandbox(sandbox)
    with pytest.raises(CallError):
        await world.client.create_container(sandbox, container(), config)


# ---- Logs and commands


async def test_logs_are_in_the_cri_format(world: World) -> None:
    script = "echo one; echo two >&2; echo -n end"
    await world.ended(await world.start("logging", container(command=shell(script))))
    lines = await world.log("logging", lines=3)
    assert all(line[0].endswith("Z") and "T" in line[0] for line in lines)
    assert sorted((stream, tag, text) for _, stream, tag, text in lines) == [
        ("stderr", "F", "two"),
        ("stdout", "F", "one"),
        ("stdout", "P", "end"),
    ]


async def test_a_rotated_log_is_reopened(world: World) -> None:
    identity = await world.start("rotated", container(command=shell("echo one; sleep 100")))
    await world.log("rotated")
    log = world.folder / "logs" / "rotated" / "main_0.log"
    log.rename(log.with_suffix(".old"))
    await world.client.reopen_container_log(identity)
    assert log.exists()
    assert log.read_text() == ""


async def test_commands_run_in_a_container(world: World) -> None:
    identity = await world.start("exec", container(command=["sleep", "100"]))
    answer = await world.client.exec_sync(identity, shell("echo out; echo err >&2; exit 3"))
    assert (answer.stdout, answer.stderr, answer.exit_code) == (b"out\n", b"err\n", 3)
    with pytest.raises(CallError) as slow:
        await world.client.exec_sync(identity, ["sleep", "30"], timeout_seconds=1)
    assert slow.value.code is Code.DEADLINE_EXCEEDED
    await world.client.stop_container(identity)
    with pytest.raises(CallError, match="CONTAINER_EXITED"):
        await world.client.exec_sync(identity, ["true"])


# ---- Resources


async def test_resources_reach_the_cgroup_and_the_status(world: World) -> None:
    wanted = container(
        command=["sleep", "100"],
        cpu_shares=2048,
        cpu_quota=50_000,
        cpu_period=100_000,
        cpuset_cpus="1",
        memory_limit_in_bytes=64 * MIB,
    )
    identity = await world.start("sized", wanted)
    assert abs(int(world.read(identity, "shares")) - 2048) <= 27  # one step of cgroup v2's coarser weight
    assert world.read(identity, "quota") == "50000"
    assert world.read(identity, "cpus") == "1"
    assert world.read(identity, "memory") == str(64 * MIB)
    linux = (await world.client.container_status(identity)).status.resources.linux
    assert (linux.cpu_shares, linux.cpuset_cpus, linux.memory_limit_in_bytes) == (2048, "1", 64 * MIB)


async def test_an_update_changes_what_it_names_and_nothing_else(world: World) -> None:
    wanted = container(command=["sleep", "100"], cpu_shares=512, cpuset_cpus="0-1", memory_limit_in_bytes=64 * MIB)
    identity = await world.start("updated", wanted)
    await world.client.update_container_resources(update(identity, cpuset_cpus="0"))
    assert world.read(identity, "cpus") == "0"
    assert world.read(identity, "memory") == str(64 * MIB)
    await world.client.update_container_resources(update(identity, memory_limit_in_bytes=96 * MIB, cpu_shares=1024))
    assert world.read(identity, "memory") == str(96 * MIB)
    assert abs(int(world.read(identity, "shares")) - 1024) <= 27
    linux = (await world.client.container_status(identity)).status.resources.linux
    assert (linux.cpu_shares, linux.cpuset_cpus, linux.memory_limit_in_bytes) == (1024, "0", 96 * MIB)


async def test_cpus_that_the_machine_does_not_have_are_refused(world: World) -> None:
    identity = await world.start("refused", container(command=["sleep", "100"], cpuset_cpus="0"))
    with pytest.raises(CallError):
        await world.client.update_container_resources(update(identity, cpuset_cpus="600"))
    assert world.read(identity, "cpus") == "0"


async def test_a_created_container_can_be_updated_and_updating_an_exited_one_does_no_harm(world: World) -> None:
    sandbox, config = await world.start_pod("early")
    identity = await world.client.create_container(sandbox, container(command=["sleep", "100"]), config)
    await world.client.update_container_resources(update(identity, cpuset_cpus="1"))
    await world.client.start_container(identity)
    assert world.read(identity, "cpus") == "1"
    await world.client.stop_container(identity)
    await world.client.update_container_resources(update(identity, cpuset_cpus="0"))
    assert (await world.client.container_status(identity)).status.state == cri.CONTAINER_EXITED


async def test_usage_is_measured(world: World) -> None:
    identity = await world.start("measured", container(command=["sleep", "100"], memory_limit_in_bytes=64 * MIB))
    stats = await world.client.container_stats(identity)
    assert (stats.attributes.id, stats.attributes.metadata.name) == (identity, "main")
    assert stats.cpu.HasField("usage_core_nano_seconds")
    assert 0 < stats.memory.working_set_bytes.value < 64 * MIB
    listed = await world.client.list_container_stats(cri.ContainerStatsFilter(id=identity))
    assert [item.attributes.id for item in listed] == [identity]


async def test_memory_above_the_limit_kills_the_container(world: World) -> None:
    load = {"simulate.kubeqos.io/load": "memory=96Mi"}  # what dd's buffer needs on a real machine
    sandbox, config = await world.start_pod("hungry", annotations=load)
    hungry = container(
        command=["dd", "if=/dev/zero", "of=/dev/null", "bs=96M"],
        memory_limit_in_bytes=16 * MIB,
        memory_swap_limit_in_bytes=16 * MIB,
    )
    identity = await world.client.create_container(sandbox, hungry, config)
    await world.client.start_container(identity)
    ended = await world.ended(identity)
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


# ---- Events


async def test_events_tell_every_stage_in_order(world: World) -> None:
    seen: list[tuple[str, int]] = []

    async def watch() -> None:
        async for event in world.client.events():
            seen.append((event.container_id, event.container_event_type))  # noqa: PERF401 - read while it grows

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0.3)
    identity = await world.start("watched", container(command=["sleep", "100"]))
    await asyncio.sleep(0.3)
    await world.client.stop_container(identity)
    await asyncio.sleep(0.3)
    await world.client.remove_container(identity)
    for _ in range(200):
        if (identity, cri.CONTAINER_DELETED_EVENT) in seen:
            break
        await asyncio.sleep(0.025)
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watcher
    assert [kind for which, kind in seen if which == identity] == [
        cri.CONTAINER_CREATED_EVENT,
        cri.CONTAINER_STARTED_EVENT,
        cri.CONTAINER_STOPPED_EVENT,
        cri.CONTAINER_DELETED_EVENT,
    ]


# ---- Errors


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("pod_sandbox_status", ("nope",)),
        ("container_status", ("nope",)),
        ("start_container", ("nope",)),
        ("stop_container", ("nope",)),
        ("exec_sync", ("nope", ["true"])),
        ("container_stats", ("nope",)),
        ("reopen_container_log", ("nope",)),
        ("update_container_resources", (update("nope", cpu_shares=100),)),
        ("create_container", ("nope", container(), pod())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_does_not_exist_is_not_found(world: World, method: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(CallError) as missing:
        await getattr(world.client, method)(*arguments)
    assert missing.value.code is Code.NOT_FOUND
    assert missing.value.endpoint == world.client.endpoint
    assert missing.value.__cause__ is not None


async def test_removing_what_does_not_exist_is_fine(world: World) -> None:
    await world.client.remove_container("nope")
    await world.client.remove_pod_sandbox("nope")
