"""Stories about simulated pods, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeqos.cri.errors import CallError, Code, RuntimeRefused
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import RUN_POD_SANDBOX
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.cri.simulated.core import Core
from kubeqos.model.hardware.named import split80
from tests.cri.pods import container, pod, shell, update

MIB = 1 << 20
SIMULATE = "simulate.kubeqos.io/"


class Node:
    """A simulated node and its clock."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.folder = folder
        self.runtime = SimulatedRuntime(split80(), clock=self.clock, cgroup_root=folder / "cgroup")

    async def start(self, wanted: cri.ContainerConfig, **annotations: str) -> str:
        config = pod(annotations={SIMULATE + k: v for k, v in annotations.items()}, log_directory=str(self.folder))
        sandbox = await self.runtime.run_pod_sandbox(config)
        identity = await self.runtime.create_container(sandbox, wanted, config)
        await self.runtime.start_container(identity)
        return identity

    async def status(self, identity: str) -> cri.ContainerStatus:
        self.runtime.core.validate()
        return (await self.runtime.container_status(identity)).status

    async def memory(self, identity: str) -> int:
        return (await self.runtime.container_stats(identity)).memory.working_set_bytes.value

    async def cpu_seconds(self, identity: str) -> float:
        return (await self.runtime.container_stats(identity)).cpu.usage_core_nano_seconds.value / 1e9

    def cgroup(self, identity: str) -> Path:
        return self.folder / "cgroup" / "kubepods/pod-web" / identity


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_container_exits_when_its_script_says_so(node: Node) -> None:
    identity = await node.start(container(command=["nginx"]), exit="after=5s code=3 message='lost its way'")
    await node.clock.advance(4.9)
    assert (await node.status(identity)).state == cri.CONTAINER_RUNNING
    await node.clock.advance(0.2)
    status = await node.status(identity)
    assert (status.state, status.exit_code, status.message) == (cri.CONTAINER_EXITED, 3, "lost its way")
    assert status.finished_at - status.started_at == 5_000_000_000


async def test_a_crash_loop_ends_after_so_many_attempts(node: Node) -> None:
    config = pod(annotations={f"{SIMULATE}exit": "code=1 times=2"})
    sandbox = await node.runtime.run_pod_sandbox(config)
    states = []
    for attempt in range(3):
        identity = await node.runtime.create_container(sandbox, container("web", ["web"], attempt=attempt), config)
        await node.runtime.start_container(identity)
        states.append((await node.status(identity)).state)
    assert states == [cri.CONTAINER_EXITED, cri.CONTAINER_EXITED, cri.CONTAINER_RUNNING]


async def test_memory_grows_until_the_limit_kills(node: Node) -> None:
    hungry = container(command=["hog"], memory_limit_in_bytes=100 * MIB)
    identity = await node.start(hungry, load="memory=50Mi growth=10Mi/s")
    await node.clock.advance(3)
    assert await node.memory(identity) == 80 * MIB
    await node.clock.advance(3)
    status = await node.status(identity)
    assert (status.exit_code, status.reason) == (137, "OOMKilled")
    assert 5.0 <= (status.finished_at - status.started_at) / 1e9 < 5.01
    assert not node.cgroup(identity).exists()


async def test_a_unified_memory_limit_counts_too(node: Node) -> None:
    wanted = container(command=["hog"], memory_limit_in_bytes=100 * MIB)
    wanted.linux.resources.unified["memory.max"] = str(10 * MIB)
    identity = await node.start(wanted, load="memory=50Mi")
    assert (await node.status(identity)).reason == "OOMKilled"


async def test_a_lower_limit_kills_at_the_moment_it_is_set(node: Node) -> None:
    identity = await node.start(container(command=["app"], memory_limit_in_bytes=100 * MIB), load="memory=60Mi")
    await node.clock.advance(10)
    lower = cri.LinuxContainerResources(memory_limit_in_bytes=32 * MIB)
    await node.runtime.update_container_resources(
        cri.UpdateContainerResourcesRequest(container_id=identity, linux=lower)
    )
    status = await node.status(identity)
    assert status.reason == "OOMKilled"
    assert status.finished_at - status.started_at == 10_000_000_000


