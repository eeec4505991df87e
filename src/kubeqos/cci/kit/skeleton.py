"""The files of a new driver (`kubeqos cci new NAME`): a driver that works, and its test."""

from __future__ import annotations

from pathlib import Path

from kubeqos.errors import InputError
from kubeqos.model import names
from kubeqos.plugins.skeleton import facts, write

DRIVER = '''"""A compute driver: gives every claim the lowest CPUs that are free.

Run it with: python driver.py
"""

import sys
from pathlib import Path

from kubeqos.cci.sdk import REGISTRY, Ask, Driver, Refuse, choose, serve
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.machine import Machine


class {type}(Driver):
    name = "{name}"

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def admit(self, ask: Ask):
        """One set of CPUs per group of the claim, out of ask.available. `choose` honours every attribute: start from
        what it gives, or choose by yourself and look at group.attributes."""
        if ask.policy:
            raise Refuse(f"policy {{ask.policy!r}} is unknown here")
        return choose(self.machine, ask)

    def add(self, start) -> None:
        """The container start.container_id is about to start in start.cgroup: tune it here."""

    def remove(self, end) -> None:
        """The container end.container_id is gone: undo what add did."""


if __name__ == "__main__":
    serve({type}(load_machine(None)), Path(sys.argv[1]) if len(sys.argv) > 1 else REGISTRY)
'''

TEST = '''"""Runs the driver behind a real socket and checks it as `kubeqos cci conformance` does."""

import asyncio
import tempfile
from pathlib import Path

from driver import {type}
from kubeqos.cci.kit.conformance import examine
from kubeqos.cci.sdk import running
from kubeqos.model.hardware.named import laptop8


async def verdicts():
    registry = Path(tempfile.mkdtemp())
    socket = registry / "{name}.sock"
    async with running({type}(laptop8()), registry):
        while not socket.exists():
            await asyncio.sleep(0.01)
        return await examine(socket, laptop8())


def test_the_driver_keeps_the_promises_of_the_interface():
    assert not {{one.check: one.problem for one in asyncio.run(verdicts()) if one.problem}}
'''


def write_skeleton(name: str, folder: Path | None) -> list[Path]:
    """Write a driver called `name` (`fast.example.com`) and its test; returns the files."""
    problems = names.dns_subdomain(name)
    if problems:
        raise InputError(f"{name!r} is not a driver's name: {problems[0]}", remedy="write it like fast.example.com")
    first = name.partition(".")[0]
    known = {**facts(first), "name": name}
    texts = {"driver.py": DRIVER, "test_driver.py": TEST}
    return write(folder or Path(first), {file: text.format(**known) for file, text in texts.items()})
