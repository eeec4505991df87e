"""Usage collection: asks the runtime for its pods and the kernel's files for the machine, and makes a `NodeSample`.

Two kinds of machine: a real one (`HostMachine`, from /proc, cgroups and file systems) and a simulated one
(`SimulatedMachine`: what its pods use is all that is used). CPU rates that a runtime does not give are the difference
to the sample before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.model.machine import Machine
from kubeqos.node.pressure import hostfiles
from kubeqos.node.pressure.samples import ContainerSample, NodeSample, PodSample, Processor, Supply
from kubeqos.rules.qos.eviction import Filesystems

CONTAINER_LABEL = "io.kubernetes.container.name"
UID_LABEL, NAMESPACE_LABEL, NAME_LABEL = (f"io.kubernetes.pod.{part}" for part in ("uid", "namespace", "name"))
BY_SANDBOX_FAILED = (Code.UNKNOWN, Code.INTERNAL, Code.NOT_FOUND)
"""containerd 1.6 answers nothing at all when the cgroup of one stopped sandbox is gone; its containers it can count."""
WALK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MachineUse:
    """The machine at one moment."""

    levels: Mapping[str, Supply]
    cpu_ns: int | None = None
    cpu_nano_cores: int | None = None
    memory_working_set: int | None = None
    filesystems: Filesystems = field(default_factory=Filesystems)


@dataclass(frozen=True, slots=True)
class ImageStore:
    """Where the runtime keeps its images, and how much they take."""

    folder: Path | None = None
    used_bytes: int = 0


NO_IMAGES = ImageStore()


class MachineMeter(Protocol):
    """Measures the machine below the pods."""

    def read(self, pods: Iterable[PodSample], images: ImageStore = NO_IMAGES) -> MachineUse: ...


@dataclass(frozen=True, slots=True)
class SimulatedMachine:
    """A machine that only its pods use. `reserved_bytes` is kept from pods by settings."""

    machine: Machine
    reserved_bytes: int = 0
    disk_bytes: int = 100 << 30

    def read(self, pods: Iterable[PodSample], images: ImageStore = NO_IMAGES) -> MachineUse:
        found = list(pods)
        total = sum(node.memory_bytes for node in self.machine.nodes)
        used = sum(pod.memory_working_set or 0 for pod in found)
        usable = total - self.reserved_bytes
        disk = images.used_bytes
        disk += sum(part[0] for pod in found for one in pod.containers for part in (one.rootfs, one.logs) if part)
        return MachineUse(
            {
                "memory.available": Supply(max(0, total - used), total),
                "allocatableMemory.available": Supply(max(0, usable - used), usable),
                "nodefs.available": Supply(max(0, self.disk_bytes - disk), self.disk_bytes),
            },
            sum(pod.cpu.core_ns or 0 for pod in found),
            sum(pod.cpu.nano_cores or 0 for pod in found),
            used,
        )


@dataclass(frozen=True, slots=True)
class HostMachine:
    """This machine. `node_dir` lies on the file system of pods; the runtime says where its images are."""

    node_dir: Path
    root: Path = Path("/")
    pods_cgroup: str = "/kubepods"
    reserved_bytes: int = 0
    memory_bytes: int = 0
    """Memory that the Node publishes, of which pods may use what is not reserved; 0 for all there is."""

    def read(self, pods: Iterable[PodSample], images: ImageStore = NO_IMAGES) -> MachineUse:
        levels: dict[str, Supply] = {}
        memory = hostfiles.memory(self.root)
        if memory is not None:
            levels["memory.available"] = memory[0]
            used = hostfiles.cgroup_use(self.root, self.pods_cgroup).memory_working_set
            if used is None:
                used = sum(pod.memory_working_set or 0 for pod in pods)
            usable = (self.memory_bytes or memory[0].capacity) - self.reserved_bytes
            levels["allocatableMemory.available"] = Supply(max(0, usable - used), usable)
        if (pids := hostfiles.processes(self.root)) is not None:
            levels["pid.available"] = pids
        if (disk := hostfiles.filesystem(self.node_dir)) is not None:
            levels["nodefs.available"], levels["nodefs.inodesFree"] = disk
        apart = hostfiles.filesystem(images.folder) if images.folder and self._is_apart(images.folder) else None
        if apart is not None:
            levels["imagefs.available"], levels["imagefs.inodesFree"] = apart
        return MachineUse(
            levels,
            hostfiles.cgroup_use(self.root, "").cpu_ns,
            None,
            memory[1] if memory else None,
            Filesystems(image=apart is not None),
        )

    def _is_apart(self, image_dir: Path) -> bool:
        """Whether images lie on a file system of their own."""
        if not image_dir.exists() or not self.node_dir.exists():
            return False
        return image_dir.stat().st_dev != self.node_dir.stat().st_dev


@dataclass(slots=True)
class _Rates:
    """CPU rates from two totals."""

    before: dict[str, tuple[float, int, int | None]] = field(default_factory=dict)

    def rated(self, key: str, cpu: Processor, at: float) -> Processor:
        if cpu.nano_cores is not None or cpu.core_ns is None:
            return cpu
        last = self.before.get(key)
        rate = last[2] if last is not None else None
        if last is not None and at > last[0] and cpu.core_ns >= last[1]:
            rate = round((cpu.core_ns - last[1]) / (at - last[0]))
        self.before[key] = (at, cpu.core_ns, rate)
        return replace(cpu, nano_cores=rate)

    def keep(self, keys: set[str]) -> None:
        self.before = {key: value for key, value in self.before.items() if key in keys}


class DiskUse:
    """Sizes of folders, walked in a thread: a pod with a million files must not hold up the others, nor a sample.

    A walk that takes longer than a moment goes on while the sizes of the last one are shown.
    """

    def __init__(self) -> None:
        self._known: Mapping[Path, tuple[int, int]] = {}
        self._walk: asyncio.Task[dict[Path, tuple[int, int]]] | None = None

    async def of(self, folders: Collection[Path]) -> Mapping[Path, tuple[int, int]]:
        """Bytes and inodes of each folder, as far as they are known."""
        if not folders:
            return {}
        if self._walk is None:
            self._walk = asyncio.create_task(asyncio.to_thread(_sizes, tuple(folders)))
        done, _ = await asyncio.wait({self._walk}, timeout=WALK_SECONDS)
        if done:
            self._known, self._walk = self._walk.result(), None
        return self._known


def _sizes(folders: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    return {folder: hostfiles.folder_size(folder) for folder in folders}


class UsageCollector:
    """Makes samples of one node."""

    def __init__(
        self, runtime: Runtime, machine: MachineMeter, now: Callable[[], float], *, log_dir: Path | None = None,
        volumes: Callable[[str], Mapping[str, Path]] = lambda _uid: {},
    ) -> None:  # fmt: skip
        self._runtime = runtime
        self._machine = machine
        self._now = now
        self._log_dir = log_dir
        self._volumes = volumes
        self._rates = _Rates()
        self._disk = DiskUse()
        self._by_sandbox = True

    async def sample(self) -> NodeSample:
        """Measure everything now. Raises CallError when the runtime does not answer."""
        at = self._now()
        found = [pod for pod in await self._pods() if pod.uid]
        folders = {folder for pod in found for folder in (*self._logs(pod).values(), *self._volumes(pod.uid).values())}
        sizes = await self._disk.of(folders)
        pods = {pod.uid: self._finished(pod, at, sizes) for pod in found}
        use = self._machine.read(pods.values(), await self._images())
        cpu = self._rates.rated("", Processor(use.cpu_ns, use.cpu_nano_cores), at)
        keys = {"", *pods, *(f"{uid}/{one.name}" for uid, pod in pods.items() for one in pod.containers)}
        self._rates.keep(keys)
        return NodeSample(at, use.levels, pods, cpu, use.memory_working_set, None, use.filesystems)

    async def _pods(self) -> list[PodSample]:
        if self._by_sandbox:
            try:
                return [sandbox_sample(one) for one in await self._runtime.list_pod_sandbox_stats()]
            except CallError as error:
                if error.code is Code.UNIMPLEMENTED:
                    self._by_sandbox = False  # an older runtime: it counts containers only
                elif error.code not in BY_SANDBOX_FAILED:
                    raise
        return pods_of_containers(await self._runtime.list_container_stats())

    async def _images(self) -> ImageStore:
        """What the runtime says about its images; nothing where it does not know."""
        try:
            found = (await self._runtime.image_fs_info()).image_filesystems
        except CallError as error:
            if error.code is not Code.UNIMPLEMENTED:
                raise
            return NO_IMAGES
        if not found:
            return NO_IMAGES
        place = found[0].fs_id.mountpoint
        return ImageStore(Path(place) if place else None, sum(one.used_bytes.value for one in found))

    def _logs(self, pod: PodSample) -> dict[str, Path]:
        """The log folder of every container."""
        if self._log_dir is None:
            return {}
        folder = self._log_dir / f"{pod.namespace}_{pod.name}_{pod.uid}"
        return {one.name: folder / one.name for one in pod.containers}

    def _finished(self, pod: PodSample, at: float, sizes: Mapping[Path, tuple[int, int]]) -> PodSample:
        """Add what the runtime does not tell: rates, sizes of logs and of local volumes."""
        logs = self._logs(pod)
        containers = [
            replace(
                one,
                cpu=self._rates.rated(f"{pod.uid}/{one.name}", one.cpu, at),
                logs=sizes.get(logs[one.name]) if logs else None,
            )
            for one in pod.containers
        ]
        volumes = [(name, *sizes[path]) for name, path in self._volumes(pod.uid).items() if path in sizes]
        return replace(pod, containers=containers, cpu=self._rates.rated(pod.uid, pod.cpu, at), volumes=tuple(volumes))


def sandbox_sample(stats: cri.PodSandboxStats) -> PodSample:
    """A pod from its CRI statistics."""
    metadata, linux = stats.attributes.metadata, stats.linux
    processes = linux.process.process_count.value if linux.process.HasField("process_count") else None
    return PodSample(
        metadata.uid,
        metadata.namespace,
        metadata.name,
        [container_sample(one) for one in linux.containers if _runs(one)],
        _processor(linux.cpu),
        _value(linux.memory, "working_set_bytes"),
        processes,
    )


def container_sample(stats: cri.ContainerStats) -> ContainerSample:
    layer = stats.writable_layer
    rootfs = (layer.used_bytes.value, layer.inodes_used.value) if layer.HasField("used_bytes") else None
    name = stats.attributes.metadata.name or stats.attributes.labels.get(CONTAINER_LABEL, "")
    usage = _value(stats.memory, "usage_bytes")
    return ContainerSample(name, _processor(stats.cpu), _value(stats.memory, "working_set_bytes"), usage, rootfs)


def pods_of_containers(stats: Iterable[cri.ContainerStats]) -> list[PodSample]:
    """Pods as the sum of their containers, for runtimes that know no pod statistics."""
    grouped: dict[tuple[str, str, str], list[ContainerSample]] = {}
    for one in stats:
        labels = one.attributes.labels
        key = (labels.get(UID_LABEL, ""), labels.get(NAMESPACE_LABEL, ""), labels.get(NAME_LABEL, ""))
        grouped.setdefault(key, []).extend([container_sample(one)] if _runs(one) else ())
    return [
        PodSample(
            *key,
            containers,
            Processor(_sum(one.cpu.core_ns for one in containers), _sum(one.cpu.nano_cores for one in containers)),
            _sum(one.memory_working_set for one in containers),
        )
        for key, containers in grouped.items()
    ]


def _runs(stats: cri.ContainerStats) -> bool:
    """Runtimes also list containers that have ended, without meters: a restarted one would stand there twice."""
    return stats.HasField("cpu") or stats.HasField("memory")


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _processor(cpu: cri.CpuUsage) -> Processor:
    return Processor(_value(cpu, "usage_core_nano_seconds"), _value(cpu, "usage_nano_cores"))


def _value(message: cri.CpuUsage | cri.MemoryUsage, name: str) -> int | None:
    return int(getattr(message, name).value) if message.HasField(name) else None  # type: ignore[arg-type]