async def test_a_higher_limit_saves_the_container(node: Node) -> None:
    hungry = container(command=["hog"], memory_limit_in_bytes=100 * MIB)
    identity = await node.start(hungry, load="memory=50Mi growth=10Mi/s peak=150Mi")
    await node.clock.advance(4)
    higher = cri.LinuxContainerResources(memory_limit_in_bytes=200 * MIB)
    await node.runtime.update_container_resources(
        cri.UpdateContainerResourcesRequest(container_id=identity, linux=higher)
    )
    await node.clock.advance(100)
    assert (await node.status(identity)).state == cri.CONTAINER_RUNNING
    assert await node.memory(identity) == 150 * MIB


async def test_cpu_use_is_held_by_quota_and_by_cpuset(node: Node) -> None:
    free = await node.start(container(command=["burn"]), load="cpu=3")
    quota = await node.start(container(command=["burn"], cpu_quota=50_000, cpu_period=100_000), load="cpu=3")
    pinned = await node.start(container(command=["burn"], cpuset_cpus="4-5"), load="cpu=3")
    await node.clock.advance(10)
    assert [await node.cpu_seconds(which) for which in (free, quota, pinned)] == [30.0, 5.0, 20.0]
    narrower = cri.LinuxContainerResources(cpuset_cpus="4")
    await node.runtime.update_container_resources(
        cri.UpdateContainerResourcesRequest(container_id=pinned, linux=narrower)
    )
    await node.clock.advance(10)
    assert await node.cpu_seconds(pinned) == 30.0


async def test_the_runtime_remembers_what_happened(node: Node) -> None:
    identity = await node.start(container("web", ["hog"], memory_limit_in_bytes=64 * MIB), load="memory=32Mi")
    await node.clock.advance(1)
    await node.runtime.update_container_resources(update(identity, memory_limit_in_bytes=16 * MIB, cpuset_cpus="3"))
    start_ns = node.runtime.core.story(identity)[0][0]
    assert [((at_ns - start_ns) / 1e9, text) for at_ns, text in node.runtime.core.story(identity)] == [
        (0.0, "container web created"),
        (0.0, "container web started"),
        (1.0, "container web updated: memory_limit_in_bytes=16777216, cpuset_cpus=3"),
        (1.0, "container web ended: OOMKilled, exit code 137"),
    ]
    sandbox = node.runtime.core.containers[identity].sandbox_id
    assert [text for _, text in node.runtime.core.story(sandbox)][:3] == [
        "sandbox created",
        "sandbox ready",
        "container web created",
    ]


async def test_disk_use_is_shown_in_the_cgroup_tree(node: Node) -> None:
    identity = await node.start(container(command=["db"]), load="read=5Mi/s write=1Mi/s")
    await node.clock.advance(2)
    node.runtime.refresh_usage()
    shown = (node.cgroup(identity) / "io.stat").read_text()
    assert f"rbytes={10 * MIB} wbytes={2 * MIB}" in shown


async def test_every_value_of_a_request_is_in_the_cgroup_tree(node: Node) -> None:
    wanted = container(
        command=["app"],
        cpu_shares=1024,
        cpu_quota=150_000,
        cpu_period=100_000,
        cpuset_cpus="0-3",
        cpuset_mems="0",
        memory_limit_in_bytes=64 * MIB,
        memory_swap_limit_in_bytes=96 * MIB,
    )
    wanted.linux.resources.unified["memory.high"] = str(48 * MIB)
    wanted.linux.resources.hugepage_limits.add(page_size="2MB", limit=4 * MIB)
    identity = await node.start(wanted)
    files = {path.name: path.read_text().strip() for path in node.cgroup(identity).iterdir()}
    expected = {
        "cpu.weight": "39",
        "cpu.max": "150000 100000",
        "cpuset.cpus": "0-3",
        "cpuset.mems": "0",
        "memory.max": str(64 * MIB),
        "memory.swap.max": str(32 * MIB),
        "memory.high": str(48 * MIB),
        "hugetlb.2MB.max": str(4 * MIB),
    }
    assert {name: files[name] for name in expected} == expected


