"""`kubeqos up` with this machine as a node: it keeps its cgroups as any node does; pods that do not ask stay off it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS
from tests.cli.local.test_up import kubeqos, start
from tests.cri.containerd import CGROUPS, Containerd
from tests.node.pods import container, resources
from tests.node.test_containerd import SLEEP, busybox, kernel_says
from tests.node.test_live import bound, get_or_none, until

pytestmark = pytest.mark.containerd

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


async def on_node(api: HttpApi, name: str) -> str:
    async def runs() -> Any:
        found = await api.get(PODS, name, "default")
        return found if (found.get("status") or {}).get("phase") == "Running" else None

    return str((await until(f"{name} runs", runs))["spec"]["nodeName"])


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
        made = await api.create(PODS, meant("real", one, **REAL))
        assert await on_node(api, "real") == "here"
        limit = int(kernel_says("memory", kubepods, "memory.limit_in_bytes"))
        assert limit < int(kernel_says("memory", "", "memory.limit_in_bytes"))  # the tiers are kept
        pod_cgroup = f"{kubepods}/pod{made['metadata']['uid']}"
        assert kernel_says("memory", pod_cgroup, "memory.limit_in_bytes") == str(64 << 20)
        assert kernel_says("cpu", pod_cgroup, "cpu.shares") == "256"
        await api.delete(PODS, "real", "default", grace_seconds=1)

        async def gone() -> bool:
            left = [path for path in CGROUPS.glob(f"*{pod_cgroup}") if path.is_dir()]
            return await get_or_none(api, "real") is None and not left

        await until("the pod and its cgroups are gone", gone)
    finally:
        await api.close()
        kubeqos("down", "--data-dir", str(data_dir))
        for hierarchy in CGROUPS.iterdir():  # tiers outlive agents
            tiers = hierarchy / kubepods.strip("/")
            for folder in (tiers / "burstable", tiers / "besteffort", tiers):
                if folder.is_dir() and not folder.is_symlink():
                    folder.rmdir()
