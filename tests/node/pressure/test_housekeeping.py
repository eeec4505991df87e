"""The loop around pressure, on a simulated runtime: what is removed first, what stays, and what a failure does."""

from __future__ import annotations

from collections.abc import Iterable

from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.pressure.housekeeping import Housekeeper
from kubeqos.node.pressure.imagegc import ImageGc, ImageGcSettings
from kubeqos.node.pressure.thresholds import ActivePod, Conditions, EvictPod, Pressure, PressureSettings
from kubeqos.node.pressure.usage import SimulatedMachine, UsageCollector
from kubeqos.rules.qos.eviction import thresholds
from tests.node.pressure.test_pressure import pod


class House:
    """An agent that only listens."""

    def __init__(self, pods: Iterable[ActivePod] = (), kept: Iterable[str] = ()) -> None:
        self.pods, self.kept = list(pods), set(kept)
        self.evicted: list[str] = []
        self.conditions: Conditions = {}
        self.events: list[str] = []

    def active_pods(self) -> Iterable[ActivePod]:
        return self.pods

    def containers_in_use(self) -> set[str]:
        return self.kept

    def images_in_use(self) -> set[str]:
        return {"example.org/coming:1"}

    def evict(self, effect: EvictPod) -> None:
        self.evicted.append(effect.uid)

    async def show_conditions(self, conditions: Conditions) -> None:
        self.conditions = conditions

    def record_node(self, reason: str, message: str) -> None:
        self.events.append(reason)


AT_ONCE = ImageGcSettings(minimum_age_seconds=0)


def keeper(runtime: SimulatedRuntime, house: House, disk_bytes: int, images: ImageGcSettings = AT_ONCE) -> Housekeeper:
    pressure = Pressure(PressureSettings(thresholds({"nodefs.available": "10%"})))
    times = iter(range(1000))
    now = [0.0]

    def clock() -> float:
        now[0] = float(next(times))
        return now[0]

    collector = UsageCollector(runtime, SimulatedMachine(laptop8(), disk_bytes=disk_bytes), clock)
    return Housekeeper(pressure, collector, runtime, house, lambda: now[0], ImageGc(images))


async def start(runtime: SimulatedRuntime, name: str, command: list[str]) -> tuple[str, str]:
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name=name, uid=name, namespace="default"))
    sandbox = await runtime.run_pod_sandbox(config)
    image = f"example.org/{name}:1"
    await runtime.pull_image(image)
    made = cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name="c"), image=cri.ImageSpec(image=image), command=command
    )
    container = await runtime.create_container(sandbox, made, config)
    await runtime.start_container(container)
    return sandbox, container


async def test_dead_containers_and_unused_images_go_and_what_is_used_stays() -> None:
    runtime = SimulatedRuntime(laptop8(), logs=False)
    _, live = await start(runtime, "live", ["sleep", "infinity"])
    _, dead = await start(runtime, "dead", ["true"])
    _, shown = await start(runtime, "shown", ["true"])
    for name in ("unused", "coming"):
        await runtime.pull_image(f"example.org/{name}:1")
    house = House(kept={shown})
    chores = keeper(runtime, house, disk_bytes=1000)  # less than the images take
    await chores.remove_dead_containers()
    left = {one.id for one in await runtime.list_containers()}
    assert left == {live, shown} and dead not in left
    await chores.turn()
    assert await tags(runtime) == {"live", "shown", "coming"}
    assert (chores.freed.containers, chores.freed.images) == (1, {"space": 2})


async def tags(runtime: SimulatedRuntime) -> set[str]:
    found = {tag for image in await runtime.list_images() for tag in image.repo_tags}
    return {tag.removeprefix("example.org/").removesuffix(":1") for tag in found}


async def test_images_go_from_the_high_threshold_down_to_the_low_one() -> None:
    """Six images of 10 MB on a disk of 64 MB are 94 %; without disk pressure, routine frees down to 60 %."""
    runtime = SimulatedRuntime(laptop8(), logs=False)
    await start(runtime, "live", ["sleep", "infinity"])
    for name in "abcde":
        await runtime.pull_image(f"example.org/{name}:1")
    house = House()
    half_full = ImageGcSettings(high_percent=80, low_percent=60, minimum_age_seconds=0)
    chores = keeper(runtime, house, disk_bytes=64_000_000, images=half_full)
    chores.pressure = Pressure(PressureSettings())
    await chores.turn()
    assert len(await tags(runtime)) == 3 and "live" in await tags(runtime)
    assert chores.freed.images == {"space": 3} and house.events == []
    await chores.turn()
    assert chores.freed.images == {"space": 3}


async def test_too_few_unused_images_are_told() -> None:
    runtime = SimulatedRuntime(laptop8(), logs=False)
    await start(runtime, "live", ["sleep", "infinity"])
    house = House()
    chores = keeper(runtime, house, disk_bytes=10_000_000)
    chores.pressure = Pressure(PressureSettings())
    await chores.turn()
    assert house.events == ["FreeDiskSpaceFailed"] and await tags(runtime) == {"live"}


async def test_a_full_disk_frees_unused_things_and_then_evicts() -> None:
    runtime = SimulatedRuntime(laptop8(), logs=False)
    await start(runtime, "hog", ["sleep", "infinity"])
    await start(runtime, "old", ["true"])
    house = House([pod("hog")])
    chores = keeper(runtime, house, disk_bytes=100)
    hog = next(one for one in runtime.core.containers.values() if one.config.image.image.endswith("hog:1"))
    assert hog.usage is not None
    hog.usage.load = type(hog.usage.load)(write_per_second=1 << 40)
    await chores.turn()
    assert house.conditions["DiskPressure"][0] == "True"
    assert house.events == ["EvictionThresholdMet"]
    assert chores.freed.containers == 1 and chores.freed.images == {"space": 1}
    assert house.evicted == ["hog"]


class Deaf(SimulatedRuntime):
    async def call(self, method: object, request: object, *, timeout: float | None = None) -> object:  # type: ignore[override]
        raise CallError("ListPodSandboxStats", Code.UNAVAILABLE, "away", endpoint="deaf")


async def test_a_runtime_that_does_not_answer_changes_nothing() -> None:
    house = House([pod("a")])
    chores = keeper(Deaf(laptop8()), house, disk_bytes=100)
    await chores.turn()
    assert house.evicted == [] and house.conditions == {} and await chores.latest() is None
