"""What a simulated container uses as time passes: CPU, memory and disk, from its load and within its limits.

Rates are constant between two changes of limits, so everything has a closed form: a figure can be asked for at any
time, and the moment at which memory will pass a limit is known in advance. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.cri.simulated.script import Load

NS = 1_000_000_000
IDLE_MEMORY_BYTES = 1 << 20  # a process that does nothing still has pages


@dataclass(slots=True)
class Usage:
    """The meters of one running container. `cpu_milli` is the rate after limits; the rest counts up."""

    load: Load
    started_ns: int
    since_ns: int
    cpu_milli: int
    cpu_ns: int = 0
    stopped_ns: int | None = None

    @classmethod
    def start(cls, load: Load, at_ns: int, cpu_limit_milli: int | None) -> Usage:
        return cls(load, at_ns, at_ns, _bounded(load.cpu_milli, cpu_limit_milli))

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
        grown = (at_ns - self.started_ns) * self.load.growth_per_second // NS
        size = max(self.load.memory_bytes, IDLE_MEMORY_BYTES) + grown
        return size if self.load.peak_bytes is None else min(size, max(self.load.peak_bytes, self.load.memory_bytes))

    def read_at(self, at_ns: int) -> int:
        """Bytes read from disk since the start."""
        return (self._until(at_ns) - self.started_ns) * self.load.read_per_second // NS

    def written_at(self, at_ns: int) -> int:
        """Bytes written to disk since the start."""
        return (self._until(at_ns) - self.started_ns) * self.load.write_per_second // NS

    def passes_ns(self, limit_bytes: int) -> int | None:
        """When memory is first above the limit, or None if it never is."""
        first = max(self.load.memory_bytes, IDLE_MEMORY_BYTES)
        if self.load.memory_bytes > limit_bytes:
            return self.started_ns
        growth = self.load.growth_per_second
        if growth <= 0 or (self.load.peak_bytes is not None and self.load.peak_bytes <= limit_bytes):
            return None
        return self.started_ns + -(-max(0, limit_bytes + 1 - first) * NS // growth)

    def _until(self, at_ns: int) -> int:
        return at_ns if self.stopped_ns is None else min(at_ns, self.stopped_ns)


def _bounded(milli: int, limit_milli: int | None) -> int:
    return milli if limit_milli is None else min(milli, limit_milli)
