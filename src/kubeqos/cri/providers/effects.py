"""What enforcing a class does to a running subject, as values. Pure.

The resolve step of each built-in provider ends here: a tuple of effects that a test can compare and a dry run can
print. `cri.enforcing.host` performs them.
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
PAGE_BYTES = 4096


def write(controller: str, file: str, value: str | int, *, needed: bool = True) -> CgroupWrite:
    return CgroupWrite(controller, ((file, str(value)),), needed)


def holds(value: str, text: str) -> bool:
    """Whether a control file that shows `text` says what writing `value` would make it say.

    Values of single devices are a line each, of several rates at once on v2 (`8:0 rbps=1024 wbps=max …`); a device
    without a line has no limit and no weight of its own. Bytes of memory are counted in pages.
    """
    subject, _, wanted = value.rpartition(" ")
    if not subject:
        shown = text.split()[-1:] or [""]
        return shown[0] == wanted or _pages(shown[0]) == _pages(wanted) is not None
    line = next((one.split() for one in text.splitlines() if one.split()[:1] == [subject]), None)
    if "=" in wanted:
        key, _, rate = wanted.partition("=")
        return dict(pair.split("=", 1) for pair in (line or ())[1:]).get(key, "max") == rate
    return line[-1] == wanted if line is not None else wanted in ("0", "default")


def _pages(text: str) -> int | None:
    """Whole pages of an amount of memory; None for smaller numbers, which are none."""
    return int(text) // PAGE_BYTES if text.isdecimal() and int(text) >= PAGE_BYTES else None
