"""A claim (KEP-3675) on two NUMA nodes: cores and memory of one node for its owner, the rest for everybody else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.vm.conftest import NodeMaker
from tests.vm.node import REGISTRY, Node, guaranteed, pod
from tests.vm.test_placement import cpu_list

pytestmark = [pytest.mark.vm, pytest.mark.slow, pytest.mark.parametrize("node", ["cgroupfs"], indirect=True)]

DRAFT = "/apis/resource.k8s.io/v1alpha1"
PARAMETERS = {
    "cores": ["2"],
    "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-REQUIRED"]],
    "mem attributes": ["NUMA-MEM-AFFINITY-BIND-REQUIRED"],
}


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest, node_of: NodeMaker) -> Node:
    """A node of profile cci, with the reference driver beside it and a class for it."""
    found = node_of(request.param, profile="cci", reservedSystemCPUs="0", kubeReserved={"memory": "256Mi"})
    found.unit("kq-driver", "kubeqos", "driver", "reference", "--registry", REGISTRY)
    for path, body in (
        (f"{DRAFT}/resourceclasses", {"kind": "ResourceClass", "driverName": "reference.cci.kubeqos.io"}),
        ("/api/v1/namespaces/default/configmaps", {"data": {"config.json": json.dumps(PARAMETERS)}}),
        (
            f"{DRAFT}/namespaces/default/resourceclaims",
            {"spec": {"resourceClassName": "cores", "parametersRef": {"kind": "ConfigMap", "name": "cores"}}},
        ),
    ):
        code, said = found.vm.api("POST", path, {**body, "metadata": {"name": "cores"}})
        assert code == 201, said

    def registered() -> bool:
        return "kubeqos.io/compute-drivers" in found.get("/api/v1/nodes/numa")["metadata"]["annotations"]

    found.until("the driver is registered", registered)
    return found


def claiming(name: str, mib: int) -> dict[str, Any]:
    found = pod(name, "hog", "memory", str(mib), resources=guaranteed("2", f"{mib * 3}Mi"))
    found["spec"]["resourceClaims"] = [{"name": "compute", "source": {"resourceClaimName": "cores"}}]
    found["spec"]["containers"][0]["resources"]["claims"] = [{"name": "compute"}]
    return found


@pytest.mark.proves("cci-claims", "numa-alignment")
def test_a_claim_owns_a_whole_core_and_its_memory_lies_beside_it(node: Node) -> None:
    node.start_pod(pod("standard"))
    everything = cpu_list(node.process("standard")["cpus"])
    node.start_pod(claiming("owner", 32))
    node.says("owner", "holds 32")
    process = node.process("owner")
    cpus = cpu_list(process["cpus"])
    assert cpus in ({2, 3}, {4, 5}, {6, 7}), "both threads of one core, and none beside the reserved one"
    assert process["mems"] == ("0" if cpus == {2, 3} else "1")
    assert set(node.ask("pages", id=node.container_id("owner"))) == {process["mems"]}
    node.until("the other pod has left", lambda: cpu_list(node.process("standard")["cpus"]) == everything - cpus)
    node.delete("owner")
    node.until("the other pod has all again", lambda: cpu_list(node.process("standard")["cpus"]) == everything)
