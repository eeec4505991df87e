"""Running a command as a person or a pipe would: on a pseudo-terminal of some width, or without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import selectors
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SECONDS = 60
_PAINT = re.compile(rb"\x1b\[[0-9;]*m")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, without what decides about colour and width."""
    base = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES", "TERM")}
    base["PATH"] = f"{Path(sys.executable).parent}:{base.get('PATH', '')}"
    return {**base, "TERM": "xterm", "PYTHONPATH": f"{ROOT / 'src'}:{base.get('PYTHONPATH', '')}", **(extra or {})}


def piped(words: list[str], env: Mapping[str, str], columns: int, cwd: Path = ROOT, until: str = "") -> str:
    """What a pipe gets on both streams, in the order stdout, stderr, exit code.

    With `until`, the program is asked to end (SIGTERM) as soon as it has said that.
    """
    process = subprocess.Popen(
        _command(words),
        env={**env, "COLUMNS": str(columns), "PYTHONUNBUFFERED": "1"},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = _ended(process, until)
    return _told(output.decode(), errors.decode(), process.returncode)


def on_terminal(words: list[str], env: Mapping[str, str], columns: int, cwd: Path = ROOT, until: str = "") -> str:
    """The same on a terminal that is so wide; escape characters are shown as ␛."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(
        _command(words), env=dict(env), cwd=cwd, stdin=slave, stdout=slave, stderr=subprocess.PIPE
    )
    os.close(slave)
    shown, errors = _ended(process, until, master)
    os.close(master)
    return _told(shown.decode().replace("\r\n", "\n").replace("\x1b", "␛"), errors.decode(), process.returncode)


def _ended(process: subprocess.Popen[bytes], until: str, terminal: int | None = None) -> tuple[bytes, bytes]:
    """Read both streams to their end; stop the program once it has said `until`."""
    assert process.stderr is not None
    output = terminal if terminal is not None else process.stdout.fileno() if process.stdout else -1
    texts = {output: b"", process.stderr.fileno(): b""}
    told = not until
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(_SECONDS)
            if not ready:
                process.kill()
                raise AssertionError(f"nothing more for {_SECONDS} s after {texts}")
            for key, _ in ready:
                piece = _read(key.fd)
                texts[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
            if not told and any(_said(until, text) for text in texts.values()):
                told = True
                process.terminate()
    process.wait(_SECONDS)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return texts[output], texts[next(fd for fd in texts if fd != output)]


def _said(wanted: str, text: bytes) -> bool:
    """Whether a whole line says it."""
    return any(
        wanted.encode() in _PAINT.sub(b"", line) for line in text.splitlines(keepends=True) if line[-1:] == b"\n"
    )


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
