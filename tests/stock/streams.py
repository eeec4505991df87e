"""kubectl with streams: something to read, an end of its own, a port to another place."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path


def run(kubeconfig: Path, *words: str, stdin: str, until: str = "") -> str:
    """kubectl with something to read; ended once it has said what it should, where it would not end by itself."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
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


@contextlib.contextmanager
def forwarded(kubeconfig: Path, name: str, port: int) -> Iterator[int]:
    """A local port that leads to a pod's, for the duration of a block."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "port-forward", f"pod/{name}", f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        told = running.stdout.readline()
        try:
            yield int(told.split()[2].rpartition(":")[2])
        finally:
            running.terminate()
