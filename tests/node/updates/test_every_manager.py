"""The law of updates, whoever declares what containers should have: CPU and memory manager, QRM, CCI.

Pods come, start, change and go; updates are made, fail and stay on their way in any order; the agent dies and comes
back. At no moment does a running container have a CPU that another pod owns, or no CPU at all; and once everybody has
what he should have, nothing is sent.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cci.manager import CciManager
from kubeqos.errors import RemoteError
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.objects import PodView
from kubeqos.node.admission.grants import Conflict, combine
from kubeqos.node.admission.managers.cpu import CpuManager
from kubeqos.node.admission.managers.memory import MemoryManager
from kubeqos.node.updates.pending import PendingUpdate, PendingUpdates
from kubeqos.node.updates.plan import cpus_of, same_for_running
from kubeqos.plugins.managers import AdmittedPod, ContainerKey, Grant, Refusal, ResourceManager
from kubeqos.qrm.asking import Placement
from kubeqos.qrm.manager import QosResourceManager
from kubeqos.rules.qos.podqos import effective_class
from kubeqos.topology.alignment.hints import ANYWHERE
from tests.cci.test_properties import Direct
from tests.cci.world import exclusive
from tests.cci.world import pod as claiming
from tests.node.pods import container, pod, resources
from tests.qrm.live import cpus as given_cpus

MACHINE = laptop8()
NAMES = ("a", "b", "c", "d")


class Manager(Protocol):
    """One kind of manager, and the pods it knows."""

    async def admit(self, name: str, draw: random.Random) -> AdmittedPod | None: ...

    async def change(self, draw: random.Random) -> None:
        """Change its mind about pods that it has admitted."""

    async def release(self, uid: str) -> None: ...

    def grants(self) -> Mapping[ContainerKey, Grant]: ...

    async def reborn(self, pods: Mapping[str, AdmittedPod]) -> Manager: ...

    def validate(self) -> list[str]: ...


class Real:
    """Managers as they are, asked as admission asks them."""

    def __init__(self, *managers: ResourceManager) -> None:
        self.managers = managers

    async def admit(self, name: str, draw: random.Random) -> AdmittedPod | None:
        wanted = self.pod(name, draw)
        for ref, _ in wanted.containers():
            for manager in self.managers:
                if isinstance(await manager.allocate(wanted, ref, ANYWHERE), Refusal):
                    await self.release(wanted.uid)
                    return None
        return wanted

    def pod(self, name: str, draw: random.Random) -> AdmittedPod:
        raise NotImplementedError

    async def change(self, draw: random.Random) -> None:
        """Pods that run keep what they have, but for the pool that all others share."""

    async def release(self, uid: str) -> None:
        for manager in self.managers:
            await manager.release(uid)

    def grants(self) -> Mapping[ContainerKey, Grant]:
        found: dict[ContainerKey, list[tuple[str, Grant]]] = {}
        for manager in self.managers:
            for key, grant in manager.grants().items():
                found.setdefault(key, []).append((manager.name, grant))
        joined = {key: combine(each) for key, each in found.items()}
        assert not any(isinstance(one, Conflict) for one in joined.values())
        return joined  # type: ignore[return-value]

    async def restored(self, others: Real, pods: Mapping[str, AdmittedPod]) -> Real:
        for manager, other in zip(self.managers, others.managers, strict=True):
            assert await other.restore(manager.save(), pods) == []
        return others

    def validate(self) -> list[str]:
        return [wrong for manager in self.managers for wrong in manager.validate()]


class BuiltIn(Real):
    def __init__(self) -> None:
        super().__init__(CpuManager(MACHINE, CpuSet.of(0)), MemoryManager(MACHINE))

    def pod(self, name: str, draw: random.Random) -> AdmittedPod:
        wants = {"resources": resources(cpu=str(draw.randint(1, 3)), memory="1Gi")} if draw.random() < 0.5 else {}
        raw = pod(name, container(**wants), uid=f"uid-{name}")
        view = PodView.of(raw)
        return AdmittedPod(view, raw, effective_class(view))

    async def reborn(self, pods: Mapping[str, AdmittedPod]) -> Real:
        return await self.restored(BuiltIn(), pods)


class Claims(Real):
    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="cci-"))
        self.manager = CciManager(MACHINE, self.folder)
        Direct(self.manager, MACHINE)
        super().__init__(self.manager)

    def pod(self, name: str, draw: random.Random) -> AdmittedPod:
        return claiming(name, exclusive(draw.randint(1, 2)) if draw.random() < 0.5 else "")

    async def reborn(self, pods: Mapping[str, AdmittedPod]) -> Real:
        return await self.restored(Claims(self.folder), pods)


class Plugins:
    """QRM's ledger, and a plugin that moves its pods around as it likes: owners and pools alike."""

    def __init__(self) -> None:
        self.manager = QosResourceManager(machine=MACHINE)

    async def admit(self, name: str, draw: random.Random) -> AdmittedPod | None:
        raw = pod(name, uid=f"uid-{name}")
        view = PodView.of(raw)
        wanted = AdmittedPod(view, raw, effective_class(view))
        for ref, _ in wanted.containers():
            self.manager.allocations.open(ref, Placement())
        await self.change(draw)
        return wanted

    async def change(self, draw: random.Random) -> None:
        """The whole report is another one: who owns CPUs, which, and what the others share; CPU 0 is nobody's."""
        free = list(MACHINE.online - CpuSet.of(0))
        draw.shuffle(free)
        owners = {
            holding.ref.pod_uid: CpuSet.of(*_some(free, draw))
            for holding in self.manager.allocations
            if draw.random() < 0.5
        }
        for holding in self.manager.allocations:
            own = owners.get(holding.ref.pod_uid)
            cpus = own or CpuSet.of(0, *draw.sample(free, draw.randint(0, len(free))))
            given = given_cpus(str(cpus), exclusive=own is not None)
            assert self.manager.allocations.put(holding, "cpu", {"cpu": given}) is None

    async def release(self, uid: str) -> None:
        await self.manager.release(uid)

    def grants(self) -> Mapping[ContainerKey, Grant]:
        return self.manager.grants()

    async def reborn(self, pods: Mapping[str, AdmittedPod]) -> Plugins:
        other = Plugins()
        assert await other.manager.restore(self.manager.save(), pods) == []
        return other

    def validate(self) -> list[str]:
        return self.manager.validate()


