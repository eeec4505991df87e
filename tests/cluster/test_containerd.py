"""`kubeqos up` with this machine as a node: it keeps its cgroups as any node does; pods that do not ask stay off it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from kubeqos.model.hardware.sysfs import read_machine
from tests.cli.local.test_up import kubeqos, start
from tests.cri.containerd import Containerd
from tests.node.cgroups.test_containerd import BUSY
from tests.node.pods import container, resources
from tests.node.test_containerd import SLEEP, busybox
from tests.node.test_live import bound, get_or_none, until
from tests.shared import cgroups

pytestmark = [pytest.mark.containerd, pytest.mark.proves("pod-cgroups")]

CLUSTER = """
apiVersion: kubeqos.io/v1alpha1
kind: ClusterConfiguration
nodes:
- {{name: pretended, machine: laptop8}}
- name: here
  runtime: {endpoint}
  reservedCPUs: "0"
  settings: {{cgroupRoot: {parent}, systemReserved: {{memory: 256Mi}}}}
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "cluster"
    kubeqos("down", "--data-dir", str(tmp_path / "cluster"))


def meant(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod that nobody has bound."""
    made = bound(name, *containers, **spec)
    del made["spec"]["nodeName"]
    return made


REAL = {
    "hostNetwork": True,
    "nodeSelector": {"kubernetes.io/hostname": "here"},
    "tolerations": [{"key": "kubeqos.io/real-machine", "operator": "Exists"}],
}


def machine_bytes() -> int:
    return sum(node.memory_bytes for node in read_machine(Path("/sys")).nodes)


async def on_node(api: HttpApi, name: str) -> str:
    async def runs() -> Any:
        found = await api.get(PODS, name, "default")
        return found if (found.get("status") or {}).get("phase") == "Running" else None

    return str((await until(f"{name} runs", runs))["spec"]["nodeName"])


async def busy(api: HttpApi, kubepods: str, name: str, cpu: str) -> str:
    """Start a pod that asks for so much and wants all of one CPU; its cgroup."""
    one = busybox("main", BUSY, resources={"requests": {"cpu": cpu}})
    made = await api.create(PODS, meant(name, one, **REAL))
    assert await on_node(api, name) == "here"
    return f"{kubepods}/burstable/pod{made['metadata']['uid']}"


async def cpu_seconds(pods: list[str], seconds: float) -> list[float]:
    """CPU time of pods within a while."""
    before = [int(cgroups.value(one, "cpu.usage_ns")) for one in pods]
    await asyncio.sleep(seconds)
    return [(int(cgroups.value(one, "cpu.usage_ns")) - then) / 1e9 for one, then in zip(pods, before, strict=True)]


async def test_this_machine_as_a_node_of_a_cluster(containerd: Containerd, tmp_path: Path, data_dir: Path) -> None:
    config = tmp_path / "cluster.yaml"
    config.write_text(CLUSTER.format(endpoint=containerd.endpoint, parent=containerd.cgroup_parent))
    start(data_dir, "--config", str(config))
    api = HttpApi.from_kubeconfig(data_dir / "kubeconfig")
    kubepods = f"{containerd.cgroup_parent}/kubepods"
    try:
        node = await api.get(NODES, "here")
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["kubeqos.io/real-machine"]
        for index in range(3):  # more than would fit by chance on the right node
            await api.create(PODS, meant(f"anybody-{index}", container()))
        for index in range(3):
            assert await on_node(api, f"anybody-{index}") == "pretended"

        one = busybox("main", SLEEP, resources=resources(cpu="250m", memory="64Mi"))
        made = await api.create(PODS, meant("real", one, **REAL, restartPolicy="Never"))
        assert await on_node(api, "real") == "here"
        assert int(cgroups.value(kubepods, "memory.limit")) < machine_bytes()  # the tiers are kept
        pod_cgroup = f"{kubepods}/pod{made['metadata']['uid']}"
        assert cgroups.value(pod_cgroup, "memory.limit") == str(64 << 20)
        assert cgroups.value(pod_cgroup, "cpu.shares") in ("256", "237")  # the second is what a weight makes of it
        await api.delete(PODS, "real", "default", grace_seconds=1)

        async def gone() -> bool:
            return await get_or_none(api, "real") is None and not cgroups.folders(pod_cgroup)

        # It ran, and is never to run again: what is said of it last must not be that it is yet to start.
        await until("the pod and its cgroups are gone", gone)
        pods = [await busy(api, kubepods, name, cpu) for name, cpu in (("heavy", "640m"), ("light", "80m"))]
        heavy, light = await cpu_seconds(pods, 6.0)
        assert heavy > 4 * light > 0, (heavy, light)
        for name in ("heavy", "light"):
            await api.delete(PODS, name, "default", grace_seconds=0)

        async def nothing_left() -> bool:
            return not any(cgroups.folders(one) for one in pods)

        await until("their cgroups are gone", nothing_left)
    finally:
        await api.close()
        kubeqos("down", "--data-dir", str(data_dir))
        cgroups.remove(kubepods)  # tiers outlive agents
