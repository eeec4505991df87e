"""Laws on random machines: exclusive sets stay disjoint, available = all − reserved − exclusive, attributes hold."""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.cci.answers import verified
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.drivers import PLUGIN_TYPE, VERSIONS
from kubeqos.cci.drivers import Driver as Registered
from kubeqos.cci.manager import CciManager, CciSettings
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.sdk import Driver, Servicer
from kubeqos.cci.store import Store
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.annotations.wellknown import HOLDINGS_ANNOTATION
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.model.machine import CoreKind, Machine
from kubeqos.plugins.managers import AdmittedPod, Grant
from kubeqos.plugins.registration import Plugin
from kubeqos.topology.alignment.hints import ANYWHERE
from kubeqos.topology.attributes import DeviceAffinity, Isolation, MemoryAffinity, Siblings, violations
from kubeqos.topology.claims.holdings import ResourceSet
from kubeqos.topology.claims.parameters import Group, Parameters
from tests.cci.world import DRIVER, overlaps, owned_by, pod
from tests.node.updates.told import Told
from tests.topology.strategies import machines


class Direct:
    """The driver directory with drivers that are called without sockets, so that hundreds of cases run."""

    def __init__(self, manager: CciManager, machine: Machine, *drivers: Driver) -> None:
        self.servicers: dict[str, Servicer] = {}
        for one in drivers or (Reference(machine, DRIVER),):
            self.servicers[one.name] = Servicer(one, Path("/nowhere"))
            plugin = Plugin(PLUGIN_TYPE, one.name, Path("/nowhere"), VERSIONS, Path("/nowhere"))
            manager.drivers.table[one.name] = Registered(plugin, VERSIONS[0], None, way=one.way)  # type: ignore[arg-type]
        object.__setattr__(manager.drivers, "invoke", self.invoke)

    async def invoke(self, driver: Registered, method: str, request: Any) -> Any:
        return await getattr(self.servicers[driver.name], method)(request, None)


@st.composite
def claims(draw: st.DrawFn) -> str:
    """One or two groups with any legal attributes."""
    cpu, mem, device, numbers = [], [], [], []
    for _ in range(draw(st.integers(1, 2))):
        own = draw(st.booleans())
        siblings = draw(st.sampled_from(["", "REQUIRED", "PREFERRED"] + (["DENIED"] if own else [])))
        kind = draw(st.sampled_from(["", "", "PERFORMANCE-CORE", "EFFICIENCY-CORE"]))
        isolation = draw(st.sampled_from(["", "", "ISOLATED-ALLOWED", "ISOLATED-REQUIRED"])) if own else ""
        names = ["EXCLUSIVE" if own else "SHARED", f"CORE-SIBLING-{siblings}" if siblings else "", kind, isolation]
        cpu.append([name for name in names if name])
        mem.append(draw(st.sampled_from([one.value for one in MemoryAffinity] + ["HUGE_PAGE_SIZE_2M"])))
        device.append(draw(st.sampled_from([one.value for one in DeviceAffinity])))
        least = draw(st.integers(1, 4))
        most = least + draw(st.sampled_from([0, 0, 2]))
        numbers.append(str(least) if most == least else f"{least}-{most}")
    return json.dumps({"cores": numbers, "cpu attributes": cpu, "mem attributes": mem, "device attributes": device})


steps = st.lists(st.one_of(claims(), st.just(""), st.integers(0, 9)), max_size=14)


@settings(max_examples=60, deadline=None)
@given(machines(), steps, st.integers(0, 2), st.integers(0, 3))
def test_claims_and_removals_on_random_machines(machine: Machine, plan: list[Any], reserved: int, paged: int) -> None:
    """Some NUMA nodes have huge pages, and every container has a device on the first one."""
    nodes = [
        replace(node, hugepages={2 << 20: 8} if paged >> index & 1 else {}) for index, node in enumerate(machine.nodes)
    ]
    if len(machine.online) > reserved:
        asyncio.run(_live(replace(machine, nodes=tuple(nodes)), plan, machine.online.lowest(reserved)))


