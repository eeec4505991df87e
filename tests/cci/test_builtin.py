"""The built-in drivers, the factory's skeleton, and the conformance checks that judge them all."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeqos.cci.builtin.hpc import Hpc
from kubeqos.cci.builtin.power import Power
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.builtin.scripted import Scripted
from kubeqos.cci.kit.conformance import CHECKS, examine
from kubeqos.cci.kit.hardchecks import KILLED
from kubeqos.cci.proto import cci_pb2 as pb
from kubeqos.cci.sdk import Ask, Cores, Driver, End, Refuse, Servicer, Start, running
from kubeqos.cli.extend.cci import command as cci
from kubeqos.model.cpuset import NO_NUMA, CpuSet
from kubeqos.model.hardware.named import MACHINES, big384, hybrid20, kep80, laptop8, split80
from kubeqos.model.machine import Machine
from kubeqos.topology.answers import Unsatisfiable
from kubeqos.topology.claims.choosing import WHOLE_NODES
from kubeqos.topology.claims.parameters import Parameters, parse
from tests.cci.world import DRIVER, KEP_CLAIM, Node, cores, cpus, exclusive, pod


@contextlib.asynccontextmanager
async def served(driver: Driver, folder: Path) -> AsyncIterator[Path]:
    async with running(driver, folder):
        socket = folder / f"{driver.name}.sock"
        while not socket.exists():  # noqa: ASYNC110 - the file system has no events
            await asyncio.sleep(0.01)
        yield socket


@pytest.fixture
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r")


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
async def test_the_reference_driver_conforms_on_every_machine(machine: object, sockets: Path) -> None:
    built: Machine = machine()  # type: ignore[operator]
    async with served(Reference(built), sockets) as socket:
        assert [one for one in await examine(socket, built) if one.problem] == []


@pytest.mark.parametrize("kind", [Power, Hpc])
async def test_the_other_drivers_conform(kind: type[Reference], sockets: Path) -> None:
    for machine in (kep80(), split80(), hybrid20()):
        async with served(kind(machine), sockets) as socket:
            assert [one for one in await examine(socket, machine) if one.problem] == []


class Liar(Driver):
    """Gives CPU 0 to everybody and never says no."""

    name = "liar.example.com"

    def admit(self, ask: Ask) -> list[set[int]]:
        return [{0} for _ in ask.groups]


async def test_conformance_finds_a_liar_out(sockets: Path) -> None:
    async with served(Liar(), sockets) as socket:
        failed = {one.check: one.problem for one in await examine(socket, kep80()) if one.problem}
    assert failed["stays inside the available CPUs"] == "CPUs 0 are not available"
    assert failed["refuses when nothing is available, in words"].startswith("admitted a core of none available")
    assert len(failed) < len(CHECKS)


class Broken(Reference):
    """The reference driver, each with one thing that it does wrong."""

    def __init__(self) -> None:
        super().__init__(kep80(), "broken.example.com")
        self.calls = 0
        self.seen: set[str] = set()


class Forgets(Broken):
    """Never gives back."""

    def admit(self, ask: Ask) -> Any:
        self.seen.add(f"{ask.claim_uid}")
        if len(self.seen) > 60:
            raise Refuse("all cores are taken")
        return super().admit(ask)


class SiblingBlind(Broken):
    """Right for one core, wrong for more: threads of one core where siblings are denied."""

    def admit(self, ask: Ask) -> Any:
        if any("CORE-SIBLING-DENIED" in one.attributes and one.least > 1 for one in ask.groups):
            return [set(sorted(ask.available)[: one.least * 2 : 2]) or {0} for one in ask.groups]
        return super().admit(ask)


class Packs(Broken):
    """Puts everything where there is most room, whatever memory attributes say."""

    def admit(self, ask: Ask) -> Any:
        free = sorted(ask.available)
        if ask.least > 2 and len(free) >= ask.least:
            return [{free.pop() for _ in range(one.least)} for one in ask.groups]
        return super().admit(ask)


class DeviceBlind(Broken):
    def admit(self, ask: Ask) -> Any:
        plain = dataclasses.replace(ask.parameters, device_numa=NO_NUMA)
        return super().admit(dataclasses.replace(ask, parameters=plain))


class OwnBooks(Broken):
    """Looks at the machine and not at what is available."""

    def admit(self, ask: Ask) -> Any:
        return super().admit(dataclasses.replace(ask, available=frozenset(self.machine.online)))


class Once(Broken):
    """Cannot be asked again."""

    def admit(self, ask: Ask) -> Any:
        if ask.claim_uid in self.seen:
            raise Refuse("I know this claim")
        self.seen.add(ask.claim_uid)
        return super().admit(ask)


class Wordless(Broken):
    def admit(self, ask: Ask) -> Any:
        try:
            return super().admit(ask)
        except Refuse:
            return pb.AdmitResponse(err=" ")


class Shouts(Broken):
    def admit(self, ask: Ask) -> Any:
        try:
            return super().admit(ask)
        except Refuse as error:
            return pb.AdmitResponse(err=str(error) + "!" * (5 << 20 >> 2))


class Breaks(Broken):
    """A refusal is a crash."""

    def admit(self, ask: Ask) -> Any:
        try:
            return super().admit(ask)
        except Refuse as error:
            raise RuntimeError("oops") from error


class Beyond(Broken):
    """Believes any offer."""

    def admit(self, ask: Ask) -> Any:
        if min(ask.available, default=0) > max(self.machine.online):
            return [set(sorted(ask.available)[: one.least]) for one in ask.groups]
        return super().admit(ask)


class Sickly(Broken):
    def health(self) -> str:
        return "tired"


class Impatient(Broken):
    """Will not remove what it was told about before a restart."""

    def remove(self, end: End) -> None:
        if end.container_id == "late":
            raise Refuse("never heard of it")


class Boasts(Broken):
    """Says that it keeps whole NUMA nodes, and does not."""

    way = WHOLE_NODES


class Odd(Broken):
    way = "by-the-moon"


BROKEN: list[tuple[type[Driver], str]] = [
    (Forgets, "gives back what was removed|honours every attribute with more than one core|hands out no CPU"),
    (SiblingBlind, "honours every attribute with more than one core"),
    (Packs, "honours every attribute with more than one core"),
    (DeviceBlind, "honours device attributes"),
    (OwnBooks, "two pods of two containers hold their own"),
    (Once, "admits the same container again, and forgets it once"),
    (Wordless, "refuses more cores than there are, in words"),
    (Shouts, "refuses more cores than there are, in words"),
    (Breaks, "refuses when nothing is available, in words"),
    (Beyond, "hands out no CPU that the machine does not have"),
    (Sickly, "is well"),
    (Impatient, "lives on when its manager restarts"),
    (Boasts, "chooses as it says"),
    (Odd, "chooses as it says"),
]


@pytest.mark.parametrize(("kind", "expected"), BROKEN, ids=[kind.__name__ for kind, _ in BROKEN])
async def test_conformance_finds_what_is_broken(kind: type[Driver], expected: str, sockets: Path) -> None:
    async with served(kind(), sockets) as socket:
        failed = {one.check for one in await examine(socket, kep80()) if one.problem}
    assert failed & set(expected.split("|")), failed
    assert len(failed) < len(CHECKS) // 2, failed


class FromAnywhere(Servicer):
    """A driver in another language: not even its messages are well-formed."""

    async def CCIAdmit(self, request: pb.AdmitRequest, context: Any) -> pb.AdmitResponse:
        CpuSet.parse(request.availableCpus)  # raises where it cannot be read, and gRPC says only that it failed
        return await super().CCIAdmit(request, context)


async def test_conformance_wants_words_for_nonsense(sockets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeqos.cci.sdk.Servicer", FromAnywhere)
    async with served(Reference(kep80()), sockets) as socket:
        failed = {one.check: one.problem for one in await examine(socket, kep80()) if one.problem}
    assert failed.keys() == {"refuses nonsense in words, and lives on"}
    assert "was answered by a failed call, not in words" in failed["refuses nonsense in words, and lives on"]


def test_power_takes_efficiency_cores_first_and_packs() -> None:
    driver = Power(hybrid20())
    chosen = driver.choose(hybrid20().online, _claim(exclusive(3)))
    assert not isinstance(chosen, Unsatisfiable) and chosen[0].cpus <= hybrid20().efficiency
    fast = driver.choose(
        hybrid20().online, _claim('{"cores":["2"],"cpu attributes":[["EXCLUSIVE","PERFORMANCE-CORE"]]}')
    )
    assert not isinstance(fast, Unsatisfiable) and fast[0].cpus <= hybrid20().performance
    many = driver.choose(hybrid20().online, _claim(exclusive(12)))
    assert not isinstance(many, Unsatisfiable) and len(many[0].cpus) == 12, "nine or more need fast cores too"


def _claim(text: str) -> Parameters:
    found = parse(text)
    assert isinstance(found, Parameters)
    return found


def ask(text: str, available: CpuSet, pod_name: str = "p") -> Ask:
    parameters = _claim(text)
    groups = tuple(Cores(group.least, group.most, group.exclusive, ()) for group in parameters.groups)
    return Ask(
        "default",
        f"uid-{pod_name}",
        "claim",
        pod_name,
        "main",
        frozenset(available),
        groups,
        "",
        frozenset(),
        parameters,
    )


def test_power_keeps_nodes_asleep_and_parks_what_no_claim_uses(tmp_path: Path) -> None:
    machine = kep80()
    for cpu in machine.online:
        folder = tmp_path / f"devices/system/cpu/cpu{cpu}/cpufreq"
        folder.mkdir(parents=True)
        (folder / "energy_performance_preference").write_text("default")
    driver = Power(machine, sysfs=tmp_path)
    [first] = driver.admit(ask(exclusive(4), machine.online, "a"))
    [second] = driver.admit(ask(exclusive(4), machine.online - first, "b"))
    assert machine.numa_of(first) == machine.numa_of(second), "the other node stays asleep"

    def preference(cpu: int) -> str:
        return (tmp_path / f"devices/system/cpu/cpu{cpu}/cpufreq/energy_performance_preference").read_text()

    assert {preference(cpu) for cpu in first | second} == {"balance_performance"}
    assert {preference(cpu) for cpu in driver.parked} == {"power"} and len(driver.parked) == 72
    driver.add(Start("a", "main", "id-a", "/pod"))
    driver.remove(End("default", "uid-a", "claim", "id-a"))
    assert {preference(cpu) for cpu in first} == {"power"}


def test_hpc_gives_whole_nodes_one_thread_per_core() -> None:
    machine = big384()
    driver = Hpc(machine)
    free = machine.online
    nodes = []
    for name in "abcdefgh":
        [mine] = driver.admit(ask(exclusive(4), free, name))
        assert len({machine.cpu(cpu).core for cpu in mine}) == 4, "no two threads of a core"
        nodes.append(machine.numa_of(mine))
        free -= mine
    assert len(set(nodes)) == 8, "each claim has a node of its own"
    answer = driver.choose(free, _claim(exclusive(4)))
    assert str(answer) == "whole NUMA nodes: nodes none are free, 4 cores wanted"
    driver.remove(End("default", "uid-c", "claim", ""))
    assert not isinstance(driver.choose(free, _claim(exclusive(4))), Unsatisfiable)


def test_hpc_takes_near_nodes_together() -> None:
    machine = big384()
    [mine] = Hpc(machine).admit(ask(exclusive(30), machine.online))
    nodes = list(machine.numa_of(mine))
    assert len(nodes) == 2 and machine.distance(*nodes) == 12, "two nodes of one socket"


async def test_the_drivers_serve_a_node(tmp_path: Path) -> None:
    for kind in (Power, Hpc):
        async with Node(tmp_path / kind.__name__) as node, node.driver(kind(kep80())) as driver:
            owner = pod("owner", KEP_CLAIM, driver=driver.name, **{"example.com/eth1": "1"})
            assert await node.start(owner) is None
            assert len(node.cpus(owner)) == 25
            mine = node.manager.store.entries[owner.uid, "main"].whole
            assert mine <= kep80().numa_cpus[1]
            await node.stop(owner)
            assert node.available == cpus("0-79")
            node.validate()


async def test_a_range_gets_as_much_as_there_is(tmp_path: Path) -> None:
    async with Node(tmp_path, laptop8()) as node, node.driver(Reference(laptop8())):
        wanted = pod("burst", cores("3-6", cpu=[["EXCLUSIVE"]]))
        assert await node.start(wanted) is None
        assert len(node.cpus(wanted)) == 6


def test_a_script_with_an_unknown_fault_says_so(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"do": "dance"}]')
    driver = Scripted(laptop8(), script)
    with pytest.raises(Exception, match="unknown fault 'dance'"):
        asyncio.run(driver.admit(ask(exclusive(1), cpus("0-7"))))


def test_new_writes_a_driver_that_passes_its_own_test(tmp_path: Path) -> None:
    made = CliRunner().invoke(cci, ["new", "fast.example.com", "--into", str(tmp_path / "fast")])
    assert made.exit_code == 0, made.output
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "fast")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    again = CliRunner().invoke(cci, ["new", "fast.example.com", "--into", str(tmp_path / "fast")])
    assert "exists already" in str(again.exception)


def test_check_reads_a_claim(tmp_path: Path) -> None:
    good = CliRunner().invoke(cci, ["check", "-"], input=KEP_CLAIM)
    assert good.exit_code == 0
    assert good.output.splitlines()[0] == (
        "group 0: 5 cores  EXCLUSIVE, CORE-SIBLING-PREFERRED, NUMA-MEM-AFFINITY-BIND-REQUIRED, "
        "NUMA-DEVICE-AFFINITY-REQUIRED"
    )
    assert good.output.splitlines()[-1] == "requests cpu: 25, limits cpu: 25"
    bad = CliRunner().invoke(cci, ["check", "-"], input='{"cores": ["x"]}')
    assert bad.exit_code == 1 and "cores[0]: expected a number of cores" in bad.output


async def test_conformance_by_command(sockets: Path) -> None:
    async with served(Reference(laptop8()), sockets) as socket:
        command = [sys.executable, "-m", "kubeqos.cli.main", "cci", "conformance", str(socket), "--machine", "laptop8"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert output.decode().splitlines()[-1] == f"{len(CHECKS)} of {len(CHECKS)} checks passed"


SHORT_MEMORY = """
import sys
from pathlib import Path
from kubeqos.cci.builtin.reference import Reference
from kubeqos.cci.sdk import Refuse, serve
from kubeqos.model.hardware.named import laptop8

