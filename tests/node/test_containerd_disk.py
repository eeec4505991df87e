"""Disk pressure on real containerd: a small file system of the test's own fills up, and really gets room again.

Everything of the node that takes disk lies on it: the node's folder with the volumes of pods, or the runtime's with
images and the layers of containers, or both. What `filler` takes is what others on the machine would take.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.resources import NODES, PODS
from kubeqos.node.config.services import ServiceSettings
from kubeqos.node.pressure.imagegc import ImageGcSettings
from kubeqos.node.pressure.thresholds import PressureSettings
from kubeqos.rules.qos.eviction import thresholds
from tests.apiserver.live import LiveServer, live_server
from tests.cri.containerd import missing, running_containerd
from tests.node.homes import GATES, Home, containerd_home
from tests.node.pod.test_stories import event_of
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, until

absent = missing()
pytestmark = [pytest.mark.containerd, pytest.mark.skipif(absent is not None, reason=f"real containerd: {absent}")]

MIB = 1 << 20
UNUSED = "localhost/kubeqos/unused:1"
NODE, RUNTIME = "node", "runtime"
TAINT = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}


class Disk:
    """A small file system in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def available(self) -> int:
        found = os.statvfs(self.folder)
        return found.f_bavail * found.f_frsize

    def leave(self, mebibytes: int) -> None:
        """Fill it, or empty it, until so much is left."""
        filler = self.folder / "filler"
        filler.unlink(missing_ok=True)
        spare = self.available() - mebibytes * MIB
        assert spare > 0, f"{-spare} bytes too little for this"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, spare)


@pytest.fixture
def disk() -> Iterator[Disk]:
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "kubeqos-test", name], check=True)
        try:
            yield Disk(Path(name))
        finally:
            subprocess.run(["umount", name], check=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LiveServer]:
    with live_server(tmp_path / "api", GATES) as live:
        yield live


@contextlib.asynccontextmanager
async def node_on(
    disk: Disk, server: LiveServer, elsewhere: Path, what: tuple[str, ...], pressure: PressureSettings
) -> AsyncIterator[Home]:
    """A node whose folder, or whose runtime, or both lie on the small disk."""
    with tempfile.TemporaryDirectory(prefix="kq-") as large:
        runtime_folder = (disk.folder if RUNTIME in what else Path(large)) / "c"
        home_folder = (disk.folder if NODE in what else elsewhere) / "node"
        home_folder.mkdir()
        images = ImageGcSettings(high_percent=100, low_percent=99, minimum_age_seconds=0)
        services = ServiceSettings(housekeeping_seconds=0.2, images=images)
        with running_containerd(runtime_folder) as runtime:
            async with containerd_home(server, home_folder, runtime, services, pressure=pressure) as home:
                yield home


def writer(name: str, mebibytes: int, folder: str = "/data", **resources: dict[str, str]) -> dict[str, Any]:
    """A pod that writes so much, into a volume of its own or into its container, and stays."""
    fill = f"dd if=/dev/zero of={folder}/held bs=1M count={mebibytes} 2>/dev/null; " if mebibytes else ""
    main = busybox("main", fill + SLEEP, resources=resources, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    return bound(name, main, hostNetwork=True, volumes=[{"name": "data", "emptyDir": {}}])


async def condition(home: Home, status: str) -> Any:
    conditions = ((await get_or_none(home.api, "n1", NODES) or {}).get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if (one["type"], one["status"]) == ("DiskPressure", status)), None)


async def tainted(home: Home) -> bool:
    taints = (await home.api.get(NODES, "n1")).get("spec", {}).get("taints") or ()
    return TAINT in [{key: one.get(key) for key in TAINT} for one in taints]


async def images(home: Home) -> set[str]:
    return {tag for one in await home.agent.runtime.list_images() for tag in one.repo_tags}


def story(home: Home) -> list[str]:
    return [line.partition(" ")[2] for line in home.services.housekeeper.pressure.story]


