"""Record where a real kube-scheduler puts replicas (`data/spreading.jsonl.gz`).

    KUBEQOS_KUBE_APISERVER=… KUBEQOS_KUBE_SCHEDULER=… PATH=…etcd… python -m tests.conformance.record_spreading

Each scenario has nodes of its own, objects that select pods, and then pods one after the other, each when the one
before has its node. Recorded with kube-scheduler 1.37.1 and its default configuration. It breaks ties at random, so
another record differs where nodes are equally good.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import tempfile
from pathlib import Path
from typing import Any

from kubeqos.client.api import PatchType
from kubeqos.client.errors import ApiError, Unreachable
from kubeqos.client.http import HttpApi
from kubeqos.client.resources import NAMESPACES, NODES, PODS, REPLICA_SETS, SERVICES
from kubeqos.codec import encode_json
from tests.conformance.recorded import DATA
from tests.stock.kube_apiserver import free_ports, kube_apiserver, process

Raw = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
ONE = {"cpu": "500m", "memory": "512Mi"}


def nodes(prefix: str, count: int, zone: str = "", cpu: str = "8", memory: str = "16Gi") -> list[Raw]:
    labels = {ZONE: zone} if zone else {}
    return [
        {"name": f"{prefix}{number}", "labels": labels, "allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}
        for number in range(1, count + 1)
    ]


def replicas(owner: str, count: int, requests: Raw | None = None, labels: Raw | None = None, **spec: Any) -> Raw:
    """Pods of a ReplicaSet, or bare ones where `owner` is empty."""
    return {
        "owner": owner,
        "count": count,
        "requests": requests or {},
        "labels": labels or {"app": owner},
        "spec": spec,
    }


def own(key: str) -> Raw:
    """A spread constraint of the pod's own, as a wish."""
    constraint = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**constraint, "labelSelector": {"matchLabels": {"app": "web"}}}]}


def scenario(name: str, of: list[Raw], *pods: Raw, services: Raw | None = None) -> Raw:
    return {"name": name, "nodes": of, "services": services or {}, "pods": list(pods)}


ZONES = [*nodes("a", 2, "a"), *nodes("b", 2, "b"), *nodes("c", 2, "c")]
SIZES = [*nodes("small", 2, cpu="4", memory="8Gi"), *nodes("large", 2, cpu="16", memory="32Gi")]
UNEVEN = [*nodes("a", 3, "a"), *nodes("b", 1, "b")]
MOST_IN_ZONES = [*nodes("a", 2, "a"), *nodes("b", 2, "b"), *nodes("n", 1)]
HEAVY = {"cpu": "3", "memory": "6Gi"}
SCENARIOS = [
    scenario("ten on five", nodes("n", 5), replicas("web", 10, ONE)),
    scenario("twelve without requests on five", nodes("n", 5), replicas("web", 12)),
    scenario("two zones of unequal size", UNEVEN, replicas("web", 8, ONE)),
    scenario("three equal zones", ZONES, replicas("web", 9, ONE)),
    scenario("some nodes without zone", [*nodes("a", 2, "a"), *nodes("n", 2)], replicas("web", 8, ONE)),
    scenario("nodes of two sizes", SIZES, replicas("web", 10, ONE)),
    scenario(
        "a node that is busy",
        nodes("n", 4),
        replicas("", 1, HEAVY, {"app": "other"}, nodeName="n1"),
        replicas("web", 8, ONE),
    ),
    scenario(
        "bare pods of a service",
        nodes("n", 4),
        replicas("", 8, ONE, {"app": "web"}),
        services={"web": {"app": "web"}},
    ),
    scenario(
        "two replica sets of one service",
        nodes("n", 5),
        replicas("blue", 6, ONE, {"app": "web", "colour": "blue"}),
        replicas("green", 6, ONE, {"app": "web", "colour": "green"}),
        services={"web": {"app": "web"}},
    ),
    scenario("constraints of their own", nodes("n", 5), replicas("web", 7, ONE, **own("kubernetes.io/hostname"))),
    scenario("own zone constraint", UNEVEN, replicas("web", 8, ONE, **own(ZONE))),
    scenario("own zone constraint, one node without", MOST_IN_ZONES, replicas("web", 8, ONE, **own(ZONE))),
    scenario("only some nodes are chosen from", ZONES, replicas("web", 8, ONE, nodeSelector={ZONE: "a"})),
    scenario("sixty on forty", nodes("n", 40), replicas("web", 60, ONE)),
    scenario("large pods fill small nodes", SIZES, replicas("web", 10, HEAVY)),
    scenario(
        "one after the other",
        nodes("n", 6),
        replicas("one", 4, ONE),
        replicas("two", 7, HEAVY),
        replicas("three", 8),
    ),
]


