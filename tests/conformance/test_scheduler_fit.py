"""Resource fit as the real scheduler judges it (`scheduler_fit`): requests, node sums, every shortage."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.fit import FILTERS, NO_LABELS
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.rows import EVERY_ROW
from kubeqos.placement.shape import compile_shape
from tests.conformance.recorded import cases


def amounts(requests: dict[str, int]) -> dict[str, Any]:
    """Our integers under the recorded names."""
    rest = dict(requests)
    named: dict[str, Any] = {
        "cpu_milli": rest.pop("cpu", 0),
        "memory": rest.pop("memory", 0),
        "ephemeral_storage": rest.pop("ephemeral-storage", 0),
    }
    return {**named, "scalar": rest} if rest else named


@pytest.mark.parametrize("case", cases("scheduler_fit"), ids=lambda case: str(case["id"]))
def test_fit(case: dict[str, Any]) -> None:
    cluster = Cluster(1)
    node = {"metadata": {"name": "n"}, "status": {"allocatable": case["allocatable"]}}
    cluster.set_node(NodeFacts(NodeView.of(node)))
    for number, spec in enumerate(case["existing_pods"]):
        cluster.add_pod("n", PlacedPod(str(number), str(number), compile_shape(PodView.of({"spec": spec}))))
    shape = compile_shape(
        PodView.of({"spec": case["pod_spec"]}),
        ignored_resources=case["ignored_resources"],
        ignored_groups=case["ignored_groups"],
    )
    assert amounts(dict(shape.requests)) == case["pod_request"]
    used = {name: int(column.used[0]) for name, column in cluster.resources.items() if name != "pods"}
    names = {"cpu", "memory", "ephemeral-storage", *case["node_requested"].get("scalar", {})}
    assert amounts({name: amount for name, amount in used.items() if name in names}) == case["node_requested"]
    assert [int(cluster.scoring_cpu[0]), int(cluster.scoring_memory[0])] == case["node_nonzero_requested"]
    found = [
        (finding.describe(0), not bool(finding.resolvable()[0]))
        for finding in FILTERS["NodeResourcesFit"](cluster, shape, EVERY_ROW, NO_LABELS)
        if finding.refused[0]
    ]
    wanted = [(each["reason"], each["unresolvable"]) for each in case["insufficient"]]
    assert sorted(found) == sorted(wanted)
