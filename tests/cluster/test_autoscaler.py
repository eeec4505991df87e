"""The autoscaler of a cluster on one machine: nodes come from nothing for a class that is wanted, and go when idle."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeqos.client.api import Api
from kubeqos.client.resources import DEPLOYMENTS, EVENTS, NODES, POD_DISRUPTION_BUDGETS, PODS
from kubeqos.cluster.clusterfile import load_plan
from kubeqos.cluster.embedded import check_plan, running
from kubeqos.cluster.nodes import template
from kubeqos.codec import decode_json
from kubeqos.errors import KubeqosError
from kubeqos.qrm.kit.skeleton import write_skeleton as new_plugin
from kubeqos.scheduler.reading.nodegroups import lacks

FILE = """
apiVersion: kubeqos.io/v1alpha1
kind: ClusterConfiguration
nodes:
- {name: base, machine: tiny2}
- name: plain
  machine: laptop8
  autoscale: {max: 3, cost: 1, after: 1s}
- name: gold
  machine: laptop8
  autoscale: {min: 0, max: 2, cost: 5, after: 1s}
  classes:
    rdt: {provider: named, capacity: {gold: 2}, classes: [gold, silver]}
"""


def plan_of(tmp_path: Path, text: str = FILE) -> Any:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return load_plan(path)


def deployment(replicas: int) -> dict[str, Any]:
    ask = {"qosResources": [{"name": "rdt", "class": "gold"}]}
    labels = {"app": "web"}
    template = {
        "metadata": {"labels": labels},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i", "resources": ask}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


async def listed(api: Api, resource: Any, namespace: str = "") -> list[dict[str, Any]]:
    return [decode_json(one) for one in (await api.list(resource, namespace)).items]


async def until(what: str, holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while not await holds():  # noqa: ASYNC110 - the cluster is asked
            await asyncio.sleep(0.1)


async def nodes(api: Api) -> set[str]:
    return {one["metadata"]["name"] for one in await listed(api, NODES)}


async def test_nodes_come_for_a_class_from_nothing_and_go_as_budgets_allow(tmp_path: Path) -> None:
    async with running(plan_of(tmp_path), tmp_path / "data", 0) as cluster:
        api = cluster.server.local()
        assert await nodes(api) == {"base"}
        await api.create(DEPLOYMENTS, deployment(3), "default")

        async def all_run() -> bool:
            return [(p.get("status") or {}).get("phase") for p in await listed(api, PODS)] == ["Running"] * 3

        await until("three pods run", all_run)
        assert await nodes(api) == {"base", "gold-1", "gold-2"}, "two of the class on each node, and no node in vain"
        told = [one for one in await listed(api, EVENTS, "default") if one["reason"] == "TriggeredScaleUp"]
        assert told and "gold" in told[0].get("message", told[0].get("note", ""))
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}}
        rule = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await api.create(POD_DISRUPTION_BUDGETS, {**budget, "spec": rule}, "default")
        await api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")

        async def one_left() -> bool:
            return len(await nodes(api)) == 2

        await until("one node is enough for one pod", one_left)
        await api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 0}}, "default")

        async def none_left() -> bool:
            return await nodes(api) == {"base"}

        await until("nobody needs a node of the class", none_left)
        assert cluster.failed() is None and set(cluster.agents) == {"base"}


def test_a_node_that_is_not_there_yet_looks_as_the_real_one_will(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    gold = next(group for group in plan.groups if group.node.name == "gold")
    view = template(gold).view
    assert view.status.allocatable["cpu"].milli() == 8000
    assert view.metadata.labels["kubeqos.io/node-group"] == "gold"
    [rdt] = view.status.qos_resources.container_qos_resources
    assert {one.name: one.capacity for one in rdt.classes} == {"gold": 2, "silver": 0}


PLUGIN = """
- name: pool
  machine: kep80
  profile: qrm
  plugins: [{{name: hugepool, command: [{python}, hugepool.py, "{{registry}}"]}}]
  autoscale:
    max: 3
    after: 1h
    template:
      allocatable: {{example.com/hugepool: "100"}}
      qosResources: {{containerQoSResources: [{{name: vendor.example/x, classes: [{{name: a, capacity: 1}}]}}]}}
"""


async def test_a_group_says_what_plugins_will_add_to_its_first_node(tmp_path: Path) -> None:
    (plugin, *_) = new_plugin("hugepool", tmp_path)
    plugin.rename(tmp_path / plugin.name)
    text = FILE.split("- name: plain")[0] + PLUGIN.format(python=sys.executable)
    only_plugin = text.partition("      qosResources")[0]
    ask = {kind: {"example.com/hugepool": "60"} for kind in ("requests", "limits")}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i", "resources": ask}]}
    async with running(plan_of(tmp_path, only_plugin), tmp_path / "data", 0) as cluster:
        api = cluster.server.local()
        await api.create(PODS, {"metadata": {"name": "first"}, "spec": spec}, "default")

        async def runs() -> bool:
            return all((p.get("status") or {}).get("phase") == "Running" for p in await listed(api, PODS))

        await until("a node of the plugin came", runs)
        assert await nodes(api) == {"base", "pool-1"}, "one node has room, and none is added while its plugin starts"
        await api.create(PODS, {"metadata": {"name": "second"}, "spec": spec}, "default")
        await until("another one came", runs)
        assert await nodes(api) == {"base", "pool-1", "pool-2"}


def test_what_a_group_says_is_put_over_what_is_known(tmp_path: Path) -> None:
    text = FILE.split("- name: plain")[0] + PLUGIN.format(python=sys.executable)
    [group] = plan_of(tmp_path, text + "  classes: {rdt: {provider: named, classes: [gold]}}\n").groups
    status = template(group).view.status
    assert {"cpu", "memory", "example.com/hugepool"} <= status.allocatable.keys()
    assert [one.name for one in status.qos_resources.container_qos_resources] == ["rdt", "vendor.example/x"]
    here = {"metadata": {"name": "pool-1"}, "status": {"allocatable": {"cpu": "80", "memory": "1", "pods": "9"}}}
    assert {"example.com/hugepool", "rdt", "vendor.example/x"} <= set(lacks(here, template(group)))
    with pytest.raises(KubeqosError) as caught:
        check_plan(plan_of(tmp_path, text.replace('"100"', "lots")))
    assert "node group pool: template" in str(caught.value.where)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("autoscale: {min: 3, max: 2}", "3 is more than max, 2"),
        ("autoscale: {min: 1}", "max"),
        ("count: 2\n  autoscale: {max: 2}", "count of a group that grows and shrinks"),
        ("autoscale: {max: 2, price: 1}", "price"),
        ("autoscale: {max: 2, template: {capacity: {cpu: 1}}}", "capacity"),
    ],
)
def test_a_group_is_read_strictly(tmp_path: Path, wrong: str, said: str) -> None:
    text = FILE.split("- name: plain")[0] + f"- name: plain\n  machine: tiny2\n  {wrong}\n"
    with pytest.raises(KubeqosError) as caught:
        plan_of(tmp_path, text)
    assert said in " ".join(caught.value.lines())


def test_a_group_begins_with_its_least(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, FILE.replace("min: 0", "min: 1"))
    assert [node.name for node in plan.nodes] == ["base", "gold-1"]
