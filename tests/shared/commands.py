"""Calls of `kubeqos` as processes that need not import it: one program has done that, and forks for each call.

A call has its own process, streams, folder and environment, as any program has; only what it would import is there
already, which is most of what a short call costs. Hundreds of tests read what a command says. Those about starting,
signals and programs that run on start them in earnest.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from kubeqos.cli import main

ROOT = Path(__file__).parents[2]
_LONGEST = 1 << 20


class Command:
    """One call, on the streams that it is given."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str], cwd: Path, streams: tuple[int, int, int]) -> None:
        self.returncode: int | None = None
        self._line, theirs = socket.socketpair()
        with theirs:
            asked = json.dumps({"words": list(words), "env": dict(env), "cwd": str(cwd)}).encode()
            socket.send_fds(_server(), [asked], [*streams, theirs.fileno()])
        self._said = self._line.makefile()
        self.pid = int(self._said.readline())

    def wait(self, timeout: float) -> int:
        self._line.settimeout(timeout)
        self.returncode = os.waitstatus_to_exitcode(int(self._said.readline()))
        self._said.close()
        self._line.close()
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def run(
    *words: str, env: Mapping[str, str] | None = None, text: str = "", timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """What a command says to the end, as `subprocess.run` tells it."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(text.encode())
        given.seek(0)
        streams = given.fileno(), output.fileno(), errors.fileno()
        command = Command(words, os.environ if env is None else env, Path.cwd(), streams)
        try:
            code = command.wait(timeout)
        except TimeoutError:
            command.kill()
            raise
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(list(words), code, output.read().decode(), errors.read().decode())


@functools.cache
def _server() -> socket.socket:
    """The program that forks; it ends when we do."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "tests.shared.commands", str(theirs.fileno())],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait(60)

    atexit.register(end)
    return ours


# -- the other side ------------------------------------------------------------------------------------------------


def _serve(line: socket.socket) -> None:
    os.environ.update(GRPC_ENABLE_FORK_SUPPORT="0", GRPC_VERBOSITY="ERROR", OPENBLAS_NUM_THREADS="1")  # as `main` does
    for module, _ in main.COMMANDS.values():
        importlib.import_module(module)
    gc.freeze()  # shared with every call, and not written to by their looks for garbage
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who watches over a call is not waited for
    while True:
        asked, handles, _, _ = socket.recv_fds(line, _LONGEST, 4)
        if not asked:
            return
        if os.fork() == 0:
            line.close()
            _watch_over(json.loads(asked), handles)
        for handle in handles:
            os.close(handle)


def _watch_over(asked: dict[str, Any], handles: list[int]) -> NoReturn:
    """Start the call, tell who it is, and how it ended."""
    *streams, status = handles
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os.close(status)
        _call(asked, streams)
    for stream in streams:
        os.close(stream)  # the reader of a pipe hears its end when the call does
    os.write(status, f"{child}\n".encode())
    _, code = os.waitpid(child, 0)
    os.write(status, f"{code}\n".encode())
    os._exit(0)


def _call(asked: dict[str, Any], streams: list[int]) -> NoReturn:
    """Become the process of a command, and end without taking down what was imported: that costs more than the call."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["cwd"])
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0, closefd=False), _writer(1), _writer(2)
    sys.argv = [str(main.__file__), *asked["words"]]
    code: Any = 1
    try:
        main.main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()  # no error leaves `main`; a test shall see the one that does
        raise
    finally:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _writer(number: int) -> IO[str]:
    """As Python opens them: by lines on a terminal, and errors always."""
    return os.fdopen(number, "w", buffering=1 if number == 2 or os.isatty(number) else -1, closefd=False)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
