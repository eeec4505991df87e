"""Nodes and pods as the API has them, for tests of views."""

from __future__ import annotations

from typing import Any

from kubeqos.model.annotations.published import Assignments, Holding, encode_assignments, encode_machine
from kubeqos.model.annotations.wellknown import ASSIGNMENTS_ANNOTATION, MACHINE_ANNOTATION
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import MACHINES

HOSTILE = "<script>alert(1)</script>"


def assignments(**containers: str) -> str:
    """`web="0-3"` is a container that shares CPUs, `hpc="!4-7"` one that has its own."""
    held = {
        f"default/{name}/main": Holding(
            CpuSet.parse(cpus.removeprefix("!")), cpus.startswith("!"), NumaSet.parse("0") if "!" in cpus else NumaSet()
        )
        for name, cpus in containers.items()
    }
    return encode_assignments(Assignments({"reserved": CpuSet.parse("0"), "shared": CpuSet.parse("1-79")}, held))


def node(name: str = "n1", machine: str = "kep80", placed: str = "", cpu: str = "79") -> dict[str, Any]:
    built = MACHINES[machine]()
    annotations = {MACHINE_ANNOTATION: encode_machine(built)}
    if placed:
        annotations[ASSIGNMENTS_ANNOTATION] = placed
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": {"kubeqos.io/profile": "default"}},
        "status": {
            "capacity": {"cpu": cpu, "memory": "400Gi", "pods": "110"},
            "allocatable": {"cpu": cpu, "memory": "400Gi", "pods": "110"},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady"},
                {"type": "MemoryPressure", "status": "True", "reason": "Low", "message": HOSTILE},
            ],
            "qosResources": {
                "containerQoSResources": [
                    {"name": "rdt", "classes": [{"name": "gold", "capacity": 2}, {"name": "silver"}]}
                ],
                "podQoSResources": [{"name": "network", "classes": [{"name": "fast", "capacity": 1}]}],
            },
        },
    }


def pod(name: str, on: str = "", cpu: str = "1", namespace: str = "default", **spec: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    container["resources"] |= spec.pop("resources", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"containers": [container], **({"nodeName": on} if on else {}), **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }
