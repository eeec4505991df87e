"""What a simulated container uses as time passes: CPU, memory and disk, from its load and within its limits.

Rates are constant between two changes of limits, so everything has a closed form: a figure can be asked for at any
time, and the moment at which memory will pass a limit is known in advance. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.cri.simulated.process.memory import Memory
from kubeqos.cri.simulated.process.script import Load

NS = 1_000_000_000
IDLE_MEMORY_BYTES = 1 << 20  # a process that does nothing still has pages


@dataclass(slots=True)
class Usage:
    """The meters of one running container. `cpu_milli` is the rate after limits; the rest counts up."""

    load: Load
    started_ns: int
    since_ns: int
    cpu_milli: int
    memory: Memory
    cpu_ns: int = 0
    stopped_ns: int | None = None

    @classmethod
    def start(cls, load: Load, at_ns: int, cpu_limit_milli: int | None, memory_high_bytes: int | None = None) -> Usage:
        size = max(load.memory_bytes, IDLE_MEMORY_BYTES)
        memory = Memory(size, at_ns, load.growth_per_second, load.peak_bytes, memory_high_bytes)
        return cls(load, at_ns, at_ns, _bounded(load.cpu_milli, cpu_limit_milli), memory)

    def limit_cpu(self, at_ns: int, cpu_limit_milli: int | None) -> None:
        """From now on a different CPU limit holds."""
        self.cpu_ns = self.cpu_ns_at(at_ns)
        self.since_ns = at_ns
        self.cpu_milli = _bounded(self.load.cpu_milli, cpu_limit_milli)

    def stop(self, at_ns: int) -> None:
        self.stopped_ns = at_ns

    def cpu_ns_at(self, at_ns: int) -> int:
        """CPU time used since the start, in nanoseconds."""
        return self.cpu_ns + max(0, self._until(at_ns) - self.since_ns) * self.cpu_milli // 1000

    def memory_at(self, at_ns: int) -> int:
        """Memory in use; none after the end."""
        if self.stopped_ns is not None and at_ns >= self.stopped_ns:
            return 0
        return self.memory.at(at_ns)

    def read_at(self, at_ns: int) -> int:
        """Bytes read from disk since the start."""
        return (self._until(at_ns) - self.started_ns) * self.load.read_per_second // NS

    def written_at(self, at_ns: int) -> int:
        """Bytes written to disk since the start."""
        return (self._until(at_ns) - self.started_ns) * self.load.write_per_second // NS

    def passes_ns(self, limit_bytes: int) -> int | None:
        """When memory is first above the limit, or None if it never is."""
        if self.load.growth_per_second <= 0 and self.load.memory_bytes <= limit_bytes:
            return None  # what every process has does not count against a limit that is smaller still
        return self.memory.passes_ns(limit_bytes)

    def _until(self, at_ns: int) -> int:
        return at_ns if self.stopped_ns is None else min(at_ns, self.stopped_ns)


def _bounded(milli: int, limit_milli: int | None) -> int:
    return milli if limit_milli is None else min(milli, limit_milli)
