"""Random nodes and pods that collide with each other often."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from kubeqos.model.annotations.topologysummary import Division, PoolRule, Rules, TopologySummary, encode_topology
from kubeqos.model.annotations.wellknown import TOPOLOGY_ANNOTATION

CLASSES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["gold", "silver", "bronze"]), "capacity": st.integers(0, 3)},
    ),
    max_size=3,
    unique_by=lambda each: each["name"],
)
OFFERED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(["rdt", "net"]), "classes": CLASSES}),
    max_size=2,
    unique_by=lambda each: each["name"],
)
REQUESTED = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["rdt", "net"]), "class": st.sampled_from(["gold", "silver", "bronze"])}
    ),
    max_size=2,
    unique_by=lambda each: each["name"],
)
LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b"]), max_size=2)
SELECTORS = st.builds(lambda labels: {"matchLabels": labels}, LABELS)
TERMS = st.lists(
    st.fixed_dictionaries(
        {"topologyKey": st.sampled_from(["kubernetes.io/hostname", "zone"]), "labelSelector": SELECTORS}
    ),
    max_size=1,
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


POOLED = st.builds(
    lambda online, shared: TopologySummary(
        "best-effort",
        pools={
            "cpu": Division(
                Rules("shared", {"web": PoolRule("online"), "own": PoolRule("", True)}),
                pools={"shared": shared} | ({"online": online} if online else {}),
                whole=shared,
                carved="shared",
            )
        },
    ),
    st.sampled_from([0.0, 1.0, 1.5]),
    st.sampled_from([1.0, 2.0]),
)
ALIGNED = st.builds(
    lambda first, second: TopologySummary("single-numa-node", "container", {"cpu": {0: first, 1: second}}),
    st.integers(0, 2),
    st.integers(0, 2),
)
SUMMARIES = st.one_of(st.just(TopologySummary()), st.just(TopologySummary()), POOLED, ALIGNED)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> dict[str, Any]:
    labels = {"zone": zone} if (zone := draw(st.sampled_from(["z1", "z2", None]))) else {}
    taints = draw(st.lists(st.sampled_from([{"key": "t", "value": "v", "effect": "NoSchedule"}]), max_size=1))
    levels = draw(st.sampled_from(["podQoSResources", "containerQoSResources"]))
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {TOPOLOGY_ANNOTATION: encode_topology(draw(SUMMARIES))},
        },
        "spec": {"taints": taints, "unschedulable": draw(st.sampled_from([False, False, False, True]))},
        "status": {
            "allocatable": {
                "cpu": draw(st.sampled_from(["1", "2500m"])),
                "memory": draw(st.sampled_from(["1Gi", "4Gi"])),
                "pods": str(draw(st.integers(1, 4))),
                **draw(st.dictionaries(st.just("example.com/gpu"), st.sampled_from(["1", "2"]), max_size=1)),
            },
            "qosResources": {levels: draw(OFFERED)},
        },
    }


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    requests = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "cpu": st.sampled_from(["100m", "1", "1500m"]),
                "memory": st.sampled_from(["512Mi", "2Gi"]),
                "example.com/gpu": st.just("1"),
            },
        )
    )
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 5)) == 0 else []
    resources: dict[str, Any] = {"requests": requests, "qosResources": draw(REQUESTED)}
    container = {"name": "c", "resources": resources, "ports": ports}
    if draw(st.integers(0, 3)) == 0:  # whole CPUs of its own, where a node aligns
        resources["requests"] = {"cpu": draw(st.sampled_from(["1", "2"])), "memory": "512Mi"}
        resources["limits"] = dict(resources["requests"])
    role = draw(st.sampled_from([None, None, None, "web", "own"]))
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    affinity: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        affinity["podAffinity"] = {REQUIRED: draw(TERMS)}
    if draw(st.integers(0, 3)) == 0:
        affinity["podAntiAffinity"] = {REQUIRED: draw(TERMS)}
    return {
        "metadata": {
            "namespace": draw(st.sampled_from(["x", "y"])),
            "labels": draw(LABELS),
            "annotations": {"kubernetes.io/pod-role": role} if role else {},
        },
        "spec": {
            "priority": draw(st.sampled_from([0, 0, 5])),
            "containers": [container],
            "qosResources": draw(REQUESTED),
            "nodeSelector": draw(st.dictionaries(st.just("zone"), st.sampled_from(["z1", "z2"]), max_size=1)),
            "tolerations": draw(st.lists(st.just({"key": "t", "operator": "Exists"}), max_size=1)),
            "topologySpreadConstraints": (
                [{**spread, "labelSelector": draw(SELECTORS)}] if draw(st.integers(0, 4)) == 0 else []
            ),
            "affinity": affinity,
        },
    }
