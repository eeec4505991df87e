"""Drivers come, are checked, fall ill, recover, read their state back and go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import grpc.aio

from kubeqos.cci.builtin.hpc import Hpc
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.drivers import METHODS, PLUGIN_TYPE, SERVICE, Drivers, negotiate
from kubeqos.cci.metrics import Metrics
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.sdk import Ask, Driver, Held, Refuse, Servicer, running
from kubeqos.model.annotations.topologysummary import Down
from kubeqos.model.hardware.named import kep80, laptop8
from kubeqos.plugins.registration import Introduction, Plugin, serve_registration
from kubeqos.plugins.sockets import services
from tests.cci.world import DRIVER, Node, cpus, exclusive, pod


def plugin(name: str = "a.example.com", versions: tuple[str, ...] = ("v1alpha1",)) -> Plugin:
    return Plugin("CCIDriver", name, Path("/x.sock"), versions, Path("/x.sock"))


def test_versions_are_negotiated() -> None:
    assert negotiate(("v2", "v1alpha1")) == "v1alpha1" and negotiate(("v2",)) is None
    assert Drivers(Metrics()).validate(plugin(versions=("v2",))) == (
        "driver a.example.com speaks versions v2, this node speaks v1alpha1"
    )
    assert "is not a driver's name" in str(Drivers(Metrics()).validate(plugin("Not A Name")))


async def test_one_driver_per_node_by_default(tmp_path: Path) -> None:
    async with Node(tmp_path) as node, node.driver(Reference(kep80())):
        assert node.manager.drivers.validate(plugin()) == (
            f"this node runs one compute driver and {DRIVER} is registered; "
            "stop it, or allow several with cciSeveralDrivers"
        )
        async with running(Reference(kep80(), "second.example.com"), node.registry):
            await asyncio.sleep(0.3)
            assert list(node.manager.drivers.table) == [DRIVER]


async def test_drivers_that_come_together_are_still_one(tmp_path: Path) -> None:
    """Both were looked at before either was taken."""
    async with Node(tmp_path) as node:
        names = "first.example.com", "second.example.com"
        async with contextlib.AsyncExitStack() as stack:
            for name in names:
                await stack.enter_async_context(running(Reference(kep80(), name), node.sockets / "elsewhere"))
            sockets = [node.sockets / "elsewhere" / f"{name}.sock" for name in names]
            await node.until("they listen", lambda: all(one.exists() for one in sockets))
            both = [Plugin("CCIDriver", n, s, ("v1alpha1",), s) for n, s in zip(names, sockets, strict=True)]
            drivers = node.manager.drivers
            assert [drivers.validate(one) for one in both] == [None, None]
            answers = await asyncio.gather(*(drivers.register(one) for one in both))
            assert sorted("runs one compute driver" in str(one) for one in answers) == [False, True]
            assert len(drivers.table) == 1


async def test_several_drivers_are_chosen_by_class(tmp_path: Path) -> None:
    async with (
        Node(tmp_path, several_drivers=True) as node,
        node.driver(Reference(kep80())),
        node.driver(Reference(kep80(), "second.example.com")),
    ):
        first, second = pod("first", exclusive(2)), pod("second", exclusive(2), driver="second.example.com")
        assert await node.start(first) is None and await node.start(second) is None
        assert [entry.holdings[0].driver for entry in node.manager.store.entries.values()] == [
            DRIVER,
            "second.example.com",
        ]
        assert sorted(node.manager.drivers.table) == [DRIVER, "second.example.com"]
        assert "this node runs several compute drivers" in str(node.manager.drivers.choose(""))


async def test_a_class_of_another_driver_finds_none(tmp_path: Path) -> None:
    async with Node(tmp_path) as node, node.driver(Reference(kep80())):
        refusal = await node.start(pod("lost", exclusive(1), driver="other.example.com"))
        assert refusal is not None
        assert refusal.message == "compute driver other.example.com is not registered on this node"


class Boasting(Reference):
    """Chooses in a way of its own."""

    way = "by-the-moon"


async def test_a_driver_says_how_it_chooses_whatever_it_is_called(tmp_path: Path) -> None:
    """What it says is published with what it gave; a way that nobody knows says nothing."""
    async with (
        Node(tmp_path, several_drivers=True) as node,
        node.driver(Hpc(kep80(), "mine.example.com")),
        node.driver(Boasting(kep80(), "other.example.com")),
    ):
        first, second = (pod(n, exclusive(2), driver=n) for n in ("mine.example.com", "other.example.com"))
        assert await node.start(first) is None and await node.start(second) is None
        told = node.manager.compute()
        assert told.ways == {"mine.example.com": "whole-numa-nodes"}
        givers = {uid: one.claims[0].driver for uid, (one,) in told.held.items()}
        assert givers == {first.uid: "mine.example.com", second.uid: ""}


class Moody(Reference):
    """Says how it feels."""

    trouble = ""

    def health(self) -> str:
        return self.trouble


async def test_a_driver_that_says_it_is_not_serving_is_not_called(tmp_path: Path) -> None:
    async with Node(tmp_path) as node:
        moody = Moody(kep80())
        async with node.driver(moody):
            moody.trouble = "no access to the cores"
            await node.driver_down()
            assert node.events == [("ComputeDriverUnavailable", f"{DRIVER}: it says: no access to the cores")]
            refusal = await node.start(pod("one", exclusive(1)))
            assert refusal is not None
            assert refusal.message == f"compute driver {DRIVER} is unhealthy: it says: no access to the cores"
            assert node.manager.conditions()["ComputeDriversReady"] == (
                "False",
                "ComputeDriverNotReady",
                f"driver {DRIVER} is unhealthy: it says: no access to the cores",
            )
            assert node.manager.down() == [Down(DRIVER, "it says: no access to the cores", driver=True)]
            moody.trouble = ""
            await node.driver_up()
            assert node.manager.down() == []
            assert await node.start(pod("two", exclusive(1))) is None


class Remembering(Driver):
    """Keeps what it was told at the last registration."""

    name = DRIVER

    def __init__(self) -> None:
        self.held: Sequence[Held] | None = None

    def restore(self, held: Sequence[Held]) -> None:
        self.held = held

    async def admit(self, ask: Ask) -> list[set[int]]:
        """The highest CPUs; an async method is as good as another."""
        await asyncio.sleep(0)
        free = sorted(ask.available, reverse=True)
        if len(free) < ask.least:
            raise Refuse("too few")
        return [{free.pop(0) for _ in range(group.least)} for group in ask.groups]


async def test_a_restarted_driver_reads_its_state_back(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node:
        first = Remembering()
        async with node.driver(first):
            await node.until("it was told", lambda: first.held is not None)
            assert first.held == []
            owner = pod("owner", exclusive(2))
            await node.start(owner)
            assert node.cpus(owner) == cpus("6-7")
        await node.driver_down()
        second = Remembering()
        async with node.driver(second):
            await node.until("it was told", lambda: second.held is not None)
            [held] = second.held or ()
            assert (held.pod, held.container, held.claim_uid) == (owner.uid, "main", f"{owner.uid}/compute")
            assert held.sets == (frozenset({6, 7}),) and held.exclusive == (True,)
            assert held.container_id == node.ids[owner.uid, "main"]
            await node.stop(owner)
            assert node.available == cpus("0-7")


async def test_an_agent_that_restarts_meets_its_driver_again(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node:
        driver = Remembering()
        async with node.driver(driver):
            owner = pod("owner", exclusive(2))
            await node.start(owner)
            driver.held = None
            await node.restart()
            await node.driver_up()
            await node.until("it was told", lambda: driver.held is not None)
            assert [held.pod for held in driver.held or ()] == [owner.uid]


class Broken(Driver):
    """Raises what no driver should."""

    name = DRIVER

    def admit(self, ask: Ask) -> list[set[int]]:
        raise ZeroDivisionError("oops")


async def test_a_bug_in_a_driver_is_its_own(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Broken()):
        refusal = await node.start(pod("victim", exclusive(1)))
        assert refusal is not None and "ZeroDivisionError" in refusal.message and refusal.retry
        assert node.available == cpus("0-7")


class Plain(Driver):
    """A driver as the proposal has it: one set and no other field, also for several groups."""

    name = DRIVER

    def admit(self, ask: Ask) -> pb.AdmitResponse:
        chosen = sorted(ask.available)[: ask.least]
        exclusive_too = ask.groups[0].exclusive
        return pb.AdmitResponse(rSet=pb.ResourceSet(cpuset=",".join(map(str, chosen)), exclusive=exclusive_too))


async def test_a_driver_without_the_added_field_serves_claims_of_one_sort(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Plain()):
        two = '{"cores": ["1", "2"], "cpu attributes": [["EXCLUSIVE"], ["EXCLUSIVE"]]}'
        assert await node.start(pod("both", two)) is None
        assert len(node.available) == 4
        mixed = '{"cores": ["1", "2"], "cpu attributes": [["EXCLUSIVE"], ["SHARED"]]}'
        refusal = await node.start(pod("mixed", mixed))
        assert refusal is not None and "a mixed answer needs AdmitResponse.sets" in refusal.message


def test_the_messages_are_the_proposals() -> None:
    """Field numbers and types of KEP-3675, and the one field that was added."""
    wanted = {
        "AdmitRequest": "namespace claim_uid claim_name availableCpus pod container resource_handle",
        "ResourceSet": "cpuset exclusive",
        "AdmitResponse": "rSet err sets",
        "AddResourceRequest": "cgroup pod container container_id",
        "AddResourceResponse": "err",
        "RemoveResourceRequest": "namespace claim_uid claim_name container_id",
        "RemoveResourceResponse": "err",
    }
    for name, fields in wanted.items():
        numbers = {field.name: field.number for field in pb.DESCRIPTOR.message_types_by_name[name].fields}
        assert numbers == {field: number for number, field in enumerate(fields.split(), 1)}
    request = pb.AdmitRequest(availableCpus="0-3", pod="p")
    assert request.SerializeToString() == b'"\x030-3*\x01p'
    methods = [method.name for method in pb.DESCRIPTOR.services_by_name["CCIDriver"].methods]
    assert methods == ["CCIAdmit", "CCIAddContainerResource", "CCIRemoveContainerResource"]


async def test_a_driver_without_health_service_is_well_while_it_answers(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node:
        servicer = Servicer(Reference(laptop8()), tmp_path / "nobody.sock")

        def install(server: grpc.aio.Server) -> None:
            server.add_generic_rpc_handlers((services(SERVICE, servicer, METHODS),))

        introduction = Introduction(PLUGIN_TYPE, DRIVER, ("v1alpha1",))
        async with serve_registration(node.registry / "plain.sock", introduction, install):
            await node.driver_up()
            assert await node.start(pod("owner", exclusive(1))) is None
