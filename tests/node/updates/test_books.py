"""Books equal kernel: what somebody else told a container is noticed, told and undone; strangers are told of."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.cgroups.files import CgroupFiles
from kubeqos.node.updates.books import CONDITION, drifts, trespass
from kubeqos.plugins.managers import NOTHING, AdmittedPod, Grant, Refusal
from tests.cri import pods as cri_pods
from tests.node.pods import container, pod, resources
from tests.node.world import World

ONLINE = laptop8().online
WEB = Grant({"cpuset_cpus": "2-7"})
OWNER = Grant({"cpuset_cpus": "0-1", "cpuset_mems": "0"}, exclusive=CpuSet.parse("0-1"))
OWNED = {"default/owner/main": CpuSet.parse("0-1")}


@pytest.mark.parametrize(
    ("grant", "has", "told"),
    [
        (WEB, {"cpuset_cpus": "2-7"}, []),
        (WEB, {"cpuset_cpus": "2-5,6,7"}, []),
        (WEB, {}, []),
        (Grant(), {"cpuset_cpus": "0-7"}, []),
        (WEB, {"cpuset_cpus": "2-6"}, ["web runs on CPUs 2-6 and should run on 2-7"]),
        (
            WEB,
            {"cpuset_cpus": "1-7"},
            [
                "web runs on CPUs 1-7 and should run on 2-7, beside CPUs 1 of default/owner/main, which are its alone",
            ],
        ),
        (
            WEB,
            {"cpuset_cpus": ""},
            [
                "web runs on CPUs without limit and should run on 2-7, "
                "beside CPUs 0-1 of default/owner/main, which are its alone",
            ],
        ),
        (OWNER, {"cpuset_cpus": "0-1", "cpuset_mems": "1"}, ["web runs on NUMA nodes 1 and should run on 0"]),
    ],
)
def test_what_is_drift(grant: Grant, has: Mapping[str, str], told: list[str]) -> None:
    owned = {} if grant is OWNER else OWNED
    assert [str(one) for one in drifts("web", grant, has, owned)] == told


def test_a_stranger_on_owned_cpus_is_told_of() -> None:
    assert trespass("it", {"cpuset_cpus": "2-3"}, ONLINE, OWNED) is None
    found = trespass("it", {"cpuset_cpus": ""}, ONLINE, OWNED)
    assert found is not None and found.kind == "overlap"
    assert str(found) == (
        "it is no pod of this node and runs on CPUs 0-7, beside CPUs 0-1 of default/owner/main, which are its alone"
    )
    assert trespass("it", {"cpuset_cpus": ""}, ONLINE, {}) is None


# ---- On a node


def node(folder: Path) -> World:
    return World(folder, cpu_manager_policy="static", reserved_cpus=CpuSet.of(0))


def whole(name: str) -> dict[str, Any]:
    return pod(name, container(resources=resources(cpu="2", memory="64Mi")))


async def tamper(world: World, uid: str, cpus: str) -> None:
    """Somebody else tells a container where to run."""
    [one] = world.running(uid).values()
    request = cri.UpdateContainerResourcesRequest(container_id=one.id)
    request.linux.cpuset_cpus = cpus
    await world.runtime.update_container_resources(request)


def cpus_of(world: World, uid: str) -> str:
    [one] = world.running(uid).values()
    return one.resources.cpuset_cpus


@pytest.mark.proves("exclusive-cpus")
async def test_what_somebody_else_told_a_container_is_undone(tmp_path: Path) -> None:
    async with node(tmp_path) as world:
        web, owner = await world.start(pod("web")), await world.start(whole("owner"))
        mine, rest = cpus_of(world, owner), cpus_of(world, web)
        await world.advance(30)
        assert world.agent.books.counts == {} and world.agent.books.conditions() == {}
        await tamper(world, web, "0-7")
        await world.advance(11)
        assert (cpus_of(world, owner), cpus_of(world, web)) == (mine, rest)
        told = f"container main of pod default/web runs on CPUs 0-7 and should run on {rest}, beside CPUs {mine}"
        assert [message for reason, message in world.events if reason == "ContainerDrift"] == [
            f"{told} of default/owner/main, which are its alone"
        ]
        assert world.agent.books.conditions()[CONDITION][0] == "False"
        assert 'kubeqos_node_container_drifts_total{kind="cpuset_cpus"} 1.0' in await world.metrics()
        await world.advance(11)
        assert world.agent.books.conditions()[CONDITION][0] == "True"
        assert world.agent.books.counts == {"cpuset_cpus": 1}


async def test_an_owner_that_was_moved_comes_back(tmp_path: Path) -> None:
    async with node(tmp_path) as world:
        web, owner = await world.start(pod("web")), await world.start(whole("owner"))
        mine, rest = cpus_of(world, owner), cpus_of(world, web)
        await tamper(world, owner, "0-7")
        await tamper(world, web, mine)
        await world.advance(22)
        assert (cpus_of(world, owner), cpus_of(world, web)) == (mine, rest)


async def test_who_was_not_told_yet_of_an_owner_has_not_drifted(tmp_path: Path) -> None:
    """Between the admission of an owner and the first word to those who make room for it."""
    async with node(tmp_path) as world:
        web = await world.start(pod("web"))
        had = cpus_of(world, web)
        owner = AdmittedPod.of(whole("owner"))
        assert await world.agent.admission.admit(owner) is None
        assert str(world.agent.admission.grants()[web, "main"].properties["cpuset_cpus"]) != had
        assert not await world.agent.books.compare()
        assert world.agent.books.counts == {}
        await world.agent.updater.reconcile()
        await world.advance(11)
        assert cpus_of(world, web) != had and world.agent.books.counts == {}


async def test_a_container_that_is_nobodys_pod_is_told_of_and_left_alone(tmp_path: Path) -> None:
    async with node(tmp_path) as world:
        owner = await world.start(whole("owner"))
        sandbox = cri_pods.pod("mine")
        made = await world.runtime.create_container(
            await world.runtime.run_pod_sandbox(sandbox), cri_pods.container("debug"), sandbox
        )
        await world.runtime.start_container(made)
        await world.advance(11)
        [told] = [message for reason, message in world.events if reason == "ContainerDrift"]
        assert f"runs on CPUs 0-7, beside CPUs {cpus_of(world, owner)} of default/owner/main" in told
        assert world.agent.books.counts == {"overlap": 1}
        await world.runtime.stop_container(made)
        await world.advance(11)
        assert world.agent.books.found == ()


async def test_a_node_without_promises_asks_nothing(tmp_path: Path) -> None:
    async with World(tmp_path) as world:
        await world.start(pod("web"))
        asked: list[str] = []
        status = world.runtime.container_status

        async def noted(identity: str, **more: Any) -> Any:
            asked.append(identity)
            return await status(identity, **more)

        world.runtime.container_status = noted  # type: ignore[method-assign]
        await world.advance(60)
        assert asked == []


# ---- After a restart without a ledger


class Late:
    """A manager whose peer is not there yet: everybody waits."""

    name = "late"

    def __init__(self) -> None:
        self.ready = False

    async def offers(self, _pod: Any, _container: Any) -> tuple[()]:
        return ()

    async def allocate(self, _pod: Any, _container: Any, _hint: Any) -> Grant | Refusal:
        return NOTHING if self.ready else Refusal("NotYet", "the peer is not there yet", retry=True)

    async def release(self, _uid: str) -> None:
        """Nothing is held."""

    def grant(self, _container: Any) -> None:
        return None

    def grants(self) -> dict[Any, Grant]:
        return {}

    def save(self) -> None:
        return None

    async def restore(self, _state: Any, _running: Any) -> list[str]:
        return []

    def node_resources(self) -> tuple[()]:
        return ()

    def validate(self) -> list[str]:
        return []


@pytest.mark.proves("exclusive-cpus", "restart")
async def test_what_runs_keeps_its_cpus_while_it_cannot_be_admitted_again(tmp_path: Path) -> None:
    late = Late()
    late.ready = True
    world = node(tmp_path)
    world.managers = [late]
    async with world:
        web, owner = await world.start(pod("web")), await world.start(whole("owner"))
        before = cpus_of(world, owner), cpus_of(world, web)
        await world.halt()
        shutil.rmtree(world.settings.state_dir)
        late.ready = False
        await world.boot()
        other = await world.start(whole("other"))
        await world.advance(20)
        assert not world.running(other) and (cpus_of(world, owner), cpus_of(world, web)) == before
        late.ready = True
        await world.advance(120)
        assert cpus_of(world, owner) == before[0]
        theirs = CpuSet.parse(cpus_of(world, other))
        assert len(theirs) == 2 and not theirs & CpuSet.parse(f"{before[0]},{cpus_of(world, web)}")


async def test_an_owner_waits_for_those_whose_pods_are_not_admitted_yet(tmp_path: Path) -> None:
    """A container that shares is found on CPUs that a newcomer is to own; it makes room when its pod is known."""
    world = node(tmp_path)
    async with world:
        web = await world.start(pod("web"))
        await world.halt()
        shutil.rmtree(world.settings.state_dir)
        await world.boot()
        pending = world.agent.updater.pending
        pending.found((web, "main"), ONLINE)
        assert [one.key for one in pending.unknown(CpuSet.parse("0-1"))] == [(web, "main")]
        owner = await world.start(whole("owner"))
        await world.advance(30)
        assert not CpuSet.parse(cpus_of(world, owner)) & CpuSet.parse(cpus_of(world, web))


@pytest.mark.parametrize(("version", "folder"), [(2, ""), (1, "cpuset/")])
def test_the_kernels_cpuset_is_found_by_the_containers_id(tmp_path: Path, version: int, folder: str) -> None:
    group = tmp_path / folder / "kubepods" / "pod1" / "cri-containerd-abc123.scope"
    group.mkdir(parents=True)
    (group / "cpuset.cpus").write_text("0-1\n")
    (group / "cpuset.mems").write_text("\n")
    files = CgroupFiles(tmp_path, version)
    assert files.cpuset("/kubepods/pod1", "abc123") == {"cpuset_cpus": "0-1", "cpuset_mems": ""}
    assert files.cpuset("/kubepods/pod1", "other") == {}
    assert files.cpuset("/kubepods/pod2", "abc123") == {}
