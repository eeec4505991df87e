"""Volume claims on a node: where each is on the machine, what cannot be mounted and why, and a pod with both kinds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeqos.apiserver.server import ApiServer, Settings
from kubeqos.client.resources import EVENTS, PODS
from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS as CLAIMS
from kubeqos.client.resources import PERSISTENT_VOLUMES as VOLUMES
from kubeqos.codec import decode_json
from kubeqos.controllers.manager import ControllerManager
from kubeqos.controllers.volumes.controller import VolumeBinder
from kubeqos.controllers.volumes.ephemeral import EphemeralVolumes
from kubeqos.cri.simulated import SimulatedRuntime
from kubeqos.model.hardware.named import laptop8
from kubeqos.node.agent import NodeAgent
from kubeqos.node.config.assembly import Hosting, assemble
from kubeqos.node.config.settings import NodeSettings
from kubeqos.node.cri.configs import container_config
from kubeqos.node.runtime.claimed import place_of
from kubeqos.node.runtime.volumes import HostPlace, MountProblem, write_all
from kubeqos.plugins.managers import AdmittedPod, Grant
from kubeqos.rules.storage import MountedClaim
from tests.node.pods import container, pod
from tests.node.runtime.test_volumes import context
from tests.node.test_live import bound, until

MOUNTED = MountedClaim("v", "c", False)
CLAIM = {"metadata": {"name": "c", "namespace": "default", "uid": "u-c"}, "spec": {"volumeName": "pv"}}
HERE = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["a"]}]}]}}


def volume(**spec: Any) -> dict[str, Any]:
    ref = {"namespace": "default", "name": "c", "uid": "u-c"}
    return {"metadata": {"name": "pv"}, "spec": {"claimRef": ref, "capacity": {"storage": "1Gi"}, **spec}}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"hostPath": {"path": "/data"}}, HostPlace(Path("/data"), "DirectoryOrCreate")),
        ({"hostPath": {"path": "/data", "type": "Directory"}}, HostPlace(Path("/data"), "Directory")),
        ({"local": {"path": "/disk"}, "nodeAffinity": HERE}, HostPlace(Path("/disk"), "Directory")),
    ],
)
def test_where_a_claim_is(spec: dict[str, Any], place: HostPlace) -> None:
    assert place_of(MOUNTED, CLAIM, volume(**spec), "n1", {"disk": "a"}) == place


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"csi": {"driver": "d", "volumeHandle": "h"}}, "is of type csi; this node mounts hostPath and local"),
        ({"nfs": {"server": "s", "path": "/"}}, "is of type nfs; this node mounts hostPath and local"),
        ({"local": {"path": "/disk"}, "volumeMode": "Block"}, "volumeMode Block"),
        ({"local": {"path": "/disk"}, "nodeAffinity": HERE}, 'NodeAffinity check failed for volume "pv"'),
        ({"hostPath": {"path": "/data"}, "claimRef": {"name": "c", "uid": "another"}}, "is not bound to claim"),
    ],
)
def test_what_cannot_be_mounted_says_what_is_missing(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(MountProblem, match=why):
        place_of(MOUNTED, CLAIM, volume(**spec), "n1", {"disk": "b"})


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("Directory", "is not a directory"),
        ("File", "is not a file"),
        ("Socket", "is not a socket file"),
        ("BlockDevice", "is not a block device"),
        ("CharDevice", "is not a character device"),
    ],
)
def test_a_path_of_the_host_is_what_the_pod_was_promised(tmp_path: Path, kind: str, why: str) -> None:
    named = {"name": "v", "hostPath": {"path": str(tmp_path / "absent"), "type": kind}}
    with pytest.raises(MountProblem, match=why):
        write_all(AdmittedPod.of(pod("web", volumes=[named])), context(tmp_path), {})
    for made in ("DirectoryOrCreate", "FileOrCreate"):
        HostPlace(tmp_path / made, made).prepare()
        HostPlace(tmp_path / made, made).prepare()
    assert (tmp_path / "DirectoryOrCreate").is_dir() and (tmp_path / "FileOrCreate").is_file()
    with pytest.raises(MountProblem, match="is not a directory"):
        HostPlace(tmp_path / "FileOrCreate", "DirectoryOrCreate").prepare()


def test_a_claim_is_a_link_that_stays_and_is_mounted_as_the_pod_says(tmp_path: Path) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w", "subPath": "deep"}]
    volumes = [
        {"name": "v", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}},
        {"name": "w", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]
    made = AdmittedPod.of(pod("web", container(volumeMounts=mounts), volumes=volumes, uid="web"))
    places = {name: HostPlace(tmp_path / "disks" / name, "DirectoryOrCreate") for name in ("v", "w")}
    for _ in range(2):
        write_all(made, context(tmp_path), {}, places)
    config = container_config(made, made.refs["main"], 0, Grant(), context(tmp_path))
    first, second, _ = config.mounts
    assert (Path(first.host_path).resolve(), first.readonly) == (tmp_path / "disks/v", True)
    assert (Path(second.host_path).parent.resolve(), second.readonly) == (tmp_path / "disks/w", False)


def claim(name: str, cls: str = "") -> dict[str, Any]:
    asks = {"accessModes": ["ReadWriteOnce"], "storageClassName": cls, "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": asks}


async def test_a_pod_waits_for_its_claims_and_runs_with_them(tmp_path: Path) -> None:
    """Controllers and node together: a claim by name, one made for the pod, the events until they are bound."""
    async with (
        ApiServer.start(Settings(tmp_path / "data", port=0, audit=False)) as server,
        asyncio.TaskGroup() as tasks,
    ):
        api, runtime = server.local(), SimulatedRuntime(laptop8(), logs=False)
        own = NodeSettings("n1", tmp_path / "state", log_dir=tmp_path / "logs")
        agent = NodeAgent(assemble(own, runtime, laptop8(), Hosting(api)))
        controllers = ControllerManager(api, controllers=(VolumeBinder, EphemeralVolumes))
        running = [tasks.create_task(agent.run()), tasks.create_task(controllers.run())]
        mounts = [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/scratch"}]
        template = {"metadata": {"labels": {"for": "web"}}, "spec": claim("")["spec"]}
        volumes = [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "tmp", "ephemeral": {"volumeClaimTemplate": template}},
        ]
        await api.create(PODS, bound("web", container(volumeMounts=mounts), volumes=volumes), "default")

        async def told(text: str) -> bool:
            events = [decode_json(raw) for raw in (await api.list(EVENTS, "default")).items]
            return any(one["reason"] == "FailedMount" and text in one["message"] for one in events)

        await until("it says what is missing", lambda: told('persistentvolumeclaims "data" not found'))
        await api.create(CLAIMS, claim("data"), "default")
        await until("it says what it waits for", lambda: told("error processing PVC default/data: PVC is not bound"))
        for name in ("one", "two"):
            has = {**claim("")["spec"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": f"/disks/{name}"}}
            del has["resources"]
            await api.create(VOLUMES, {"metadata": {"name": name}, "spec": has})

        async def runs() -> bool:
            return ((await api.get(PODS, "web", "default")).get("status") or {}).get("phase") == "Running"

        await until("it runs", runs)
        made = await api.get(CLAIMS, "web-tmp", "default")
        assert made["metadata"]["labels"] == {"for": "web"}
        assert made["metadata"]["ownerReferences"][0]["kind"] == "Pod"
        [one] = runtime.core.containers.values()
        where = {mount.container_path: Path(mount.host_path) for mount in one.config.mounts}
        for path, name in (("/data", "data"), ("/scratch", "web-tmp")):
            volume = (await api.get(CLAIMS, name, "default"))["spec"]["volumeName"]
            assert str(where[path].readlink()) == f"/disks/{volume}"
        for task in running:
            task.cancel()
        await runtime.close()