async def test_a_container_reads_its_own_cgroup(node: Node) -> None:
    identity = await node.start(container(command=["app"], memory_limit_in_bytes=64 * MIB))
    answer = await node.runtime.exec_sync(identity, ["cat", "/sys/fs/cgroup/memory.max"])
    assert answer.stdout == f"{64 * MIB}\n".encode()
    missing = await node.runtime.exec_sync(identity, ["cat", "/sys/fs/cgroup/no.such"])
    assert (missing.exit_code, missing.stdout) == (1, b"")


async def test_commands_answer_as_scripted_and_what_is_not_there_is_not_found(node: Node) -> None:
    identity = await node.start(container(command=["app"]), exec="cat /tmp/healthy => 1\nready --now => 0 yes it is")
    answers = [await node.runtime.exec_sync(identity, c) for c in (["cat", "/tmp/healthy"], ["ready", "--now"], ["x"])]
    assert [(a.exit_code, a.stdout) for a in answers] == [(1, b""), (0, b"yes it is\n"), (127, b"")]


async def test_output_is_written_when_it_is_due(node: Node) -> None:
    await node.start(container(command=shell("echo one; sleep 2; echo two")))
    log = node.folder / "main_0.log"
    assert [line.split(" ", 3)[3] for line in log.read_text().splitlines()] == ["one"]
    await node.clock.advance(3)
    first, second = log.read_text().splitlines()
    assert first.startswith("2023-11-14T22:13:20.000000000Z stdout F one")
    assert second.startswith("2023-11-14T22:13:22.000000000Z stdout F two")


async def test_a_log_that_cannot_be_written_does_not_stop_the_container(node: Node) -> None:
    (node.folder / "file").write_text("")
    config = pod(log_directory=str(node.folder / "file"))
    sandbox = await node.runtime.run_pod_sandbox(config)
    wanted = container(command=shell("echo lost; sleep 1; echo lost; exit 5"))
    identity = await node.runtime.create_container(sandbox, wanted, config)
    await node.runtime.start_container(identity)
    await node.clock.advance(2)
    assert (await node.status(identity)).exit_code == 5


async def test_a_scripted_call_fails_so_many_times(node: Node) -> None:
    fail = "StartContainer code=UNAVAILABLE message='disk on fire' times=1"
    config = pod(annotations={f"{SIMULATE}fail.main": fail})
    sandbox = await node.runtime.run_pod_sandbox(config)
    identity = await node.runtime.create_container(sandbox, container("main"), config)
    with pytest.raises(CallError, match="disk on fire") as failure:
        await node.runtime.start_container(identity)
    assert failure.value.code is Code.UNAVAILABLE
    assert (await node.status(identity)).state == cri.CONTAINER_CREATED
    await node.runtime.start_container(identity)


async def test_a_pull_can_be_scripted_to_fail(node: Node) -> None:
    config = pod(annotations={f"{SIMULATE}fail": "PullImage code=NOT_FOUND message='no such image'"})
    with pytest.raises(CallError, match="no such image"):
        await node.runtime.pull_image("missing:1", sandbox_config=config)
    assert await node.runtime.pull_image("present:1", sandbox_config=pod())


async def test_a_misspelt_script_is_refused_before_the_pod_starts(node: Node) -> None:
    with pytest.raises(CallError, match=r"annotation simulate.kubeqos.io/load: .*'cpus=1' is not understood"):
        await node.runtime.run_pod_sandbox(pod(annotations={f"{SIMULATE}load": "cpus=1"}))
    assert not node.runtime.core.sandboxes


