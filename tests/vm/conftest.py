"""Machines and nodes for the tests in guests. A machine is booted once for the tests that share it, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tools.vm import backports, images
from tools.vm.machines import MACHINES
from tools.vm.vm import Vm, booted

from tests.vm.node import CLASSES, SETTINGS, Node
from tests.vm.stocknode import StockNode

BOTH = ("cgroupfs", "systemd")
STOCK = pytest.param("stock", marks=pytest.mark.slow)
"""The same for a node with an unmodified kubelet."""


class Machines:
    """At most one machine runs: asking for another takes the power from the first."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._vm: Vm | None = None

    def get(self, name: str) -> Vm:
        why = backports.missing() if MACHINES[name].backports else None
        if why is not None:
            pytest.skip(why)
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


@pytest.fixture(scope="session")
def node_of(machines: Machines) -> Iterator[NodeMaker]:
    """Start a node with these settings; the one that runs is taken if its machine and settings are the same."""
    running: list[Node] = []

    def start(
        driver: str, classes: str = "", machine: str = "two-sockets", kind: type[Node] = Node, **settings: Any
    ) -> Node:
        if kind is StockNode and images.stock() is None:
            pytest.skip(f"not built: {', '.join(images.STOCK)}; `make stock` builds them where Go is")
        vm = machines.get(machine)
        asked = kind(vm, driver, classes, **settings)
        if running and running[0].is_like(asked):
            return running[0]
        while running:
            last = running.pop()
            if last.vm is vm:  # otherwise it went with its machine
                last.stop()
        running.append(asked)
        asked.start()
        return asked

    yield start


@pytest.fixture(scope="session")
def standard(node_of: NodeMaker) -> Callable[[str], Node]:
    """The node that most tests share, with either cgroup driver: relay with classes, static managers, one NUMA node.

    Or a stock one, with the agent in place of relay and managers.
    """

    def get(name: str) -> Node:
        if name == "stock":
            return node_of("systemd", CLASSES, kind=StockNode)
        return node_of(name, CLASSES, **SETTINGS)

    return get


@pytest.fixture(scope="session")
def node(request: pytest.FixtureRequest, standard: Callable[[str], Node]) -> Node:
    """The standard node, with the cgroup driver that the test names: `parametrize("node", BOTH, indirect=True)`."""
    return standard(request.param)


@pytest.fixture(autouse=True)
def clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed leaves no pod to the next one."""
    yield
    if "node" in request.fixturenames:
        found: Node = request.getfixturevalue("node")
        found.clean()
