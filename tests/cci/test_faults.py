"""Drivers that die, hang and lie, an agent that dies at each step: no overlap ever, nothing leaked, state recovered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.drivers import Deadlines
from kubeqos.cci.sdk import Refuse
from kubeqos.cci.store import FILE_NAME
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.model.hardware.named import laptop8
from kubeqos.plugins.managers import LiveContainer
from tests.cci import world
from tests.cci.world import DRIVER, QUICK, Crash, cores, cpus, driver_process, exclusive, pod


class Node(world.Node):
    deadlines = QUICK


ADMIT, ADD, REMOVE = "CCIAdmit", "CCIAddContainerResource", "CCIRemoveContainerResource"


async def test_the_flows_of_figure_4(tmp_path: Path) -> None:
    """Claims before the driver exists, then it comes up, then it is sick; standard pods never notice."""
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            first, second = pod("first", exclusive(2)), pod("second", exclusive(2))
            refusal = await node.start(first)
            assert refusal is not None and (refusal.reason, refusal.retry) == ("CCIDriverUnavailable", True)
            assert refusal.message == f"compute driver {DRIVER} is not registered on this node"
            assert await node.start(pod("standard-1")) is None

            await driver.up()
            assert await node.start(first) is None
            assert await node.start(pod("standard-2")) is None

            driver.kill()
            await node.driver_down()
            refusal = await node.start(second)
            assert refusal is not None and refusal.retry
            assert await node.start(pod("standard-3")) is None
            assert node.cpus(first) <= laptop8().online and len(node.cpus(first)) == 2, "running pods are left alone"

            await driver.up()
            assert await node.start(second) is None
            node.validate()


async def test_a_pod_waits_for_its_driver_until_a_timeout(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), driver_wait_seconds=60) as node:
        wanted = pod("patient", exclusive(1))
        for node.time in (0, 30, 59):
            refusal = await node.start(wanted)
            assert refusal is not None and refusal.retry
        node.time = 60
        refusal = await node.start(wanted)
        assert refusal is not None and not refusal.retry
        assert refusal.message.endswith("is not registered on this node (gave up after 60 s)")


async def test_the_alpha_rule_runs_a_claim_without_driver_as_a_standard_pod(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), best_effort_without_driver=True) as node:
        wanted = pod("bold", exclusive(2))
        assert await node.start(wanted) is None
        assert node.cpus(wanted) == cpus("0-7")
        assert node.manager.story(wanted.uid)[0].startswith("main: runs without claim: compute driver")
        [(reason, message)] = node.events
        assert reason == "ComputeClaimIgnored" and message.startswith("default/bold/main runs unpinned: compute driver")
        [(told, reason, message)] = node.pod_events
        assert (told, reason) == (wanted.uid, "ComputeClaimIgnored")
        assert message.startswith("container main runs without the cores of its claim: compute driver")
        [(ref, _)] = wanted.containers()
        grant = node.manager.grant(ref)
        assert grant is not None and grant.because.startswith("its claim was not served and it runs without")
        assert node.manager.grant(ref) is grant, "nothing changed"
        await node.restart()
        again = node.manager.grant(ref)
        assert again == grant
        plain = pod("plain")
        assert await node.start(plain) is None
        [(other, _)] = plain.containers()
        assert (node.manager.grant(other) or grant).because.startswith("no claim")


LIES = [
    ("outside", "CPUs 8-9 are not available"),
    ("count", "it answered 3 cores (0-2) where 2 were asked for"),
    ("malformed", 'its cpuset \'0-,x\' cannot be read: invalid number "" in "0-"'),
    ("shared", "it answered shared cores where exclusive ones were asked for"),
    ("nothing", "it named no CPUs"),
]


@pytest.mark.parametrize(("lie", "because"), LIES, ids=[lie for lie, _ in LIES])
async def test_a_lying_driver_is_not_believed(tmp_path: Path, lie: str, because: str) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            driver.rule({"method": ADMIT, "do": lie, "times": 1})
            await driver.up()
            wanted = pod("victim", exclusive(2))
            refusal = await node.start(wanted)
            assert refusal is not None and (refusal.reason, refusal.retry) == ("CCIDriverMisbehaved", True)
            assert refusal.message == f"the answer of compute driver {DRIVER} is not usable: {because}"
            assert node.available == cpus("0-7") and not node.manager.store.departures
            assert node.events == [("ComputeDriverAnswer", f"driver {DRIVER} is in the wrong: {because}")]
            status, reason, message = node.manager.conditions()["ComputeDriversReady"]
            assert (status, reason) == ("False", "ComputeDriverAnswerRefused") and because in message
            labels = {"driver": DRIVER, "method": ADMIT}
            assert node.manager.metrics.registry.get_sample_value("cci_manager_refused_answers_total", labels) == 1
            assert await node.start(wanted) is None, "the next answer is judged for itself"
            assert node.manager.conditions()["ComputeDriversReady"][0] == "True"
            node.validate()


async def test_cores_that_have_an_owner_are_not_given_twice(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            await driver.up()
            owner = pod("owner", exclusive(2))
            await node.start(owner)
            driver.rule({"method": ADMIT, "do": "outside"})
            refusal = await node.start(pod("thief", exclusive(2)))
            assert refusal is not None and refusal.message.endswith(f"CPUs {node.cpus(owner)} are not available")


@pytest.mark.parametrize("fault", ["die", "hang", "fail"])
async def test_a_driver_that_breaks_while_it_admits(tmp_path: Path, fault: str) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            driver.rule({"method": ADMIT, "do": fault, "times": 1})
            await driver.up()
            web, wanted = pod("web"), pod("wanted", exclusive(2))
            refusal = await node.start(wanted)
            assert refusal is not None and refusal.retry and "CCIAdmit" in refusal.message
            assert node.available == cpus("0-7")
            assert await node.start(web) is None, "pods without claims are not touched"
            if fault == "die":
                await driver.up()
            await node.driver_up()
            await node.until("the driver heard", lambda: not node.manager.store.departures)
            assert await node.start(wanted) is None
            assert node.cpus(web) == cpus("0-7") - node.cpus(wanted)
            node.validate()


@pytest.mark.parametrize("fault", ["die", "hang", "refuse"])
async def test_a_driver_that_breaks_while_it_adds(tmp_path: Path, fault: str) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            driver.rule({"method": ADD, "do": fault, "times": 1, "text": "cgroup is frozen"})
            await driver.up()
            wanted = pod("wanted", exclusive(2))
            refusal = await node.start(wanted)
            assert refusal is not None and refusal.retry
            assert ("cgroup is frozen" if fault == "refuse" else "CCIAddContainerResource") in refusal.message
            if fault == "die":
                await driver.up()
            await node.driver_up()
            [(ref, _)] = wanted.containers()
            assert await node.run(wanted, ref) is None, "its cores were kept for it"
            await node.stop(wanted)
            assert node.available == cpus("0-7")


@pytest.mark.parametrize("fault", ["die", "hang", "refuse"])
async def test_a_driver_that_breaks_while_it_removes(tmp_path: Path, fault: str) -> None:
    """Cores stay held until the driver knows, but not for ever."""
    async with Node(tmp_path, laptop8(), departure_seconds=60) as node:
        with driver_process(node, machine="laptop8") as driver:
            await driver.up()
            web, wanted = pod("web"), pod("wanted", exclusive(2))
            await node.start(web)
            await node.start(wanted)
            mine = node.cpus(wanted)
            driver.rule({"method": REMOVE, "do": fault, "times": 1})
            await node.stop(wanted)
            if node.manager.store.departures:
                assert node.available == cpus("0-7") - mine == node.cpus(web)
            if fault == "die":
                await driver.up()
            await node.until("the driver heard", lambda: not node.manager.store.departures)
            await node.apply()
            assert node.cpus(web) == node.available == cpus("0-7")
            node.validate()


async def test_a_driver_that_is_found_well_while_it_is_told_of_a_removal(tmp_path: Path) -> None:
    """Whoever told it kept others from telling it, and waited for itself to be done: nobody was served any more."""
    deadlines = Deadlines(call=0.3, health=60.0, probe_every=600.0, probe_sick_every=600.0)
    async with Node(tmp_path, laptop8(), departure_seconds=600, deadlines=deadlines) as node:
        with driver_process(node, machine="laptop8") as driver:
            await driver.up()
            wanted = pod("wanted", exclusive(2))
            assert await node.start(wanted) is None
            driver.rule({"method": REMOVE, "do": "hang", "times": 1})
            ending = asyncio.create_task(node.stop(wanted))
            await node.until("it hangs", lambda: driver.script.read_text() == "[]")
            node.manager.drivers.table[DRIVER].sick = "a look at it, made meanwhile, took too long"
            async with asyncio.timeout(60):
                await ending
                await node.until("the driver heard", lambda: not node.manager.store.departures)
            assert await node.start(pod("next", exclusive(2))) is None


async def test_a_driver_that_always_refuses_a_removal_is_asked_ever_more_slowly(tmp_path: Path) -> None:
    """Its cores are free after a while, it is told again and again but not without pause, and people are told."""
    asked: list[str] = []

    class Stubborn(Reference):
        def remove(self, removal: Any) -> None:
            asked.append(removal.claim_name)
            raise Refuse("I\nkeep it")

    async with Node(tmp_path, laptop8(), departure_seconds=60) as node, node.driver(Stubborn(laptop8())):
        wanted = pod("wanted", exclusive(2))
        assert await node.start(wanted) is None
        await node.stop(wanted)
        assert len(node.available) == 6
        for _ in range(600):  # five minutes
            node.time += 0.5
            await node.manager.deliver_departures()
        assert 8 <= len(asked) <= 25
        assert node.available == cpus("0-7")
        told = [message for reason, message in node.events if reason == "ComputeDriverRemoval"]
        assert told == [
            f"driver {DRIVER} does not take back claim wanted-compute: I keep it; it is tried again",
            f"driver {DRIVER} has not taken back claim wanted-compute for 60 s: its CPUs are free for others",
        ]
        assert [one.claim_name for one in node.manager.store.departures] == ["wanted-compute"], "it is still owed"
        assert await node.start(wanted) is None, "a claim whose removal is long overdue can be used again"


async def test_a_driver_that_never_comes_back_cannot_keep_cores(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8(), departure_seconds=60) as node:
        async with node.driver(Reference(laptop8())):
            wanted = pod("wanted", exclusive(2))
            await node.start(wanted)
        await node.driver_down()
        await node.stop(wanted)
        assert len(node.available) == 6
        await node.restart()
        assert len(node.available) == 6, "what is outstanding survives a restart"
        await node.manager.deliver_departures()
        node.time += 61
        await node.manager.deliver_departures()
        assert node.available == cpus("0-7")


async def test_a_hung_driver_holds_up_its_own_pods_and_nobody_else(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            driver.rule({"method": ADMIT, "do": "hang"})
            await driver.up()
            hung = asyncio.create_task(node.start(pod("hung", exclusive(1))))
            await asyncio.sleep(0.05)
            assert await node.start(pod("web")) is None
            assert not hung.done(), "a pod without claim does not wait for the driver"
            refusal = await hung
            assert refusal is not None and refusal.retry
            refusal = await node.start(pod("next", exclusive(1)))
            assert refusal is not None and refusal.retry


async def test_a_late_answer_of_a_driver_that_is_well_is_no_illness(tmp_path: Path) -> None:
    """The pod is tried again, and nobody is told that the driver is away."""
    deadlines = Deadlines(call=0.2, health=60.0, probe_every=0.1, probe_sick_every=0.05)
    async with Node(tmp_path, laptop8(), deadlines=deadlines) as node:
        with driver_process(node, machine="laptop8") as driver:
            driver.rule({"method": ADMIT, "do": "hang"})
            await driver.up()
            refusal = await node.start(pod("wanted", exclusive(2)))
            assert refusal is not None and refusal.retry and "no answer in 0.2 s" in refusal.message
            assert not isinstance(node.manager.drivers.choose(DRIVER), str)
            assert node.events == [] and node.manager.down() == []


def crash_at(node: Node, wanted: str) -> Callable[[str], None]:
    def boundary(step: str) -> None:
        if step == wanted:
            node.boundary = lambda _step: None
            raise Crash(step)

    return boundary


STARTING = ["allocate main", "ledger", "update main", "sandbox", "create main", "add main", "start main"]


@pytest.mark.parametrize("step", STARTING)
async def test_an_agent_that_dies_while_a_pod_starts(tmp_path: Path, step: str) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            await driver.up()
            web, wanted = pod("web"), pod("wanted", exclusive(3))
            await node.start(web)
            node.boundary = crash_at(node, step)
            with pytest.raises(Crash):
                await node.start(wanted)
            await node.restart()
            await node.driver_up()
            node.validate()
            if wanted.uid not in node.pods:
                await node.until("nothing is left of it", lambda: node.available == cpus("0-7"))
                assert await node.admit(wanted) is None
            [(ref, _)] = wanted.containers()
            assert await node.run(wanted, ref) is None
            mine = laptop8().touched_cores(node.cpus(wanted))
            assert len(node.cpus(wanted)) == 3 and node.cpus(web) == cpus("0-7") - mine
            await node.stop(wanted)
            assert node.available == node.cpus(web) == cpus("0-7") and not node.manager.store.departures
            node.validate()


@pytest.mark.parametrize("step", ["stop", "release", "forget", "update main"])
async def test_an_agent_that_dies_while_a_pod_ends(tmp_path: Path, step: str) -> None:
    async with Node(tmp_path, laptop8()) as node:
        with driver_process(node, machine="laptop8") as driver:
            await driver.up()
            web, wanted = pod("web"), pod("wanted", exclusive(3))
            await node.start(web)
            await node.start(wanted)
            node.boundary = crash_at(node, step)
            with pytest.raises(Crash):
                await node.stop(wanted)
            await node.restart()
            await node.driver_up()
            await node.stop(wanted)
            await node.until("the driver heard", lambda: not node.manager.store.departures)
            await node.apply()
            assert node.available == node.cpus(web) == cpus("0-7")
            node.validate()


async def test_a_restart_gives_back_the_stored_sets_where_the_runtime_has_others(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        web, owner, shared = pod("web"), pod("owner", exclusive(2)), pod("shared", cores("2"))
        for each in (web, owner, shared):
            await node.start(each)
        before = {each.uid: node.cpus(each) for each in (web, owner, shared)}
        node.writes.clear()
        assert await node.restart() == [] and node.writes == [], "unchanged state makes no calls"
        for each, drift in ((web, "7"), (shared, "2,6")):
            await node.runtime.update_container_resources(
                cri.UpdateContainerResourcesRequest(
                    container_id=node.ids[each.uid, "main"], linux=cri.LinuxContainerResources(cpuset_cpus=drift)
                )
            )
        assert await node.restart() == []
        assert sorted(node.writes) == [(one.view.metadata.name, str(before[one.uid])) for one in (shared, web)]
        assert {each.uid: node.cpus(each) for each in (web, owner, shared)} == before
        node.writes.clear()
        await node.apply()
        assert node.writes == [], "unchanged state makes no calls"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format": "other", "data": 1}'])
async def test_a_damaged_store_falls_back_to_the_previous_one(tmp_path: Path, damage: bytes) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        owner = pod("owner", exclusive(2))
        await node.start(owner)
        await node.start(pod("web"))
        mine = node.cpus(owner)
        (tmp_path / "state" / FILE_NAME).write_bytes(damage)
        repaired = await node.restart()
        assert repaired[0] == f"{FILE_NAME}.damaged-1 was damaged and set aside"
        assert node.manager.store.entries[owner.uid, "main"].whole == mine
        node.validate()


async def test_a_damaged_store_is_taken_from_the_agents_ledger(tmp_path: Path) -> None:
    """The previous checkpoint lacks the last owner; the ledger does not."""
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        await node.start(pod("web"))
        owner = pod("owner", exclusive(2))
        assert await node.admit(owner) is None
        node.ledger = node.manager.save()
        (tmp_path / "state" / FILE_NAME).write_bytes(b"torn")
        await node.restart()
        assert node.available == cpus("2-7"), "the owner's cores are nobody else's"
        [(ref, _)] = owner.containers()
        await node.driver_up()
        assert await node.run(owner, ref) is None
        node.validate()


async def test_a_lost_store_knows_those_without_claims_by_that_alone(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        web = pod("web")
        await node.start(web)
        for file in (tmp_path / "state").iterdir():
            file.unlink()
        await node.restart()
        [(ref, _)] = web.containers()
        node.manager.store.remove_resource((web.uid, ref.name))
        assert node.manager.adopt(web, ref, LiveContainer(cpus="0-7"))
        assert node.manager.grant(ref) is not None, "whoever comes to own cores sees that it has to make room"


async def test_a_lost_store_is_rebuilt_from_what_containers_were_created_with(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        owner = pod("owner", exclusive(2))
        await node.start(owner)
        mine = node.cpus(owner)
        for file in (tmp_path / "state").iterdir():
            file.unlink()
        repaired = await node.restart()
        assert repaired == ["default/owner/main has claims and no stored CPUs: it must be admitted again"]
        [(ref, _)] = owner.containers()
        marks = node.runtime.core.containers[node.ids[owner.uid, "main"]].config.annotations
        assert node.manager.adopt(owner, ref, LiveContainer(dict(marks)))
        assert node.available == cpus("0-7") - mine
        assert not node.manager.adopt(owner, ref, LiveContainer()), "nothing can be learned from nothing"
        node.validate()


async def test_a_full_disk_refuses_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        owner = pod("owner", exclusive(2))
        node.manager.path = tmp_path / "nowhere" / FILE_NAME
        refusal = await node.start(owner)
        assert refusal is not None and (refusal.reason, refusal.retry) == ("CCIStateError", True)
        assert node.available == cpus("0-7") and not node.manager.store.entries
        node.manager.path = tmp_path / "state" / FILE_NAME
        assert await node.start(owner) is None
