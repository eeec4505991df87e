"""The victim of the crash loop: `kubeqos apiserver`, run in a forked process until it is killed."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

import uvloop  # noqa: F401 - imported before the fork

import kubeqos.apiserver.server  # noqa: F401 - imported before the fork
from kubeqos.cli.parts.apiserver import command


def run(arguments: list[str], output: Connection) -> None:
    """The command as a shell runs it; what it prints goes to `output`."""
    os.dup2(output.fileno(), 1)
    command.main(arguments, prog_name="kubeqos apiserver")
