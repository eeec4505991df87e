"""What a node and its pods were measured to use at one moment: values only.

Made by `node.pressure.usage`; read by `node.pressure.thresholds` (is the node short of something?), by the stats
summary, by `metrics.k8s.io` and by Prometheus. Bytes, inodes, nanoseconds of CPU time; None where it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubeqos.rules.qos.eviction import ONE_FILESYSTEM, ContainerUsage, Filesystems, PodUsage


@dataclass(frozen=True, slots=True)
class Supply:
    """How much of something there is, and how much of it is left."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Processor:
    """CPU time: the total, and the rate of late in billionths of a core."""

    core_ns: int | None = None
    nano_cores: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerSample:
    """One running container."""

    name: str
    cpu: Processor = Processor()
    memory_working_set: int | None = None
    memory_usage: int | None = None
    rootfs: tuple[int, int] | None = None
    """Bytes and inodes of its writable layer."""
    logs: tuple[int, int] | None = None

    def usage(self) -> ContainerUsage:
        return ContainerUsage(self.name, self.rootfs, self.logs, self.memory_working_set)


@dataclass(frozen=True, slots=True)
class PodSample:
    """One pod; its memory may be more than its containers' (shared pages, memory volumes)."""

    uid: str
    namespace: str
    name: str
    containers: Sequence[ContainerSample] = ()
    cpu: Processor = Processor()
    memory_working_set: int | None = None
    processes: int | None = None
    volumes: Sequence[tuple[str, int, int]] = ()
    """Local volumes: name, bytes, inodes."""

    def usage(self) -> PodUsage:
        """The pod as the eviction ranking sees it."""
        return PodUsage(self.memory_working_set, self.processes, [one.usage() for one in self.containers], self.volumes)


@dataclass(frozen=True, slots=True)
class NodeSample:
    """Everything at one moment. `levels` are by eviction signal."""

    at: float
    levels: Mapping[str, Supply] = field(default_factory=dict)
    pods: Mapping[str, PodSample] = field(default_factory=dict)
    cpu: Processor = Processor()
    memory_working_set: int | None = None
    memory_usage: int | None = None
    filesystems: Filesystems = ONE_FILESYSTEM
