"""KEP-3008's part of CRI, one suite for everything that speaks it: the simulated runtime itself, and the relay in front
of the simulated runtime and of a real containerd. All three read the same classes.yaml.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.errors import Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.relay.server import Relay, Settings
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.cri.simulated.classes import read_classes
from kubeqos.model.hardware.named import tiny2
from tests.cri.pods import container, pod, pod_update, update
from tests.cri.relay.processes import refused, shown

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLASSES = """
resources:
  rdt: {provider: named, mutable: true, default: silver, capacity: {gold: 2}, classes: [gold, silver, bronze]}
  blockio: {provider: named, classes: [fast, slow]}
  network: {provider: named, level: pod, default: basic, capacity: {premium: 1}, classes: [premium, basic]}
  shelf: {provider: named, level: pod, mutable: true, classes: [upper, lower]}
"""


@dataclass
class World:
    """One endpoint that knows classes."""

    client: CriClient
    configure: Callable[[str], Awaitable[None]]
    cgroup_parent: str
    pods: list[str]

    def config(self, **classes: str) -> cri.PodSandboxConfig:
        return pod(cgroup_parent=self.cgroup_parent, host_network=True, classes=classes)

    async def pod(self, runtime_handler: str = "", **classes: str) -> tuple[str, cri.PodSandboxConfig]:
        config = self.config(**classes)
        sandbox = await self.client.run_pod_sandbox(config, runtime_handler=runtime_handler)
        self.pods.append(sandbox)
        return sandbox, config

    async def created(self, where: tuple[str, cri.PodSandboxConfig], name: str = "main", **classes: str) -> str:
        described = container(name, ["sleep", "1000"], classes=classes, memory_limit_in_bytes=32 << 20)
        return await self.client.create_container(where[0], described, where[1])

    async def started(self, where: tuple[str, cri.PodSandboxConfig], name: str = "main", **classes: str) -> str:
        made = await self.created(where, name, **classes)
        await self.client.start_container(made)
        return made

    async def classes(self, container_id: str) -> dict[str, str]:
        return shown((await self.client.container_status(container_id)).status.resources.qos_resources)

    async def pod_classes(self, sandbox: str) -> dict[str, str]:
        return shown((await self.client.pod_sandbox_status(sandbox)).status.qos_resources)


class Behind:
    """A relay in this process in front of a runtime's socket."""

    def __init__(self, folder: Path, runtime: Path, host: Host) -> None:
        self.config = folder / "classes.yaml"
        self.config.write_text(CLASSES)
        self.settings = Settings(folder / "cri.sock", runtime, self.config, folder / "state.json", LocalMachine(host))

    async def __aenter__(self) -> tuple[CriClient, Callable[[str], Awaitable[None]]]:
        self.relay = await Relay.start(self.settings)
        self.client = CriClient(f"unix://{self.settings.listen}")
        return self.client, self.configure

    async def configure(self, text: str) -> None:
        self.config.write_text(text)
        await self.relay.file.reload()

    async def __aexit__(self, *_: object) -> None:
        assert self.relay.keeper.table.validate() == []
        await self.client.close()
        await self.relay.close()


ENDPOINTS = ["simulated", "relay-simulated", pytest.param("relay-containerd", marks=pytest.mark.containerd)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ENDPOINTS)
async def endpoint(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Any, ...]]:
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        folder = Path(name)
        if request.param == "relay-containerd":
            real = request.getfixturevalue("containerd")
            async with Behind(folder, real.socket, Host()) as (client, configure):
                yield client, configure, real.cgroup_parent
            return
        native = request.param == "simulated"
        offers = read_classes(CLASSES, "classes.yaml") if native else ()
        runtime = SimulatedRuntime(tiny2(), offers, cgroup_root=folder / "cgroup", logs=False)
        async with serving(runtime, f"unix://{folder}/runtime.sock"):
            if native:

                async def configure(text: str) -> None:
                    runtime.set_offers(read_classes(text, "classes.yaml"))

                async with CriClient(f"unix://{folder}/runtime.sock") as direct:
                    yield direct, configure, "/kubepods/pod1"
            else:
                async with Behind(folder, folder / "runtime.sock", Host(folder / "cgroup")) as (client, configure):
                    yield client, configure, "/kubepods/pod1"
        await runtime.close()