async def test_unused_images_go_first_then_pods_in_order(disk: Disk, server: LiveServer, tmp_path: Path) -> None:
    """One file system for all: 30 MiB are to be free."""
    pressure = PressureSettings(thresholds({"nodefs.available": "30Mi"}), transition_seconds=1.0)
    async with node_on(disk, server, tmp_path, (NODE, RUNTIME), pressure) as home:
        home.containerd.add_image(UNUSED, ["sh"], 24 * MIB)
        storage = {"requests": {"memory": "16Mi", "ephemeral-storage": "20Mi"}}
        await home.api.create(PODS, writer("within", 16, **storage))
        await home.phase("within", "Running")
        assert UNUSED in await images(home)

        disk.leave(20)
        told = await until("the node says so", lambda: condition(home, "True"))
        assert (told["reason"], told["message"]) == ("KubeletHasDiskPressure", "kubelet has disk pressure")

        async def removed() -> bool:  # its layers, too, for which the runtime takes its time
            return UNUSED not in await images(home) and disk.available() >= 30 * MIB

        await until("the unused image is removed", removed)
        assert await until("the node is tainted", lambda: tainted(home))
        assert await until("and that is told", lambda: event_of(home.api, "EvictionThresholdMet", "n1"))
        assert await until("pressure passes", lambda: condition(home, "False"))
        assert "nodefs.available: freeing unused containers and images was enough" in story(home)
        assert 'kubelet_image_garbage_collected_total{reason="space"} 1.0' in home.services.server.metrics().decode()

        small = {"requests": {"memory": "16Mi"}}
        for name, mebibytes, wants in (("burst", 14, small), ("little", 2, {}), ("large", 12, {})):
            await home.api.create(PODS, writer(name, mebibytes, **wants))
            await home.phase(name, "Running")
        disk.leave(23)
        gone = await home.phase("large", "Failed")
        assert gone["reason"] == "Evicted"
        assert gone["message"].startswith(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 30Mi, available: "
        )
        assert {one["type"]: one["reason"] for one in gone["conditions"] if one["type"] == "DisruptionTarget"} == {
            "DisruptionTarget": "TerminationByKubelet"
        }
        await until("its volume makes room", lambda: condition(home, "False"))
        assert disk.available() >= 30 * MIB
        disk.leave(15)
        await home.phase("burst", "Failed")
        assert (await home.phase("little", "Failed"))["reason"] == "Evicted"
        order = [line.split(":")[0] for line in story(home) if line.startswith("evicting")]
        assert order == [f"evicting default/{name}" for name in ("large", "little", "burst")]
        await home.phase("within", "Running")


async def test_a_full_image_file_system_evicts_who_writes_into_its_container(
    disk: Disk, server: LiveServer, tmp_path: Path
) -> None:
    """The runtime has a file system of its own: volumes, which lie elsewhere, are not what fills it."""
    pressure = PressureSettings(thresholds({"imagefs.available": "30Mi"}), transition_seconds=4.0)
    async with node_on(disk, server, tmp_path, (RUNTIME,), pressure) as home:
        home.containerd.add_image(UNUSED, ["sh"], 24 * MIB)
        await home.api.create(PODS, writer("volume", 16))
        await home.api.create(PODS, writer("layer", 12, folder="/tmp"))
        for name in ("volume", "layer"):
            await home.phase(name, "Running")
        disk.leave(20)

        async def removed() -> bool:
            return UNUSED not in await images(home)

        await until("the unused image is removed", removed)
        await until("pressure passes", lambda: condition(home, "False"))
        assert not [line for line in story(home) if line.startswith("evicting")]

        disk.leave(25)
        gone = await home.phase("layer", "Failed")
        assert gone["reason"] == "Evicted"
        begins = "The node was low on resource: ephemeral-storage. Threshold quantity: 30Mi, available: "
        assert gone["message"].startswith(begins)
        assert "Container main was using " in gone["message"]
        assert gone["message"].endswith("Ki, request is 0, has larger consumption of ephemeral-storage. ")

        await home.api.create(PODS, writer("late", 0))
        late = await home.phase("late", "Failed")
        refusal = "Pod was rejected: The node had condition: [DiskPressure]. "
        assert (late["reason"], late["message"]) == ("Evicted", refusal)
        await until("its layer makes room", lambda: condition(home, "False"))
        await home.phase("volume", "Running")


async def test_a_soft_threshold_waits_for_its_grace_and_gives_pods_theirs(
    disk: Disk, server: LiveServer, tmp_path: Path
) -> None:
    """Short for less than the grace period: only the condition. Longer: a pod is asked, and has time to answer."""
    soft = thresholds({}, {"nodefs.available": "30Mi"}, {"nodefs.available": 3.0}, {"nodefs.available": "10Mi"})
    pressure = PressureSettings(soft, transition_seconds=0.5, max_pod_grace_seconds=20)
    async with node_on(disk, server, tmp_path, (NODE,), pressure) as home:
        await home.api.create(PODS, writer("polite", 16))
        await home.phase("polite", "Running")

        disk.leave(25)
        assert await until("the node says so", lambda: condition(home, "True"))
        disk.leave(60)
        assert await until("it passes in time", lambda: condition(home, "False"))
        assert [line for line in story(home) if line.startswith("evicting")] == []

        disk.leave(25)
        gone = await home.phase("polite", "Failed")
        assert gone["reason"] == "Evicted"
        assert "Threshold quantity: 30Mi, available: " in gone["message"]
        (ended,) = gone["containerStatuses"]
        assert ended["state"]["terminated"]["exitCode"] == 0, "it ended by itself, in the time that it was given"
        _, second = (line for line in home.services.housekeeper.pressure.story if "conditions: Disk" in line)
        evicted = next(line for line in home.services.housekeeper.pressure.story if "evicting" in line)
        assert float(evicted.split()[0]) - float(second.split()[0]) >= 3.0
        assert await until("pressure passes", lambda: condition(home, "False"))
        assert disk.available() >= 40 * MIB, "the minimum to reclaim"
