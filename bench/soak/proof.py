"""What must be true when everything is deleted: nothing is owned, counted, left on disk or complained about."""

from __future__ import annotations

import asyncio
import contextlib
import re
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from bench.soak.cluster import Cluster
from bench.soak.load import NAMESPACES_USED, pod
from bench.soak.watching import Sample, exclusive
from kubeqos.checkpoint import Checkpoint
from kubeqos.client.api import Call
from kubeqos.client.errors import Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import (
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    Resource,
)
from kubeqos.codec import decode_json
from kubeqos.node.admission.ledger import FORMAT, VERSION

PATIENCE_SECONDS = 180.0
COMPLAINT = re.compile(r"error|warning|critical|traceback|exception|failed|refused", re.IGNORECASE)
EXPECTED_WARNINGS = frozenset({"FailedScheduling", "FailedCreate"})
"""Warning events that a busy cluster may tell: a pod waits for a slot, a namespace goes while it is filled."""
WARM_UP = 0.5
"""The part of the run after which memory must be flat: by then history and events have their full length."""
GROWTH = 1.05
WINDOWS, LEAST_SAMPLES = 5, 3


async def objects(api: HttpApi, resource: Resource, namespace: str = "") -> list[dict[str, Any]]:
    return [decode_json(raw) for raw in (await api.list(resource, namespace)).items]


async def never(is_so: Callable[[], Awaitable[list[str]]]) -> list[str]:
    """What is still wrong when patience ends; nothing as soon as all is well."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        wrong = await is_so()
        if not wrong or time.monotonic() > deadline:
            return wrong
        await asyncio.sleep(0.25)


async def all_deleted(api: HttpApi) -> list[str]:
    """Delete the workloads; tells what does not go away."""
    for namespace in NAMESPACES_USED:
        for resource in (DEPLOYMENTS, REPLICA_SETS, PODS):
            with contextlib.suppress(Unreachable):  # a thousand at once may take longer than a client waits
                await api.transport.send(Call("DELETE", resource.path(namespace)))

    async def left() -> list[str]:
        found = [
            each for kind in (DEPLOYMENTS, REPLICA_SETS, PODS, RESOURCE_CLAIMS) for each in await objects(api, kind)
        ]
        return [f"{each['metadata']['namespace']}/{each['metadata']['name']} is still there" for each in found]

    return await never(left)


async def quotas_unused(api: HttpApi) -> list[str]:
    return [
        f"quota {quota['metadata']['name']}: {name} used {used}"
        for quota in await objects(api, RESOURCE_QUOTAS)
        for name, used in quota["status"]["used"].items()
        if used != "0"
    ]


async def nothing_owned(api: HttpApi) -> list[str]:
    """No node publishes an owner; a node writes what changed a moment after it changed."""

    async def owners() -> list[str]:
        return [
            f"node {node['metadata']['name']}: {owner} still owns {cpus}"
            for node in await objects(api, NODES)
            for owner, cpus in exclusive(node).items()
        ]

    return await never(owners)


async def every_slot_is_free(api: HttpApi, nodes: int) -> list[str]:
    """One pod per small node that needs all of its CPUs and its only slot: they all run if nothing leaked anywhere."""
    size = {"cpu": "7", "memory": "64Mi"}
    resources = {"requests": size, "limits": size, "qosResources": [{"name": "rdt", "class": "exclusive"}]}
    template = pod(resources, qosResources=[{"name": "network", "class": "fast"}])
    labels = {"app": "exam"}
    template["metadata"] = {"labels": labels}
    template["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _small_nodes()}}
    spec = {"replicas": nodes - 2, "selector": {"matchLabels": labels}, "template": template}
    await api.create(REPLICA_SETS, {"metadata": {"name": "exam"}, "spec": spec}, "batch")

    async def waiting() -> list[str]:
        pods = await objects(api, PODS, "batch")
        running = sum(pod["status"].get("phase") == "Running" for pod in pods)
        return [] if running == nodes - 2 else [f"only {running} of {nodes - 2} nodes can be filled again"]

    return await never(waiting)


def _small_nodes() -> dict[str, Any]:
    others = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["qrm", "cci"]}
    return {"nodeSelectorTerms": [{"matchExpressions": [others]}]}


async def namespaces_gone(api: HttpApi) -> list[str]:
    for name in NAMESPACES_USED:
        await api.delete(NAMESPACES, name)

    async def left() -> list[str]:
        names = [each["metadata"]["name"] for each in await objects(api, NAMESPACES)]
        return [f"namespace {name} is still there" for name in names if name in NAMESPACES_USED or "tenant" in name]

    return await never(left)


async def unexpected_warnings(api: HttpApi) -> list[str]:
    return [
        f"{event['reason']} ({event['involvedObject'].get('name')}): {event['message']}"
        for event in await objects(api, EVENTS)
        if event.get("type") == "Warning" and event["reason"] not in EXPECTED_WARNINGS
    ]


def complaints(cluster: Cluster) -> list[str]:
    """Lines in any log that speak of trouble, and requests that the server could not answer."""
    found = [
        f"{path.relative_to(cluster.data_dir)}: {line}"
        for path in cluster.logs()
        for line in path.read_text(errors="replace").splitlines()
        if COMPLAINT.search(line)
    ]
    for path in sorted(cluster.data_dir.glob("audit.log*")):
        codes = Counter(int(code) for code in re.findall(r'"code":(\d+)', path.read_text()))
        found += [f"{path.name}: {count} answers {code}" for code, count in codes.items() if code >= 500]
    return found


def ledgers_left(cluster: Cluster) -> list[str]:
    """What nodes wrote down: no pod is in any ledger once the cluster has stopped."""
    found = []
    for path in sorted(cluster.data_dir.glob("nodes/*/ledger.json")):
        data = Checkpoint(path, format=FORMAT, version=VERSION).load().data
        for uid, row in ((data or {}).get("pods") or {}).items():
            found.append(f"{path.parent.name}: the ledger still has {row[0]}/{row[1]} ({uid})")
    return found


def windows(samples: list[Sample]) -> list[list[Sample]]:
    """Equal stretches of the time after the warm-up."""
    warm = samples[int(len(samples) * WARM_UP) :]
    step = max(len(warm) // WINDOWS, LEAST_SAMPLES)
    return [warm[start : start + step] for start in range(0, len(warm) - step + 1, step)]


def growing(samples: list[Sample]) -> list[str]:
    """What is higher at the end than after the warm-up; medians, so that one peak says nothing."""
    first, *_, last = windows(samples)
    found = []
    for name in ("memory", "beside", "database", "files", "threads"):
        before, after = (statistics.median(getattr(s, name) for s in window) for window in (first, last))
        if after > before * GROWTH + (8 if name in ("files", "threads") else 0):
            found.append(f"{name} grew from {before:,.0f} to {after:,.0f}")
    return found
