"""The files that a simulated runtime writes: a cgroup tree in a plain folder, and container logs in CRI format.

Bytes only: what is written is decided in the core.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from kubeqos.cri.simulated.state import Wrote, rfc3339


class CgroupTree:
    """cgroups as folders with a file per setting or meter."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def write(self, path: str, files: dict[str, str]) -> None:
        folder = self.root / path
        folder.mkdir(parents=True, exist_ok=True)
        scratch = self.root / ".scratch"
        for name, value in files.items():
            # By renaming, so that a reader never sees a half-written value; the kernel never shows one either.
            scratch.write_text(f"{value}\n")
            scratch.rename(folder / name)

    def remove(self, path: str) -> None:
        """Remove one cgroup; its parents belong to whoever made the pod's cgroup."""
        folder = self.root / path
        with contextlib.suppress(FileNotFoundError):
            for file in list(folder.iterdir()):
                file.unlink()
            folder.rmdir()


def append_log(wrote: Wrote) -> None:
    """Append text to a container's log. The file is opened anew each time, so that rotating it needs no call."""
    path = Path(wrote.log_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as log:
        log.writelines(log_lines(wrote))


def log_lines(wrote: Wrote) -> list[str]:
    """Text in the CRI log format: time, stream, F for a full line or P for a part of one, the line."""
    head = f"{rfc3339(wrote.at_ns)} {wrote.stream}"
    lines = wrote.text.splitlines(keepends=True)
    return [f"{head} {'F' if line.endswith(chr(10)) else 'P'} {line.removesuffix(chr(10))}\n" for line in lines]
