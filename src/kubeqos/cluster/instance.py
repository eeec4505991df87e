"""A cluster that runs on this machine, as found by its data directory: for `up`, `down` and `status`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubeqos.codec import JsonError, decode_json, encode_json
from kubeqos.errors import StateError
from kubeqos.plugins import REGISTRY

DEFAULT_DATA_DIR = Path("~/.kubeqos")
LEAST_FREE_BYTES = 32_000_000
"""What a small cluster writes in its first minutes: certificates, the database with its log, the audit log."""
SOCKETS_PREFIX = "kubeqos-"
"""Of the folder with the sockets of nodes and plugins. It has a short name, as a socket's path may have 107 bytes."""
_LONGEST_NODE = 40
_ENDED, _KERNEL_THREADS = ("Z", "X"), "2"
"""In /proc: states of a process of which only the exit code is left; who starts the kernel's own."""
_OURS = frozenset(
    {
        "kubeqos.db",
        "decisions.db",
        "pki",
        "kubeconfig",
        "up.json",
        "up.log",
        "nodes",
        "audit.log",
        "audit.log.1",
        "kubectl-cache",
    }
)


@dataclass(frozen=True, slots=True)
class Running:
    """A live cluster process."""

    pid: int
    port: int
    sockets: Path
    """Where the plugins of each node meet it: a folder per node name."""
    stories: bool = True
    """Whether it has the nodes that `kubeqos demo` plays on."""

    def registry(self, node: str) -> Path:
        """Where the plugins of a node have their sockets."""
        return sockets_of(node, self.sockets) / REGISTRY


def sockets_of(node: str, below: Path) -> Path:
    """The folder of one node's sockets; as short as it must be."""
    return below / node[:_LONGEST_NODE]


class Instance:
    """The files of one cluster."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.kubeconfig = data_dir / "kubeconfig"
        self.log_file = data_dir / "up.log"
        self._record = data_dir / "up.json"

    @property
    def option(self) -> str:
        """What to add to a command so that it means this cluster; nothing where it is the usual one."""
        usual = self.data_dir == DEFAULT_DATA_DIR.expanduser() or "KUBEQOS_DATA_DIR" in os.environ
        return "" if usual else f" --data-dir {self.data_dir}"

    def prepare(self) -> None:
        """Make the directory, unless it is somebody else's."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            foreign = [entry.name for entry in self.data_dir.iterdir() if not entry.name.startswith("kubeqos.db")]
        except OSError as error:
            raise StateError(f"cannot use the data directory: {error.strerror}", where=str(self.data_dir)) from error
        if not os.access(self.data_dir, os.W_OK):
            raise StateError(
                "nothing can be written to the data directory: it is somebody else's",
                where=str(self.data_dir),
                remedy="give it to this user, or pass another with --data-dir",
            )
        free = shutil.disk_usage(self.data_dir).free
        if free < LEAST_FREE_BYTES:
            raise StateError(
                f"the disk is full: {free / 1e6:.0f} MB are free, a cluster needs {LEAST_FREE_BYTES / 1e6:.0f} MB",
                where=str(self.data_dir),
                remedy="free some space, or pass a directory on another disk with --data-dir",
            )
        foreign = sorted(name for name in foreign if name not in _OURS)
        if foreign and not (self.data_dir / "kubeqos.db").exists():
            raise StateError(
                f"the data directory holds something else ({', '.join(foreign[:3])})",
                where=str(self.data_dir),
                remedy="pass an empty or new directory with --data-dir",
            )

    def running(self) -> Running | None:
        """The cluster that uses this directory, if its process lives."""
        try:
            record = decode_json(self._record.read_bytes())
            found = Running(
                int(record["pid"]), int(record["port"]), Path(record["sockets"]), bool(record.get("stories", True))
            )
        except (OSError, JsonError, KeyError, TypeError, ValueError, AttributeError):
            return None
        if process_lives(found.pid):
            return found
        self._forget(found)
        return None

    def _forget(self, killed: Running) -> None:
        """Remove what a cluster left behind that was killed and could not do so itself."""
        if killed.sockets.parent == Path(tempfile.gettempdir()) and killed.sockets.name.startswith(SOCKETS_PREFIX):
            shutil.rmtree(killed.sockets, ignore_errors=True)
        self._record.unlink(missing_ok=True)

    @contextmanager
    def recorded(self, running: Running) -> Iterator[None]:
        """Be found by others while the block runs."""
        record = {
            "pid": running.pid,
            "port": running.port,
            "sockets": str(running.sockets),
            "stories": running.stories,
        }
        temporary = self._record.with_name(f".{self._record.name}")
        try:
            temporary.write_bytes(encode_json(record))
            os.replace(temporary, self._record)  # whoever looks finds all of it, or none
        except OSError as error:
            raise StateError(f"cannot write: {error.strerror}", where=str(self._record)) from error
        try:
            yield
        finally:
            self._record.unlink(missing_ok=True)


def process_lives(pid: int) -> bool:
    """Whether a process lives and is one of ours, not a later one with the same number."""
    try:
        os.kill(pid, 0)
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except ProcessLookupError:
        return False
    except OSError:
        return True  # not Linux, or not ours to look at: it lives
    if state in _ENDED or parent == _KERNEL_THREADS:
        return False
    return not words or b"kubeqos" in words or b"python" in words  # none while it ends, with its files still open
