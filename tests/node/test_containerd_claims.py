"""Volume claims in real containers: what a container writes into one lies on the host, and the next pod finds it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.api import Api
from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS as CLAIMS
from kubeqos.client.resources import PERSISTENT_VOLUMES as VOLUMES
from kubeqos.client.resources import PODS
from kubeqos.cri.client import CriClient
from kubeqos.model.hardware.sysfs import read_machine
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from tests.cri.containerd import CGROUPS, Containerd
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, until

pytestmark = pytest.mark.containerd


async def together(api: Api, name: str, **source: Any) -> None:
    """A claim and its volume, as the volume controller leaves them."""
    asks: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    body = {"metadata": {"name": name}, "spec": {**asks, "resources": {"requests": {"storage": "1Gi"}}}}
    body["spec"]["volumeName"] = f"pv-{name}"
    made = await api.create(CLAIMS, body, "default")
    ref = {"namespace": "default", "name": name, "uid": made["metadata"]["uid"]}
    spec = {**asks, "capacity": {"storage": "1Gi"}, "claimRef": ref, **source}
    await api.create(VOLUMES, {"metadata": {"name": f"pv-{name}"}, "spec": spec})
    made["status"] = {"phase": "Bound"}
    await api.update(CLAIMS, made, subresource="status")


def mounting(name: str, script: str, **claims: bool) -> dict[str, Any]:
    """A pod that mounts claims by their name; a value says whether read-only."""
    mounts = [{"name": one, "mountPath": f"/{one}"} for one in claims]
    volumes = [
        {"name": one, "persistentVolumeClaim": {"claimName": one, "readOnly": only}} for one, only in claims.items()
    ]
    main = busybox("main", f"{script}; {SLEEP}", volumeMounts=mounts)
    return bound(name, main, volumes=volumes, hostNetwork=True, terminationGracePeriodSeconds=1)


@contextlib.asynccontextmanager
async def real_agent(containerd: Containerd, api: Api, folder: Path) -> AsyncIterator[NodeAgent]:
    """A node of this machine, with its pods from an API server."""
    own = NodeSettings(
        "n1", folder / "state", log_dir=folder / "logs", cgroup_root=containerd.cgroup_parent, cgroup_fs=CGROUPS
    )
    async with CriClient(containerd.endpoint, relist_seconds=0.1) as client:
        agent = NodeAgent(assemble(own, client, read_machine(Path("/sys"), name="n1"), Hosting(api)))
        task = asyncio.create_task(agent.run())
        try:
            await asyncio.wait_for(agent.ready.wait(), 60)
            yield agent
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert agent.cgroups is not None
            agent.cgroups.files.remove(f"{containerd.cgroup_parent}/kubepods")  # tiers outlive agents


async def test_what_a_pod_writes_into_its_claims_stays(containerd: Containerd, tmp_path: Path) -> None:
    disk, deep = tmp_path / "disk", tmp_path / "deep/made"
    disk.mkdir()
    selects = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    here = {"required": {"nodeSelectorTerms": [selects]}}
    async with ApiServer.start(Settings(tmp_path / "data", port=0, audit=False)) as server:
        api = server.local()
        await together(api, "made", hostPath={"path": str(deep)})
        await together(api, "disk", local={"path": str(disk)}, nodeAffinity=here)

        async def gone(name: str) -> None:
            await api.delete(PODS, name, "default")
            await until(f"{name} is gone", lambda: went(api, name))

        async with real_agent(containerd, api, tmp_path):
            await api.create(PODS, mounting("first", "echo a >/made/f; echo b >/disk/f", made=False, disk=False))
            await until("both are written", lambda: says(deep / "f", "a\n"))
            await until("both are written", lambda: says(disk / "f", "b\n"))
            await gone("first")
            tries = "cat /disk/f >/made/g; echo c >/disk/g || echo refused >>/made/g"
            await api.create(PODS, mounting("second", tries, made=False, disk=True))
            await until("the second has read it, and may not write", lambda: says(deep / "g", "b\nrefused\n"))
            await gone("second")
        assert [(deep / "f").read_text(), (disk / "f").read_text()] == ["a\n", "b\n"]


async def says(file: Path, text: str) -> bool:
    return file.exists() and file.read_text() == text


async def went(api: Api, name: str) -> bool:
    return await get_or_none(api, name) is None
