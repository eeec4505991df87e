"""Machines and nodes for the tests in guests. A machine is booted once for the tests that share it, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tools.vm import images
from tools.vm.vm import Vm, booted

from tests.vm.node import Node


class Machines:
    """At most one machine runs: asking for another takes the power from the first."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._vm: Vm | None = None

    def get(self, name: str) -> Vm:
        if self._vm is None or self._vm.machine.name != name:
            self.stop()
            self._vm = self._stack.enter_context(booted(name))
        return self._vm

    def stop(self) -> None:
        self._stack.close()
        self._vm = None


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    why = images.missing()
    if why is not None:
        pytest.skip(why)
    found = Machines()
    yield found
    found.stop()


NodeMaker = Callable[..., Node]


@pytest.fixture(scope="module")
def node_of(machines: Machines) -> Iterator[NodeMaker]:
    """Start a node with these settings on a machine; one that runs with the same settings is taken as it is."""
    running: list[Node] = []

    def start(machine: str = "two-sockets", driver: str = "cgroupfs", classes: str = "", **settings: Any) -> Node:
        vm = machines.get(machine)
        for node in running:
            if (node.vm, node.driver, node.classes, node.settings) == (vm, driver, classes, settings):
                return node
        while running:
            running.pop().stop()
        node = Node(vm, driver, classes, **settings)
        running.append(node)
        node.start()
        return node

    yield start
    while running:
        running.pop().stop()
