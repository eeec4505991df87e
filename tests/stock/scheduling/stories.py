"""Nodes of a stock cluster with their reports, and pods that ask by annotation: what schedulers' tests are about."""

from __future__ import annotations

from typing import Any

from kubeqos.codec import encode_json
from kubeqos.model.annotations.topologysummary import Division, PoolRule, Rules, TopologySummary, encode_topology
from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION
from kubeqos.scheduler.core import Effect
from kubeqos.stock.scheduling.scheduler import SCHEDULER_NAME, StockScheduler

Raw = dict[str, Any]
NUMA = TopologySummary("single-numa-node", free={"cpu": {0: 3, 1: 3}})
"""Six CPUs, three on each NUMA node."""
POOLS = TopologySummary(
    pools={"cpu": Division(Rules("shared", {"web": PoolRule("online")}), {"shared": 4.0, "online": 1.0}, 4, "shared")}
)
"""One CPU of six belongs to the pool of the role `web`."""
WEB = {"kubernetes.io/pod-role": "web"}
POOL_FULL = 'Insufficient cpu in pool "online"'


def node(name: str, cpu: str = "6", **amounts: str) -> Raw:
    allocatable = {"cpu": cpu, "memory": "8Gi", "pods": "110", **amounts}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": allocatable, "allocatable": allocatable, "conditions": [ready]}
    labels = {"kubernetes.io/hostname": name}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def report(name: str, topology: TopologySummary | None = None, **slow: int) -> Raw:
    """What an agent tells: `slow=2` is the class blockio=slow with two places, `slow=0` with any number."""
    offered = {"resource": "blockio", "level": "container", "mutable": True, "used": 0}
    classes = [{**offered, "class": cls, **({"capacity": size} if size else {})} for cls, size in slow.items()]
    status: Raw = {"classCount": len(classes), "classes": classes}
    if topology is not None:
        status["topology"] = {TOPOLOGY_ANNOTATION: encode_topology(topology)}
    return {"apiVersion": "kubeqos.io/v1alpha1", "kind": "NodeQOS", "metadata": {"name": name}, "status": status}


def pod(name: str, cpu: str = "", asked: str = "", on: str = "", **more: Any) -> Raw:
    """A pod that requests CPUs and the same as a limit, and asks for classes."""
    annotations = {**({"qos.kubeqos.io/container.c": asked} if asked else {}), **more.pop("annotations", {})}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    amounts = {"cpu": cpu, "memory": "64Mi"} if cpu else {}
    container = {"name": "c", "image": "app:1", "resources": {"requests": amounts, "limits": dict(amounts)}}
    spec = {"schedulerName": SCHEDULER_NAME, "containers": [container], **({"nodeName": on} if on else {}), **more}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


class Told:
    """A scheduler that has been told of some nodes, reports and pods."""

    def __init__(self, *objects: Raw) -> None:
        self.core = StockScheduler()
        self.tell(*objects)

    def tell(self, *objects: Raw) -> None:
        for raw in objects:
            name = raw["metadata"]["name"]
            if raw["kind"] == "Node":
                self.core.node_changed(encode_json(raw), name, 0.0)
            elif raw["kind"] == "NodeQOS":
                self.core.report_changed(encode_json(raw), name, 0.0)
            else:
                self.core.pod_changed(encode_json(raw), "", 0.0)

    def decides(self, *pods: Raw) -> list[Effect]:
        self.tell(*pods)
        found = list(self.core.step(0.0))
        assert self.core.validate() == []
        return found
