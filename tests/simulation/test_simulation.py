"""Scenarios on virtual time: results worked out by hand, repeatable, and the laws that hold for any of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeqos.codec import encode_json
from kubeqos.document import Doc, parse_document
from kubeqos.errors import InputError
from kubeqos.placement.score import Weights
from kubeqos.scheduler.core import Profile
from kubeqos.simulation.measures import Outcome
from kubeqos.simulation.run import Simulation, reasons, simulate
from kubeqos.simulation.scenario import Scenario, parse

GOLD = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}, {"name": "bronze"}]}]}


def node(cpu: str = "4", **more: Any) -> dict[str, Any]:
    template = {"allocatable": {"cpu": cpu, "memory": "8Gi"}, **more.pop("template", {})}
    return {"name": "n", "template": template, **more}


def workload(name: str, cpu: str, *, guaranteed: bool = False, spec: Any = None, **more: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": "1Gi"}
    resources = {"requests": amounts} | ({"limits": amounts} if guaranteed else {})
    pod = {"containers": [{"name": "c", "resources": resources}], **(spec or {})}
    return {"name": name, "template": {"spec": pod}, **more}


def scenario(
    nodes: list[dict[str, Any]], *workloads: dict[str, Any], duration: str = "100s", seed: int = 1
) -> Scenario:
    document = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "Scenario", "seed": seed, "duration": duration}
    return parse(Doc.of({**document, "nodes": nodes, "workloads": list(workloads)}, "scenario.yaml"))


def lives(outcome: Outcome) -> dict[str, tuple[float | None, float | None, str]]:
    return {pod.name: (pod.started, pod.ended, pod.fate) for pod in outcome.pods}


def test_a_second_pod_waits_until_the_first_is_done() -> None:
    outcome = simulate(scenario([node()], workload("w", "4", arrivals={"every": "10s"}, count=3, runs="30s")))
    assert lives(outcome) == {
        "w-1": (0.0, 30.0, "finished"),
        "w-2": (30.0, 60.0, "finished"),
        "w-3": (60.0, 90.0, "finished"),
    }
    assert outcome.pending_seconds() == [0.0, 20.0, 40.0]
    assert outcome.cpu.mean == pytest.approx(0.9)
    assert outcome.cpu.peak == 1.0
    assert [(sample.at, sample.pending) for sample in outcome.samples][:4] == [
        (0.0, 0),
        (10.0, 1),
        (20.0, 2),
        (30.0, 1),
    ]


def test_a_class_slot_is_waited_for_and_its_use_is_measured() -> None:
    asks = {"containers": [{"name": "c", "resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}]}
    outcome = simulate(
        scenario(
            [node(template={"qosResources": GOLD})],
            workload("w", "1", spec=asks, arrivals={"at": ["0s", "0s"]}, runs="40s"),
        )
    )
    assert lives(outcome) == {"w-1": (0.0, 40.0, "finished"), "w-2": (40.0, 80.0, "finished")}
    assert {name: (use.mean, use.peak) for name, use in outcome.classes.items()} == {"rdt=gold": (0.8, 1.0)}


def test_a_victim_leaves_after_its_grace_period_and_comes_back_under_a_controller() -> None:
    low = workload("low", "4", spec={"terminationGracePeriodSeconds": 5}, replace=True)
    high = workload("high", "4", spec={"priority": 10}, arrivals={"at": ["20s"]}, runs="10s")
    outcome = simulate(scenario([node()], low, high))
    assert lives(outcome) == {
        "low-1": (0.0, 25.0, "evicted"),
        "high-1": (25.0, 35.0, "finished"),
        "low-2": (35.0, None, ""),
    }
    assert outcome.preemptions == 1
    assert ("low: preempted by high-1", 1) in list(reasons(outcome))


MACHINE = {"machine": "laptop8", "cpuManagerPolicy": "static"}


def test_whole_cpus_of_guaranteed_pods_come_from_the_machine() -> None:
    packed = scenario(
        [{"name": "m", **MACHINE, "topologyManagerPolicy": "restricted", "reserved": "0"}],
        workload("w", "3", guaranteed=True, arrivals={"every": "10s"}, count=3),
    )
    outcome = simulate(packed)
    assert [pod.fate for pod in outcome.pods] == ["", "", ""]
    assert [pod.started for pod in outcome.pods] == [0.0, 10.0, None]
    assert outcome.scattered_numa == 0.0


def two_sockets(**more: Any) -> dict[str, Any]:
    return {"name": "m", "machine": "kep80", "cpuManagerPolicy": "static", **more}


def test_a_node_that_publishes_its_free_cpus_gets_no_pod_that_it_would_refuse() -> None:
    """Three pods of 30 CPUs on two NUMA nodes of 40: the third would have to span both."""
    pods = workload("w", "30", guaranteed=True, arrivals={"every": "10s"}, count=3)
    told = simulate(scenario([two_sockets(topologyManagerPolicy="single-numa-node")], pods))
    assert [(pod.started, pod.fate) for pod in told.pods] == [(0.0, ""), (10.0, ""), (None, "")]
    lax = simulate(scenario([two_sockets(topologyManagerPolicy="best-effort", reserved="0-9")], pods))
    assert [(pod.started, pod.fate) for pod in lax.pods] == [(0.0, ""), (10.0, ""), (None, "")]


def test_a_pod_that_the_topology_manager_refuses_fails_with_its_reason() -> None:
    """A NUMA node of 40 CPUs has 39 for pods, which only the node knows: 40 lie apart, though they would fit on one."""
    pods = workload("w", "40", guaranteed=True, arrivals={"at": ["0s", "1s"]})
    nodes = [two_sockets(topologyManagerPolicy="restricted", reserved="0,40")]
    outcome = simulate(scenario(nodes, pods, duration="30s"))
    assert [(pod.started, pod.fate) for pod in outcome.pods] == [(0.0, "rejected"), (5.0, "rejected")]
    assert "Resources cannot be allocated with Topology locality" in outcome.pods[1].because


def test_restricted_alignment_is_known_before_a_pod_is_sent() -> None:
    pods = workload("w", "25", guaranteed=True, arrivals={"every": "10s"}, count=3)
    outcome = simulate(scenario([two_sockets(topologyManagerPolicy="restricted")], pods))
    assert [(pod.started, pod.fate) for pod in outcome.pods] == [(0.0, ""), (10.0, ""), (None, "")]
    assert "1 node(s) cannot align the pod's resources on one NUMA node" in outcome.pods[2].because


def test_a_node_decides_as_its_agent_would() -> None:
    """Who shares CPUs keeps some, though nobody has requested them: the scheduler does not know, the agent does."""
    besteffort = {"name": "idle", "template": {"spec": {"containers": [{"name": "c"}]}}}
    owner = workload("w", "8", guaranteed=True, arrivals={"at": ["10s"]})
    outcome = simulate(scenario([{"name": "m", **MACHINE}], besteffort, owner, duration="15s"))
    assert [(pod.workload, pod.fate, pod.because) for pod in outcome.pods] == [
        ("idle", "", ""),
        ("w", "rejected", "the shared pool would be left without CPUs"),
    ]


def test_a_node_with_a_machine_counts_its_classes_itself() -> None:
    asks = {"containers": [{"name": "c", "resources": {"qosResources": [{"name": "rdt", "class": "gold"}]}}]}
    simulation = Simulation(
        scenario(
            [{"name": "m", **MACHINE, "template": {"qosResources": GOLD}}],
            workload("w", "1", spec=asks, arrivals={"at": ["0s", "0s"]}, runs="40s"),
        ),
        (Profile(),),
    )
    outcome = simulation.run("classes")
    assert lives(outcome) == {"w-1": (0.0, 40.0, "finished"), "w-2": (40.0, 80.0, "finished")}
    assert [one.validate() for one in simulation.nodes.values()] == [[]]


PACK = (Profile(weights=Weights(most_allocated=True)),)


def test_policies_meet_the_very_same_pods() -> None:
    mixed = scenario(
        [node(count=3)],
        workload("w", "1", arrivals={"perHour": 400}, runs={"mean": "60s"}),
        workload("v", "2", arrivals={"perHour": 200}, runs={"between": ["10s", "90s"]}),
        duration="10m",
    )
    spread, pack = simulate(mixed), simulate(mixed, PACK)
    assert [(pod.name, pod.arrived) for pod in spread.pods] == [(pod.name, pod.arrived) for pod in pack.pods]
    assert spread != pack
    assert simulate(mixed) == spread
    assert pack.scattered_nodes < spread.scattered_nodes


def test_a_workload_keeps_its_pods_when_another_is_added_or_the_seed_stays() -> None:
    one = workload("w", "1", arrivals={"perHour": 400}, runs={"mean": "60s"})
    other = workload("v", "1", arrivals={"perHour": 400})
    alone = scenario([node()], one).workloads[0].arrivals
    assert scenario([node()], other, one).workloads[1].arrivals == alone
    assert scenario([node()], one, seed=2).workloads[0].arrivals != alone


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 1000),
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["500m", "1", "3"]), st.integers(0, 2), st.booleans()), min_size=1, max_size=3),
)
def test_nothing_is_overbooked_and_nobody_is_lost(seed: int, count: int, kinds: list[tuple[str, int, bool]]) -> None:
    loads = [
        workload(
            f"w{index}",
            cpu,
            spec={"priority": priority, "terminationGracePeriodSeconds": 0},
            arrivals={"perHour": 600},
            runs={"mean": "90s"},
            replace=replace,
        )
        for index, (cpu, priority, replace) in enumerate(kinds)
    ]
    outcome = simulate(scenario([node(count=count)], *loads, duration="5m", seed=seed))
    assert outcome.cpu.peak <= 1.0
    assert outcome.samples[-1].pending == sum(1 for pod in outcome.pods if pod.started is None)
    for pod in outcome.pods:
        assert pod.started is None or pod.arrived <= pod.started
        assert pod.ended is None or (pod.started is not None and pod.started <= pod.ended <= outcome.duration)


@pytest.mark.parametrize(
    ("change", "what", "where"),
    [
        ({"kind": "Scenery"}, "'Scenery' is not Scenario", "kind"),
        ({"durration": "1h"}, "durration: unknown key", "durration"),
        ({"duration": "soon"}, "'soon' is not a duration", "duration"),
        ({"seed": "x"}, "expected a whole number", "seed"),
        ({"nodes": []}, "no nodes", ""),
        ({"nodes": [{"name": "n"}]}, "how much CPU has the node?", "nodes[0]"),
        ({"nodes": [{"name": "n", "machine": "cray"}]}, "'cray' is none of", "nodes[0].machine"),
        ({"nodes": [{"name": "n", "reserved": "0"}]}, "needs a machine", "nodes[0].reserved"),
        (
            {"nodes": [{"name": "n", "machine": "tiny2", "reserved": "7"}]},
            "CPUs 7 are not on the machine",
            "nodes[0].reserved",
        ),
        ({"nodes": [node(), node()]}, "two nodes are named 'n'", "nodes[1]"),
        (
            {"workloads": [workload("w", "1", arrivals={"every": "0s"})]},
            "pods must come some time apart",
            "workloads[0].arrivals",
        ),
        (
            {"workloads": [workload("w", "1", runs={"between": ["2m", "1m"]})]},
            "needs a shortest and a longest time",
            "workloads[0].runs.between",
        ),
        ({"workloads": [workload("w", "lots")]}, "quantities must match the regular", "workloads[0].template"),
        (
            {"workloads": [{"name": "w", "template": {"spec": {}}}]},
            "a pod needs containers",
            "workloads[0].template.spec",
        ),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said_with_its_place(change: dict[str, Any], what: str, where: str) -> None:
    document = {"apiVersion": "kubeqos.io/v1alpha1", "kind": "Scenario", "nodes": [node()]}
    with pytest.raises(InputError) as caught:
        made = {**document, "workloads": [workload("w", "1")], **change}
        parse(parse_document(encode_json(made).decode(), "s.yaml", InputError))
    assert what in caught.value.what
    assert str(caught.value.where).startswith(f"s.yaml:1  {where}".rstrip())


def test_a_configuration_without_the_pods_scheduler_is_refused() -> None:
    with pytest.raises(InputError, match="no profile answers to schedulerName 'default-scheduler'"):
        simulate(scenario([node()], workload("w", "1")), (Profile("other"),))
