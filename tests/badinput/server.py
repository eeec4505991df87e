"""A real API server in a process of its own, whose memory and log are looked at."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TOKEN = "bad-input"
_ADDRESS = re.compile(r"serving https://([\d.]+):(\d+)")


@dataclass
class Served:
    """Where it is, and how it does."""

    process: subprocess.Popen[str]
    port: int
    tls: ssl.SSLContext
    log: Path

    def resident_mib(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1024

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def tracebacks(self) -> list[str]:
        """What the server logged with a traceback, the last line of each."""
        text = self.log.read_text(errors="replace")
        return [part.strip().splitlines()[-1] for part in text.split("Traceback (most recent call last):")[1:]]


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{TOKEN},bad,bad,"system:masters"\n')
    tokens.chmod(0o600)
    words = [sys.executable, "-m", "kubeqos.cli.main", "apiserver", "--data-dir", str(folder / "data"), "--port", "0"]
    log = folder / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [*words, "--token-auth-file", str(tokens)], stdout=subprocess.PIPE, stderr=written, text=True
        )
    try:
        assert process.stdout is not None
        found = _ADDRESS.match(process.stdout.readline())
        assert found is not None, log.read_text()
        # Nothing of what is sent is secret, and the authority is the server's own.
        tls = ssl.create_default_context(cafile=str(folder / "data/pki/ca.crt"))
        yield Served(process, int(found[2]), tls, log)
    finally:
        process.terminate()
        process.wait(60)