def _some(free: list[int], draw: random.Random) -> list[int]:
    return [free.pop() for _ in range(min(draw.randint(1, 2), len(free)))]


class Node:
    """What containers really have, and may have, while the agent brings them to what they should have."""

    def __init__(self, manager: Manager, draw: random.Random) -> None:
        self.manager, self.draw = manager, draw
        self.pods: dict[str, AdmittedPod] = {}
        self.pending = PendingUpdates(MACHINE.online)
        self.has: dict[ContainerKey, list[Grant]] = {}
        """What each container may have: one grant, or several while updates are on their way or have failed."""
        self.running: set[ContainerKey] = set()
        self.flying: list[PendingUpdate] = []
        self.sent = self.refused = 0

    # ---- What may happen

    async def admit(self) -> None:
        name = self.draw.choice(NAMES)
        if f"uid-{name}" not in self.pods and (wanted := await self.manager.admit(name, self.draw)) is not None:
            self.pods[wanted.uid] = wanted
        self.reconcile()

    async def change(self) -> None:
        await self.manager.change(self.draw)
        self.reconcile()

    async def release(self) -> None:
        if self.pods:
            uid = self.draw.choice(sorted(self.pods))
            del self.pods[uid]
            self.has = {key: grants for key, grants in self.has.items() if key[0] != uid}
            self.running = {key for key in self.running if key[0] != uid}
            self.flying = [one for one in self.flying if one.key[0] != uid]
            self.pending.removed(uid)
            await self.manager.release(uid)
            self.reconcile()

    async def create(self) -> None:
        """As the executor does: created with what it should have, started when others have left its CPUs."""
        grants = self.manager.grants()
        for key in sorted(grants.keys() - self.has.keys()):
            if key[0] in self.pods:
                self.has[key] = [grants[key]]
                self.pending.has(key, grants[key])
        for key in sorted(self.has.keys() - self.running):
            wanted = cpus_of(grants[key], MACHINE.online)
            if not self.pending.in_the_way(key[0], wanted) and not self.pending.before_start(key):
                self.running.add(key)

    async def send(self) -> None:
        self.pending.record(self.pending.unrecorded())
        for one in [self.pending.next(each.key) for each in list(self.pending)]:
            if one is not None:
                self.sent += 1
                self.flying.append(one)
                self.has[one.key].append(one.grant)

    async def land(self) -> None:
        if self.flying:
            one = self.flying.pop(self.draw.randrange(len(self.flying)))
            if self.draw.random() < 0.2:
                self.pending.failed(one, RemoteError("no"))
            else:
                self.has[one.key] = [one.grant]
                self.pending.made(one)

    async def die(self) -> None:
        """The next agent finds what there is: of an update on its way nobody knows whether it was made."""
        self.manager = await self.manager.reborn(self.pods)
        self.pending, self.flying = PendingUpdates(MACHINE.online), []
        wanted = self.manager.grants()
        for key, grants in self.has.items():
            now = self.draw.choice(grants)
            # What was promised in the earlier life, and is not any more, nobody knows.
            owner = cpus_of(now) <= wanted[key].exclusive
            self.has[key] = [now if owner else replace(now, exclusive=NO_CPUS)]
            self.pending.found(key, cpus_of(now) or None, wanted[key], same=same_for_running(now, wanted[key]))
        self.reconcile()

    def reconcile(self) -> None:
        wanted = self.manager.grants()
        self.pending.retry()
        self.refused += self.pending.require(wanted) is not None
        for key, grants in self.has.items():
            if len(grants) == 1 and not self.pending.of(key) and same_for_running(grants[0], wanted[key]):
                self.has[key] = [wanted[key]]  # another owner of the same CPUs: nobody is told

    # ---- What must be true

    def check(self) -> None:
        assert self.manager.validate() == [] and self.pending.validate() == []
        may_have = {
            key: [(cpus_of(grant, MACHINE.online), grant.exclusive) for grant in self.has[key]] for key in self.running
        }
        for key, mine in may_have.items():
            for cpus, own in mine:
                assert cpus
                for other, sets in may_have.items():
                    strangers = [each for each, _ in sets if other[0] != key[0] and each & cpus & own]
                    assert not strangers, (key, str(cpus & own), other, [str(each) for each in strangers])

    async def come_to_rest(self) -> None:
        for _ in range(200):
            self.reconcile()
            await self.send()
            await self.land()
            await self.create()
            self.check()
            if not self.pending and not self.flying:
                return
        pytest.fail("never comes to rest")


@pytest.mark.parametrize("make", [BuiltIn, Plugins, Claims])
@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_law_of_updates(make: Callable[[], Manager], draw: random.Random) -> None:
    asyncio.run(_live(Node(make(), draw), draw))


async def _live(node: Node, draw: random.Random) -> None:
    steps: list[Any] = [node.admit, node.admit, node.change, node.release, node.create, node.send, node.land, node.land]
    for number in range(40):
        await (node.die if number % 20 == 19 else draw.choice(steps))()
        node.check()
    refused = node.pending.require(node.manager.grants())
    if refused is not None:  # a ring of owners without a spare CPU: everybody stays, and nobody starts in their place
        return
    await node.come_to_rest()
    wanted = node.manager.grants()
    assert all(len(grants) == 1 and same_for_running(grants[0], wanted[key]) for key, grants in node.has.items())
    node.sent = 0
    node.reconcile()
    await node.send()
    await node.die()
    await node.send()
    assert node.sent == 0, "who has what he should have is told nothing, after a restart either"
