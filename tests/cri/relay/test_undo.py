"""Updates are atomic: what the runtime has already done is taken back when a class then fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.errors import CallError
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.providers.protocol import Edit, Subject
from kubeqos.cri.providers.remote import serve
from kubeqos.cri.relay.server import Relay, Settings
from kubeqos.cri.relay.undo import NO_HUGEPAGE_LIMIT, in_spec, in_status, taken_back
from kubeqos.cri.simulated.cgroups import merged, value_files
from kubeqos.model.hardware.named import tiny2
from tests.cri.containerd import Containerd
from tests.cri.pods import container, pod
from tests.cri.relay.processes import container_classes
from tests.cri.relay.test_simulated import Turbo
from tests.shared.cgroups import VERSION, shares

CLASSES = """
resources:
  cpu-class: {provider: cpu, classes: {gold: {weight: 400}, silver: {weight: 200}}}
  turbo: {endpoint: 'unix://FOLDER/turbo.sock'}
"""
MEANINGS = (
    *("memory.limit", "memory.swap_limit"),
    *("cpu.shares", "cpu.quota", "cpu.period"),
    *("cpuset.cpus", "cpuset.mems"),
)


class Plain(Turbo):
    """Without the edits of the request that cgroup v1 has no place for."""

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        return Edit()


SILVER = "2048" if VERSION == 1 else str(shares(200))
"""Twice what the kernel gives to whom nobody gives shares."""


class World:
    """A relay in front of containerd with a vendor's class that can be made to fail."""

    def __init__(self, runtime: Containerd, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder
        self.turbo = Plain()

    async def start(self) -> None:
        config = self.folder / "classes.yaml"
        config.write_text(CLASSES.replace("FOLDER", str(self.folder)))
        self.vendor = await serve(self.turbo, f"{self.folder}/turbo.sock")
        paths = (self.folder / "cri.sock", self.runtime.socket, config, self.folder / "state.json")
        self.relay = await Relay.start(Settings(*paths, LocalMachine(Host())))
        self.client = CriClient(f"unix://{self.folder}/cri.sock")
        self.pod = pod(cgroup_parent=self.runtime.cgroup_parent, host_network=True)
        self.sandbox = await self.client.run_pod_sandbox(self.pod)

    async def stop(self) -> None:
        await self.client.stop_pod_sandbox(self.sandbox)
        await self.client.remove_pod_sandbox(self.sandbox)
        assert self.relay.keeper.table.validate() == []
        await self.client.close()
        await self.relay.close()
        await self.vendor.stop(0)

    async def started(self, **resources: int | str) -> str:
        config = container("main", ["sleep", "1000"], classes={"cpu-class": "gold"}, **resources)
        created = await self.client.create_container(self.sandbox, config, self.pod)
        await self.client.start_container(created)
        return created

    def kernel(self, container_id: str) -> dict[str, str]:
        return {meaning: self.runtime.cgroup_value(meaning, container_id) for meaning in MEANINGS}

    async def update(self, container_id: str, classes: dict[str, str], **resources: int | str) -> None:
        linux = cri.LinuxContainerResources(**resources)  # type: ignore[arg-type]
        request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)
        request.qos_resources.extend(container_classes(**classes))
        await self.client.update_container_resources(request)


@pytest.fixture
async def world(containerd: Containerd, folder: Path) -> AsyncIterator[World]:
    world = World(containerd, folder)
    await world.start()
    yield world
    await world.stop()


