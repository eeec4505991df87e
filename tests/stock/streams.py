"""kubectl with streams: something to read, a terminal, an end of its own, a port to another place.

`more` is what it finds in its environment beside ours: `BY_SPDY` makes it speak as releases before 1.31 did.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Iterator, Mapping
from pathlib import Path

BY_SPDY = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
NOTHING: Mapping[str, str] = {}


def run(kubeconfig: Path, *words: str, stdin: str, until: str = "", more: Mapping[str, str] = NOTHING) -> str:
    """kubectl with something to read; ended once it has said what it should, where it would not end by itself."""
    command, env = ["kubectl", "--kubeconfig", str(kubeconfig), *words], {**os.environ, **more}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as running:
        assert running.stdin is not None and running.stdout is not None
        if not until:
            return running.communicate(stdin, timeout=60)[0]
        running.stdin.write(stdin)
        running.stdin.flush()
        found = ""
        for line in running.stdout:
            found += line
            if until in found:
                break
        running.terminate()
        return found


def typed(kubeconfig: Path, *words: str, keys: str, size: tuple[int, int], more: Mapping[str, str] = NOTHING) -> str:
    """What kubectl shows on a terminal of so many lines and columns on which somebody types, until it ends."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    command, env = ["kubectl", "--kubeconfig", str(kubeconfig), *words], {**os.environ, **more}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True) as running:
        os.close(slave)
        os.write(master, keys.encode())
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that nobody is left on the other side
            while piece := os.read(master, 1 << 16):
                shown += piece
        os.close(master)
        assert running.wait(60) == 0, shown
    return shown.decode()


@contextlib.contextmanager
def forwarded(kubeconfig: Path, name: str, port: int, more: Mapping[str, str] = NOTHING) -> Iterator[int]:
    """A local port that leads to a pod's, for the duration of a block."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "port-forward", f"pod/{name}", f":{port}"]
    env = {**os.environ, **more}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as running:
        assert running.stdout is not None
        told = running.stdout.readline()
        try:
            yield int(told.split()[2].rpartition(":")[2])
        finally:
            running.terminate()
