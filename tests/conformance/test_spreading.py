"""Where replicas go, beside a real kube-scheduler (`spreading`): on equal nodes the counts differ by at most one.

The real one breaks ties at random, so a node may have a pod that here another one has.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kubeqos.codec import encode_json
from kubeqos.model.objects import LabelSelectorView
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Bind
from tests.conformance.record_spreading import pod_of
from tests.conformance.recorded import cases


def placements(case: dict[str, Any]) -> list[list[str]]:
    """The same scenario, decided here: each pod when the one before has its node."""
    core = Scheduler()
    for node in case["nodes"]:
        meta = {"name": node["name"], "labels": {**node["labels"], "kubernetes.io/hostname": node["name"]}}
        raw = {"metadata": meta, "spec": {}, "status": {"allocatable": node["allocatable"]}}
        core.node_changed(encode_json(raw), node["name"], 0.0)
    for name, selector in case["services"].items():
        core.spreading.service(f"default/{name}", selector)
    found = []
    for group in case["pods"]:
        if group["owner"]:
            selector = LabelSelectorView(match_labels=group["labels"])
            core.spreading.controller("ReplicaSet", f"default/{group['owner']}", selector)
        found.append([placed(core, group, number) for number in range(group["count"])])
    assert core.validate() == []
    return found


def placed(core: Scheduler, group: dict[str, Any], number: int) -> str:
    raw = pod_of(group, number)
    raw["metadata"]["uid"] = raw["metadata"]["name"]
    core.pod_changed(encode_json(raw), "", 0.0)
    if node := raw["spec"].get("nodeName"):
        return str(node)
    (bind,) = core.step(0.0)
    assert isinstance(bind, Bind)
    return bind.node


@pytest.mark.parametrize("case", cases("spreading"), ids=lambda case: case["name"])
def test_replicas_go_where_kubernetes_sends_them(case: dict[str, Any]) -> None:
    for ours, real in zip(placements(case), case["placements"], strict=True):
        counts, wanted = Counter(ours), Counter(real)
        apart = {name: (counts[name], wanted[name]) for name in {*counts, *wanted}}
        assert all(abs(one - other) <= 1 for one, other in apart.values()), apart


@pytest.mark.parametrize("case", cases("spreading"), ids=lambda case: case["name"])
def test_zones_get_as_many_as_kubernetes_gives_them(case: dict[str, Any]) -> None:
    zones = {node["name"]: tuple(node["labels"].values()) for node in case["nodes"]}
    for ours, real in zip(placements(case), case["placements"], strict=True):
        counts, wanted = Counter(zones[name] for name in ours), Counter(zones[name] for name in real)
        assert all(abs(counts[zone] - wanted[zone]) <= 1 for zone in {*counts, *wanted}), (counts, wanted)