class Short(Reference):
    known = set()

    def admit(self, ask):
        self.known.add((ask.pod, ask.container))
        return super().admit(ask)

    def add(self, start):
        if (start.pod, start.container) not in self.known:
            raise Refuse("never heard of it")

serve(Short(laptop8(), "short.example.com"), Path(sys.argv[1]))
"""


def test_conformance_kills_the_driver_and_starts_it_again(sockets: Path) -> None:
    own = [sys.executable, "-m", "kubeqos.cli.main", "driver", "reference", "--machine", "laptop8"]
    own += ["--registry", str(sockets)]
    (sockets / "short.py").write_text(SHORT_MEMORY)
    forgets = [sys.executable, str(sockets / "short.py"), str(sockets)]
    for name, command, problem in (
        (DRIVER, own, ""),
        ("short.example.com", forgets, "refused to add, after it was killed, what it admitted before: never heard"),
    ):
        asked = ["conformance", str(sockets / f"{name}.sock"), "--machine", "laptop8", "--command", shlex.join(command)]
        done = CliRunner().invoke(cci, asked)
        assert (problem or f"ok      {KILLED}") in done.output, done.output
        assert done.exit_code == bool(problem), done.output


def test_conformance_says_what_is_wrong_with_a_command(sockets: Path) -> None:
    for command, problem in (
        ("/nowhere/driver", "cannot be started"),
        ("false", "ended with code 1 before it listened"),
    ):
        done = CliRunner().invoke(cci, ["conformance", str(sockets / "x.sock"), "--command", command])
        assert problem in str(done.exception)
