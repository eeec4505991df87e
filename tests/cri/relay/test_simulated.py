"""The relay in front of the simulated runtime: resctrl and cgroup v2, a vendor's process, failures at every step."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeqos.checkpoint import Checkpoint
from kubeqos.cri.classes.keeper import DRIFT_ROUNDS
from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.host import V2, Host
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.providers.protocol import (
    Advertisement,
    ClassInfo,
    ClassProvider,
    ClassRefusal,
    Edit,
    Level,
    Place,
    Sample,
    Subject,
)
from kubeqos.cri.providers.rdt.files import ResctrlFiles
from kubeqos.cri.providers.rdt.simulated import SimulatedResctrl
from kubeqos.cri.providers.rdt.simulated import plant as plant_machine
from kubeqos.cri.providers.remote import RemoteProvider, serve
from kubeqos.cri.relay.server import Relay, RelayCollector, Settings
from kubeqos.cri.runtime import CREATE_CONTAINER, PROVIDERS_READY
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.faults import Fault, Faults, Latency
from kubeqos.errors import ConfigurationError, RemoteError
from kubeqos.model.hardware.named import tiny2
from tests.cri.pods import container, pod, pod_update
from tests.cri.pods import container as container_config
from tests.cri.providers.trees import TreeKernel, plant
from tests.cri.relay.processes import container_classes, refused, shown

CLASSES = """
resources:
  rdt:
    provider: rdt
    default: silver
    capacity: {gold: 1}
    annotations: [gold, bronze]
    config:
      partitions:
        fast: {l3Allocation: "60%", classes: {gold: {}}}
        rest: {l3Allocation: "40%", classes: {silver: {}, bronze: {l3Allocation: "50%"}}}
  memory:
    provider: memory
    classes: {kept: {min: 25%}, soft: {high: 50%}}
"""
TURBO = "  turbo: {endpoint: 'unix://FOLDER/turbo.sock', capacity: {high: 5}, config: {level: 9}}\n"


class Turbo(ClassProvider):
    """A vendor's provider with a memory of its calls and a switch for each to fail."""

    def __init__(self, level: Level = Level.CONTAINER) -> None:
        self.level = level
        self.calls: list[tuple[str, ...]] = []
        self.pod_qos: set[str] = set()
        self.broken = ""
        self.refuses = ""

    async def advertise(self) -> Sequence[Advertisement]:
        return (Advertisement("turbo", self.level, True, (ClassInfo("high"), ClassInfo("low"))),)

    async def check(self, subject: Subject, resource: str, class_name: str) -> ClassRefusal | None:
        return ClassRefusal("too hot", "wait") if class_name == self.refuses else None

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        self.pod_qos.add(subject.pod_qos)
        self._do("apply", class_name)
        return Edit({"turbo.example/on": class_name}, {"oom_score_adj": 7, "cpuset_mems": "0"}, {"cpu.idle": "0"})

    async def enter(self, subject: Subject, place: Place, resource: str, class_name: str) -> None:
        self._do("enter", class_name, place.cgroup)

    async def move(self, subject: Subject, place: Place, resource: str, old: str, new: str) -> None:
        self._do("move", old, new)

    async def report(self) -> Sequence[Sample]:
        return (Sample("turbo_heat", "How hot.", {"core": "0"}, 99.5),)

    async def withdraw(self, subject: Subject, resource: str, class_name: str) -> None:
        self._do("withdraw", subject.id)

    def _do(self, *call: str) -> None:
        self.calls.append(call)
        if call[0] == self.broken:
            raise RemoteError(f"turbo cannot {call[0]}")


