"""Pages whose commands are run, and how a page says what it expects.

- A ```` ```console ```` block is a session: `$ ` starts a command, `> ` continues it, everything else up to the next
  command is its output, both streams. In it `…` stands for anything within a line; a line that is `…` alone stands for
  any number of lines.
- ```` ```console cluster ```` needs a running cluster; one is started for the page, fresh.
- ```` ```yaml title="name.yaml" ```` is a file: it is written before the commands that follow.
- ```` ```sh ```` is never run: commands that install, need root or do not end.

A command that only looks at a cluster is repeated for a few seconds until it agrees: a reader does not type as fast as
this does, and events take a moment to be written.

All sessions of a page run in order in one folder with a copy of `examples/`, in one shell environment. A command that
fails must show the message that says so. What a page leaves running in the background is ended with the page.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
WILD = "…"
_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\w*)[ \t]*(?P<rest>.*)$")
_TITLE = re.compile(r'title="([^"]+)"')
_LOOKS = re.compile(r"kubeqos (why|describe|classes|quota|map|top)\b|kubectl (get|describe|qos)\b")
_PATIENCE_SECONDS = 60.0  # a node writes its summary every ten, on a machine with time for it
_COMMAND_SECONDS = 120.0
_ENDING_SECONDS = 3.0
_TIMED_OUT = 124  # as `timeout` says it


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block and where it starts."""

    language: str
    rest: str
    line: int
    text: str


@dataclass(slots=True)
class Step:
    """A command and what it prints."""

    command: str
    line: int
    expected: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """README and everything under docs/, as people find it."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        number += 1
        if opened is None:
            continue
        start, fence = number, opened["fence"]
        while number < len(lines) and lines[number] != fence:
            number += 1
        yield Block(opened["language"], opened["rest"], start + 1, "\n".join(lines[start:number]))
        number += 1


def steps(block: Block) -> list[Step]:
    """The commands of a session."""
    found: list[Step] = []
    for offset, line in enumerate(block.text.splitlines()):
        if line.startswith("$ "):
            found.append(Step(line[2:], block.line + offset))
        elif line.startswith("> ") and found and not found[-1].expected:
            found[-1].command += "\n" + line[2:]
        elif found:
            found[-1].expected.append(line)
    return found


def needs_cluster(path: Path) -> bool:
    return any(block.language == "console" and block.rest == "cluster" for block in blocks(path))


def has_sessions(path: Path) -> bool:
    return any(block.language == "console" and steps(block) for block in blocks(path))


def matches(expected: list[str], actual: str) -> bool:
    """Whether the output is what the page shows."""
    pattern = ""
    for line in _trimmed(expected):
        if line.strip() == WILD:
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.rstrip().split(WILD)) + r"[ \t]*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _trimmed(actual.splitlines()))) is not None


def _trimmed(lines: list[str]) -> list[str]:
    """Without empty lines at the end: a page may leave room between two commands."""
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


class Session:
    """One folder, one environment that commands may change, and the command line as it is in this tree.

    Use it as a context manager: what commands left running ends with it.
    """

    def __init__(self, folder: Path, kubeconfig: Path | None, command_seconds: float = _COMMAND_SECONDS) -> None:
        self.folder = folder
        self._command_seconds = command_seconds
        self._groups: list[int] = []
        tools = folder / ".tools"
        tools.mkdir()
        for name, entry in (
            ("kubeqos", "main:main"),
            ("kubectl-qos", "main:main"),
            ("kubectl_complete-qos", "completion:kubectl_main"),
        ):
            module, _, function = entry.partition(":")
            script = tools / name
            script.write_text(f"#!{sys.executable}\nfrom kubeqos.cli.{module} import {function}\n{function}()\n")
            script.chmod(0o755)
        shutil.copytree(ROOT / "examples", folder / "examples")
        kept = {key: value for key, value in os.environ.items() if key in ("LANG", "PYTHONDONTWRITEBYTECODE")}
        self.environment = {
            **kept,
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "HOME": str(folder),
            "COLUMNS": "80",
            "TERM": "dumb",
        }
        if kubeconfig is not None:
            self.environment["KUBECONFIG"] = str(kubeconfig)

    def run(self, command: str) -> tuple[str, int]:
        """Both streams together, and the exit code; variables that the command sets hold for the next."""
        remembered = self.folder / ".tools" / "environment"
        keep = f"code=$?; export -p > {shlex.quote(str(remembered))}; exit $code"
        script = (
            f"[ ! -e {shlex.quote(str(remembered))} ] || . {shlex.quote(str(remembered))}\nset -a\n{command}\n{keep}"
        )
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self._command_seconds)
        except subprocess.TimeoutExpired:
            _end_group(process.pid)
            output, _ = process.communicate()
            return f"{output}(not over after {self._command_seconds:g} s, and ended)\n", _TIMED_OUT
        if _alive(process.pid):
            self._groups.append(process.pid)
        return output, process.returncode

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_error: object) -> None:
        for group in self._groups:
            _end_group(group)


def _end_group(group: int) -> None:
    """End every process that a command has started: asked first, then not asked."""
    for number, seconds in ((signal.SIGTERM, _ENDING_SECONDS), (signal.SIGKILL, _ENDING_SECONDS)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)
        deadline = time.monotonic() + seconds
        while _alive(group) and time.monotonic() < deadline:
            time.sleep(0.02)


def _alive(group: int) -> bool:
    """Whether a process of the group runs; one that is dead and waits to be noticed does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def play(path: Path, session: Session) -> list[str]:
    """Run a page; returns what does not agree, as text to read."""
    wrong: list[str] = []
    for block in blocks(path):
        title = _TITLE.search(block.rest)
        if title is not None:
            (session.folder / title[1]).write_text(block.text + "\n")
        if block.language != "console":
            continue
        for step in steps(block):
            output, code = session.run(step.command)
            patience = time.monotonic() + (_PATIENCE_SECONDS if block.rest and _LOOKS.match(step.command) else 0)
            while not matches(step.expected, output) and time.monotonic() < patience:
                time.sleep(0.2)
                output, code = session.run(step.command)
            where = f"{path.relative_to(ROOT)}:{step.line}: $ {step.command}"
            if not matches(step.expected, output):
                changes = difflib.unified_diff(
                    _trimmed(step.expected), _trimmed(output.splitlines()), "page", "command", lineterm="", n=99
                )
                wrong.append("\n".join([where, *changes]))
            elif code and not _trimmed(step.expected):
                wrong.append(f"{where}\nfails with exit code {code} and the page does not say so")
    return wrong
