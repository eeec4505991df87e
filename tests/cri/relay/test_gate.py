"""With the OCI hook in place a container never runs outside its class: its own first instruction says so."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from kubeqos.cri.client import CriClient
from kubeqos.cri.enforcing.host import Host
from kubeqos.cri.errors import CallError, Code
from kubeqos.cri.proto import cri_pb2 as cri
from kubeqos.cri.providers.catalog import LocalMachine
from kubeqos.cri.relay import hook
from kubeqos.cri.relay.gate import container_of, gate_path
from kubeqos.cri.relay.server import Relay, Settings
from kubeqos.errors import InputError
from tests.cri.containerd import Containerd, missing, running_containerd
from tests.cri.images import BUSYBOX_IMAGE
from tests.cri.providers.trees import TreeKernel, plant
from tests.cri.relay.processes import Pod, RelayProcess, connect, container_classes
from tests.cri.relay.test_containerd import disk_number, needs_disk
from tests.shared import cgroups

CLASSES = """
resources:
  rdt:
    provider: rdt
    config: {partitions: {all: {l3Allocation: "100%", classes: {gold: {}, silver: {l3Allocation: "50%"}}}}}
  blockio:
    provider: blockio
    config: {Classes: {slow: [{Devices: [/dev/vda], ThrottleReadBps: 1Mi}]}}
  cpu-class: {provider: cpu, classes: {background: {idle: true}}}
  ulimits: {provider: ulimits, classes: {few-files: {nofile: "64:128"}}}
