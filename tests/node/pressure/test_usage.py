"""Usage from the kernel and from the runtime: cgroup v1 and v2, rates, and runtimes that know only containers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.enforcing.host import cgroup_version
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.pressure import hostfiles, usage
from kubeqos.node.pressure.samples import PodSample, Supply
from kubeqos.node.pressure.usage import HostMachine, SimulatedMachine, UsageCollector
from kubeqos.node.server.summary import summary

GI = 1 << 30


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


PROC = {
    "proc/meminfo": "MemTotal:       16777216 kB\nMemFree:  8388608 kB\nInactive(file): 1048576 kB\n",
    "proc/loadavg": "0.1 0.2 0.3 2/500 12345\n",
    "proc/sys/kernel/pid_max": "32768\n",
    "proc/sys/kernel/threads-max": "30000\n",
}
V2 = {
    **PROC,
    "sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
    "sys/fs/cgroup/cpu.stat": "usage_usec 5000000\n",
    "sys/fs/cgroup/kubepods/memory.current": "3000\n",
    "sys/fs/cgroup/kubepods/memory.stat": "anon 1\ninactive_file 1000\n",
    "sys/fs/cgroup/kubepods/cpu.stat": "usage_usec 7\nuser_usec 1\n",
    "sys/fs/cgroup/kubepods/pids.current": "12\n",
}
V1 = {
    **PROC,
    "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{6 * GI}\n",
    "sys/fs/cgroup/memory/memory.stat": f"total_inactive_file {2 * GI}\n",
    "sys/fs/cgroup/cpuacct/cpuacct.usage": "5000000000\n",
    "sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes": "3000\n",
    "sys/fs/cgroup/memory/kubepods/memory.stat": "inactive_file 5\ntotal_inactive_file 1000\n",
    "sys/fs/cgroup/cpuacct/kubepods/cpuacct.usage": "7000\n",
    "sys/fs/cgroup/pids/kubepods/pids.current": "12\n",
}


@pytest.mark.parametrize(("files", "version"), [(V1, 1), (V2, 2)])
def test_a_cgroup_says_the_same_in_both_versions(tmp_path: Path, files: dict[str, str], version: int) -> None:
    root = write(tmp_path, files)
    assert cgroup_version(root / "sys/fs/cgroup") == version
    assert hostfiles.cgroup_use(root, "/kubepods") == hostfiles.CgroupUse(3000, 2000, 7000, 12)
    assert hostfiles.cgroup_use(root, "/gone") == hostfiles.CgroupUse()


@pytest.mark.parametrize(("files", "used"), [(V1, 4 * GI), (V2, 7 * GI)])
def test_the_machine(tmp_path: Path, files: dict[str, str], used: int) -> None:
    use = HostMachine(tmp_path, write(tmp_path, files), reserved_bytes=GI).read([])
    assert use.levels["memory.available"] == Supply(16 * GI - used, 16 * GI)
    assert use.levels["allocatableMemory.available"] == Supply(15 * GI - 2000, 15 * GI)
    assert use.levels["pid.available"] == Supply(29500, 30000)
    assert use.levels["nodefs.available"].capacity > 0
    assert (use.memory_working_set, use.cpu_ns) == (used, 5_000_000_000)


def test_an_empty_tree_says_nothing(tmp_path: Path) -> None:
    use = HostMachine(tmp_path / "no", tmp_path).read([])
    assert use.levels == {} and use.memory_working_set is None


def test_folders_are_counted_without_following_links(tmp_path: Path) -> None:
    write(tmp_path, {"a/one": "x" * 5000, "a/b/two": "y"})
    (tmp_path / "a/loop").symlink_to(tmp_path)
    size, inodes = hostfiles.folder_size(tmp_path / "a")
    assert inodes == 4 and size >= 8192
    assert hostfiles.folder_size(tmp_path / "none") == (0, 0)


def test_a_simulated_machine_is_used_by_its_pods_alone() -> None:
    machine = laptop8()
    pods = [PodSample("a", "d", "a", memory_working_set=3 * GI), PodSample("b", "d", "b", memory_working_set=GI)]
    use = SimulatedMachine(machine, GI).read(pods)
    assert use.levels["memory.available"] == Supply(12 * GI, 16 * GI)
    assert use.levels["allocatableMemory.available"] == Supply(11 * GI, 15 * GI)


class OldRuntime(SimulatedRuntime):
    """Knows only containers, and only totals of CPU time."""

    core_ns = 0
    asked = 0
    code = Code.UNIMPLEMENTED

    async def call(self, method: Any, request: Any, *, timeout: float | None = None) -> Any:
        if method.name == "ListPodSandboxStats":
            self.asked += 1
            raise CallError(method.name, self.code, "unknown method", endpoint="old")
        return await super().call(method, request, timeout=timeout)

    async def list_container_stats(self, matching: Any = None) -> Sequence[cri.ContainerStats]:
        labels = {
            "io.kubernetes.pod.uid": "u",
            "io.kubernetes.pod.namespace": "d",
            "io.kubernetes.pod.name": "p",
        }
        found = []
        for name, memory in (("a", 100), ("b", 50)):
            stats = cri.ContainerStats()
            stats.attributes.metadata.name = name
            stats.attributes.labels.update(labels)
            stats.cpu.usage_core_nano_seconds.value = self.core_ns
            stats.memory.working_set_bytes.value = memory
            found.append(stats)
        return found


async def test_pods_of_an_older_runtime_are_the_sum_of_their_containers_and_rates_are_differences() -> None:
    runtime, now = OldRuntime(laptop8()), [0.0]
    collector = UsageCollector(runtime, SimulatedMachine(laptop8()), lambda: now[0])
    first = (await collector.sample()).pods["u"]
    assert (first.namespace, first.name, first.memory_working_set) == ("d", "p", 150)
    assert first.containers[0].cpu.nano_cores is None
    now[0], runtime.core_ns = 2.0, 1_000_000_000
    second = await collector.sample()
    assert second.pods["u"].containers[0].cpu.nano_cores == 500_000_000
    assert second.pods["u"].cpu.nano_cores == 1_000_000_000
    assert runtime.asked == 1
    told = summary("n1", second)["pods"][0]
    assert told["podRef"] == {"name": "p", "namespace": "d", "uid": "u"}
    assert told["containers"][0]["cpu"]["usageNanoCores"] == 500_000_000


async def test_a_walk_that_takes_long_delays_no_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes of the last walk are shown until the new one is through."""
    (tmp_path / "d_p_u" / "a").mkdir(parents=True)
    (tmp_path / "d_p_u" / "a" / "0.log").write_bytes(b"x" * 5000)
    collector = UsageCollector(OldRuntime(laptop8()), SimulatedMachine(laptop8()), lambda: 0.0, log_dir=tmp_path)
    first = (await collector.sample()).pods["u"].containers[0].logs
    assert first == (8192, 1)
    held, walks = threading.Event(), []

    def slow(folder: Path) -> tuple[int, int]:
        walks.append(folder)
        held.wait(60)
        return 1, 1

    monkeypatch.setattr(hostfiles, "folder_size", slow)
    monkeypatch.setattr(usage, "WALK_SECONDS", 0.05)
    for _ in range(3):
        assert (await collector.sample()).pods["u"].containers[0].logs == first
    assert len(walks) == 1  # and only one walk is under way
    held.set()
    monkeypatch.setattr(usage, "WALK_SECONDS", 20)
    assert (await collector.sample()).pods["u"].containers[0].logs == (1, 1)