async def _live(machine: Machine, plan: list[Any], reserved: CpuSet) -> None:
    with tempfile.TemporaryDirectory() as folder:
        near = machine.numa_of(machine.online.lowest(1))
        manager = CciManager(
            machine, Path(folder), CciSettings(reserved=reserved), locate_devices=lambda _machine, _pod, _view: near
        )
        Direct(manager, machine)
        running: list[AdmittedPod] = []
        has: dict[str, CpuSet] = {}
        told = Told(machine.online)
        for number, step in enumerate(plan):
            if isinstance(step, int):
                if running:
                    gone = running.pop(step % len(running))
                    has.pop(gone.uid)
                    told.removed(gone.uid)
                    await manager.release(gone.uid)
            else:
                wanted = pod(f"p{number}", step)
                [(ref, _)] = wanted.containers()
                if isinstance(await manager.allocate(wanted, ref, ANYWHERE), Grant):
                    running.append(wanted)
                else:
                    await manager.release(wanted.uid)
            for update in told.updates(manager.grants()):
                assert update.cpus
                has[update.key[0]] = update.cpus
                _no_overlap(manager, has)
            assert told.refused is None and list(told.updates(manager.grants())) == []
            for each in running:
                [(ref, _)] = each.containers()
                grant = manager.grant(ref)
                assert grant is not None
                if each.uid not in has:
                    told.created((each.uid, ref.name), grant)
                    has[each.uid] = CpuSet.parse(str(grant.properties["cpuset_cpus"]))
                assert has[each.uid] == CpuSet.parse(str(grant.properties["cpuset_cpus"]))
            _laws(manager, machine, reserved, has)
        again = CciManager(machine, Path(folder), CciSettings(reserved=reserved))
        await again.restore(None, {each.uid: each for each in running})
        assert again.store.dump() == manager.store.dump(), "a restart changes nothing"
        after = Told(machine.online)
        after.found(told.has, again.grants())
        assert list(after.updates(again.grants())) == [], "nor does it call the runtime"


class Several(Direct):
    """Two drivers that know nothing of each other and take their time, each call its own."""

    def __init__(self, manager: CciManager, machine: Machine, pauses: Iterator[int]) -> None:
        super().__init__(manager, machine, Reference(machine, DRIVER), Reference(machine, "second.example.com"))
        self.pauses = pauses

    async def invoke(self, driver: Any, method: str, request: Any) -> Any:
        answer = await super().invoke(driver, method, request)
        for _ in range(next(self.pauses)):
            await asyncio.sleep(0)
        return answer


@settings(max_examples=60, deadline=None)
@given(
    machines(),
    st.lists(st.lists(st.one_of(claims(), st.just(""), st.integers(0, 9)), min_size=1, max_size=6), max_size=4),
    st.lists(st.integers(0, 6), min_size=1),
)
def test_admissions_beside_each_other(machine: Machine, plan: list[list[Any]], pauses: list[int]) -> None:
    """Pods of two drivers come and go at the same time; the slower driver's answer is old when it comes."""
    asyncio.run(_live_together(machine, plan, itertools.cycle(pauses)))


