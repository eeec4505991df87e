"""What enforcing a class does to a running subject, as values. Pure.

The resolve step of each built-in provider ends here: a tuple of effects that a test can compare and a dry run can
print. `host.Host` performs them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CgroupWrite:
    """One value for one cgroup file. The first choice whose file exists is written, or every one of them.

    `controller` is the cgroup v1 hierarchy; on v2 all files are in one directory and it is empty.
    """

    controller: str
    choices: tuple[tuple[str, str], ...]
    """(file name, value), in order of preference."""
    needed: bool = True
    """False for clearing a value: a file that is not there has nothing to clear."""
    every: bool = False
    """All choices that exist are written: which one holds depends on the device (bfq has its own weights)."""


@dataclass(frozen=True, slots=True)
class SetRlimit:
    """A resource limit of the subject's first process; children inherit it. -1 is unlimited."""

    name: str
    soft: int
    hard: int


Effect = CgroupWrite | SetRlimit


def write(controller: str, file: str, value: str | int, *, needed: bool = True) -> CgroupWrite:
    return CgroupWrite(controller, ((file, str(value)),), needed)
