"""What is looked at while the cluster is busy: its processes, its files, and what must be true at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.soak.cluster import Cluster
from kubeqos.apiserver.registry.upkeep.expiry import expires_at
from kubeqos.client.api import Call
from kubeqos.client.errors import Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NODES, PODS, RESOURCE_QUOTAS, Resource
from kubeqos.codec import decode_json
from kubeqos.errors import KubeqosError
from kubeqos.model.annotations.published import decode_assignments
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.quantity import Quantity

SAMPLE_SECONDS, LOOK_SECONDS = 2.0, 10.0
FINAL_PHASES = ("Succeeded", "Failed")
UNCERTAIN_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster's processes at one moment."""

    at: float
    memory: int
    beside: int
    cpu_seconds: float
    files: int
    threads: int
    database: int
    answer: float
    """Seconds that a question about its health took; what makes a server stall is seen here first."""


def sample(cluster: Cluster, answer: float) -> Sample:
    """Memory of the cluster's own process and of all beside it; open files and threads of the first."""
    own, *others = cluster.processes()
    fields = Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()
    return Sample(
        time.monotonic(),
        resident(own),
        sum(map(resident, others)),
        (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
        len(os.listdir(f"/proc/{own}/fd")),
        int(fields[17]),
        sum(path.stat().st_size for path in cluster.data_dir.glob("kubeqos.db*")),
        answer,
    )


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0  # it ended between being listed and being asked


async def sampled(api: HttpApi, cluster: Cluster, samples: list[Sample]) -> None:
    """Sample until cancelled."""
    while True:
        asked = time.monotonic()
        with contextlib.suppress(Unreachable):
            await api.transport.send(Call("GET", "/readyz"))
        samples.append(sample(cluster, time.monotonic() - asked))
        await asyncio.sleep(SAMPLE_SECONDS)


@dataclass(slots=True)
class Watchman:
    """Looks at one moment of the whole cluster after another."""

    api: HttpApi
    looks: int = 0
    wrong: list[str] = field(default_factory=list)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Pods, quotas and nodes at the same revision, so that nothing moves between them."""
        pods, revision = await self._list(PODS)
        quotas, _ = await self._list(RESOURCE_QUOTAS, revision)
        nodes, _ = await self._list(NODES, revision)
        self.looks += 1
        for problem in (*quota_problems(quotas, pods), *slot_problems(nodes, pods), *core_problems(nodes)):
            self.wrong.append(f"at revision {revision}: {problem}")

    async def _list(self, resource: Resource, revision: str = "") -> tuple[list[dict[str, Any]], str]:
        query = {"resourceVersion": revision, "resourceVersionMatch": "Exact"} if revision else {}
        answer = await self.api.transport.send(Call("GET", resource.path(), query))
        body = decode_json(answer.body)
        if answer.status != 200:
            raise KubeqosError(f"LIST {resource.plural}: {body.get('message')}")
        return body["items"] or [], body["metadata"]["resourceVersion"]


def charged(pod: dict[str, Any]) -> bool:
    """Finished pods use nothing."""
    return (pod.get("status") or {}).get("phase") not in FINAL_PHASES


def at_its_end(pod: dict[str, Any]) -> bool:
    """Whether it depends on the moment of the look if a pod is charged: the server uncharges it when it gets to it."""
    ends = expires_at(pod)
    return ends is not None and ends - time.time() < UNCERTAIN_SECONDS


def requested_cpu(pod: dict[str, Any]) -> Quantity:
    total = Quantity.ZERO
    for container in pod["spec"]["containers"]:
        total += Quantity.parse(((container.get("resources") or {}).get("requests") or {}).get("cpu", "0"))
    return total


def quota_problems(quotas: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[str]:
    """What a quota says is used, against the pods that are there."""
    found = []
    for quota in quotas:
        poor = quota["spec"].get("scopes") == ["BestEffort"]
        mine = [
            pod
            for pod in pods
            if pod["metadata"]["namespace"] == quota["metadata"]["namespace"]
            and (pod["status"].get("qosClass") == "BestEffort") == poor
        ]
        if any(map(at_its_end, mine)):
            continue
        mine = [pod for pod in mine if charged(pod)]
        sums = {"pods": Quantity.from_int(len(mine)), "requests.cpu": sum(map(requested_cpu, mine), Quantity.ZERO)}
        used = (quota.get("status") or {}).get("used") or {}
        found += [
            f"quota {quota['metadata']['name']}: {name} used {used.get(name)}, pods say {sums[name]}"
            for name in quota["spec"]["hard"]
            if Quantity.parse(used.get(name, "0")) != sums[name]
        ]
    return found


def slot_problems(nodes: list[dict[str, Any]], pods: list[dict[str, Any]]) -> list[str]:
    """No node gives more of a class than it has."""
    capacity: dict[tuple[str, str, str], int] = {}
    for node in nodes:
        offered = (node.get("status") or {}).get("qosResources") or {}
        for resource in (*offered.get("podQoSResources", ()), *offered.get("containerQoSResources", ())):
            for each in resource.get("classes", ()):
                if each.get("capacity"):
                    capacity[node["metadata"]["name"], resource["name"], each["name"]] = each["capacity"]
    used = slots_used(pods)
    return [
        f"node {key[0]}: {count} of {capacity[key]} slots of {key[1]}={key[2]}"
        for key, count in used.items()
        if count > capacity.get(key, count)
    ]


def slots_used(pods: list[dict[str, Any]]) -> Counter[tuple[str, str, str]]:
    """By node, resource and class; the soak's pods have one container each."""
    used: Counter[tuple[str, str, str]] = Counter()
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node and charged(pod):
            asked = list(pod["spec"].get("qosResources") or ())
            for container in pod["spec"]["containers"]:
                asked += (container.get("resources") or {}).get("qosResources") or ()
            used.update((node, each["name"], each["class"]) for each in asked)
    return used


def core_problems(nodes: list[dict[str, Any]]) -> list[str]:
    """No CPU has two exclusive owners."""
    found = []
    for node in nodes:
        taken = CpuSet()
        for owner, cpus in exclusive(node).items():
            if taken & cpus:
                found.append(f"node {node['metadata']['name']}: CPUs {taken & cpus} of {owner} have another owner")
            taken |= cpus
    return found


def exclusive(node: dict[str, Any]) -> dict[str, CpuSet]:
    """Who owns which CPUs alone, as the node publishes it."""
    text = (node["metadata"].get("annotations") or {}).get(ASSIGNMENTS_ANNOTATION)
    held = decode_assignments(text).containers if text else {}
    return {name: one.cpus for name, one in held.items() if one.exclusive}
