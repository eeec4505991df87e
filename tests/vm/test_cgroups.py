"""What stands in the cgroups of a container, its pod, its tier and all pods is what `kubeqos classify` says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vm.conftest import BOTH
from tests.vm.node import Node, container, guaranteed, pod, pod_of

pytestmark = [pytest.mark.vm, pytest.mark.parametrize("node", BOTH, indirect=True)]

MIB = 1 << 20
BURSTABLE = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}}
HUGE = {"hugepages-2Mi": "8Mi"}
PODS = [
    pod("guaranteed", resources=guaranteed("250m", "96Mi", **HUGE)),
    pod("burstable", resources=BURSTABLE),
    pod("besteffort"),
]


def classified(node: Node, manifest: dict[str, Any], of: str) -> dict[str, Any]:
    """What `kubeqos classify` says on a node with the capacity, or the allocatable memory, of this one."""
    memory = node.get("/api/v1/nodes/numa")["status"][of]["memory"]
    words = ("kubeqos", "classify", "-f", "-", "-o", "json", "--node-memory", memory)
    found: dict[str, Any] = json.loads(node.vm.run(*words, text=json.dumps(manifest), seconds=120))
    return found


def weight(shares: int) -> str:
    """Kubernetes' map from CPU shares to cgroup v2's weights."""
    return str(1 + ((shares - 2) * 9999) // 262142)


SUMMED = ("cpu.weight", "memory.min", "memory.low")
"""What the tier of a pod has for all in it."""
AMOUNTS = {
    "memory.max": "memoryLimit",
    "memory.min": "memoryMin",
    "memory.low": "memoryLow",
    "memory.high": "memoryHigh",
}
PAGES = ("2MB", "1GB")


def as_classified(level: dict[str, str]) -> dict[str, str]:
    """What stands in a cgroup."""
    pages = {f"hugetlb.{size}.max": level[f"hugetlb.{size}.max"] for size in PAGES}
    found = {name: level[name] for name in ("cpu.weight", *AMOUNTS)}
    return {**found, **pages, "cpu.max": level["cpu.max"].split()[0]}


def as_said(values: dict[str, Any]) -> dict[str, str]:
    """What is to stand there, by `classify`."""
    none = {"memory.max": "max", "memory.high": "max"}
    amounts = {name: str(values[said] or none.get(name, "0")) for name, said in AMOUNTS.items()}
    pages = {f"hugetlb.{size}.max": str(values["hugepages"].get(size, 0)) for size in PAGES}
    quota = str(values["cpuQuotaUs"] or "max")
    return {"cpu.weight": weight(values["cpuShares"] or 2), **amounts, **pages, "cpu.max": quota}


def names(node: Node, qos: str, uid: str) -> list[str]:
    """The cgroups from the pod upwards, as Kubernetes names them with each driver."""
    tier = "" if qos == "Guaranteed" else qos.lower()
    if node.driver == "cgroupfs":
        return [f"/kubepods/{tier}/pod{uid}".replace("//", "/"), *([f"/kubepods/{tier}"] if tier else []), "/kubepods"]
    inner = f"kubepods-{tier}" if tier else "kubepods"
    slices = ["/kubepods.slice", *([f"/kubepods.slice/{inner}.slice"] if tier else [])]
    return [f"{slices[-1]}/{inner}-pod{uid.replace('-', '_')}.slice", *reversed(slices)]


@pytest.mark.proves("pod-cgroups", "memory-qos")
@pytest.mark.parametrize("manifest", PODS, ids=lambda manifest: str(manifest["metadata"]["name"]))
def test_every_level_has_the_values_that_classify_says(node: Node, manifest: dict[str, Any]) -> None:
    name = manifest["metadata"]["name"]
    said = classified(node, manifest, "allocatable")
    expected = said["containers"][0]
    uid = node.start_pod(manifest)["metadata"]["uid"]
    found = node.ask("files", id=node.container_id(name))
    paths = list(found)
    assert paths[1:] == names(node, said["qosClass"], uid)
    for path, values in ((paths[0], expected), (paths[1], said["podCgroup"])):
        assert as_classified(found[path]) == as_said(values), path
    own, of_pod, everyone = found[paths[0]], found[paths[1]], found[paths[-1]]
    assert own["memory.swap.max"] == "0", "also without a limit of memory"
    for tier in paths[2:-1]:  # it is the only pod there
        assert [found[tier][one] for one in SUMMED] == [of_pod[one] for one in SUMMED], tier
    assert everyone["memory.min"] == of_pod["memory.min"]
    by_capacity = classified(node, manifest, "capacity")["containers"][0]  # as Kubernetes counts it
    assert node.process(name)["oomScoreAdj"] == by_capacity["oomScoreAdj"]
    allocatable = node.get("/api/v1/nodes/numa")["status"]["allocatable"]["memory"]
    assert everyone["memory.max"].isdigit() and int(everyone["memory.max"]) >= quantity(allocatable)
    node.delete(name)
    kubepods = node.ask("files", path=paths[-1])[paths[-1]]
    assert (kubepods["memory.min"], kubepods["memory.low"]) == ("0", "0"), "nothing is kept for pods that are gone"
    left = node.ask("tree", path=paths[-1])
    assert not [path for path in left if uid.replace("-", "_") in path.replace("-", "_")], (
        "a deleted pod leaves nothing"
    )


def quantity(text: str) -> int:
    for suffix, factor in (("Ki", 1 << 10), ("Mi", MIB), ("Gi", 1 << 30)):
        if text.endswith(suffix):
            return int(text.removesuffix(suffix)) * factor
    return int(text)


@pytest.mark.proves("pod-cgroups")
def test_a_pods_limits_are_the_sum_of_its_containers(node: Node) -> None:
    two = pod_of("two", container("main", resources=BURSTABLE), container("beside", resources=BURSTABLE))
    node.start_pod(two)
    levels = node.levels("two")
    assert levels[1]["memory.max"] == str(256 * MIB) and levels[0]["memory.max"] == str(128 * MIB)
    assert levels[1]["cpu.max"] == "200000 100000"