def pod_of(group: Raw, number: int, uid: str = "", namespace: str = "default") -> Raw:
    """A pod as its ReplicaSet makes it."""
    meta: Raw = {"name": f"{group['owner'] or 'bare'}-{number}", "namespace": namespace, "labels": group["labels"]}
    if group["owner"]:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": group["owner"], "uid": uid or "x"}
        meta["ownerReferences"] = [{**owner, "controller": True}]
    container = {"name": "c", "image": "app:1", "resources": {"requests": group["requests"]}}
    spec = {"containers": [container], **group["spec"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def replica_set(group: Raw, namespace: str = "default") -> Raw:
    labels = group["labels"]
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": group["owner"], "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": spec}


def service(name: str, selector: Raw, namespace: str = "default") -> Raw:
    spec = {"selector": selector, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def record(api: HttpApi, case: Raw, number: int) -> Raw:
    """Play a scenario in a namespace of its own; every node that another one left is gone."""
    namespace = f"s{number}"
    await api.create(NAMESPACES, {"metadata": {"name": namespace}})
    for node in case["nodes"]:
        labels = {**node["labels"], "kubernetes.io/hostname": node["name"]}
        made = await api.create(NODES, {"metadata": {"name": node["name"], "labels": labels}})
        made["status"] = {"capacity": node["allocatable"], "allocatable": node["allocatable"]}
        made = await api.update(NODES, made, subresource="status")
        await api.patch(NODES, node["name"], {"spec": {"taints": None}}, type=PatchType.MERGE)
    for name, selector in case["services"].items():
        await api.create(SERVICES, service(name, selector, namespace))
    placements: list[list[str]] = []
    for group in case["pods"]:
        uid = ""
        if group["owner"]:
            uid = (await api.create(REPLICA_SETS, replica_set(group, namespace)))["metadata"]["uid"]
        await asyncio.sleep(1.0)  # for the scheduler to hear of it
        placements.append([await placed(api, pod_of(group, each, uid, namespace)) for each in range(group["count"])])
    for group in case["pods"]:
        for each in range(group["count"]):
            await api.delete(PODS, pod_of(group, each)["metadata"]["name"], namespace, grace_seconds=0)
    for node in case["nodes"]:
        await api.delete(NODES, node["name"])
    return {**case, "placements": placements}


async def placed(api: HttpApi, pod: Raw) -> str:
    meta = (await api.create(PODS, pod))["metadata"]
    for _ in range(300):
        found = await api.get(PODS, meta["name"], meta["namespace"])
        if node := found["spec"].get("nodeName"):
            return str(node)
        await asyncio.sleep(0.03)
    raise SystemExit(f"{meta['name']} was never placed: {found['status']}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        with kube_apiserver(folder) as kubeconfig:
            api = HttpApi.from_kubeconfig(kubeconfig)
            for _ in range(300):
                try:
                    await api.get(NAMESPACES, "default")
                    break
                except (ApiError, Unreachable):
                    await asyncio.sleep(0.3)
            words = [os.environ["KUBEQOS_KUBE_SCHEDULER"], "--kubeconfig", str(kubeconfig), "--leader-elect=false"]
            words += ["--authentication-skip-lookup", "--secure-port", str(free_ports(1)[0])]
            with process(words, folder, "kube-scheduler"):
                lines = [encode_json(await record(api, case, number)) for number, case in enumerate(SCENARIOS)]
            await api.close()
    (DATA / "spreading.jsonl.gz").write_bytes(gzip.compress(b"\n".join(lines) + b"\n", mtime=0))


if __name__ == "__main__":
    asyncio.run(main())