async def test_one_pod_that_cannot_be_measured_does_not_hide_the_others() -> None:
    """containerd 1.6 fails the whole call when the cgroup of a stopped sandbox is gone; it may work again later."""
    runtime = OldRuntime(laptop8())
    runtime.code = Code.UNKNOWN
    collector = UsageCollector(runtime, SimulatedMachine(laptop8()), lambda: 0.0)
    assert (await collector.sample()).pods["u"].memory_working_set == 150
    assert (await collector.sample()).pods["u"].memory_working_set == 150 and runtime.asked == 2
    runtime.code = Code.UNAVAILABLE
    with pytest.raises(CallError):
        await collector.sample()


def test_before_the_first_sample_the_summary_has_only_a_name() -> None:
    assert summary("n1", None) == {"node": {"nodeName": "n1"}, "pods": []}


def test_containers_that_have_ended_are_not_measured_again() -> None:
    """containerd lists them without meters: a restarted container stands there twice, and `kubectl top` hid its pod."""

    def stats(attempt: int, memory: int | None) -> cri.ContainerStats:
        metadata = cri.ContainerMetadata(name="main", attempt=attempt)
        found = cri.ContainerStats(attributes=cri.ContainerAttributes(metadata=metadata, labels={usage.UID_LABEL: "u"}))
        found.writable_layer.used_bytes.value = 7
        if memory is not None:
            found.memory.working_set_bytes.value = memory
        return found

    (pod,) = usage.pods_of_containers([stats(0, None), stats(1, 5)])
    assert [(one.name, one.memory_working_set) for one in pod.containers] == [("main", 5)]
    (crashed,) = usage.pods_of_containers([stats(0, None)])
    assert crashed.uid == "u" and not crashed.containers
    whole = cri.PodSandboxStats()
    whole.linux.containers.extend([stats(0, None), stats(1, 5)])
    assert len(usage.sandbox_sample(whole).containers) == 1
