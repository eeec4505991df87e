"""Every subcommand's output to the letter: at 80 and 200 columns, on a terminal and in a pipe.

The expected texts are files under golden/, one per command; equal outputs of several variants stand there once. After a
change on purpose, `KUBEQOS_GOLDEN=write pytest tests/scenarios/test_golden.py` writes them anew, to be read in a diff.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kubeqos.cli.main import COMMANDS
from kubeqos.model.annotations.published import Assignments, Holding, encode_assignments, encode_machine
from kubeqos.model.cpuset import CpuSet, NumaSet
from kubeqos.model.hardware.named import regular
from tests.scenarios.cluster import ScenarioCluster, needs_kubectl, scenario_cluster
from tests.scenarios.recording import compare
from tests.scenarios.terminal import environment, on_terminal, piped
from tests.scenarios.test_cli import QOS, submit_two_pods

SIMULATE = "examples/simulate"
POLICIES = f"--policy {SIMULATE}/spread.yaml --policy {SIMULATE}/pack.yaml"
OFFLINE = {
    "version": "version --client",
    "map-help": "map --help",
    "classify": "classify -f examples/qos-classes/pod.yaml",
    "check": "check -f examples/quota-scoping/quota-terminating.yaml -f examples/quota-scoping/pods.yaml",
    "map-machine": "map --machine split80",
    "map-machine-yaml": "map --machine tiny2 -o yaml",
    "simulate-run": f"simulate run {SIMULATE}/scenario.yaml",
    "simulate-run-json": f"simulate run {SIMULATE}/scenario.yaml -o json --seed 3",
    "simulate-compare": f"simulate compare {SIMULATE}/scenario.yaml {POLICIES}",
    "classify-name": "classify -f examples/pod-qos/pods.yaml -o name",
    "convert": "convert -f examples/qos-classes/pod.yaml -f examples/qos-classes/limit-range.yaml",
    "check-name": "check -f examples/quota-scoping/scenario-1.yaml -o name",
    "simulate-fit-wide": f"simulate fit -f {SIMULATE}/deployment.yaml --nodes {SIMULATE}/nodes.yaml -o wide",
    "simulate-fit-name": f"simulate fit -f {SIMULATE}/deployment.yaml --nodes {SIMULATE}/nodes.yaml -o name",
    "simulate-fit": f"simulate fit -f {SIMULATE}/deployment.yaml --nodes {SIMULATE}/nodes.yaml",
    "import": f"import -f {SIMULATE}/cluster.json",
    "no-cluster": "classes --kubeconfig /nonexistent/kubeconfig",
    "usage": "describe planet earth",
    "typo": "classfy -f examples/pod-qos/pods.yaml",
    "bench": "bench --list",
    "bench-unknown": "bench marathon",
    "completion": "completion fish",
    "dashboard": "dashboard --help",
    "doctor": "doctor --help",
    "uninstall": "uninstall --help",
    "autoscale-plan": "autoscale plan --help",
    "resctrl": "resctrl --help",
    "cci-check": "cci check tests/scenarios/claim.json",
}
ONLINE = {
    "classes": "classes",
    "classes-wide": "classes -o wide",
    "classes-name": "classes -o name",
    "classes-holders": "classes holders rdt=gold",
    "classes-plan": "classes plan examples/class-files/next-classes.yaml -o wide",
    "classes-drain": "classes drain rdt=gold",
    "describe-node": "describe node node-a",
    "describe-pod": "describe pod first",
    "describe-quota": "describe quota limits",
    "quota": "quota",
    "quota-name": "quota -o name",
    "why": "why first",
    "why-pending": "why second",
    "why-yaml": "why first -o yaml",
    "why-name": "why first -o name",
    "story-pending": "story second",
    "story-unreachable": "story first",
    "map": "map node-a",
    "podresources": "podresources node-b",
    "map-name": "map node-a -o name",
    "map-all": "map --all",
    "map-columns": "map --all -o custom-columns=NODE:.node,NUMA:.machine.numa[*].id",
    "map-json": "map node-a -o json",
    "map-unpublished": "map node-b",
    "top-nodes": "top nodes",
    "top-pods": "top pods",
    "top-classes": "top classes",
    "simulate-scale-up": f"simulate scale-up --node-group {SIMULATE}/groups.yaml",
    "simulate-scale-up-name": f"simulate scale-up --node-group {SIMULATE}/groups.yaml -o name",
    "simulate-fit-cluster": f"simulate fit -f {SIMULATE}/deployment.yaml",
    "defrag": "defrag node-a",
    "import-cluster": "import -o json",
    "not-found": "why nobody",
    "edit": "edit quota nobody",
    "edit-unknown": "edit planet earth",
    "rollout-undo": "rollout undo deployment/nobody",
}


@pytest.mark.parametrize("name", OFFLINE)
def test_without_a_cluster(name: str) -> None:
    compare(name, OFFLINE[name], environment())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioCluster]:
    """One node with classes and a machine, one without, a pod that runs, one that waits, a full quota."""
    machine = regular(sockets=2, cores_per_uncore=24, devices=(), name="node-a")
    assignments = Assignments(
        {"reserved": CpuSet.parse("0,48"), "shared": CpuSet.parse("1-47,49-95")},
        {
            "default/db/main": Holding(CpuSet.parse("24-27,72-75"), True, NumaSet.of(1)),
            "default/first/c": Holding(CpuSet.parse("1-23,28-47,49-71,76-95")),
        },
    )
    with scenario_cluster(tmp_path_factory.mktemp("golden")) as made:
        made.node("node-a", qos=QOS)
        made.kubectl(
            *("annotate", "node", "node-a", f"kubeqos.io/machine={encode_machine(machine)}"),
            f"kubeqos.io/assignments={encode_assignments(assignments)}",
        )
        made.node("node-b", cpu="1")
        submit_two_pods(made, {"pods": "2", "requests.cpu": "1"})
        made.wait("events are there", lambda: len(made.get("events")["items"]) >= 2)
        records = "/apis/decisions.kubeqos.io/v1/namespaces/default/poddecisions"
        made.wait("records are there", lambda: _told(made.live.call("GET", records).body) >= {"Placement", "Waiting"})
        yield made


def _told(records: Any) -> set[str]:
    return {one["type"] for record in records["items"] for one in record.get("decisions", ())}


@pytest.mark.kubectl
@needs_kubectl
@pytest.mark.parametrize("name", ONLINE)
def test_against_a_cluster(name: str, cluster: ScenarioCluster) -> None:
    compare(name, ONLINE[name], environment({"KUBECONFIG": str(cluster.live.kubeconfig)}))


def test_there_is_no_colour_where_it_is_not_wanted(cluster: ScenarioCluster) -> None:
    env = environment({"KUBECONFIG": str(cluster.live.kubeconfig)})
    assert "␛[" in on_terminal(["quota"], env, 80)
    for refused in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "␛[" not in on_terminal(["quota"], {**env, **refused}, 80)
        assert "␛[" not in on_terminal(["map", "node-a"], {**env, **refused}, 80)


def test_a_watched_map_is_drawn_again_when_something_moves(cluster: ScenarioCluster) -> None:
    env = {**environment({"KUBECONFIG": str(cluster.live.kubeconfig)}), "COLUMNS": "80", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "kubeqos.cli.main", "map", "node-c", "-w"]
    cluster.node("node-c")
    machine = encode_machine(regular(name="node-c"))
    cluster.kubectl("annotate", "node", "node-c", f"kubeqos.io/machine={machine}")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        before = [process.stdout.readline() for _ in range(4)]
        moved = encode_assignments(Assignments({}, {"default/db/main": Holding(CpuSet.of(1, 5), True)}))
        cluster.kubectl("annotate", "node", "node-c", "unrelated=true")
        cluster.kubectl("annotate", "node", "node-c", f"kubeqos.io/assignments={moved}")
        after = [process.stdout.readline() for _ in range(6)]
        cluster.kubectl("delete", "node", "node-c")
        assert process.wait(60) == 1
        assert process.stderr.read() == "Error: node 'node-c' was deleted\n"
    assert before[3] == "    L3 0  .. .. .. ..  0-7\n"
    assert after[3:] == ["    L3 0  .. AA .. ..  0-7\n", "\n", "A default/db/main     2  1,5\n"]


def test_help_lists_every_command_with_what_it_is_for() -> None:
    shown = " ".join(piped(["--help"], environment(), 200).split())
    for name, (_, about) in COMMANDS.items():
        assert f"{name} {about}" in shown
