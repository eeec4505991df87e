"""The resctrl file system of a simulated node: its containers are tasks in the groups of their rdt classes.

The same provider as on a real machine (`cri.providers.rdt`) works on a tree that behaves as the kernel's; here it is
told what a simulated runtime has, as the relay would tell it. `kubeqos resctrl` shows it. Kept by `cluster.nodes`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.providers.config import RdtSpec, ResourceSpec
from kubeqos.cri.providers.protocol import Level, Place, Subject
from kubeqos.cri.providers.rdt.files import ResctrlFiles, discover
from kubeqos.cri.providers.rdt.provider import RdtProvider
from kubeqos.cri.providers.rdt.simulated import SimulatedResctrl, plant
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.state import Container, State
from kubeqos.errors import KubeqosError
from kubeqos.logs import logger
from kubeqos.model.machine import Machine

log = logger("kubeqos.resctrl")
FOLDER = "resctrl"
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Member:
    """A running container as resctrl knows it."""

    subject: Subject
    place: Place
    cls: str


class NodeResctrl:
    """The tree of one node, brought to what its runtime runs."""

    def __init__(self, root: Path, machine: Machine, rdt: ResourceSpec, runtime: SimulatedRuntime) -> None:
        assert isinstance(rdt.spec, RdtSpec)
        shutil.rmtree(root, ignore_errors=True)  # as after a boot: the containers of an earlier life are gone, too
        plant(machine, root)
        self._runtime = runtime
        self._resource = rdt.offer.name
        self._kernel = SimulatedResctrl(root)
        files = ResctrlFiles(root, self._kernel)
        host = Host(root / "no-cgroups", version=V2)  # a task is the first process of a container
        self._provider = RdtProvider(rdt.offer, rdt.spec.config, discover(root, False), files, host, rdt.spec.prefix)
        self._provider.install()
        self._members: Mapping[str, _Member] = {}

    async def keep(self) -> None:
        """Follow the runtime until cancelled; counters move with the time."""
        while True:
            try:
                await self.look()
            except (KubeqosError, OSError) as error:
                log.warning("a simulated resctrl tree is not kept", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Bring every container into the group of its class, and let counters move."""
        found = self._found()
        for gone in self._members.keys() - found.keys():
            before = self._members[gone]
            await self._provider.withdraw(before.subject, self._resource, before.cls)
            self._kernel.ended(before.place.pid)
        for identity, member in found.items():
            known = self._members.get(identity)
            if known is None:
                await self._provider.enter(member.subject, member.place, self._resource, member.cls)
            elif known.cls != member.cls:
                await self._provider.move(member.subject, member.place, self._resource, known.cls, member.cls)
        moves = bool(found or self._members)
        self._members = found
        if moves:  # a tree without tasks stands still; and files are written beside the event loop, which serves others
            await asyncio.to_thread(self._kernel.tick)

    def _found(self) -> dict[str, _Member]:
        core = self._runtime.core
        running = (one for one in core.containers.values() if one.state is State.RUNNING)
        return {one.id: self._member(one) for one in running}

    def _member(self, container: Container) -> _Member:
        core = self._runtime.core
        sandbox = core.sandboxes[container.sandbox_id]
        classes = core.book.assigned(
            Level.CONTAINER, container.classes, container.fixed_classes, sandbox.runtime_handler
        )
        meta = sandbox.config.metadata
        subject = Subject(
            Level.CONTAINER, container.id, sandbox.id, meta.uid, meta.namespace, meta.name, container.name
        )
        return _Member(subject, Place(container.pid, container.id), dict(classes).get(self._resource, ""))
