"""Running a command as a person or a pipe would: on a pseudo-terminal of some width, or without one."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import selectors
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path

from tests.shared.commands import Command

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
    shown, theirs = os.pipe()
    with open(os.devnull, "rb") as nothing:
        streams = nothing.fileno(), theirs
        return _run(words, {**env, "COLUMNS": str(columns), "PYTHONUNBUFFERED": "1"}, cwd, until, streams, shown)


def on_terminal(words: list[str], env: Mapping[str, str], columns: int, cwd: Path = ROOT, until: str = "") -> str:
    """The same on a terminal that is so wide; escape characters are shown as ␛."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    told = _run(words, env, cwd, until, (slave, slave), master)
    return told.replace("\r\n", "\n").replace("\x1b", "␛")


def _run(words: list[str], env: Mapping[str, str], cwd: Path, until: str, streams: tuple[int, int], shown: int) -> str:
    """A program that runs on is started in earnest: how it starts and ends is what its test is about."""
    stdin, stdout = streams
    errors, theirs = os.pipe()
    process: subprocess.Popen[bytes] | Command
    if until:
        command = [sys.executable, "-m", "kubeqos.cli.main", *words]
        process = subprocess.Popen(command, env=dict(env), cwd=cwd, stdin=stdin, stdout=stdout, stderr=theirs)
    else:
        process = Command(words, env, cwd, (stdin, stdout, theirs))
    os.close(stdout)
    os.close(theirs)
    texts = _ended(process, until, shown, errors)
    return _told(*(text.decode() for text in texts), process.wait(_SECONDS))


def _ended(process: subprocess.Popen[bytes] | Command, until: str, *streams: int) -> list[bytes]:
    """Read all streams to their end and close them; stop the program once it has said `until`."""
    texts = dict.fromkeys(streams, b"")
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
                    os.close(key.fd)
            if not told and any(_said(until, text) for text in texts.values()):
                told = True
                os.kill(process.pid, signal.SIGTERM)
    return list(texts.values())


def _said(wanted: str, text: bytes) -> bool:
    """Whether a whole line says it."""
    return any(
        wanted.encode() in _PAINT.sub(b"", line) for line in text.splitlines(keepends=True) if line[-1:] == b"\n"
    )


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
