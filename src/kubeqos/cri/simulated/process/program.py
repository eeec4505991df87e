"""What a simulated process does: a tiny reading of the commands that examples and tests run in containers.

`sh -c 'echo hello; sleep 2; exit 3'` writes a line, lives two seconds and ends with 3, as it would on a real runtime.
Whatever is not understood (nginx, a loop, a pipe) is a well-behaved server: it runs until it is asked to end. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

NS = 1_000_000_000
SHELLS = frozenset({"sh", "ash", "bash", "/bin/sh", "/bin/ash", "/bin/bash"})


@dataclass(frozen=True, slots=True)
class Output:
    """Text that a process writes, so long after its start."""

    after_ns: int
    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A process: what it writes, and when and how it ends (`ends_after_ns` None: it goes on).

    `heeds_term` is False for shells and their kin: as the first process of a container the kernel shields them from
    signals that they do not handle, so only SIGKILL ends them.
    """

    outputs: tuple[Output, ...] = ()
    ends_after_ns: int | None = None
    exit_code: int = 0
    heeds_term: bool = True


SERVER = Program()


@dataclass(slots=True)
class _Run:
    """A run of statements so far."""

    time_ns: int = 0
    status: int = 0
    ended: bool = False
    forever: bool = False
    outputs: list[Output] = field(default_factory=list)


class NotUnderstood(Exception):
    """A statement that this reading does not know."""


def program_of(command: Sequence[str]) -> Program:
    """What the process of this command line would do."""
    if not command:
        return SERVER
    run = _Run()
    try:
        for statement, needs_success in _statements(command):
            if needs_success and run.status != 0:
                continue
            _step(run, statement)
            if run.ended or run.forever:
                break
    except NotUnderstood:
        return Program(tuple(run.outputs))
    ends = None if run.forever else run.time_ns
    return Program(tuple(run.outputs), ends, run.status, heeds_term=False)


def _statements(command: Sequence[str]) -> list[tuple[list[str], bool]]:
    """Statements with whether each runs only after success of the one before."""
    if command[0] not in SHELLS or len(command) < 3 or command[1] != "-c":
        return [(list(command), False)]
    found: list[tuple[list[str], bool]] = []
    for line in command[2].splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        after_success = False
        try:
            tokens = list(lexer)
        except ValueError as error:
            raise NotUnderstood from error
        for token in [*tokens, ";"]:
            if token not in (";", "&&"):
                words.append(token)
                continue
            if words:
                found.append((words, after_success))
            words, after_success = [], token == "&&"
    return found


def _step(run: _Run, words: list[str]) -> None:
    stream = "stdout"
    if words[-2:] == [">&", "2"]:
        words, stream = words[:-2], "stderr"
    if words and words[0] == "exec":
        words = words[1:]
    if not words or any(set(word) <= set("|&<>()") for word in words if word):
        raise NotUnderstood
    name, arguments = words[0].rpartition("/")[2], words[1:]
    if name not in _BUILTINS:
        raise NotUnderstood
    _BUILTINS[name](run, arguments, stream)


def _echo(run: _Run, arguments: list[str], stream: str) -> None:
    newline = "\n"
    if arguments[:1] == ["-n"]:
        arguments, newline = arguments[1:], ""
    run.outputs.append(Output(run.time_ns, stream, " ".join(arguments) + newline))
    run.status = 0


def _sleep(run: _Run, arguments: list[str], _stream: str) -> None:
    if arguments[:1] in (["infinity"], ["inf"]):
        run.forever = True
        return
    run.time_ns += sum(sleep_ns(text) for text in arguments)
    run.status = 0


def sleep_ns(text: str) -> int:
    """How long `sleep` takes an argument to mean."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in ("s", "m", "h", "d") else (text, "s")
    try:
        return round(float(number) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[unit] * NS)
    except ValueError as error:
        raise NotUnderstood from error


def _exit(run: _Run, arguments: list[str], _stream: str) -> None:
    if arguments and not arguments[0].isdigit():
        raise NotUnderstood
    run.status = int(arguments[0]) % 256 if arguments else run.status
    run.ended = True


def _trap(_run: _Run, arguments: list[str], _stream: str) -> None:
    """Only `trap '' SIGNAL…`, to ignore a signal, which the first process of a container does anyway."""
    if len(arguments) < 2 or arguments[0] != "":
        raise NotUnderstood


def _true(run: _Run, _arguments: list[str], _stream: str) -> None:
    run.status = 0


def _false(run: _Run, _arguments: list[str], _stream: str) -> None:
    run.status = 1


_BUILTINS: dict[str, Callable[[_Run, list[str], str], None]] = {
    "echo": _echo,
    "sleep": _sleep,
    "exit": _exit,
    "true": _true,
    ":": _true,
    "false": _false,
    "trap": _trap,
}
