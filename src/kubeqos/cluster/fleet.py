"""Many nodes in one process: real agents on simulated runtimes, in virtual time when asked.

For simulations and for finding out how a policy behaves on a thousand machines. A node that has nothing to do costs its
records and two timers; in virtual time a day passes as fast as its events can be handled, the same way every time. With
an API server all of them speak to it through one client, and their pods are followed once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kubeqos.client.api import Api
from kubeqos.client.informer import Informer
from kubeqos.client.resources import PODS
from kubeqos.clock import Clock, WallClock
from kubeqos.cri.providers.protocol import Advertisement
from kubeqos.cri.simulated import SimulatedRuntime, VirtualClock
from kubeqos.document import Doc
from kubeqos.model.machine import Machine
from kubeqos.node.admission.ledger import LocalLedger
from kubeqos.node.agent import NodeAgent
from kubeqos.node.api.sources import LocalPods, NodePods, SharedPods
from kubeqos.node.config.assembly import Hosting, node_parts
from kubeqos.node.config.configuration import NodeConfiguration, configure
from kubeqos.node.parts import EffectsInFlight
from kubeqos.plugins.managers import ResourceManager

QUIET_ROUNDS, MOST_ROUNDS = 3, 100
QUIET_SECONDS = 300.0
"""How often an idle node of a fleet compares itself with its runtime, which tells it everything anyway."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What a group of nodes has in common."""

    machine: Machine
    offers: tuple[Advertisement, ...] = ()
    settings: Mapping[str, Any] | None = None
    """Settings as they stand in a `NodeConfiguration` file."""

    def configuration(self) -> NodeConfiguration:
        """What all nodes of this shape are told."""
        said = {"nodeStatusUpdateFrequency": f"{QUIET_SECONDS:.0f}s", "simulatedMachine": self.machine.name}
        return configure(Doc.of({**said, **(self.settings or {})}, "fleet"), {}, has_file=False)


@dataclass(slots=True)
class FleetNode:
    """One node of a fleet: give it pods, read their statuses."""

    agent: NodeAgent
    runtime: SimulatedRuntime
    pods: LocalPods | NodePods
    task: asyncio.Task[None]

    def phases(self) -> dict[str, str]:
        """The phase of every pod, by uid; empty where nothing was decided yet."""
        return {uid: (raw.get("status") or {}).get("phase", "") for uid, raw in self.pods.pods.items()}


class Fleet:
    """Nodes by name. Use it as a context manager, inside a running event loop."""

    def __init__(self, folder: Path, *, virtual: bool = True, api: Api | None = None) -> None:
        self._folder = folder
        self._api = api
        self._bound = Informer(api, PODS, fields="spec.nodeName!=") if api is not None else None
        self._shared = SharedPods(self._bound) if self._bound is not None else None
        self._following: asyncio.Task[None] | None = None
        self._in_flight = EffectsInFlight()
        self.clock: Clock = VirtualClock(settle=self.until_idle) if virtual else WallClock()
        self.nodes: dict[str, FleetNode] = {}

    async def __aenter__(self) -> Fleet:
        if self._bound is not None:
            self._following = asyncio.get_running_loop().create_task(self._bound.run(), name="pods of the fleet")
        return self

    async def __aexit__(self, *_error: object) -> None:
        tasks = [node.task for node in self.nodes.values()]
        tasks += [self._following] if self._following is not None else []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for node in self.nodes.values():
            await node.runtime.close()

    async def add(
        self, names: Iterable[str], shape: NodeShape, managers: Sequence[ResourceManager] = ()
    ) -> list[FleetNode]:
        """Start nodes of one shape; returns when all of them take pods."""
        config = shape.configuration()
        added = [self._start(replace(config, node_name=name), shape, managers) for name in names]
        for node in added:
            await node.agent.ready.wait()
        return added

    def _start(self, config: NodeConfiguration, shape: NodeShape, managers: Sequence[ResourceManager]) -> FleetNode:
        name, state = config.node_name, self._folder / config.node_name
        config = replace(config, state_dir=state, pod_logs_dir=state / "logs")
        runtime = SimulatedRuntime(shape.machine, shape.offers, name=name, clock=self.clock, logs=False)
        pods = self._shared.of(name) if self._shared is not None else LocalPods()
        hosting = Hosting(
            self._api, pods, clock=self.clock, ledger=LocalLedger(), in_flight=self._in_flight, folders=False
        )
        parts = node_parts(config, runtime, shape.machine, hosting, relist_seconds=QUIET_SECONDS)
        # Thousands of nodes keep no journals of their pods: nobody reads them, and they would be most of the memory.
        settings = replace(parts.settings, journal_steps=0)
        agent = NodeAgent(replace(parts, settings=settings, other_managers=tuple(managers)))
        node = FleetNode(agent, runtime, pods, asyncio.get_running_loop().create_task(agent.run(), name=name))
        self.nodes[name] = node
        return node

    async def advance(self, seconds: float) -> None:
        """Let time pass on every node at once."""
        if isinstance(self.clock, VirtualClock):
            await self.clock.advance(seconds)
        else:
            await asyncio.sleep(seconds)

    async def until_idle(self) -> None:
        """Let everything happen that needs no time."""
        quiet = 0
        for _ in range(MOST_ROUNDS):
            # What still goes on after so many rounds waits for time to pass, such as a stop with its grace period.
            quiet = 0 if self._in_flight.count else quiet + 1
            if quiet > QUIET_ROUNDS:
                return
            await asyncio.sleep(0)

    def validate(self) -> Iterator[str]:
        """Broken invariants of every node."""
        for name, node in self.nodes.items():
            yield from (f"{name}: {problem}" for problem in node.agent.validate())
