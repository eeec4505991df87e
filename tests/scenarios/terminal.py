"""Running a command as a person or a pipe would: on a pseudo-terminal of some width, or without one."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what decides about colour and width."""
    base = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES", "TERM")}
    return {**base, "TERM": "xterm", "PYTHONPATH": f"{ROOT / 'src'}:{base.get('PYTHONPATH', '')}", **(extra or {})}


def piped(words: list[str], env: Mapping[str, str], columns: int, cwd: Path = ROOT) -> str:
    """What a pipe gets on both streams, in the order stdout, stderr, exit code."""
    done = subprocess.run(
        _command(words),
        env={**env, "COLUMNS": str(columns)},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return _told(done.stdout, done.stderr, done.returncode)


def on_terminal(words: list[str], env: Mapping[str, str], columns: int, cwd: Path = ROOT) -> str:
    """The same on a terminal that is so wide; escape characters are shown as ␛."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        _command(words), env=dict(env), cwd=cwd, stdin=slave, stdout=slave, stderr=subprocess.PIPE, text=True
    )
    os.close(slave)
    shown = b""
    while chunk := _read(master):
        shown += chunk
    os.close(master)
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    return _told(shown.decode().replace("\r\n", "\n").replace("\x1b", "␛"), errors, process.wait(60))


def _command(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "kubeqos.cli.main", *words]


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def _told(output: str, errors: str, code: int) -> str:
    told = output
    if errors:
        told += f"-- stderr\n{errors}"
    return told + (f"-- exit code {code}\n" if code else "")