"""
# Nothing runs before this shell, and it looks before it does anything else. In the host's process namespace $$ is the
# number that resctrl's tasks file has.
LOOK = (
    f"read idle < {cgroups.inside('cpu.idle')}; read rate < {cgroups.inside('io.read_bps')}; "
    'while read task; do [ "$task" = $$ ] && group=gold; done < /resctrl/kubeqos.gold/tasks; '
    'echo "idle=$idle rate=$rate group=$group files=$(ulimit -n)"; sleep 1000'
)


class World:
    """A containerd whose containers start from a spec with the hook, and a relay in front of it."""

    def __init__(self, runtime: Containerd, folder: Path, listen: Path) -> None:
        self.runtime = runtime
        self.folder = folder
        self.resctrl = plant("full", folder / "resctrl")
        self.kernel = TreeKernel(self.resctrl)
        config = folder / "classes.yaml"
        config.write_text(CLASSES)
        machine = LocalMachine(Host(), self.resctrl, self.kernel, mbps_mode=False)
        self.settings = Settings(listen, runtime.socket, config, folder / "state.json", machine)
        self.pod = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(name="web", namespace="default", uid=os.urandom(8).hex()),
            log_directory=str(folder),
            linux=cri.LinuxPodSandboxConfig(cgroup_parent=runtime.cgroup_parent),
        )
        options = self.pod.linux.security_context.namespace_options
        options.network = options.pid = cri.NODE

    async def start(self) -> None:
        self.relay = await Relay.start(self.settings)
        self.client = CriClient(f"unix://{self.settings.listen}")
        self.sandbox = await self.client.run_pod_sandbox(self.pod)

    async def stop(self) -> None:
        await self.client.stop_pod_sandbox(self.sandbox)
        await self.client.remove_pod_sandbox(self.sandbox)
        assert self.relay.keeper.table.validate() == []
        await self.client.close()
        await self.relay.close()

    async def created(self, client: CriClient, name: str, **classes: str) -> str:
        config = cri.ContainerConfig(
            metadata=cri.ContainerMetadata(name=name),
            image=cri.ImageSpec(image=BUSYBOX_IMAGE),
            command=["sh", "-c", LOOK],
            log_path=f"{name}.log",
            mounts=[cri.Mount(container_path="/resctrl", host_path=str(self.resctrl))],
            qos_resources=container_classes(**classes),
        )
        config.linux.security_context.namespace_options.pid = cri.NODE
        return await client.create_container(self.sandbox, config, self.pod)

    async def said(self, name: str) -> str:
        """The first line that the container wrote."""
        log = self.folder / f"{name}.log"
        async with asyncio.timeout(60):
            while not (log.exists() and log.read_text().endswith("\n")):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return log.read_text().splitlines()[0].split(" ", 3)[3]


@pytest.fixture(scope="module")
def hooked() -> Iterator[tuple[Containerd, Path]]:
    """One containerd with the hook, made as a user makes it; the relays of the tests listen where the hook looks."""
    reason = missing()
    if reason:
        pytest.skip(f"real containerd: {reason}")
    with tempfile.TemporaryDirectory(prefix="kq-") as name:
        listen = Path(name) / "cri.sock"
        plain = subprocess.run(["ctr", "oci", "spec"], capture_output=True, check=True).stdout
        spec = Path(name) / "base.json"
        command = [sys.executable, "-m", "kubeqos.cli.main", "relay-hook", "--listen", f"unix://{listen}"]
        spec.write_bytes(subprocess.run(command, input=plain, capture_output=True, check=True).stdout)
        with running_containerd(Path(tempfile.mkdtemp(prefix="kubeqos-")), spec) as runtime:
            yield runtime, listen


@pytest.fixture
async def world(hooked: tuple[Containerd, Path], folder: Path) -> AsyncIterator[World]:
    world = World(*hooked[:1], folder, hooked[1])
    await world.start()
    yield world
    await world.stop()


pytestmark = pytest.mark.containerd


@needs_disk
@pytest.mark.proves("class-changes", "class-ulimits")
async def test_the_first_instruction_of_a_container_is_in_every_class(world: World):
    classes = {"rdt": "gold", "blockio": "slow", "cpu_class": "background", "ulimits": "few-files"}
    for number in range(5):
        container = await world.created(world.client, f"c{number}", **classes)
        await world.client.start_container(container)
        expected = f"idle=1 rate={disk_number()} {1 << 20} group=gold files=64"
        assert await world.said(f"c{number}") == expected
        await world.client.stop_container(container)
        await world.client.remove_container(container)


async def test_a_command_executed_in_a_container_is_brought_into_its_class(world: World):
    """Its parent is the runtime, not the container, so that it inherits no group."""
    container = await world.created(world.client, "x", rdt="gold")
    await world.client.start_container(container)
    answer = await world.client.exec_sync(container, ["sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"])
    task = answer.stdout.decode().strip()
    counter = world.resctrl / f"kubeqos.gold/mon_groups/kubeqos.{container}/tasks"
    async with asyncio.timeout(60):
        while task not in counter.read_text().split():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert task in (world.resctrl / "kubeqos.gold/tasks").read_text().split()


async def test_a_container_whose_class_fails_never_runs(world: World):
    container = await world.created(world.client, "c", rdt="gold")
    world.kernel.rmdir(world.resctrl / "kubeqos.gold")
    with pytest.raises(CallError) as caught:
        await world.client.start_container(container)
    assert caught.value.code is Code.INTERNAL
    assert "rdt: cannot write" in caught.value.details and "kubeqos.gold/tasks" in caught.value.details
    assert not (world.folder / "c.log").exists() or not (world.folder / "c.log").read_text()
    status = (await world.client.container_status(container)).status
    assert status.state == cri.CONTAINER_EXITED
    await world.client.remove_container(container)
    assert world.relay.keeper.holders.used("rdt", "gold") == 0


async def test_who_has_no_class_is_let_through(world: World):
    async with CriClient(world.runtime.endpoint) as direct:
        container = await world.created(direct, "d")
        await direct.start_container(container)
        assert (await world.said("d")).startswith("idle=0 rate= group= ")


async def test_without_the_relay_nothing_starts_and_the_runtime_says_why(world: World):
    container = await world.created(world.client, "e", rdt="gold")
    for server in world.relay._servers:
        server.close()
    async with CriClient(world.runtime.endpoint) as direct:
        with pytest.raises(CallError) as caught:
            await direct.start_container(container)
    assert f"kubeqos relay does not answer at {gate_path(world.settings.listen)}" in caught.value.details


async def test_a_restarted_relay_knows_whom_to_hold_back(world: World):
    """The container was created through one relay and is started while another is in its place."""
    container = await world.created(world.client, "f", rdt="gold")
    await world.client.close()
    await world.relay.close()
    world.relay = await Relay.start(world.settings)
    world.client = CriClient(f"unix://{world.settings.listen}")
    await world.client.start_container(container)
    assert "group=gold" in await world.said("f")


@needs_disk
def test_the_relay_as_a_process_opens_its_gate(hooked: tuple[Containerd, Path], folder: Path):
    runtime, listen = hooked
    relay = RelayProcess(folder, runtime.socket)
    relay.socket = listen
    relay.arguments = ["--require-hook"]
    relay.start()
    try:
        with connect(listen) as stub, Pod(stub, runtime.cgroup_parent) as pod:
            pod.config.log_directory = str(folder)
            look = f"read rate < {cgroups.inside('io.read_bps')}; echo $rate; ulimit -n; sleep 1000"
            classes = container_classes(blockio="slow", ulimits="few-files")
            container = pod.create_with("main", classes, command=("sh", "-c", look), log_path="main.log")
            pod.start(container)
            log = folder / "main.log"
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and len(log.read_text().splitlines()) < 2:
                time.sleep(0.02)
            assert [line.split(" ", 3)[3] for line in log.read_text().splitlines()] == [
                f"{disk_number()} {1 << 20}",
                "64",
            ]
    finally:
        relay.stop()


def test_no_container_ever_ran_outside_its_class_whatever_became_of_the_relay(
    hooked: tuple[Containerd, Path], folder: Path
):
    """The relay is killed and started again while containers start; each that ran says in which limits."""
    runtime, listen = hooked
    relay = RelayProcess(folder, runtime.socket)
    relay.socket = listen
    relay.start()
    stop = threading.Event()
    started: list[str] = []

    def start_until_told(pod: Pod, worker: int) -> None:
        for number in itertools.count():
            name = f"c{worker}-{number}"
            if stop.is_set():
                return
            try:
                classes = container_classes(ulimits="few-files")
                look = ("sh", "-c", "ulimit -n; sleep 1000")
                pod.start(pod.create_with(name, classes, command=look, log_path=f"{name}.log"))
                started.append(name)
            except grpc.RpcError:
                time.sleep(0.05)  # cut off by the crash

    try:
        with connect(runtime.socket) as direct, Pod(direct, runtime.cgroup_parent) as pod, connect(listen) as stub:
            pod.config.log_directory = str(folder)
            through = pod.through(stub)
            workers = [threading.Thread(target=start_until_told, args=(through, number)) for number in range(2)]
            for worker in workers:
                worker.start()
            for _ in range(3):
                time.sleep(1.0)
                relay.kill()
                relay.start()
            enough = len(started) + 2
            deadline = time.monotonic() + 60
            while len(started) < enough and time.monotonic() < deadline:
                time.sleep(0.05)
            stop.set()
            for worker in workers:
                worker.join()
            logs = [folder / f"{name}.log" for name in started]
            while not all(log.read_text() for log in logs) and time.monotonic() < deadline:
                time.sleep(0.05)
            said = {log.name: log.read_text().splitlines() for log in folder.glob("c*.log") if log.read_text()}
            assert {line.split(" ", 3)[3] for lines in said.values() for line in lines} == {"64"}
            assert {f"{name}.log" for name in started} <= set(said) and len(started) >= 3
            remove_what_was_cut_off(runtime)
    finally:
        relay.stop()
        remove_empty_groups(runtime)


def remove_what_was_cut_off(runtime: Containerd) -> None:
    """containerd 1.6 forgets a task that it made for a StartContainer that was then cut off, and never starts it."""
    ctr = ["ctr", "--address", str(runtime.socket), "--namespace", "k8s.io", "tasks"]
    for line in subprocess.run([*ctr, "ls"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]:
        identity, _, state = line.split()
        if state == "CREATED":
            subprocess.run([*ctr, "delete", "--force", identity], capture_output=True, check=True)


def remove_empty_groups(runtime: Containerd) -> None:
    """A runc that was ended in the middle of its work leaves the groups that it had made."""
    for group in cgroups.below(runtime.cgroup_parent):
        if not (group / "cgroup.procs").read_text():
            group.rmdir()


def test_the_hook_adds_itself_and_nothing_else_to_the_spec():
    command = [sys.executable, "-m", "kubeqos.cli.main", "relay-hook", "--listen", "unix:///run/q.sock"]
    spec = {"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}], "cwd": "/"}, "linux": {}, "x": 1}
    done = subprocess.run(command, input=json.dumps(spec).encode(), capture_output=True, check=True)
    made = json.loads(done.stdout)
    (ours,) = made.pop("hooks")["createRuntime"]
    assert made == {"process": {"cwd": "/"}, "linux": {}, "x": 1}
    assert ours["args"][-1] == "/run/q.sock.gate"
    crio = json.loads(subprocess.run([*command, "--for", "cri-o"], capture_output=True, check=True).stdout)
    assert (crio["hook"], crio["stages"], crio["when"]) == (ours, ["createRuntime"], {"always": True})
    bad = subprocess.run(command, input=b"[]", capture_output=True, check=False, text=False)
    assert bad.returncode == 1 and b"ctr oci spec" in bad.stderr and b"Traceback" not in bad.stderr


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b"pass", 0, ""),
        (b"rdt: cannot write '7'", 1, "rdt: cannot write '7'"),
        (b"", 1, "went away"),
        (None, 1, "does not answer"),
    ],
)
def test_the_hook_passes_only_when_the_relay_says_so(folder: Path, answer: bytes | None, code: int, said: str):
    path, state = folder / "cri.sock.gate", b'{"id": "abc", "pid": 7}'
    heard: list[bytes] = []

    def relay(listener: socket.socket, answer: bytes) -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(b"".join(iter(lambda: connection.recv(100), b"")))
            connection.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listener:
        if answer is not None:
            listener.bind(str(path))
            listener.listen()
            threading.Thread(target=relay, args=(listener, answer), daemon=True).start()
        done = subprocess.run([sys.executable, "-I", "-S", hook.__file__, str(path)], input=state, capture_output=True)
    assert (done.returncode, heard) == (code, [state] if answer is not None else [])
    assert said in done.stderr.decode() and "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize("state", [b"", b"[]", b'{"id": "a"}', b'{"id": "a", "pid": "x"}'])
def test_what_is_no_state_is_refused(state: bytes):
    with pytest.raises(InputError, match="not given the state of a container"):
        container_of(state)