class World:
    """A simulated runtime, a vendor's process, a relay, and a client of the relay."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cgroups = folder / "cg"
        self.resctrl = plant("full", folder / "resctrl")
        self.kernel = TreeKernel(self.resctrl)
        self.faults = Faults()
        self.runtime = SimulatedRuntime(tiny2(), cgroup_root=self.cgroups, logs=False, faults=self.faults)
        self.turbo = Turbo()
        self.config = folder / "classes.yaml"
        self.config.write_text(CLASSES + TURBO.replace("FOLDER", str(folder)))
        host = Host(self.cgroups, version=V2)
        machine = LocalMachine(host, self.resctrl, self.kernel, mbps_mode=False)
        paths = (folder / "cri.sock", folder / "runtime.sock", self.config, folder / "state.json")
        self.settings = Settings(*paths, machine)

    async def start(self) -> None:
        self.relay = await Relay.start(self.settings)
        self.client = CriClient(f"unix://{self.settings.listen}")

    async def crash(self) -> None:
        """Forget everything that was not saved."""
        for task in self.relay._background:
            task.cancel()
        await asyncio.gather(*self.relay._background, return_exceptions=True)
        for server in self.relay._servers:
            server.close()
        await self.client.close()
        self.settings.listen.unlink(missing_ok=True)

    async def started(self, name: str = "main", **classes: str) -> str:
        created = await self.created(name, **classes)
        await self.client.start_container(created)
        return created

    async def created(self, name: str = "main", **classes: str) -> str:
        config = container(name, classes=classes)
        config.linux.resources.memory_limit_in_bytes = 1 << 20
        return await self.client.create_container(self.sandbox, config, self.pod)

    async def classes(self, container_id: str) -> dict[str, str]:
        return shown((await self.client.container_status(container_id)).status.resources.qos_resources)

    async def classes_soon(self, container_id: str) -> dict[str, str]:
        """After a restart: once the relay has heard from the runtime."""
        async with asyncio.timeout(60):
            await self.relay.keeper.ready.wait()
        return await self.classes(container_id)

    async def update(self, container_id: str, **classes: str) -> None:
        await self.client.update_container_resources(
            cri.UpdateContainerResourcesRequest(container_id=container_id, qos_resources=container_classes(**classes))
        )

    async def file(self, container_id: str, name: str) -> str:
        path = self.runtime.core.cgroup_path(self.runtime.core.container(container_id))
        return (self.cgroups / path / name).read_text().strip()

    def tasks(self, class_name: str) -> list[str]:
        return (self.resctrl / f"kubeqos.{class_name}" / "tasks").read_text().split()


@pytest.fixture
async def world(folder: Path) -> AsyncIterator[World]:
    world = World(folder)
    world.vendor = await serve(world.turbo, f"{folder}/turbo.sock")
    async with serving(world.runtime, f"unix://{world.settings.runtime}"):
        await world.start()
        world.pod = pod()
        world.sandbox = await world.client.run_pod_sandbox(world.pod)
        yield world
        assert world.relay.keeper.table.validate() == []
        await world.client.close()
        await world.relay.close()
    await world.vendor.stop(0)
    await world.runtime.close()


async def test_all_resources_are_advertised(world: World):
    resources = (await world.client.status()).status.resources
    assert [(i.name, i.mutable) for i in resources.container_qos_resources] == [
        ("memory", True),
        ("rdt", True),
        ("turbo", True),
    ]
    turbo = resources.container_qos_resources[2]
    assert {c.name: c.capacity for c in turbo.classes} == {"high": 5, "low": 0}


@pytest.mark.proves("class-rdt")
async def test_a_container_enters_and_changes_its_resctrl_group(world: World):
    container = await world.started(rdt="gold")
    pid = (await world.file(container, "cgroup.procs")).split()
    assert world.tasks("gold") == pid
    assert (world.resctrl / "kubeqos.gold/schemata").read_text() == "L3:0=fff;1=fff\nMB:0=100;1=100\n"
    await world.update(container, rdt="bronze")
    assert (world.tasks("gold"), world.tasks("bronze")) == ([], pid)
    await world.client.stop_container(container)
    await world.client.remove_container(container)
    assert ResctrlFiles(world.resctrl).monitored("kubeqos.") == []


@pytest.mark.proves("class-cpu", "class-memory")
async def test_cgroup_v2_values_are_there_from_the_start_and_follow_a_move(world: World):
    container = await world.started(memory="kept")
    assert await world.file(container, "memory.min") == "262144"
    await world.update(container, memory="soft")
    assert await world.file(container, "memory.min") == "0"
    assert await world.file(container, "memory.high") == "524288"


async def test_a_vendor_process_is_asked_at_every_step(world: World):
    container = await world.started(turbo="low")
    await world.update(container, turbo="high")
    assert (await world.classes(container))["turbo"] == "high"
    await world.client.stop_container(container)
    await world.client.remove_container(container)
    cgroup = world.turbo.calls[1][2]
    assert cgroup.endswith(container)
    assert world.turbo.calls == [
        ("apply", "low"),
        ("enter", "low", cgroup),
        ("move", "low", "high"),
        ("withdraw", container),
    ]


async def test_a_provider_is_told_the_pods_qos_class(world: World):
    """Which fails nothing and is shown as assigned to nobody (KEP-3008, Pass on Pod QoS class)."""
    told = pod(classes={"pod-qos": "Guaranteed"})
    sandbox = await world.client.run_pod_sandbox(told)
    assert not (await world.client.pod_sandbox_status(sandbox)).status.qos_resources
    await world.client.create_container(sandbox, container("main", classes={"turbo": "low"}), told)
    await world.created(turbo="low")
    assert world.turbo.pod_qos == {"Guaranteed", ""}


async def test_a_retired_class_is_given_to_nobody_new_and_kept_by_who_has_it(world: World):
    first = await world.started(rdt="bronze")
    world.config.write_text(world.config.read_text().replace("    capacity: {gold: 1}\n", "    retired: [bronze]\n", 1))
    await world.relay.file.reload()
    [rdt] = [i for i in (await world.client.status()).status.resources.container_qos_resources if i.name == "rdt"]
    assert [c.name for c in rdt.classes] == ["gold", "silver"]
    assert (await world.classes(first))["rdt"] == "bronze"
    other = await world.started("other")
    for call in (world.created("new", rdt="bronze"), world.update(other, rdt="bronze")):
        assert (
            "class 'bronze' of QoS resource 'rdt' is retired; there are: gold, silver" in (await refused(call)).details
        )
    await world.client.stop_container(first)
    again = container("main", classes={"rdt": "bronze"}, attempt=1)
    kept = await world.client.create_container(world.sandbox, again, world.pod)
    assert (await world.classes(kept))["rdt"] == "bronze"


ANNOTATED = {"rdt.resources.beta.kubernetes.io/pod": "bronze"}


async def test_annotations_of_a_caller_that_knows_classes_open_no_second_door(world: World):
    """A namespace whose quota allows silver only must not run bronze by an annotation that no quota counts."""
    knows = pod("knows", annotations=ANNOTATED, classes={"pod-qos": "Burstable"})
    sandbox = await world.client.run_pod_sandbox(knows)
    created = await world.client.create_container(sandbox, container("main"), knows)
    assert (await world.classes(created))["rdt"] == "silver"
    stock = pod("stock", annotations=ANNOTATED)
    sandbox = await world.client.run_pod_sandbox(stock)
    asked = await world.client.create_container(sandbox, container("main"), stock)
    assert (await world.classes(asked))["rdt"] == "bronze"
    for one in (created, asked):  # nor may the runtime read them for itself
        annotations = world.runtime.core.container(one).config.annotations
        assert annotations["io.kubernetes.cri.rdt-class"] == ""


async def test_a_class_that_is_not_opened_to_annotations_is_refused(world: World):
    stock = pod("stock", annotations={"rdt.resources.beta.kubernetes.io/pod": "silver"})
    sandbox = await world.client.run_pod_sandbox(stock)
    error = await refused(world.client.create_container(sandbox, container("main"), stock))
    assert "class 'silver' of 'rdt' may not be requested with annotation" in error.details


async def test_an_annotation_that_nobody_answers_is_told_once(world: World, caplog: pytest.LogCaptureFixture):
    """The pod runs all the same; its owner hears of it, whatever number of containers it has."""
    key = "turbine.resources.beta.kubernetes.io/pod"
    stock = pod("stock", annotations={key: "fast"})
    sandbox = await world.client.run_pod_sandbox(stock)
    for name in ("main", "beside"):
        await world.client.create_container(sandbox, container(name), stock)
    [told] = [line for line in caplog.text.splitlines() if "an annotation asks for a class in vain" in line]
    assert key in told
    assert "no resource here is asked for with annotations of 'turbine'" in told
    collector = RelayCollector(world.relay, asyncio.get_running_loop())
    families = {family.name: family for family in await asyncio.to_thread(lambda: list(collector.collect()))}
    assert families["kubeqos_class_annotations_unanswered"].samples[0].value == 1


async def test_a_vendors_edits_reach_the_runtime(world: World):
    created = await world.created(turbo="low")
    config = world.runtime.core.container(created).config
    assert config.annotations["turbo.example/on"] == "low"
    assert config.linux.resources.oom_score_adj == 7
    assert config.linux.resources.cpuset_mems == "0"
    assert config.linux.resources.unified["cpu.idle"] == "0"


async def test_a_vendors_refusal_is_the_clients_error(world: World):
    world.turbo.refuses = "high"
    error = await refused(world.created(turbo="high"))
    assert error.code is Code.INVALID_ARGUMENT
    assert "too hot: wait" in error.details
    assert not await world.client.list_containers()
    running = await world.started(turbo="low")
    assert "nothing was updated" in (await refused(world.update(running, turbo="high"))).details


async def test_when_a_provider_fails_at_start_the_container_does_not_run(world: World):
    world.turbo.broken = "enter"
    created = await world.created(turbo="low")
    error = await refused(world.client.start_container(created))
    assert "turbo cannot enter" in error.details
    status = (await world.client.container_status(created)).status
    assert status.state == cri.CONTAINER_EXITED


async def test_when_one_move_fails_the_others_are_undone(world: World):
    running = await world.started(rdt="bronze", turbo="low")
    world.turbo.broken = "move"
    error = await refused(world.update(running, rdt="gold", turbo="high"))
    assert "turbo cannot move" in error.details
    assert (len(world.tasks("bronze")), world.tasks("gold")) == (1, [])
    assert await world.classes(running) == {"memory": "", "rdt": "bronze", "turbo": "low"}
    world.turbo.broken = ""
    await world.update(running, rdt="gold", turbo="high")
    assert await world.classes(running) == {"memory": "", "rdt": "gold", "turbo": "high"}


async def resize(world: World, container_id: str, **classes: str) -> None:
    linux = cri.LinuxContainerResources(
        memory_limit_in_bytes=2 << 20, cpu_quota=50_000, cpuset_cpus="0", unified={"memory.low": "4096"}
    )
    request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)
    request.qos_resources.extend(container_classes(**classes))
    await world.client.update_container_resources(request)


async def everything(world: World, container_id: str) -> tuple[object, ...]:
    """What an update could have changed: the runtime's own record, the cgroup, the groups, the classes."""
    status = (await world.client.container_status(container_id)).status
    files = ("memory.max", "memory.min", "memory.low", "cpu.max", "cpu.weight", "cpuset.cpus.effective")
    values = [await world.file(container_id, name) for name in files]
    groups = [len(world.tasks(name)) for name in ("gold", "silver", "bronze")]
    return status.resources.linux.memory_limit_in_bytes, values, groups, await world.classes(container_id)