@pytest_asyncio.fixture(loop_scope="module")
async def world(endpoint: tuple[Any, ...]) -> AsyncIterator[World]:
    world = World(*endpoint, pods=[])
    yield world
    for sandbox in world.pods:
        await world.client.stop_pod_sandbox(sandbox)
        await world.client.remove_pod_sandbox(sandbox)
    await world.configure(CLASSES)


async def test_runtime_status_advertises_classes_levels_capacity_and_mutability(world: World):
    resources = (await world.client.status()).status.resources
    seen = {
        level: {info.name: (info.mutable, {c.name: c.capacity for c in info.classes}) for info in infos}
        for level, infos in (("pod", resources.pod_qos_resources), ("container", resources.container_qos_resources))
    }
    assert seen == {
        "container": {
            "rdt": (True, {"gold": 2, "silver": 0, "bronze": 0}),
            "blockio": (False, {"fast": 0, "slow": 0}),
        },
        "pod": {"network": (False, {"premium": 1, "basic": 0}), "shelf": (True, {"upper": 0, "lower": 0})},
    }


async def test_statuses_show_what_was_asked_for_and_every_implicit_default(world: World):
    where = await world.pod(network="premium")
    asked, silent = (
        await world.created(where, "asked", rdt="gold", blockio="slow"),
        await world.started(where, "silent"),
    )
    assert await world.classes(asked) == {"rdt": "gold", "blockio": "slow"}
    assert await world.classes(silent) == {"rdt": "silver", "blockio": ""}
    assert await world.pod_classes(where[0]) == {"network": "premium", "shelf": ""}


@pytest.mark.parametrize(
    ("classes", "named"),
    [
        ({"rdt": "platinum"}, "platinum"),
        ({"rdt": ""}, "rdt"),
        ({"turbo": "high"}, "turbo"),
        ({"network": "basic"}, "network"),
        ({"rdt": "gold", "blockio": "warp"}, "warp"),
    ],
    ids=str,
)
async def test_a_class_that_is_not_there_fails_the_create_and_leaves_nothing(world: World, classes, named):
    where = await world.pod()
    error = await refused(world.created(where, **classes))
    assert error.code is Code.INVALID_ARGUMENT
    assert named in error.details
    assert not [item for item in await world.client.list_containers() if item.pod_sandbox_id == where[0]]
    assert await world.created(where, "a", rdt="gold") and await world.created(where, "b", rdt="gold")


@pytest.mark.parametrize("classes", [{"network": "gold"}, {"rdt": "gold"}, {"turbo": "high"}], ids=str)
async def test_a_class_that_is_not_there_fails_the_sandbox_and_leaves_nothing(world: World, classes):
    before = {item.id for item in await world.client.list_pod_sandboxes()}
    assert (await refused(world.pod(**classes))).code is Code.INVALID_ARGUMENT
    assert {item.id for item in await world.client.list_pod_sandboxes()} == before


async def test_the_pods_qos_class_fails_nothing_and_is_assigned_to_nobody(world: World):
    sandbox, _ = await world.pod(**{"pod-qos": "Burstable"})
    assert await world.pod_classes(sandbox) == {"network": "basic", "shelf": ""}


async def test_capacity_counts_live_containers_that_asked(world: World):
    where = await world.pod()
    first, second = [await world.started(where, name, rdt="gold") for name in ("a", "b")]
    error = await refused(world.created(where, "c", rdt="gold"))
    assert error.code is Code.RESOURCE_EXHAUSTED
    await world.client.stop_container(first)
    third = await world.created(where, "d", rdt="gold")
    assert (await refused(world.created(where, "e", rdt="gold"))).code is Code.RESOURCE_EXHAUSTED
    await world.client.remove_container(third)
    assert await world.created(where, "f", rdt="gold")
    assert await world.classes(second) == {"rdt": "gold", "blockio": ""}