@pytest.mark.parametrize(
    ("script", "command", "grace", "ends_after", "code"),
    [
        ({}, ["nginx"], 30, 0.0, 0),  # a server that ends when it is asked to
        ({}, ["sleep", "1000"], 2, 2.0, 137),  # the first process of a container, shielded from SIGTERM
        ({"stop": "after=1s code=4"}, ["nginx"], 30, 1.0, 4),
        ({"stop": "after=40s"}, ["nginx"], 30, 30.0, 137),
        ({"stop": "ignore"}, ["nginx"], 5, 5.0, 137),
        ({}, ["nginx"], 0, 0.0, 137),
    ],
)
async def test_a_container_ends_in_its_own_way_or_is_killed(
    node: Node, script: dict[str, str], command: list[str], grace: int, ends_after: float, code: int
) -> None:
    identity = await node.start(container(command=command), **script)
    stopping = asyncio.create_task(node.runtime.stop_container(identity, grace_seconds=grace))
    await node.clock.advance(60)
    await stopping
    status = await node.status(identity)
    assert ((status.finished_at - status.started_at) / 1e9, status.exit_code) == (ends_after, code)


async def test_addresses_are_given_back(node: Node) -> None:
    async def address(sandbox: str) -> str:
        return (await node.runtime.pod_sandbox_status(sandbox)).status.network.ip

    first, second = [await node.runtime.run_pod_sandbox(pod(f"p{n}")) for n in range(2)]
    assert await address(first) != await address(second)
    freed = await address(first)
    await node.runtime.stop_pod_sandbox(first)
    third = await node.runtime.run_pod_sandbox(pod("p3"))
    assert await address(third) == freed
    host = await node.runtime.run_pod_sandbox(pod("host", host_network=True))
    assert await address(host) == ""


async def test_a_request_belongs_to_its_caller_again_after_the_call(node: Node) -> None:
    request = cri.RunPodSandboxRequest(config=pod("mine"))
    sandbox = (await node.runtime.call(RUN_POD_SANDBOX, request)).pod_sandbox_id
    request.config.metadata.name = "changed"
    assert (await node.runtime.pod_sandbox_status(sandbox)).status.metadata.name == "mine"
    await node.runtime.remove_pod_sandbox(sandbox)
    node.runtime.core.validate()


def test_a_pod_without_an_address_is_refused_and_leaves_nothing() -> None:
    core = Core(split80(), pod_cidr="10.0.0.0/30")
    core.run_pod_sandbox(cri.RunPodSandboxRequest(config=pod("first")), 1)
    request = cri.RunPodSandboxRequest(config=pod("second"))
    for _ in range(2):
        with pytest.raises(RuntimeRefused, match=r"no address is free in 10\.0\.0\.0/30"):
            core.run_pod_sandbox(request, 2)
        core.validate()


async def test_a_long_churn_of_pods_leaves_nothing(node: Node) -> None:
    for _ in range(500):
        identity = await node.start(container(command=["sleep", "100000"]))
        await node.runtime.remove_pod_sandbox(node.runtime.core.containers[identity].sandbox_id)
    core = node.runtime.core
    core.validate()
    assert not core.sandboxes
    assert not core.containers
    assert len(core.timers) <= 100
    assert not [path for path in (node.folder / "cgroup").rglob("*") if path.is_file()]


async def test_pod_statistics_add_up(node: Node) -> None:
    config = pod(annotations={f"{SIMULATE}load.a": "cpu=1 memory=10Mi", f"{SIMULATE}load.b": "cpu=500m memory=20Mi"})
    sandbox = await node.runtime.run_pod_sandbox(config)
    for name in ("a", "b"):
        identity = await node.runtime.create_container(sandbox, container(name, ["app"]), config)
        await node.runtime.start_container(identity)
    await node.clock.advance(4)
    stats = await node.runtime.pod_sandbox_stats(sandbox)
    assert stats.linux.cpu.usage_core_nano_seconds.value == 6_000_000_000
    assert stats.linux.memory.working_set_bytes.value == 30 * MIB
    assert stats.linux.process.process_count.value == 2
    assert [s.attributes.id for s in await node.runtime.list_pod_sandbox_stats()] == [sandbox]


async def test_streams_are_refused_with_a_hint(node: Node) -> None:
    with pytest.raises(CallError, match="ExecSync") as refused:
        await node.runtime.exec_url(cri.ExecRequest(container_id="x", cmd=["sh"]))
    assert refused.value.code is Code.UNIMPLEMENTED