@pytest.mark.proves("class-changes")
async def test_when_a_class_fails_after_the_runtime_has_updated_all_of_it_is_taken_back(world: World):
    running = await world.started(rdt="bronze", memory="kept", turbo="low")
    before = await everything(world, running)
    for broken, call in (("enter", resize(world, running, rdt="gold")), ("enter", resize(world, running))):
        world.turbo.broken = broken
        assert "turbo cannot enter" in (await refused(call)).details
        world.turbo.broken = ""
        assert await everything(world, running) == before
    await resize(world, running, rdt="gold")
    after = await everything(world, running)
    assert after[0] == 2 << 20
    assert after[2] == [1, 0, 0]


async def test_an_update_that_cannot_be_saved_is_taken_back(world: World):
    running = await world.started(rdt="bronze")
    before = await everything(world, running)
    world.folder.joinpath("state.json.new").mkdir()
    assert "cannot save checkpoint" in (await refused(resize(world, running, rdt="gold"))).details
    world.folder.joinpath("state.json.new").rmdir()
    assert await everything(world, running) == before


async def test_an_update_whose_client_gave_up_is_taken_back(world: World):
    """The client's deadline ends while the runtime is at it: both sides end as they were."""
    running = await world.started(rdt="bronze")
    before = await everything(world, running)
    world.faults.latency["UpdateContainerResources"] = Latency(300_000_000, 300_000_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await resize(world, running, rdt="gold")
    async with asyncio.timeout(60), world.relay.keeper.lock(running):
        world.faults.latency.clear()
    assert await everything(world, running) == before


async def test_when_the_runtime_fails_nothing_stays_reserved(world: World):
    world.faults.fault["CreateContainer"] = Fault(Code.UNKNOWN)
    assert (await refused(world.created(rdt="gold"))).code is Code.UNKNOWN
    world.faults.fault.clear()
    assert await world.created(rdt="gold")
    assert (await refused(world.created("other", rdt="gold"))).code is Code.RESOURCE_EXHAUSTED


async def test_when_the_state_cannot_be_saved_the_container_is_removed(world: World):
    world.folder.joinpath("state.json.new").mkdir()
    error = await refused(world.created(rdt="gold"))
    assert "cannot save checkpoint" in error.details
    assert not await world.client.list_containers()
    world.folder.joinpath("state.json.new").rmdir()
    assert await world.created(rdt="gold")


async def test_a_pod_level_provider_that_fails_leaves_no_sandbox(world: World):
    world.turbo.level = Level.POD
    await world.relay.keeper.catalog.providers["turbo"].close()
    world.config.write_text(world.config.read_text().replace("level: 9", "level: 10"))
    await world.relay.file.reload()
    world.turbo.broken = "enter"
    before = len(await world.client.list_pod_sandboxes())
    error = await refused(world.client.run_pod_sandbox(pod(classes={"turbo": "low"})))
    assert "turbo cannot enter" in error.details
    assert len(await world.client.list_pod_sandboxes()) == before
    world.turbo.broken = ""
    sandbox = await world.client.run_pod_sandbox(pod(classes={"turbo": "low"}))
    status = (await world.client.pod_sandbox_status(sandbox)).status
    assert shown(status.qos_resources) == {"turbo": "low"}


async def test_a_hung_vendor_fails_its_own_containers_only(world: World, monkeypatch):
    monkeypatch.setattr("kubeqos.cri.classes.enforce.PROVIDER_SECONDS", 0.2)

    async def hang(*_: object) -> Edit:
        await asyncio.sleep(60)
        return Edit()

    monkeypatch.setattr(world.turbo, "apply", hang)
    waiting = asyncio.create_task(refused(world.created("stuck", turbo="low")))
    assert await world.started("fine", rdt="gold")
    assert "did not answer within" in (await waiting).details


async def test_a_default_that_does_not_fit_is_not_forced_on_who_asked_for_nothing(world: World):
    world.config.write_text(
        world.config.read_text().replace("provider: memory\n", "provider: memory\n    default: kept\n")
    )
    await world.relay.file.reload()
    config = container("unlimited")
    created = await world.client.create_container(world.sandbox, config, world.pod)
    assert (await world.classes(created))["memory"] == ""
    assert (await world.classes(await world.created("limited")))["memory"] == "kept"
    config.metadata.name = "asks"
    config.qos_resources.extend(container_classes(memory="kept"))
    error = await refused(world.client.create_container(world.sandbox, config, world.pod))
    assert "the container has none" in error.details


async def test_a_create_that_was_cut_off_is_looked_at_again(world: World, monkeypatch):
    looked, resync = asyncio.Event(), world.relay.keeper.resync

    async def watched() -> None:
        await resync()
        looked.set()

    monkeypatch.setattr(world.relay.keeper, "resync", watched)
    world.faults.latency["CreateContainer"] = Latency(300_000_000, 300_000_000)
    config = container("late", classes={"rdt": "gold"})
    request = cri.CreateContainerRequest(pod_sandbox_id=world.sandbox, config=config, sandbox_config=world.pod)
    with pytest.raises(CallError):
        await world.client.call(CREATE_CONTAINER, request, timeout=0.1)
    async with asyncio.timeout(60):
        await looked.wait()
    there = await world.client.list_containers()
    assert world.relay.keeper.holders.used("rdt", "gold") == len(there)


async def test_types_added_later_take_in_what_is_already_running(world: World):
    text = world.config.read_text()
    world.config.write_text("resources: {}")
    await world.relay.file.reload()
    plain = await world.started("plain")
    assert await world.classes(plain) == {}
    world.config.write_text(text)
    await world.relay.file.reload()
    assert (await world.classes(plain))["rdt"] == "silver"
    assert len(world.tasks("silver")) == 1
    await world.update(plain, turbo="high")
    assert world.turbo.calls[-1] == ("move", "", "high")


async def test_a_removed_default_is_left_before_its_group_goes(world: World):
    container = await world.started("implicit")
    assert len(world.tasks("silver")) == 1
    text = world.config.read_text().replace("default: silver", "default: bronze").replace("silver: {}, ", "")
    world.config.write_text(text)
    await world.relay.file.reload()
    assert (await world.classes(container))["rdt"] == "bronze"
    assert len(world.tasks("bronze")) == 1
    assert not (world.resctrl / "kubeqos.silver").exists()


async def test_a_state_file_of_another_shape_is_rebuilt_from_the_runtime(world: World):
    container = await world.started(rdt="gold")
    await world.crash()
    Checkpoint(world.settings.state, format="kubeqos.relay", version=1).save({"what": ["is", "this"]})
    await world.start()
    assert (await world.classes_soon(container))["rdt"] == "gold"


async def test_two_creates_cannot_share_the_last_place(world: World):
    answers = await asyncio.gather(*(world.created(f"c{n}", rdt="gold") for n in range(5)), return_exceptions=True)
    codes = [answer.code for answer in answers if isinstance(answer, CallError)]
    assert codes == [Code.RESOURCE_EXHAUSTED] * 4


async def test_a_crash_between_create_and_save_is_healed_by_the_runtimes_own_memory(world: World):
    started = await world.started(rdt="gold", turbo="low")
    moved = await world.started("second", rdt="bronze")
    await world.update(moved, rdt="silver")
    await world.crash()
    world.settings.state.unlink()
    await world.start()
    assert await world.classes_soon(started) == {"memory": "", "rdt": "gold", "turbo": "low"}
    assert (await refused(world.created("third", rdt="gold"))).code is Code.RESOURCE_EXHAUSTED


@pytest.mark.proves("class-changes")
async def test_a_restart_keeps_every_assignment(world: World):
    first, second = await world.started(rdt="gold"), await world.created("second", turbo="low")
    await world.update(first, rdt="bronze")
    before = [await world.classes(first), await world.classes(second)]
    await world.crash()
    await world.start()
    assert [await world.classes_soon(first), await world.classes_soon(second)] == before
    await world.client.start_container(second)
    assert world.turbo.calls[-1][:2] == ("enter", "low")


async def test_what_was_removed_while_the_relay_was_away_is_forgotten(world: World):
    container = await world.started(rdt="gold")
    await world.crash()
    direct = CriClient(f"unix://{world.settings.runtime}")
    await direct.stop_container(container)
    await direct.remove_container(container)
    await direct.close()
    await world.start()
    assert await world.created("next", rdt="gold")
    assert ResctrlFiles(world.resctrl).monitored("kubeqos.") == []


async def test_containers_from_before_the_relay_take_part(world: World):
    direct = CriClient(f"unix://{world.settings.runtime}")
    config = container("old")
    old = await direct.create_container(world.sandbox, config, world.pod)
    await direct.start_container(old)
    await direct.close()
    assert await world.classes(old) == {"memory": "", "rdt": "", "turbo": ""}
    await world.update(old, rdt="bronze")
    assert len(world.tasks("bronze")) == 1
    assert (await world.classes(old))["rdt"] == "bronze"


async def test_events_carry_assignments(world: World):
    events = world.client.events()
    waiting = asyncio.create_task(anext(events))
    await asyncio.sleep(0.3)
    created = await world.created(rdt="gold")
    async with asyncio.timeout(60):
        seen = [await waiting]
        await world.client.start_container(created)
        seen.append(await anext(events))
    await events.aclose()
    statuses = [status for event in seen for status in event.containers_statuses if status.id == created]
    assert shown(statuses[-1].resources.qos_resources)["rdt"] == "gold"


async def test_events_are_passed_on_unchanged(world: World):
    """GetContainerEvents of a runtime that has it, through a relay without classes and beside it: the same bytes."""
    world.config.write_text("resources: {}\n")
    await world.relay.file.reload()
    channels = [grpc.aio.insecure_channel(f"unix:{path}") for path in (world.settings.listen, world.settings.runtime)]
    streams = [channel.unary_stream("/runtime.v1.RuntimeService/GetContainerEvents")(b"") for channel in channels]
    reads = [asyncio.ensure_future(stream.read()) for stream in streams]
    await asyncio.sleep(0.3)
    container = await world.started()
    await world.client.stop_container(container)
    async with asyncio.timeout(60):
        seen = [
            [await first, await stream.read(), await stream.read()]
            for first, stream in zip(reads, streams, strict=True)
        ]
    assert seen[0] == seen[1]
    kinds = [cri.ContainerEventResponse.FromString(event).container_event_type for event in seen[0]]
    assert kinds == [cri.CONTAINER_CREATED_EVENT, cri.CONTAINER_STARTED_EVENT, cri.CONTAINER_STOPPED_EVENT]
    for stream, channel in zip(streams, channels, strict=True):
        stream.cancel()
        await channel.close()


async def test_rdt_configuration_changes_at_run_time(world: World):
    container = await world.started(rdt="gold")
    pids = world.tasks("gold")
    text = world.config.read_text()
    world.config.write_text(text.replace('"60%"', '"80%"').replace('"40%"', '"20%"'))
    await world.relay.file.reload()
    assert (world.resctrl / "kubeqos.gold/schemata").read_text().startswith("L3:0=ffff;1=ffff\n")
    assert world.tasks("gold") == pids

    world.kernel.changes.clear()
    for bad, why in (
        (text.replace("classes: {gold: {}}", "classes: {golden: {}}").replace("gold: 1", "golden: 1"), "gold"),
        (text.replace('"40%"', '"90%"'), "ask for 150% of L3"),
    ):
        world.config.write_text(bad)
        with pytest.raises(ConfigurationError, match=why):
            await world.relay.file.reload()
    assert world.kernel.changes == []
    assert (await world.classes(container))["rdt"] == "gold"


async def test_no_call_is_dropped_while_configurations_come_and_go(world: World):
    stop = asyncio.Event()
    failures: list[CallError] = []
    calls = 0

    async def caller() -> None:
        nonlocal calls
        while not stop.is_set():
            try:
                await world.client.status()
                created = await world.created(f"c{calls}", rdt="silver")
                await world.client.remove_container(created)
            except CallError as error:
                failures.append(error)
            calls += 1

    task = asyncio.create_task(caller())
    text = world.config.read_text()
    for number in range(10):
        world.config.write_text(text.replace("default: silver", "default: bronze") if number % 2 else text)
        await world.relay.file.reload()
        await asyncio.sleep(0.02)
    stop.set()
    await task
    assert calls > 3
    assert failures == []


async def test_metrics_show_how_full_classes_are_and_what_providers_measure(world: World):
    await world.started(rdt="gold")
    collector = RelayCollector(world.relay, asyncio.get_running_loop())
    families = {family.name: family for family in await asyncio.to_thread(lambda: list(collector.collect()))}
    in_use = {tuple(s.labels.values()): s.value for s in families["kubeqos_class_in_use"].samples}
    assert in_use["rdt", "gold"] == 1
    assert in_use["rdt", "silver"] == 0
    assert families["turbo_heat"].samples[0].value == 99.5
    assert families["kubeqos_rdt_llc_occupancy_bytes"].samples[0].labels["class"] == "gold"


async def test_containers_that_come_and_go_leave_no_counter_and_no_entry(world: World):
    """Counters are few in hardware: one that is not given back is lost until the next boot."""
    kept = await world.started("kept", rdt="silver")
    for number in range(40):
        container = await world.started(f"c{number}", rdt="bronze" if number % 2 else "silver")
        if number % 3 == 0:
            await world.update(container, rdt="bronze")
        if number % 4:
            await world.client.stop_container(container)
        await world.client.remove_container(container)
    counters = [path.name for path in world.resctrl.glob("**/mon_groups/*")]
    assert counters == [f"kubeqos.{kept}"]
    assert [key for key, _ in world.relay.keeper.holders] == [kept]
    assert world.relay.keeper.holders.used("rdt", "bronze") == 0
    assert not world.relay.keeper._locks.keys() - {kept}
    await world.client.remove_container(kept)
    world.config.write_text("resources: {}")
    await world.relay.file.reload()
    plain = await world.started("plain")
    await world.client.remove_container(plain)
    assert not world.relay.keeper._locks


async def test_groups_that_another_agent_removed_are_made_again(world: World):
    container = await world.started(rdt="gold")
    pids = world.tasks("gold")
    for group in ("kubeqos.gold", "kubeqos.silver"):
        shutil.rmtree(world.resctrl / group)
    await world.relay.keeper.repair()
    assert world.tasks("gold") == pids
    assert (world.resctrl / "kubeqos.silver").is_dir()
    world.kernel.changes.clear()
    await world.relay.keeper.repair()
    assert world.kernel.changes == []
    assert (await world.classes(container))["rdt"] == "gold"


async def test_a_configuration_that_the_kernel_refuses_is_taken_back(world: World, monkeypatch):
    before = (world.resctrl / "kubeqos.gold/schemata").read_text()
    write = world.kernel.write

    def refuse(path: Path, text: str) -> None:
        if path.parent.name == "kubeqos.silver" and "L3:0=f0000" in text:
            raise OSError(errno.EINVAL, "Invalid argument")
        write(path, text)

    monkeypatch.setattr(world.kernel, "write", refuse)
    text = world.config.read_text()
    world.config.write_text(text.replace('"60%"', '"80%"').replace('"40%"', '"20%"'))
    with pytest.raises(RemoteError, match="cannot write"):
        await world.relay.file.reload()
    assert (world.resctrl / "kubeqos.gold/schemata").read_text() == before
    assert await world.started(rdt="gold")


async def test_a_vendor_that_is_away_takes_nothing_with_it_and_comes_back(world: World):
    container = await world.started(turbo="low", rdt="gold")
    await world.vendor.stop(0)
    await world.crash()
    await world.start()
    assert await world.classes_soon(container) == {"memory": "", "rdt": "gold"}
    assert "unavailable container QoS resource type" in (await refused(world.created("a", turbo="low"))).details
    assert await world.created("b", rdt="bronze")
    calls = len(world.turbo.calls)
    world.vendor = await serve(world.turbo, f"{world.folder}/turbo.sock")
    async with asyncio.timeout(60):
        while "turbo" not in await world.classes(container):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert (await world.classes(container))["turbo"] == "low"
    await until(lambda: world.turbo.calls[calls:])
    assert [call[:2] for call in world.turbo.calls[calls:]] == [("enter", "low")]
    assert await world.created("c", turbo="low")


async def test_a_vendor_that_is_not_there_is_named(folder: Path):
    provider = RemoteProvider("turbo", f"unix://{folder}/none.sock", None)
    with pytest.raises(RemoteError, match="class provider 'turbo': Advertise"):
        await provider.advertise()
    await provider.close()


async def test_a_relay_without_a_runtime_says_so_and_heals(folder: Path):
    world = World(folder)
    world.config.write_text("resources: {cpu: {provider: cpu, default: a, classes: {a: {weight: 10}}}}")
    await world.start()
    error = await refused(world.client.version())
    assert error.code is Code.UNAVAILABLE
    assert "container runtime" in error.details
    async with serving(world.runtime, f"unix://{world.settings.runtime}"):
        async with asyncio.timeout(60):
            await world.relay.keeper.ready.wait()
        assert (await world.client.version()).runtime_name
    await world.client.close()
    await world.relay.close()
    await world.runtime.close()


async def test_a_value_that_somebody_else_changed_is_put_right_and_counted(world: World):
    container = await world.started(memory="soft")
    path = world.cgroups / world.runtime.core.cgroup_path(world.runtime.core.container(container)) / "memory.high"
    keeper = world.relay.keeper
    for _ in range(DRIFT_ROUNDS):
        await keeper.repair()
    assert keeper.drifts == 0
    path.write_text("max")
    for _ in range(DRIFT_ROUNDS):
        await keeper.repair()
    assert path.read_text().strip() == str(1 << 19) and keeper.drifts == 1


async def until(so: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not so():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.proves("class-changes")
async def test_a_provider_that_dies_takes_its_own_classes_off_the_node_and_finds_everything_when_it_is_back(
    world: World, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    runs, gone = await world.started("runs", turbo="high", rdt="gold"), await world.started("gone", turbo="low")
    await world.vendor.stop(0)
    await until(lambda: "turbo" not in world.relay.keeper.catalog.offers)
    status = (await world.client.status()).status
    assert [one.name for one in status.resources.container_qos_resources] == ["memory", "rdt"]
    told = [one for one in status.conditions if one.type == PROVIDERS_READY]
    assert [(one.status, one.reason) for one in told] == [(False, "ProviderGone")]
    assert "class provider 'turbo'" in told[0].message
    assert (
        "unavailable container QoS resource type 'turbo'" in (await refused(world.created("new", turbo="low"))).details
    )
    assert (await world.classes(await world.started("other", rdt="bronze")))["rdt"] == "bronze"
    assert "a class provider has gone" in caplog.text
    await world.relay.file.reload()  # also a reload does not hurt who has its classes
    await world.client.stop_container(gone)
    world.turbo.calls.clear()
    world.vendor = await serve(world.turbo, f"{world.folder}/turbo.sock")
    await until(lambda: "turbo" in world.relay.keeper.catalog.offers)
    await until(lambda: world.turbo.calls)
    assert [call[:2] for call in world.turbo.calls] == [("enter", "high")]
    assert (await world.classes(runs))["turbo"] == "high"
    assert not any(one.type == PROVIDERS_READY for one in (await world.client.status()).status.conditions)
    await until(lambda: "a class provider is back" in caplog.text)


async def test_sandboxes_are_told_too_to_a_provider_and_a_relay_that_come_back(world: World):
    world.turbo.level = Level.POD
    world.turbo.news += 1
    await until(lambda: world.relay.keeper.catalog.offers["turbo"].level is Level.POD)
    await world.client.run_pod_sandbox(pod(classes={"turbo": "low"}))
    await world.vendor.stop(0)
    await until(lambda: "turbo" not in world.relay.keeper.catalog.offers)
    world.turbo.calls.clear()
    world.vendor = await serve(world.turbo, f"{world.folder}/turbo.sock")
    await until(lambda: world.turbo.calls)
    assert [call[:2] for call in world.turbo.calls] == [("enter", "low")]
    await world.crash()
    world.turbo.calls.clear()
    await world.start()
    await until(lambda: world.turbo.calls)
    assert [call[:2] for call in world.turbo.calls] == [("enter", "low")]


async def test_a_provider_is_asked_to_move_a_whole_pod_and_back_when_that_fails(world: World):
    world.turbo.level = Level.POD
    world.turbo.news += 1
    await until(lambda: world.relay.keeper.catalog.offers["turbo"].level is Level.POD)
    sandbox = await world.client.run_pod_sandbox(pod(classes={"turbo": "low"}))
    world.turbo.calls.clear()

    async def turbo() -> str:
        return shown((await world.client.pod_sandbox_status(sandbox)).status.qos_resources)["turbo"]

    await world.client.update_pod_sandbox_resources(pod_update(sandbox, turbo="high"))
    assert (await turbo(), world.turbo.calls) == ("high", [("move", "low", "high")])
    await world.crash()
    await world.start()
    assert await turbo() == "high", "a relay that comes back knows of the change"
    amounts = pod_update(sandbox, turbo="low")
    amounts.resources.cpu_shares = 512
    await world.client.update_pod_sandbox_resources(amounts)  # the rest of a request is the runtime's
    assert world.runtime.core.sandboxes[sandbox].config.linux.resources.cpu_shares == 512
    assert await turbo() == "low"
    world.turbo.broken = "move"
    assert (
        "turbo cannot move"
        in (await refused(world.client.update_pod_sandbox_resources(pod_update(sandbox, turbo="high")))).details
    )
    assert await turbo() == "low"


async def test_a_provider_says_by_itself_what_is_new(world: World, monkeypatch: pytest.MonkeyPatch):
    async def more() -> Sequence[Advertisement]:
        return (Advertisement("turbo", Level.CONTAINER, True, (ClassInfo("high"), ClassInfo("low"), ClassInfo("mid"))),)

    monkeypatch.setattr(world.turbo, "advertise", more)
    world.turbo.news += 1
    await until(lambda: len(world.relay.keeper.catalog.offers["turbo"].classes) == 3)
    assert (await world.classes(await world.started(turbo="mid")))["turbo"] == "mid"


async def test_a_class_in_use_that_is_gone_from_the_file_is_retired(world: World, caplog: pytest.LogCaptureFixture):
    container, text = await world.started(memory="kept"), world.config.read_text()
    world.config.write_text(text.replace("kept: {min: 25%}, ", ""))
    await world.relay.file.reload()
    assert "a retired class is still in use" in caplog.text
    assert (await world.classes(container))["memory"] == "kept"
    assert await world.file(container, "memory.min") == "262144"
    infos = (await world.client.status()).status.resources.container_qos_resources
    assert {one.name: [c.name for c in one.classes] for one in infos}["memory"] == ["soft"]
    assert (
        "class 'kept' of QoS resource 'memory' is retired" in (await refused(world.created("b", memory="kept"))).details
    )
    config = container_config("main", classes={"memory": "kept"})
    config.metadata.attempt, config.linux.resources.memory_limit_in_bytes = 1, 1 << 20
    again = await world.client.create_container(world.sandbox, config, world.pod)  # its own next instance
    await world.client.start_container(again)
    assert await world.file(again, "memory.min") == "262144"
    for one in (container, again):
        await world.client.stop_container(one)
        await world.client.remove_container(one)
    await world.relay.file.reload()
    assert "unavailable class 'kept'" in (await refused(world.created("c", memory="kept"))).details


async def test_a_resource_in_use_that_is_gone_from_the_file_is_retired(world: World):
    container = await world.started(memory="kept")
    lines = world.config.read_text().splitlines(keepends=True)
    start = next(n for n, line in enumerate(lines) if line.startswith("  memory:"))
    world.config.write_text("".join([*lines[:start], *lines[start + 3 :]]))
    await world.relay.file.reload()
    infos = (await world.client.status()).status.resources.container_qos_resources
    assert [one.name for one in infos] == ["rdt", "turbo"]
    assert (await world.classes(container))["memory"] == "kept"
    assert "is retired" in (await refused(world.created("b", memory="kept"))).details
    assert (await world.classes(await world.started("plain")))["memory"] == ""


async def test_less_capacity_than_is_used_evicts_nobody_and_lets_nobody_in(
    world: World, caplog: pytest.LogCaptureFixture
):
    for name in ("a", "b"):
        await world.started(name, turbo="high")
    world.config.write_text(world.config.read_text().replace("capacity: {high: 5}", "capacity: {high: 1}"))
    await world.relay.file.reload()
    assert "over by 1" in caplog.text
    error = await refused(world.created("c", turbo="high"))
    assert "insufficient class 'high' of QoS resource 'turbo': capacity 1, in use 2" in error.details


async def test_without_the_hardware_a_simulated_tree_serves_rdt(folder: Path):
    world, root = World(folder), folder / "sim"
    plant_machine(tiny2(), root)
    machine = LocalMachine(Host(world.cgroups, version=V2), root, SimulatedResctrl(root), mbps_mode=False)
    world.settings, world.resctrl = dataclasses.replace(world.settings, machine=machine), root
    vendor = await serve(world.turbo, f"{folder}/turbo.sock")
    async with serving(world.runtime, f"unix://{world.settings.runtime}"):
        await world.start()
        world.pod = pod()
        world.sandbox = await world.client.run_pod_sandbox(world.pod)
        container = await world.started(rdt="gold")
        pid = (await world.file(container, "cgroup.procs")).split()
        assert world.tasks("gold") == pid

        async def moved() -> float:
            found = [one for one in await world.relay.samples() if one.name.startswith("kubeqos_rdt_mbm_total")]
            return sum(one.value for one in found)

        before = await moved()
        await until(
            lambda: next(root.glob("kubeqos.gold/mon_groups/*/mon_data/*/mbm_total_bytes")).read_text() != "0\n"
        )
        assert await moved() > before
        await world.update(container, rdt="bronze")
        assert (world.tasks("gold"), world.tasks("bronze")) == ([], pid)
        await world.client.close()
        await world.relay.close()
    await vendor.stop(0)
    await world.runtime.close()