async def test_capacity_of_a_pod_level_class_counts_pods(world: World):
    sandbox, _ = await world.pod(network="premium")
    assert (await refused(world.pod(network="premium"))).code is Code.RESOURCE_EXHAUSTED
    await world.client.stop_pod_sandbox(sandbox)
    assert await world.pod(network="premium")


async def test_a_mutable_class_moves_and_an_immutable_one_fails_the_whole_update(world: World):
    where = await world.pod()
    running = await world.started(where, rdt="gold", blockio="slow")
    await world.client.update_container_resources(update(running, classes={"rdt": "bronze"}))
    assert await world.classes(running) == {"rdt": "bronze", "blockio": "slow"}
    both = update(running, classes={"rdt": "gold", "blockio": "fast"}, memory_limit_in_bytes=64 << 20)
    assert (await refused(world.client.update_container_resources(both))).code is Code.FAILED_PRECONDITION
    assert await world.classes(running) == {"rdt": "bronze", "blockio": "slow"}
    status = (await world.client.container_status(running)).status
    assert status.resources.linux.memory_limit_in_bytes == 32 << 20
    same = update(running, classes={"blockio": "slow", "rdt": "bronze"})
    await world.client.update_container_resources(same)


async def test_a_pods_mutable_class_moves_and_an_immutable_one_fails_the_whole_update(world: World):
    """KEP-3008, Beta: CRI can change the classes of a sandbox."""
    client = world.client
    sandbox, _ = await world.pod(network="premium", shelf="upper")
    await client.update_pod_sandbox_resources(pod_update(sandbox, shelf="lower"))
    assert await world.pod_classes(sandbox) == {"network": "premium", "shelf": "lower"}
    both = pod_update(sandbox, shelf="upper", network="basic")
    assert (await refused(client.update_pod_sandbox_resources(both))).code is Code.FAILED_PRECONDITION
    assert await world.pod_classes(sandbox) == {"network": "premium", "shelf": "lower"}
    same = pod_update(sandbox, network="premium", shelf="lower", **{"pod-qos": "Burstable"})
    await client.update_pod_sandbox_resources(same)
    for wrong in ({"shelf": "cellar"}, {"rdt": "gold"}, {"turbo": "high"}):
        error = await refused(client.update_pod_sandbox_resources(pod_update(sandbox, **wrong)))
        assert error.code is Code.INVALID_ARGUMENT
    unknown = await refused(client.update_pod_sandbox_resources(pod_update("f" * 64, shelf="lower")))
    assert unknown.code is Code.NOT_FOUND


async def test_a_pod_that_moves_makes_room_and_needs_room(world: World):
    few = CLASSES.replace("mutable: true, classes: [upper", "mutable: true, capacity: {upper: 1}, classes: [upper")
    await world.configure(few)
    (first, _), (second, _) = await world.pod(shelf="upper"), await world.pod(shelf="lower")
    up = pod_update(second, shelf="upper")
    assert (await refused(world.client.update_pod_sandbox_resources(up))).code is Code.RESOURCE_EXHAUSTED
    await world.client.update_pod_sandbox_resources(pod_update(first, shelf="lower"))
    await world.client.update_pod_sandbox_resources(up)
    assert [(await world.pod_classes(one))["shelf"] for one in (first, second)] == ["lower", "upper"]


async def test_an_update_to_a_class_that_is_full_or_unknown_changes_nothing(world: World):
    where = await world.pod()
    for name in ("a", "b"):
        await world.started(where, name, rdt="gold")
    running = await world.started(where, "c", rdt="bronze")
    for wanted, code in (("gold", Code.RESOURCE_EXHAUSTED), ("platinum", Code.INVALID_ARGUMENT)):
        change = update(running, classes={"rdt": wanted}, memory_limit_in_bytes=64 << 20)
        assert (await refused(world.client.update_container_resources(change))).code is code
    assert (await world.classes(running))["rdt"] == "bronze"
    status = (await world.client.container_status(running)).status
    assert status.resources.linux.memory_limit_in_bytes == 32 << 20


