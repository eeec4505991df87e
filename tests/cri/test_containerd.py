"""The containerd of the tests leaves nothing behind, also when it is killed with pods running."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeqos.cri.client import CriClient
from kubeqos.cri.proto import cri_pb2 as cri
from tests.cri.containerd import Containerd, missing
from tests.cri.pods import container, pod
from tests.shared import cgroups

pytestmark = [pytest.mark.containerd, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture
def started() -> Iterator[Containerd]:
    if reason := missing():
        pytest.skip(f"real containerd: {reason}")
    runtime = Containerd(Path(tempfile.mkdtemp(prefix="kubeqos-")))
    try:
        runtime.start()
    except RuntimeError:
        runtime.stop()
        raise
    yield runtime
    assert not runtime.folder.exists(), "the test has stopped it"


async def run_a_pod(runtime: Containerd) -> None:
    async with CriClient(runtime.endpoint) as client:
        config = pod(cgroup_parent=runtime.cgroup_parent, host_network=True)
        sandbox = await client.run_pod_sandbox(config)
        identity = await client.create_container(sandbox, container(command=["sleep", "1000"]), config)
        await client.start_container(identity)


def shim_sockets(runtime: Containerd) -> list[Path]:
    files = runtime.folder.glob("state/io.containerd.runtime.v2.task/*/*/address")
    return [Path(file.read_text().strip().removeprefix("unix://")) for file in files]


def traces(runtime: Containerd) -> list[str]:
    """Processes, mounts and cgroups that mention this containerd."""
    found = [str(path) for path in cgroups.folders(runtime.cgroup_parent)]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if str(runtime.folder) in line]
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has ended
        if str(runtime.folder) in words:
            found.append(words)
    return found


async def test_stopping_it_removes_pods_processes_mounts_and_cgroups(started: Containerd) -> None:
    await run_a_pod(started)
    assert len(traces(started)) >= 3
    started.stop()
    assert traces(started) == []


async def test_after_a_crash_everything_is_removed_and_reported(started: Containerd) -> None:
    await run_a_pod(started)
    sockets = shim_sockets(started)
    assert all(path.is_socket() for path in sockets)
    started.crash()
    with pytest.raises(RuntimeError, match=r"containerd left behind: .*process"):
        started.stop()
    assert traces(started) == []
    assert sockets
    assert not any(path.exists() for path in sockets)


async def test_streams_are_opened_at_the_url_that_the_runtime_gives(containerd: Containerd) -> None:
    async with CriClient(containerd.endpoint) as client:
        config = pod(cgroup_parent=containerd.cgroup_parent, host_network=True)
        sandbox = await client.run_pod_sandbox(config)
        identity = await client.create_container(sandbox, container(command=["sleep", "1000"]), config)
        await client.start_container(identity)
        urls = [
            await client.exec_url(cri.ExecRequest(container_id=identity, cmd=["sh"], stdout=True)),
            await client.attach_url(cri.AttachRequest(container_id=identity, stdout=True)),
            await client.port_forward_url(cri.PortForwardRequest(pod_sandbox_id=sandbox, port=[80])),
        ]
        await client.remove_pod_sandbox(sandbox)
    assert [url.split("/")[3] for url in urls] == ["exec", "attach", "portforward"]
    assert all(url.startswith("http://127.0.0.1:") for url in urls)
