"""What an allocator answers: CPUs, or every reason why not.

An expected refusal is a value. Its reasons are data that events, `kubeqos why` and the CCI error field print
as text.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeqos.model.cpuset import NO_CPUS, NO_NUMA, CpuSet, NumaSet


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too little of something; `inside` says where was looked, when that is not the whole machine."""

    of: str
    need: int
    have: int
    inside: str = ""

    def __str__(self) -> str:
        if self.of == "cpus" and not self.inside:
            return f"not enough cpus available to satisfy request: requested={self.need}, available={self.have}"
        where = f" {self.inside}" if self.inside else ""
        return f"not enough {self.of}{where}: requested={self.need}, available={self.have}"


@dataclass(frozen=True, slots=True)
class Violation:
    """A hard demand that cannot be met; `rule` is the attribute or option that makes it."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


Reason = Shortage | Violation


@dataclass(frozen=True, slots=True)
class Allocated:
    """CPUs that were found. `whole` is what nobody else may use: it includes siblings that must stay idle."""

    cpus: CpuSet
    whole: CpuSet = NO_CPUS
    memory: NumaSet = NO_NUMA
    because: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Unsatisfiable:
    """Why nothing was allocated."""

    reasons: tuple[Reason, ...]

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons))