async def test_a_runtime_handler_gets_the_classes_that_are_for_it(world: World):
    """KEP-3008, Beta: integration with RuntimeClasses."""
    limited = CLASSES.replace("default: silver,", "default: silver, handlers: {runc: [bronze]},")
    await world.configure(limited.replace("default: basic,", "default: basic, handlers: {runc: [premium]},"))
    resources = (await world.client.status()).status.resources
    told = [*resources.container_qos_resources, *resources.pod_qos_resources]
    handlers = {info.name: {h.name: list(h.classes) for h in info.runtime_handlers} for info in told}
    assert handlers == {"rdt": {"runc": ["bronze"]}, "network": {"runc": ["premium"]}, "blockio": {}, "shelf": {}}
    boxed, free = await world.pod("runc", network="premium"), await world.pod()
    for call in (world.pod("runc", network="basic"), world.created(boxed, "a", rdt="gold")):
        error = await refused(call)
        assert error.code is Code.INVALID_ARGUMENT and "is not for pods of runtime handler 'runc'" in error.details
    silent, asked = await world.started(boxed, "silent"), await world.started(boxed, "asked", rdt="bronze")
    assert [(await world.classes(one))["rdt"] for one in (silent, asked)] == ["", "bronze"]
    change = update(asked, classes={"rdt": "gold"})
    assert (await refused(world.client.update_container_resources(change))).code is Code.INVALID_ARGUMENT
    other = await world.started(free, "other", rdt="gold")
    assert (await world.classes(other))["rdt"] == "gold"
    assert (await world.pod_classes(free[0]))["network"] == "basic"


async def test_implicit_defaults_follow_the_configuration_while_things_run(world: World):
    """A new type, a changed default, and an explicit class that stays (KEP-3008, Implicit defaults)."""
    where = await world.pod()
    silent, asked = await world.started(where, "silent"), await world.started(where, "asked", rdt="bronze")
    more = CLASSES.replace("default: silver", "default: bronze").replace(
        "classes: [upper", "default: lower, classes: [upper"
    )
    await world.configure(more + "  ulimits: {provider: named, mutable: true, default: many, classes: [many]}\n")
    assert await world.classes(silent) == {"rdt": "bronze", "blockio": "", "ulimits": "many"}
    assert await world.classes(asked) == {"rdt": "bronze", "blockio": "", "ulimits": "many"}
    assert await world.pod_classes(where[0]) == {"network": "basic", "shelf": "lower"}
    await world.configure(CLASSES)
    assert await world.classes(silent) == {"rdt": "silver", "blockio": ""}
    assert await world.classes(asked) == {"rdt": "bronze", "blockio": ""}
    assert await world.pod_classes(where[0]) == {"network": "basic", "shelf": ""}


async def test_an_implicit_default_that_cannot_be_changed_stays_with_what_runs(world: World):
    """Who has not started yet gets the new default; who runs keeps the old one, and no new immutable type."""
    with_default = CLASSES.replace("blockio: {provider: named,", "blockio: {provider: named, default: slow,")
    await world.configure(with_default)
    where = await world.pod()
    running, waiting = await world.started(where, "running"), await world.created(where, "waiting")
    changed = with_default.replace("default: slow", "default: fast").replace("default: basic", "default: premium")
    await world.configure(changed + "  late: {provider: named, default: one, classes: [one]}\n")
    assert await world.classes(running) == {"rdt": "silver", "blockio": "slow", "late": ""}
    assert await world.classes(waiting) == {"rdt": "silver", "blockio": "fast", "late": "one"}
    assert (await world.pod_classes(where[0]))["network"] == "basic"
    same = update(running, classes={"blockio": "slow"})
    await world.client.update_container_resources(same)
    other = update(running, classes={"blockio": "fast"})
    assert (await refused(world.client.update_container_resources(other))).code is Code.FAILED_PRECONDITION
