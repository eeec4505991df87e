"""Resource plugins and compute drivers in a scenario: programs of their own, asked while its clock stands still."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kubeqos.cci.kit.skeleton import write_skeleton
from kubeqos.document import Doc
from kubeqos.errors import KubeqosError
from kubeqos.simulation.run import simulate
from kubeqos.simulation.scenario import load, parse

EXAMPLE = Path(__file__).parents[2] / "examples" / "simulate" / "plugins.yaml"


def test_pools_and_claims_decide_in_the_example() -> None:
    outcome = simulate(load(EXAMPLE))
    by_workload: dict[str, list[Any]] = {}
    for one in outcome.pods:
        by_workload.setdefault(one.workload, []).append(one)
    assert {one.node for one in by_workload["solver"] if one.node} == {"claims"}, "only there is its driver"
    assert {one.node for one in by_workload["online"]} == {"pools"} and len(by_workload["online"]) == 12
    solvers = [(one.arrived, one.started, one.ended, one.fate) for one in by_workload["solver"]]
    assert solvers == [
        (0.0, 0.0, 2700.0, "finished"),
        (600.0, 600.0, 3300.0, "finished"),
        (1200.0, 1200.0, None, ""),
        (1800.0, 2700.0, None, ""),  # three have 72 of 78 CPUs
        (2400.0, 3300.0, None, ""),
        (3000.0, None, None, ""),
    ]


def scenario(folder: Path, node: dict[str, Any], **more: Any) -> Any:
    head = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "Scenario", "duration": "1m"}
    pod = {"spec": {"containers": [{"name": "c"}]}}
    body = {"nodes": [{"name": "n", "machine": "laptop8", **node}], "workloads": [{"name": "w", "template": pod}]}
    return parse(Doc.of({**head, **body, **more}, "scenario.yaml"), folder=folder)


def test_a_driver_of_ones_own_is_run_beside_its_node(tmp_path: Path) -> None:
    driver, *_ = write_skeleton("fast.example.com", tmp_path)
    mine = {"name": "fast", "command": [sys.executable, driver.name]}
    made = scenario(tmp_path, {"profile": "cci", "drivers": [mine]})
    [pod] = simulate(made).pods
    assert (pod.node, pod.fate) == ("n", "")


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"profile": "qrm", "drivers": ["reference"]}, "a node of profile qrm has no drivers"),
        ({"profile": "cci", "cpuManagerPolicy": "static"}, "profile cci hands out CPUs by itself"),
        ({"profile": "cci", "topologyManagerPolicy": "restricted"}, "compute drivers forbid the topology manager"),
        ({"plugins": ["cpu"]}, "a node of profile default has no plugins"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(tmp_path: Path, node: dict[str, Any], told: str) -> None:
    with pytest.raises(KubeqosError, match=told):
        scenario(tmp_path, node)


def test_manifests_are_what_claims_refer_to(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
    with pytest.raises(KubeqosError, match="a scenario has no use for a Secret"):
        scenario(tmp_path, {}, manifests=["pod.yaml"])


@pytest.mark.parametrize(
    "more", [{"nodes": [{"name": "n", "machine": "laptop8", "profile": "cci"}]}, {"manifests": ["x"]}]
)
def test_what_comes_over_the_network_starts_no_program_and_reads_no_file(more: dict[str, Any]) -> None:
    made = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "Scenario", "nodes": [{"name": "n", "machine": "laptop8"}]}
    with pytest.raises(KubeqosError, match="this scenario is not in a file"):
        parse(Doc.of({**made, "workloads": [], **more}, "pasted"))
