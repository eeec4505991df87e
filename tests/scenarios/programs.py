"""Programs of kubeqos that run beside a test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.scenarios.terminal import ROOT, environment


@contextmanager
def started(words: Sequence[str], until: str) -> Iterator[None]:
    """A program for the duration of a block, from the moment at which it has said `until`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kubeqos.cli.main", *words],
        env=environment({"PYTHONUNBUFFERED": "1"}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        said = b""
        while until.encode() not in said:
            piece = os.read(process.stdout.fileno(), 65536)
            assert piece, f"kubeqos {' '.join(words)} ended: {said.decode()}"
            said += piece
        yield
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