@pytest.mark.containerd
@pytest.mark.parametrize(
    "had",
    [
        {"memory_limit_in_bytes": 64 << 20, "cpu_quota": 20_000, "cpu_period": 50_000, "cpuset_cpus": "0"},
        {},  # nothing was set: what the kernel had by itself comes back
    ],
    ids=["limited", "unlimited"],
)
@pytest.mark.proves("class-changes")
async def test_containerd_is_as_it_was_when_a_class_fails_after_its_update(world: World, had: dict[str, int | str]):
    running = await world.started(**had)
    await world.update(running, {"turbo": "low"})
    before = world.kernel(running)
    change = {"memory_limit_in_bytes": 96 << 20, "cpu_quota": 30_000, "cpu_period": 90_000, "cpuset_cpus": "1"}
    world.turbo.broken = "enter"
    with pytest.raises(CallError, match="turbo cannot enter"):
        await world.update(running, {"cpu_class": "silver"}, **change)
    assert world.kernel(running) == before
    world.turbo.broken = ""
    await world.update(running, {"cpu_class": "silver"}, **change)
    after = world.kernel(running)
    assert after["memory.limit"] == str(96 << 20)
    assert (after["cpu.shares"], after["cpuset.cpus"], after["cpu.quota"]) == (SILVER, "1", "30000")


def test_an_oci_spec_says_what_a_container_has_where_the_status_does_not():
    spec = {
        "process": {"oomScoreAdj": 7},
        "linux": {
            "resources": {
                "cpu": {"shares": 512, "quota": 100, "period": 1000, "cpus": "0-1", "mems": "0"},
                "memory": {"limit": 4096, "swap": 8192},
                "hugepageLimits": [{"pageSize": "2MB", "limit": 5}],
                "unified": {"memory.high": "77"},
            }
        },
    }
    response = cri.ContainerStatusResponse(info={"info": json.dumps({"runtimeSpec": spec})})
    assert in_status(response) is None
    had = in_spec(response)
    assert (had.cpu_shares, had.cpu_quota, had.cpu_period, had.cpuset_cpus) == (512, 100, 1000, "0-1")
    assert (had.memory_limit_in_bytes, had.memory_swap_limit_in_bytes, had.oom_score_adj) == (4096, 8192, 7)
    assert (had.hugepage_limits[0].limit, dict(had.unified)) == (5, {"memory.high": "77"})
    for bad in ("", "{", "[]", '{"runtimeSpec": null}'):
        assert in_spec(cri.ContainerStatusResponse(info={"info": bad})) == cri.LinuxContainerResources()


def test_what_nobody_had_set_is_taken_from_the_cgroup_or_set_free():
    update = cri.LinuxContainerResources(cpuset_cpus="1", unified={"memory.high": "5"}, memory_limit_in_bytes=9)
    update.hugepage_limits.add(page_size="2MB", limit=1)
    files = {("cpuset", "cpuset.cpus.effective"): "0-3", ("", "memory.high"): "max"}
    back = taken_back(update, cri.LinuxContainerResources(), lambda c, f: files.get((c, f), ""))
    assert (back.cpuset_cpus, dict(back.unified), back.memory_limit_in_bytes) == ("0-3", {"memory.high": "max"}, -1)
    assert back.hugepage_limits[0].limit == NO_HUGEPAGE_LIMIT


amounts = st.integers(1, 10**6)
resources = st.builds(
    cri.LinuxContainerResources,
    cpu_period=st.just(0) | amounts,
    cpu_quota=st.just(0) | amounts,
    cpu_shares=st.just(0) | st.integers(2, 10**5),
    memory_limit_in_bytes=st.just(0) | amounts,
    cpuset_cpus=st.sampled_from(["", "0", "1", "0-1"]),
    unified=st.dictionaries(st.sampled_from(["memory.high", "memory.min"]), st.sampled_from(["1", "2"])),
)


@given(resources, resources)
def test_an_update_and_its_way_back_change_nothing(had: cri.LinuxContainerResources, update):
    """For every container and every update, in the files that the container would have."""
    machine = tiny2()
    before = value_files(had, machine)

    def read(controller: str, file: str) -> str:
        return before.get(file, "")

    after = merged(merged(had, update), taken_back(update, had, read))
    settled = {"cpuset.cpus": before["cpuset.cpus.effective"]}  # CRI cannot empty a set; the full one is the same
    assert {**value_files(after, machine), **settled} == {**before, **settled}
