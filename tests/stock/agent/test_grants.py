"""What managers grant beside CPUs, through NRI: variables, mounts, devices and files of cgroup v2.

Once in NRI's own messages, as a runtime reads them, and once in a container of a real containerd 2.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from kubeqos.cri.enforcing.host import V1, V2, Host
from kubeqos.cri.providers.catalog import Catalog
from kubeqos.cri.providers.protocol import Advertisement, ClassInfo, ClassProvider, Edit, Level, Subject
from kubeqos.nri.link import NriCallError
from kubeqos.nri.plugin import connect, serve
from kubeqos.nri.proto import nri_pb2 as nri
from kubeqos.plugins.managers import DeviceNode, Grant, Mount
from kubeqos.stock.agent.hooks import ClassHooks
from kubeqos.stock.cores.keeper import CoreKeeper
from tests.cri.relay.processes import Pod
from tests.cri.relay.processes import connect as dial
from tests.nri.runtime import Runtime
from tests.shared import cgroups
from tests.stock.containerd2 import PROGRAMS, running_containerd2
from tests.stock.needs import needs_stock

in_stock, where_built = needs_stock(*PROGRAMS, root=True)
MOUNTS = (Mount("/etc/tuned", "/tmp", read_only=True), Mount("/scratch", "/var/tmp"))
GRANT = Grant(
    {"cpuset_cpus": "0"},
    unified={"memory.high": "1048576"},
    envs={"CORES": "0", "FREQUENCY": "3.1"},
    annotations={"example.com/tuned": "yes"},
    mounts=MOUNTS,
    devices=(DeviceNode("/dev/zeroes", "/dev/zero"),),
)


class Granting:
    """Stands for the keeper of cores: everybody gets the same."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def synchronize(self, _found: Sequence[Any]) -> None: ...

    async def create(self, _pod: Any, _container: Any) -> Grant:
        return self._grant

    async def start(self, _pod: Any, _container: Any) -> None: ...

    def started(self, _pod: Any, _container: Any) -> None: ...

    def ended(self, _id: str) -> None: ...


class Swapping(ClassProvider):
    """A class that is a file of cgroup v2, set by the runtime."""

    async def apply(self, subject: Subject, resource: str, class_name: str) -> Edit:
        return Edit(unified={"memory.swap.max": "0"})


OFFER = Advertisement("swap", Level.CONTAINER, True, (ClassInfo("none"),))
SWAP = Catalog({"swap": OFFER}, {"swap": Swapping()})
NOTHING = Catalog({}, {})


def hooks_with(grant: Grant, host: Host, catalog: Catalog = NOTHING) -> ClassHooks:
    return ClassHooks(catalog, host, lambda *_: None, lambda: None, cast(CoreKeeper, Granting(grant)))


@asynccontextmanager
async def told(hooks: ClassHooks, socket: Path) -> AsyncIterator[Runtime]:
    """A runtime that our plugin has joined."""
    async with Runtime(socket) as runtime:
        link = await connect(hooks, socket)
        await runtime.call("Configure", nri.ConfigureRequest(NRI_version="v0.12.2"))
        await runtime.call("Synchronize", nri.SynchronizeRequest())
        yield runtime
        link.close()


def asking(name: str, **annotations: str) -> nri.CreateContainerRequest:
    pod = nri.PodSandbox(id="s", name="web", uid="u", namespace="team", annotations=annotations)
    return nri.CreateContainerRequest(pod=pod, container=nri.Container(id=name, pod_sandbox_id="s", name="main"))


