"""What a node publishes of its cores: one pool, in as many parts as it needs, kept whole while others change it."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client import Api
from kubeqos.client.resources import NODES
from kubeqos.codec import decode_json
from kubeqos.model.cpuset import NO_CPUS, CpuSet
from kubeqos.model.hardware.loading import load_machine
from kubeqos.model.machine import Machine
from kubeqos.stock.cluster import DEVICE_SLICES
from kubeqos.stock.cores.publishing import PublishedCores
from kubeqos.stock.cores.slices import MOST_DEVICES, Changes, changes, slices
from tests.qrm.harness import until
from tests.stock.rights import running

LAPTOP, LARGE = load_machine("laptop8"), load_machine("big384")
NODE = {"metadata": {"name": "n1", "uid": "u1"}}
FIRST, SECOND = "n1-cci.kubeqos.io-0", "n1-cci.kubeqos.io-1"
Raw = dict[str, Any]


def pools(written: Any) -> list[tuple[str, int, int]]:
    """Name, generation and count of parts of each slice."""
    pool = [(one["metadata"]["name"], one["spec"]["pool"]) for one in written]
    return [(name, one["generation"], one["resourceSliceCount"]) for name, one in pool]


def stored(*made: Raw) -> list[Raw]:
    """As a server has them: with what it adds, without what is empty."""
    found = copy.deepcopy(list(made))
    for one in found:
        del one["apiVersion"], one["kind"]  # so they stand in a list
        one["metadata"] |= {"uid": f"u-{one['metadata']['name']}", "resourceVersion": "7"}
        one["spec"]["devices"] = one["spec"]["devices"] or None
        for device in one["spec"]["devices"] or ():
            device["added"] = "by a newer server"
    return found


def test_a_large_machine_is_published_in_parts() -> None:
    made = slices(NODE, LARGE, NO_CPUS)
    sizes = [len(one["spec"]["devices"]) for one in made]
    assert len(made) == 2 and sizes == [MOST_DEVICES, len(LARGE.cores) - MOST_DEVICES]
    assert pools(made) == [(FIRST, 1, 2), (SECOND, 1, 2)]
    names = [device["name"] for one in made for device in one["spec"]["devices"]]
    assert len(set(names)) == len(LARGE.cores), "each core once"
    assert {one["metadata"]["ownerReferences"][0]["uid"] for one in made} == {"u1"}


def test_what_is_said_already_is_not_said_again() -> None:
    for machine in (LAPTOP, LARGE):
        there = stored(*slices(NODE, machine, NO_CPUS, 4))
        assert changes(NODE, machine, NO_CPUS, there) == Changes()
    nothing = stored(*slices(NODE, LAPTOP, LAPTOP.online))
    assert changes(NODE, LAPTOP, LAPTOP.online, nothing) == Changes()


def test_other_cores_are_the_next_generation_of_all_parts() -> None:
    there = stored(*slices(NODE, LARGE, NO_CPUS, 4))
    found = changes(NODE, LARGE, LARGE.cores[0], there)  # one less, of the first part
    assert pools(found.written) == [(FIRST, 5, 2), (SECOND, 5, 2)] and not found.stale
    torn = stored(*found.written)[:1] + there[1:]  # one was written, then the server went away
    assert pools(changes(NODE, LARGE, LARGE.cores[0], torn).written) == [(FIRST, 6, 2), (SECOND, 6, 2)]


def test_fewer_parts_are_a_generation_too_and_what_is_too_much_goes() -> None:
    there = stored(*slices(NODE, LARGE, NO_CPUS, 4))
    most = CpuSet.from_ids(cpu for cpus in list(LARGE.cores.values())[:100] for cpu in cpus)
    found = changes(NODE, LARGE, most, there)
    assert pools(found.written) == [(FIRST, 5, 1)]
    assert [one["metadata"]["name"] for one in found.stale] == [SECOND]
    done = changes(NODE, LARGE, most, [*stored(*found.written), there[1]])
    assert not done.written and [one["metadata"]["name"] for one in done.stale] == [SECOND], "what was left to do"


def test_a_part_that_is_missing_is_of_the_generation_of_the_others() -> None:
    there = stored(*slices(NODE, LARGE, NO_CPUS, 4))
    assert pools(changes(NODE, LARGE, NO_CPUS, there[:1]).written) == [(SECOND, 4, 2)]
    assert pools(changes(NODE, LARGE, NO_CPUS, ()).written) == [(FIRST, 1, 2), (SECOND, 1, 2)]


def test_slices_of_a_node_that_was_made_anew_belong_to_the_new_one() -> None:
    there = stored(*slices(NODE, LAPTOP, NO_CPUS, 4))
    anew = {"metadata": {"name": "n1", "uid": "u2"}}
    [written] = changes(anew, LAPTOP, NO_CPUS, there).written
    assert written["metadata"]["ownerReferences"][0]["uid"] == "u2" and pools([written]) == [(FIRST, 5, 1)]


def test_slices_of_other_nodes_and_drivers_are_none_of_ours() -> None:
    own = slices(NODE, LAPTOP, NO_CPUS)
    other = slices({"metadata": {"name": "n2", "uid": "u2"}}, LAPTOP, NO_CPUS, 9)
    gpu = copy.deepcopy(own)
    gpu[0]["metadata"]["name"], gpu[0]["spec"]["driver"] = "gpu", "gpu.example.com"
    assert changes(NODE, LAPTOP, NO_CPUS, stored(*own, *other, *gpu)) == Changes()


class Cluster:
    """An API server, what it has, and how often it was written to."""

    def __init__(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        self.api = api
        self.writes: list[str] = []
        for verb in ("patch", "delete"):
            monkeypatch.setattr(api, verb, self._counted(getattr(api, verb), verb))

    def _counted(self, call: Any, verb: str) -> Any:
        async def counted(resource: Any, name: str, *rest: Any, **more: Any) -> Any:
            if resource is DEVICE_SLICES:
                self.writes.append(f"{verb} {name}")
            return await call(resource, name, *rest, **more)

        return counted

    def published(self, machine: Machine, reserved: CpuSet = NO_CPUS) -> PublishedCores:
        return PublishedCores(self.api, "n1", machine, reserved)

    async def slices(self) -> list[Raw]:
        return [decode_json(raw) for raw in (await self.api.list(DEVICE_SLICES)).items]

    async def has(self, *wanted: tuple[str, int, int]) -> bool:
        return pools(await self.slices()) == list(wanted)

    async def make_node(self) -> None:
        await self.api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    async with ApiServer.start(Settings(tmp_path / "data", port=0)) as server:
        made = Cluster(server.local(), monkeypatch)
        await made.make_node()
        yield made


async def test_unchanged_cores_are_written_once(cluster: Cluster) -> None:
    for _ in range(3):
        await cluster.published(LARGE).look()
    assert cluster.writes == [f"patch {FIRST}", f"patch {SECOND}"]
    assert await cluster.has((FIRST, 1, 2), (SECOND, 1, 2))


async def test_an_agent_that_comes_back_to_other_cores_publishes_the_next_generation(cluster: Cluster) -> None:
    await cluster.published(LARGE).look()
    await cluster.published(LARGE, LARGE.cores[0]).look()
    assert await cluster.has((FIRST, 2, 2), (SECOND, 2, 2))
    await cluster.published(LAPTOP).look()
    assert await cluster.has((FIRST, 3, 1)), "what is too much is gone"
    [only] = await cluster.slices()
    assert len(only["spec"]["devices"]) == len(LAPTOP.cores)


async def test_what_somebody_deletes_or_changes_is_there_again_without_a_restart(cluster: Cluster) -> None:
    async with running(cluster.published(LARGE).run()):
        await until("published", lambda: cluster.has((FIRST, 1, 2), (SECOND, 1, 2)))
        await cluster.api.delete(DEVICE_SLICES, SECOND)
        await until("again", lambda: cluster.has((FIRST, 1, 2), (SECOND, 1, 2)))
        await cluster.api.patch(DEVICE_SLICES, FIRST, {"spec": {"devices": []}})
        await until("all of it anew", lambda: cluster.has((FIRST, 2, 2), (SECOND, 2, 2)))
        sizes = [len(one["spec"]["devices"]) for one in await cluster.slices()]
        assert sizes == [MOST_DEVICES, len(LARGE.cores) - MOST_DEVICES]


async def test_a_node_that_is_made_anew_has_its_cores_again_without_a_restart(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeqos.stock.cores.publishing.RETRY_SECONDS", 0.1)
    async with running(cluster.published(LAPTOP).run()):
        await until("published", lambda: cluster.has((FIRST, 1, 1)))
        await cluster.api.delete(NODES, "n1")
        await cluster.api.delete(DEVICE_SLICES, FIRST)  # as the garbage collector does
        await cluster.make_node()
        await until("again", lambda: cluster.has((FIRST, 1, 1)))
        [found] = await cluster.slices()
        node = await cluster.api.get(NODES, "n1")
        assert found["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