async def _live_together(machine: Machine, plan: list[list[Any]], pauses: Iterator[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        manager = CciManager(machine, Path(folder), CciSettings(several_drivers=True))
        Several(manager, machine, pauses)
        running: list[AdmittedPod] = []

        async def admit(wanted: AdmittedPod) -> None:
            [(ref, _)] = wanted.containers()
            if isinstance(await manager.allocate(wanted, ref, ANYWHERE), Grant):
                running.append(wanted)
            else:
                await manager.release(wanted.uid)
            assert manager.validate() == []

        for number, batch in enumerate(plan):
            steps = []
            for index, step in enumerate(batch):
                if isinstance(step, str):
                    driver = DRIVER if index % 2 else "second.example.com"
                    steps.append(admit(pod(f"p{number}-{index}", step, driver)))
                elif running:
                    steps.append(manager.release(running.pop(step % len(running)).uid))
            await asyncio.gather(*steps)
            owned = [entry.whole for entry in manager.store.entries.values()]
            assert manager.validate() == [] and not manager.store.reservations and not manager.store.departures
            assert sum(map(len, owned)) == len(machine.online) - len(manager.store.available_resources())
        await asyncio.gather(*(manager.release(each.uid) for each in running))
        assert manager.store.available_resources() == machine.online and not manager.store.entries


def _no_overlap(manager: CciManager, told: dict[str, CpuSet]) -> None:
    for entry in manager.store.entries.values():
        if entry.whole and entry.pod in told:
            others = [uid for uid, cpus in told.items() if uid != entry.pod and cpus & entry.whole]
            assert not others


def _laws(manager: CciManager, machine: Machine, reserved: CpuSet, told: dict[str, CpuSet]) -> None:
    assert manager.validate() == []
    owned = NO_CPUS
    for entry in manager.store.entries.values():
        assert not owned & entry.whole
        owned |= entry.whole
        for holding in entry.holdings:
            for group, held in holding.pairs():
                assert group is not None
                others = machine.online - reserved - _owned_by_others(manager.store, entry.key)
                request = group.request(holding.parameters.device_numa)
                assert not violations(machine, others, request, held.cpus)
                assert held.cpus <= group.region(machine)
    assert manager.store.available_resources() == machine.online - reserved - owned
    assert all(told.values())
    _no_overlap(manager, told)


def _owned_by_others(store: Store, key: tuple[str, str]) -> CpuSet:
    mask = 0
    for entry in store.entries.values():
        mask |= entry.whole.mask if entry.key != key else 0
    return CpuSet(mask)


answers = st.builds(
    lambda sets, text: pb.AdmitResponse(
        rSet=pb.ResourceSet(cpuset=text, exclusive=bool(sets and sets[0][1])),
        sets=[pb.ResourceSet(cpuset=str(CpuSet(mask)), exclusive=own) for mask, own in sets],
    ),
    st.lists(st.tuples(st.integers(0, 1 << 10), st.booleans()), max_size=3),
    st.one_of(st.integers(0, 1 << 10).map(lambda mask: str(CpuSet(mask))), st.text(max_size=6)),
)
kinds = st.builds(
    Group,
    least=st.integers(1, 3),
    most=st.just(3),
    exclusive=st.booleans(),
    siblings=st.sampled_from([Siblings.ANY, Siblings.REQUIRED, Siblings.PREFERRED]),
    memory=st.sampled_from(MemoryAffinity),
    device=st.sampled_from(DeviceAffinity),
    kind=st.sampled_from([None, *CoreKind]),
    isolation=st.sampled_from([Isolation.NO, Isolation.ALLOWED]),
)


@settings(max_examples=150)
@given(st.lists(kinds, min_size=1, max_size=2), answers, st.integers(0, 255))
def test_only_true_answers_are_believed(groups: list[Group], answer: pb.AdmitResponse, free: int) -> None:
    """Whatever a driver says: what passes is inside, of the right size, disjoint, and of the right sort."""
    available = CpuSet(free)
    found = verified(laptop8(), available, Parameters(tuple(groups)), answer)
    if isinstance(found, tuple):
        used = NO_CPUS
        for one in found:
            assert one.cpus <= available and not one.cpus & used
            used |= one.cpus
        assert sum(group.least for group in groups) <= len(used) <= sum(group.most for group in groups)
        if len(found) == len(groups):
            assert [one.exclusive for one in found] == [group.exclusive for group in groups]


def test_a_true_answer_is_believed() -> None:
    parameters = Parameters((Group(2, 2, exclusive=True), Group(3, 3)))
    answer = pb.AdmitResponse(
        rSet=pb.ResourceSet(cpuset="0-4", exclusive=True),
        sets=[pb.ResourceSet(cpuset="0-1", exclusive=True), pb.ResourceSet(cpuset="2-4")],
    )
    assert verified(laptop8(), laptop8().online, parameters, answer) == (
        ResourceSet(CpuSet.parse("0-1"), CpuSet.parse("0-1")),
        ResourceSet(CpuSet.parse("2-4")),
    )


async def test_the_observer_sees_an_overlap() -> None:
    """The judge of the other tests is judged itself."""
    runtime = SimulatedRuntime(laptop8(), logs=False)
    holdings = json.dumps({"holdings": [{"sets": [{"cpuset": "0-1", "exclusive": True}]}]})
    assert owned_by(holdings) == CpuSet.parse("0-1")
    for uid, marks, cpuset in (("a", {HOLDINGS_ANNOTATION: holdings}, "0-1"), ("b", {}, "1-7")):
        config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name=uid, uid=uid, namespace="default"))
        sandbox = await runtime.run_pod_sandbox(config)
        described = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name="main"),
            image=cri.ImageSpec(image="example.org/app:1"),
            annotations=marks,
            linux=cri.LinuxContainerConfig(resources=cri.LinuxContainerResources(cpuset_cpus=cpuset)),
        )
        await runtime.start_container(await runtime.create_container(sandbox, described, config))
    assert len(overlaps(runtime)) == 1
    await runtime.close()
