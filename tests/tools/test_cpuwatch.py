"""The watcher of cpusets sees what is wrong and nothing else, knowing only CRI and cgroups."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.cpuwatch import Container, Node, judge, parse_cpus, write_cpus

from kubeqos.cri.client import CriClient
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.runtime import Runtime
from kubeqos.cri.server import serving
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import kep80
from kubeqos.model.hardware.sysfs import read_machine
from tests.cri.containerd import Containerd, missing, running_containerd
from tests.cri.pods import container, pod
from tests.shared import cgroups
from tools import cpuwatch

PROGRAM = Path(cpuwatch.__file__)
CORES = [parse_cpus(f"{core},{core + 4}") for core in range(4)]


def one(name: str, cpus: str, owns: int = 0, *, full: bool = False) -> Container:
    return Container(name, name, "main", parse_cpus(cpus), owns, full)


@pytest.mark.parametrize(
    ("running", "wrong"),
    [
        ([one("a", "0-1", 2), one("b", "2-7")], []),
        ([one("a", "0-1", 2), one("b", "1-7")], ["a/main was promised 2 of 0-1, but beside it runs b/main on 1-7"]),
        ([one("a", "0-1", 2), one("b", "")], ["a/main was promised 2 of 0-1, but beside it runs b/main anywhere"]),
        ([one("a", "", 2)], ["a/main was promised 2 CPUs and may run anywhere"]),
        ([one("a", "0-3", 2), one("b", "2-3")], []),
        ([one("a", "0-3", 3), one("b", "2-3")], ["a/main was promised 3 of 0-3, but beside it runs b/main on 2-3"]),
        ([one("a", "0", 1), one("b", "4")], []),
        ([one("a", "0", 1, full=True), one("b", "1-3,5-7")], []),
        ([one("a", "0", 1, full=True), one("b", "4")], ["a/main was promised 1 of 0, but beside it runs b/main on 4"]),
    ],
    ids=["apart", "one shared", "anywhere", "unpinned", "mixed", "too few", "sibling", "full", "sibling of full"],
)
def test_what_is_a_violation(running: list[Container], wrong: list[str]) -> None:
    assert [str(found) for found in judge(running, CORES)] == wrong


@given(st.frozensets(st.integers(0, 200)))
def test_sets_are_read_and_written_as_the_kernel_does(ids: frozenset[int]) -> None:
    written = write_cpus(sum(1 << cpu for cpu in ids))
    assert written == str(CpuSet.from_ids(ids)) and parse_cpus(written) == CpuSet.from_ids(ids).mask


async def start(runtime: Runtime, name: str, cpus: str, promise: str = "") -> str:
    labels = {f"{cpuwatch.LABEL}main": promise} if promise else {}
    sandbox = pod(name, labels=labels, cgroup_parent=f"/kubepods/pod-{name}")
    sandbox_id = await runtime.run_pod_sandbox(sandbox)
    made = await runtime.create_container(sandbox_id, container(cpuset_cpus=cpus), sandbox)
    await runtime.start_container(made)
    return made


@pytest.fixture
async def simulated(short_path: Path) -> AsyncIterator[tuple[SimulatedRuntime, Path]]:
    runtime = SimulatedRuntime(kep80(), logs=False, cgroup_root=short_path / "cgroup")
    async with serving(runtime, f"unix://{short_path}/cri.sock"):
        yield runtime, short_path
    await runtime.close()


def watched(path: Path, *more: str, node: str = "") -> tuple[int, Any]:
    """Run the program as a stranger would: its own interpreter, no packages, no environment."""
    words = [
        sys.executable,
        "-I",
        "-S",
        str(PROGRAM),
        "--node",
        node or f"n={path}/cri.sock",
        "--seconds",
        "0.5",
        *more,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={})
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)["n"]


async def seen(path: Path, *more: str, **where: str) -> tuple[int, Any]:
    """Watch beside the event loop that the runtime lives in."""
    return await asyncio.to_thread(watched, path, *more, **where)


@pytest.mark.parametrize("tree", [False, True], ids=["socket", "cgroups"])
async def test_a_stranger_watches_a_runtime(simulated: tuple[SimulatedRuntime, Path], tree: bool) -> None:
    runtime, path = simulated
    node = f"n={path}/cri.sock" + (f",{path}/cgroup" if tree else "")
    for number in range(70):  # more than travel at once
        await start(runtime, f"web{number}", "10-79")
    await start(runtime, "owner", "2-5", "4")
    code, report = await seen(path, node=node)
    assert (code, report["violations"], report["containers"], report["owners"]) == (0, [], 71, 1)
    assert report["samples"] and report["runtimeUnreachable"] == 0
    await start(runtime, "thief", "5-9")
    code, report = await seen(path, node=node)
    assert code == 1 and len(report["violations"]) == 1
    assert report["violations"][0].startswith("owner/main was promised 4 of 2-5, but beside it runs thief/main on 5-9")


async def test_threads_of_one_core_are_told_apart_by_their_list(simulated: tuple[SimulatedRuntime, Path]) -> None:
    runtime, path = simulated
    await start(runtime, "owner", "2-3", "2.full")
    await start(runtime, "neighbour", "42")
    assert (await seen(path))[0] == 0
    code, report = await seen(path, "--cores", "n=2,42;3,43")
    assert code == 1 and len(report["violations"]) == 1


async def test_who_has_ended_shares_nothing(simulated: tuple[SimulatedRuntime, Path]) -> None:
    runtime, path = simulated
    await start(runtime, "owner", "2-3", "2")
    thief = await start(runtime, "thief", "2")
    await runtime.stop_container(thief)
    assert (await seen(path))[0] == 0


class Moving(Node):
    """A node whose sets move between two readings of one sample: nothing of that was ever true at once."""

    def __init__(self, readings: list[list[Container]]) -> None:
        super().__init__("n", "nowhere")
        self.readings = readings

    def running(self) -> list[Container]:
        return self.readings.pop(0)

    def again(self, known: Container) -> Container | None:
        return next((now for now in self.readings.pop(0) if now.id == known.id), None)


def test_what_moved_while_it_was_read_is_no_violation() -> None:
    owner, away, back = one("a", "0-1", 2), one("b", "2-3"), one("b", "1-3")
    node = Moving([[owner, back], [owner, away], [owner, away], [owner, away]])
    node.look()
    assert node.report.violations == {}
    gone = Moving([[owner, back], [owner], [owner], [owner]])
    gone.look()
    assert gone.report.violations == {}
    real = Moving([[owner, back], [owner, back], [owner, back], [owner, back]])
    real.look()
    assert len(real.report.violations) == 1


def test_a_runtime_that_is_away_is_told_and_asked_again(tmp_path: Path) -> None:
    node, ended = Node("n", str(tmp_path / "nothing.sock")), threading.Event()
    watching = threading.Thread(target=node.watch, args=(ended, 0.01))
    watching.start()
    while node.report.unreachable < 3:
        pass
    ended.set()
    watching.join()
    assert node.report.samples == 0


@pytest.fixture
def containerd() -> Any:
    if reason := missing():
        pytest.skip(f"real containerd: {reason}")
    with running_containerd(Path(tempfile.mkdtemp(prefix="kubeqos-"))) as runtime:
        yield runtime
        runtime.remove_pods()
        cgroups.remove(f"{runtime.cgroup_parent}/kubepods")  # the runtime makes pods' groups and leaves the empty ones


@pytest.mark.containerd
async def test_a_stranger_watches_the_kernel(containerd: Containerd) -> None:
    """Real containers: the set that counts is the one in /sys/fs/cgroup."""
    online = read_machine(Path("/sys"), name="local").online
    first, last = str(min(online)), str(max(online))
    if first == last:
        pytest.skip("needs two CPUs")
    endpoint = containerd.endpoint.removeprefix("unix://")
    async with CriClient(containerd.endpoint) as runtime:

        async def run(name: str, cpus: str, promise: str = "") -> None:
            labels = {f"{cpuwatch.LABEL}main": promise} if promise else {}
            sandbox = pod(
                name, labels=labels, cgroup_parent=f"{containerd.cgroup_parent}/kubepods/{name}", host_network=True
            )
            sandbox_id = await runtime.run_pod_sandbox(sandbox)
            config: cri.ContainerConfig = container(command=["sleep", "1000"], cpuset_cpus=cpus)
            await runtime.start_container(await runtime.create_container(sandbox_id, config, sandbox))

        await run("owner", first, "1")
        await run("web", last)
        node = f"n={endpoint},/sys/fs/cgroup"
        code, report = await seen(Path(), node=node)
        assert (code, report["containers"], report["owners"]) == (0, 2, 1), report
        await run("thief", first)
        code, report = await seen(Path(), node=node)
        assert (
            code == 1 and f"promised 1 of {first}, but beside it runs thief/main on {first}" in report["violations"][0]
        )
