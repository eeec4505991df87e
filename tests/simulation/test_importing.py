"""A real cluster as a scenario: what runs stays where it is, who asks for the same is one workload, and what is lost is
said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeqos.codec import decode_json
from kubeqos.document import Doc
from kubeqos.errors import ConfigurationError, InputError
from kubeqos.model.annotations.published import Assignments, encode_assignments, encode_machine
from kubeqos.model.annotations.topologysummary import Division, TopologySummary, encode_topology
from kubeqos.model.cpuset import CpuSet
from kubeqos.model.hardware.named import MACHINES
from kubeqos.scheduler.core import Profile
from kubeqos.simulation.importing import Imported, imported
from kubeqos.simulation.measures import Outcome
from kubeqos.simulation.run import Simulation, simulate
from kubeqos.simulation.scenario import Scenario, parse

CLUSTER = Path(__file__).parents[2] / "examples/simulate/cluster.json"


def node(name: str = "n", cpu: str = "4", **parts: Any) -> dict[str, Any]:
    annotations = parts.pop("annotations", {})
    status = {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}, **parts.pop("status", {})}
    return {"kind": "Node", "metadata": {"name": name, "annotations": annotations}, "status": status, "spec": parts}


def pod(name: str, on: str = "", owner: str = "", cpu: str = "1", **parts: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "labels": {"app": owner or name}}
    if owner:
        metadata["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "controller": True, "uid": "u"}]
    metadata |= parts.pop("metadata", {})
    spec = {
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
        **parts.pop("spec", {}),
    }
    return {"kind": "Pod", "metadata": metadata, "spec": spec | ({"nodeName": on} if on else {}), **parts}


def scenario(made: Imported) -> Scenario:
    return parse(Doc.of(made.document, "imported.yaml"))


def workloads(*objects: dict[str, Any]) -> dict[str, dict[str, Any]]:
    made = imported(objects)
    scenario(made)  # what is written can be read
    return {one["name"]: one for one in made.document["workloads"]}


def where(outcome: Outcome) -> dict[str, str]:
    return {one.name: one.node for one in outcome.pods}


def test_what_runs_stays_where_it_is_and_what_waits_is_placed() -> None:
    objects = [node("a"), node("b"), pod("x-1", "a", "x"), pod("x-2", "a", "x"), pod("x-3", "", "x", "1")]
    outcome = simulate(scenario(imported(objects)))
    assert where(outcome) == {"x-1": "a", "x-2": "a", "x-3": "b"}  # spread beside its siblings, as their owner has it
    assert outcome.attempts == 1 and outcome.pending_seconds() == [0.0, 0.0, 0.0]


def test_a_full_node_stays_full() -> None:
    outcome = simulate(scenario(imported([node("a"), pod("x", "a", cpu="3"), pod("y", cpu="2")])))
    assert where(outcome) == {"x-1": "a", "y-1": ""}
    assert outcome.cpu.mean == pytest.approx(0.75)


def test_pods_of_one_owner_that_ask_for_the_same_are_one_workload() -> None:
    found = workloads(
        node("a"), pod("w-1", "a", "w"), pod("w-2", "a", "w"), pod("w-3", "a", "w", cpu="2"), pod("alone", "a")
    )
    assert {name: one["running"] for name, one in found.items()} == {
        "default-w": ["a", "a"],
        "default-w-v2": ["a"],
        "alone": ["a"],
    }
    assert [one.get("replace", False) for one in found.values()] == [True, True, False]


def test_a_deployment_gives_its_name_where_it_has_one_revision() -> None:
    labels = {"labels": {"app": "web", "pod-template-hash": "7c9d"}}
    assert list(workloads(node("a"), pod("web-1", "a", "web-7c9d", metadata=labels))) == ["web"]


def test_classes_priorities_and_owners_are_kept_and_nothing_private() -> None:
    spec = {
        "priority": 7,
        "preemptionPolicy": "Never",
        "qosResources": [{"name": "network", "class": "fast"}],
        "serviceAccountName": "private",
        "containers": [
            {
                "name": "c",
                "env": [{"name": "KEY", "value": "private"}],
                "args": ["private"],
                "resources": {"requests": {"cpu": "1"}, "qosResources": [{"name": "rdt", "class": "gold"}]},
            }
        ],
    }
    (found,) = workloads(node("a"), pod("x-1", "a", "x", spec=spec)).values()
    kept = found["template"]["spec"]
    assert (kept["priority"], kept["preemptionPolicy"], kept["qosResources"]) == (7, "Never", spec["qosResources"])
    assert kept["containers"][0]["resources"]["qosResources"] == [{"name": "rdt", "class": "gold"}]
    assert found["template"]["metadata"]["ownerReferences"][0]["name"] == "x"
    assert "private" not in str(found)


def test_classes_of_nodes_are_counted_by_those_who_run_there() -> None:
    classes = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}]}]}
    asks = {"containers": [{"name": "c", "resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}]}
    objects = [node("a", status={"qosResources": classes}), pod("first", "a", spec=asks), pod("second", spec=asks)]
    outcome = simulate(scenario(imported(objects)))
    assert outcome.classes["rdt=gold"].mean == 1.0
    assert outcome.pods[1].node == "" and "gold" in outcome.pods[1].because


def test_a_cordoned_node_takes_nobody() -> None:
    outcome = simulate(scenario(imported([node("a", unschedulable=True), pod("x", "a"), pod("y")])))
    assert [one.node for one in outcome.pods] == ["a", ""]


def test_a_pod_that_is_being_deleted_leaves() -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 40}
    outcome = simulate(scenario(imported([node("a"), pod("x", "a", cpu="4", metadata=going), pod("y", cpu="4")])))
    assert [(one.started, one.ended) for one in outcome.pods] == [(0.0, 40.0), (40.0, None)]


def test_a_machine_comes_with_its_node() -> None:
    machine = MACHINES["laptop8"]()
    summary = TopologySummary("single-numa-node", "pod", {"cpu": {0: 6}})
    annotations = {
        "kubeqos.io/machine": encode_machine(machine),
        "kubeqos.io/topology": encode_topology(summary),
        "kubeqos.io/assignments": encode_assignments(Assignments({"reserved": CpuSet.parse("0")})),
    }
    made = imported([node("a", "7", annotations=annotations), pod("x", "a")])
    (read,) = scenario(made).nodes
    assert (read.machine, read.reserved, read.static_cpus) == (machine, CpuSet.parse("0"), True)
    assert (read.policy.value, read.scope.value) == ("single-numa-node", "pod")
    assert [line for line in made.lost if "CPUs" in line] == [
        "which CPUs pods own on 1 node: they are handed out anew, by the node's own policy"
    ]
    simulation = Simulation(scenario(made), (Profile(),))
    simulation.run("")
    assert simulation.nodes["a"].validate() == []


def test_what_a_scenario_cannot_hold_is_said_once_each() -> None:
    pools = TopologySummary(pools={"cpu": Division()})
    annotations = {
        "kubeqos.io/machine": encode_machine(MACHINES["laptop8"]()),
        "kubeqos.io/topology": encode_topology(pools),
    }
    resized = {"status": {"conditions": [{"type": "PodResizePending", "status": "True"}]}}
    selected = {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selected]}}
    objects = [
        node("a", annotations=annotations),
        pod("done", "a", status={"phase": "Failed"}),
        pod("lost-1", "gone"),
        pod("lost-2", "gone"),
        pod("claims", spec={"resourceClaims": [{"name": "r"}]}),
        pod("other", spec={"schedulerName": "volcano"}),
        pod("resized", "a", **resized),
        pod("choosy", spec={"affinity": affinity}),
        {"kind": "Service", "metadata": {"name": "s"}},
    ]
    made = imported(objects)
    assert made.lost == (
        "1 object of kind Service: a scenario has nodes and pods only",
        "pools of resource plugins on 1 node: pods get CPUs there as on any other",
        "1 finished pod: they hold nothing",
        "2 pods on nodes that are not among those given",
        "resource claims of 1 pod: they are placed as if they had none",
        "that volcano places 1 pod: default-scheduler does",
        "1 pod whose resources are being changed: what the spec asks for counts",
        "labels of namespaces, by which affinities of 1 pod choose: no namespace has any",
    )
    assert len(simulate(scenario(made)).pods) == 4


def test_the_example_is_what_a_page_says_of_it() -> None:
    made = imported(decode_json(CLUSTER.read_bytes())["items"])
    assert [len(each.arrivals) for each in scenario(made).workloads] == [3, 2, 1]
    outcome = simulate(scenario(made))
    assert [one.name for one in outcome.pods if not one.node] == ["web-3"]


def test_a_list_without_nodes_says_what_to_give() -> None:
    with pytest.raises(InputError, match="no nodes found") as told:
        imported([pod("x")])
    assert "kubectl get nodes,pods -A -o json" in str(told.value.remedy)


def test_a_pod_on_a_node_that_a_scenario_lacks_is_an_error() -> None:
    made = imported([node("a"), pod("x", "a")])
    made.document["workloads"][0]["running"] = ["b"]
    with pytest.raises(ConfigurationError, match="pods run on 'b', which is no node of the scenario"):
        scenario(made)
