"""`kubeqos why` for who may only look at a namespace, for a pod that waits, and for one that is gone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeqos.codec import decode_json
from tests.scenarios.cluster import ScenarioCluster, needs_kubectl, scenario_cluster
from tests.scenarios.test_scheduling import condition, pod
from tests.shared import commands

pytestmark = [pytest.mark.kubectl, needs_kubectl]
GOLD = {"containerQoSResources": [{"name": "rdt", "classes": [{"name": "gold", "capacity": 1}]}]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScenarioCluster]:
    with scenario_cluster(tmp_path_factory.mktemp("why")) as made:
        made.node("node-a", qos=GOLD)
        made.apply(pod("first", ("rdt", "gold")))
        made.wait("first is bound", lambda: made.pod("first")["spec"].get("nodeName"))
        large = pod("large")
        large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "100"
        made.apply(pod("second", ("rdt", "gold")), large)
        for name in ("second", "large"):
            made.wait(f"{name} waits", lambda name=name: condition(made.pod(name)))  # type: ignore[misc]
        yield made


@pytest.fixture(scope="module")
def viewer(cluster: ScenarioCluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kubeconfig of somebody who has the role `view` in one namespace, and nothing else."""
    cluster.kubectl("create", "serviceaccount", "reader")
    cluster.kubectl("create", "rolebinding", "readers", "--clusterrole=view", "--serviceaccount=default:reader")
    config = yaml.safe_load(cluster.live.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": cluster.kubectl("create", "token", "reader").strip()}
    path = tmp_path_factory.mktemp("viewer") / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def kubeqos(kubeconfig: Path, *words: str, code: int = 0) -> str:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "80"}
    done = commands.run(*words, env=environment)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_a_waiting_pod_is_told_by_how_much_it_missed(cluster: ScenarioCluster) -> None:
    told = kubeqos(cluster.live.kubeconfig, "why", "large").splitlines()
    assert "  refused    node-a: Insufficient cpu" in told
    assert "  nearest    needs 100 cpu, most free is 3900m on node-a" in told


def test_fixes_are_tried_before_they_are_told(cluster: ScenarioCluster) -> None:
    told = kubeqos(cluster.live.kubeconfig, "why", "--fix", "large").splitlines()
    assert "  fix        lower cpu from 100 to 3900m: it would run on node-a" in told
    told = kubeqos(cluster.live.kubeconfig, "why", "--fix", "second").splitlines()
    assert "  fix        free one slot of rdt=gold, held by default/first: it would run on node-a" in told
    found = decode_json(kubeqos(cluster.live.kubeconfig, "why", "--fix", "second", "-o", "json").encode())
    assert [one["node"] for one in found["remedies"]] == ["node-a"]


def test_the_role_view_is_enough(cluster: ScenarioCluster, viewer: Path) -> None:
    told = kubeqos(viewer, "why", "first")
    assert "default/first is " in told and "Scheduled: Successfully assigned default/first to node-a" in told
    assert "  left out   CPUs and memory on its node: this user may not read nodes" in told.splitlines()
    told = kubeqos(viewer, "why", "--fix", "second")
    assert "QoS class rdt=gold exhausted (1/1 used)" in told and "  left out   nodes, and with them" in told
    kubeqos(viewer, "top", "pods")  # nobody measures here, and that is no refusal
    assert "is forbidden" in kubeqos(viewer, "top", "nodes", code=1)


def test_who_may_not_look_at_nodes_reads_what_the_scheduler_wrote_down(cluster: ScenarioCluster, viewer: Path) -> None:
    cluster.wait("the record is there", lambda: "nearest" in kubeqos(viewer, "why", "large"))
    told = kubeqos(viewer, "why", "large").splitlines()
    assert "  refused    node-a: Insufficient cpu" in told
    assert "  nearest    needs 100 cpu, most free is 3900m on node-a" in told


def test_the_points_of_the_best_nodes_are_told(cluster: ScenarioCluster) -> None:
    cluster.wait("the record is there", lambda: "scores" in kubeqos(cluster.live.kubeconfig, "why", "first"))
    (scores,) = [one for one in kubeqos(cluster.live.kubeconfig, "why", "first").splitlines() if "scores" in one]
    assert scores.startswith("  scores     node-a ") and "resources" in scores


def test_a_refused_pod_is_told_of_with_what_would_let_it_in(cluster: ScenarioCluster, viewer: Path) -> None:
    cluster.kubectl("create", "namespace", "tight")
    cluster.kubectl("-n", "tight", "create", "quota", "q", "--hard=pods=1,requests.cpu=1")
    for name in ("one", "two"):
        cluster.kubectl("-n", "tight", "create", "-f", "-", manifest=_in("tight", pod(name)), check=name == "one")
    told = kubeqos(cluster.live.kubeconfig, "why", "-n", "tight", "--fix", "two").splitlines()
    assert told[0].startswith("tight/two was refused at ")
    assert "  quota      q: refuses pods=1, requests.cpu=100m; left pods=0, requests.cpu=900m" in told
    assert "  fix        raise pods of quota q by 1 to 2: it would run on node-a" in told
    assert "  fix        delete one of one: it would run on node-a" in told
    told = kubeqos(cluster.live.kubeconfig, "why", "-n", "tight", "one").splitlines()
    assert "  quota      q: charged pods=1, requests.cpu=100m; left pods=0, requests.cpu=900m" in told
    assert "forbidden" in kubeqos(viewer, "why", "-n", "tight", "two", code=1)


def test_a_pod_that_is_gone_is_told_of_from_its_record(cluster: ScenarioCluster, viewer: Path) -> None:
    cluster.apply(pod("short"))
    cluster.wait("short is bound", lambda: cluster.pod("short")["spec"].get("nodeName"))
    cluster.wait("its event is there", lambda: "Scheduled" in kubeqos(viewer, "why", "short"))
    cluster.wait("its record is there", lambda: '"Placement"' in kubeqos(viewer, "why", "short", "-o", "json"))
    cluster.kubectl("delete", "pod", "short", "--force", "--wait=false")
    cluster.wait("short is gone", lambda: cluster.pod("short") is None)
    told = kubeqos(viewer, "why", "short").splitlines()
    assert told[0].startswith("default/short is gone since ") and told[0].endswith("its record is kept for an hour")
    assert any(line.startswith("  placement  on node-a: best of the nodes that fit") for line in told)
    assert told[-1].endswith("Scheduled: Successfully assigned default/short to node-a")
    found = decode_json(kubeqos(viewer, "why", "short", "-o", "json").encode())
    assert (found["phase"], found["node"]) == ("gone", "node-a")
    assert "Placement" in [one["type"] for one in found["decisions"]]
    assert 'pods "never" not found' in kubeqos(viewer, "why", "never", code=1)


def _in(namespace: str, made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def test_version_names_the_server(viewer: Path) -> None:
    assert "\nServer: v1." in kubeqos(viewer, "version")