async def test_all_that_is_granted_is_in_the_answer_to_the_runtime(short_path: Path) -> None:
    hooks = hooks_with(GRANT, Host(short_path, version=V2))
    async with told(hooks, short_path / "nri.sock") as runtime:
        adjust = (await runtime.call("CreateContainer", asking("c1"))).adjust
    assert {one.key: one.value for one in adjust.env} == GRANT.envs
    assert [(one.destination, one.source, one.type, list(one.options)) for one in adjust.mounts] == [
        ("/etc/tuned", "/tmp", "bind", ["rbind", "ro"]),
        ("/scratch", "/var/tmp", "bind", ["rbind", "rw"]),
    ]
    [device] = adjust.linux.devices
    zero = os.stat("/dev/zero").st_rdev
    assert (device.path, device.type) == ("/dev/zeroes", "c")
    assert (device.major, device.minor) == (os.major(zero), os.minor(zero))
    assert dict(adjust.linux.resources.unified) == GRANT.unified
    assert adjust.linux.resources.cpu.cpus == "0"
    assert adjust.annotations["example.com/tuned"] == "yes"


async def test_files_of_cgroup_v2_are_for_machines_that_have_them(short_path: Path) -> None:
    async with told(hooks_with(GRANT, Host(short_path, version=V1)), short_path / "nri.sock") as runtime:
        adjust = (await runtime.call("CreateContainer", asking("c1"))).adjust
    assert not adjust.linux.resources.unified and adjust.linux.resources.cpu.cpus == "0"


async def test_files_that_a_class_sets_stand_beside_those_that_are_granted(short_path: Path) -> None:
    hooks = hooks_with(GRANT, Host(short_path, version=V2), SWAP)
    async with told(hooks, short_path / "nri.sock") as runtime:
        request = asking("c1", **{"qos.kubeqos.io/container.main": "swap=none"})
        adjust = (await runtime.call("CreateContainer", request)).adjust
    assert dict(adjust.linux.resources.unified) == {"memory.high": "1048576", "memory.swap.max": "0"}


async def test_a_device_that_is_not_there_fails_the_container_in_words(short_path: Path) -> None:
    grant = Grant(devices=(DeviceNode("/dev/x", "/dev/there-is-none"),))
    async with told(hooks_with(grant, Host(short_path, version=V2)), short_path / "nri.sock") as runtime:
        with pytest.raises(NriCallError, match="/dev/there-is-none, which is not there"):
            await runtime.call("CreateContainer", asking("c1"))


@in_stock
@where_built
async def test_a_process_finds_what_its_container_was_granted(tmp_path: Path) -> None:
    (tmp_path / "profile").write_text("fast")
    grant = Grant(
        envs=GRANT.envs,
        mounts=(Mount("/etc/tuned", str(tmp_path), read_only=True),),
        devices=(DeviceNode("/dev/zeroes", "/dev/zero"),),
    )
    hooks = hooks_with(grant, Host())
    with running_containerd2(Path(tempfile.mkdtemp(prefix="kq-"))) as runtime, dial(runtime.socket) as stub:
        task = asyncio.create_task(serve(hooks, runtime.nri))
        try:
            async with asyncio.timeout(60):
                await hooks.synchronized.wait()
            pod = Pod(stub, runtime.cgroup_parent)
            await asyncio.to_thread(pod.run)
            try:
                one = await asyncio.to_thread(pod.start, await asyncio.to_thread(pod.create, "main"))
                folder = cgroups.folders(f"{runtime.cgroup_parent}/{one}")[0]
                look_inside(int((folder / "cgroup.procs").read_text().split()[0]))
            finally:
                await asyncio.to_thread(pod.__exit__)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def look_inside(pid: int) -> None:
    """What the first process of the container has."""
    process = Path(f"/proc/{pid}")
    said = process.joinpath("environ").read_bytes().split(b"\0")
    assert {b"CORES=0", b"FREQUENCY=3.1"} <= set(said)
    assert (process / "root/etc/tuned/profile").read_text() == "fast"
    [mounted] = [line.split() for line in (process / "mountinfo").read_text().splitlines() if " /etc/tuned " in line]
    assert "ro" in mounted[5].split(",")
    device = os.stat(process / "root/dev/zeroes")
    assert stat.S_ISCHR(device.st_mode) and device.st_rdev == os.stat("/dev/zero").st_rdev
    with (process / "root/dev/zeroes").open("rb") as file:
        assert file.read(4) == bytes(4)
