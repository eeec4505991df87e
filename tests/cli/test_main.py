"""The command line as a whole: its help by task, and its version."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from click.testing import CliRunner

from kubeqos import __version__
from kubeqos.cli.main import COMMANDS, TASKS, application
from tests.shared import commands


def test_every_command_stands_under_one_task() -> None:
    listed = [name for names in TASKS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)


def test_help_lists_commands_by_task_in_80_columns() -> None:
    text = CliRunner().invoke(application, ["--help"], env={"COLUMNS": "80"}).output
    assert [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and line[0] != " "][-len(TASKS) :] == [
        *TASKS
    ]
    assert all(len(line) <= 80 for line in text.splitlines())
    assert all(f"\n  {name} " in text for name in COMMANDS)


def test_version_with_and_without_a_server(tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return commands.run("version", *words, env=environment)

    alone = run("--client")
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, f"Client: {__version__}\n", "")
    assert run("--client", "-o", "yaml").stdout == f"clientVersion: {__version__}\n"
    without = run()
    assert without.returncode == 0 and without.stdout == f"Client: {__version__}\n"
    assert without.stderr.startswith("Server: unknown (")
