"""Daemon sets: given these nodes and these pods, then these pods come and go. Time stands still."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeqos.controllers.actions import Patch
from kubeqos.controllers.workloads.daemonsets import (
    DaemonNode,
    DaemonPlan,
    FailedPods,
    Roll,
    daemon_nodes,
    desired,
    standing,
    target,
)
from kubeqos.controllers.workloads.revisions import REVISION_HASH, hash_of, history_of, surplus, template_of
from kubeqos.model.timestamps import timestamp
from tests.controllers.world import NOW, merge

Object = dict[str, Any]


class DaemonWorld:
    """One daemon set, its nodes and its pods; the scheduler and the nodes do at once what they are told."""

    def __init__(self, nodes: int = 3, **spec: Any) -> None:
        template = {"metadata": {"labels": {"d": "d"}}, "spec": {"containers": [{"name": "c", "image": "v1"}]}}
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
        body = {"selector": {"matchLabels": {"d": "d"}}, "template": template, "updateStrategy": strategy, **spec}
        metadata = {"name": "d", "namespace": "ns", "uid": "uid-d", "generation": 1}
        self.owner: Object = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": body}
        self.nodes = {f"n{i}": self.node(f"n{i}") for i in range(nodes)}
        self.pods: dict[str, Object] = {}
        self.revisions: list[Object] = []
        self.made = 0
        self.now = NOW
        self.failures = FailedPods()

    @staticmethod
    def node(name: str, **labels: str) -> Object:
        return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": {}}

    @property
    def roll(self) -> Roll:
        history = history_of(self.owner, self.revisions)
        for action in history.actions:
            if isinstance(action, Patch):
                self.revisions = [
                    merge(one, action.patch) if one["metadata"]["name"] == action.name else one
                    for one in self.revisions
                ]
            else:
                self.revisions.append(merge(action.body, {"metadata": {"uid": f"uid-r{len(self.revisions)}"}}))
        update = history_of(self.owner, self.revisions).update
        assert update is not None
        return Roll.of(self.owner, self.seen(), hash_of(update))

    def seen(self) -> list[DaemonNode]:
        return daemon_nodes(self.owner, self.nodes.values(), self.pods.values())

    def plan(self) -> DaemonPlan:
        return desired(self.owner, self.seen(), self.roll, self.now, self.failures)

    def step(self) -> DaemonPlan:
        plan = self.plan()
        for one in plan.delete:
            self.pods.pop(one.name, None)
        for made in plan.create:
            self.made += 1
            name = f"d-{self.made}"
            metadata = {**made.body["metadata"], "name": name, "uid": f"uid-{name}"}
            metadata["creationTimestamp"] = timestamp(self.now + self.made)
            spec = {**made.body["spec"], "nodeName": target(made.body)}
            self.pods[name] = {**made.body, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        return plan

    def become_ready(self) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(self.now)}
        for pod in self.pods.values():
            if pod["status"]["phase"] == "Pending":
                pod["status"] = {"phase": "Running", "conditions": [ready]}

    def available(self) -> int:
        ready = {target(pod) for pod in self.pods.values() if pod["status"].get("conditions")}
        return len(ready & {one.name for one in self.seen() if one.runs})

    def settle(self) -> None:
        for _ in range(60):
            plan = self.step()
            self.become_ready()
            if not plan.create and not plan.delete:
                return
        raise AssertionError("the controller never comes to rest")

    def where(self) -> list[str]:
        return sorted(target(pod) for pod in self.pods.values())

    def images(self) -> set[str]:
        return {pod["spec"]["containers"][0]["image"] for pod in self.pods.values()}

    def template(self, image: str) -> None:
        self.owner["spec"]["template"] = {
            "metadata": {"labels": {"d": "d"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }

    def status(self) -> Object:
        write = standing(self.owner, self.seen(), self.roll, self.now).write
        return {} if write is None else write.patch["status"]


def test_every_node_has_one_and_a_new_node_gets_one() -> None:
    world = DaemonWorld(3)
    world.settle()
    assert world.where() == ["n0", "n1", "n2"]
    world.nodes["n3"] = world.node("n3")
    world.settle()
    assert world.where() == ["n0", "n1", "n2", "n3"]
    del world.nodes["n1"]
    world.settle()
    assert world.where() == ["n0", "n1", "n2", "n3"]  # whoever ran there is collected with all pods of lost nodes
    assert world.status()["currentNumberScheduled"] == world.status()["desiredNumberScheduled"] == 3


def test_a_pod_that_never_got_to_its_node_goes_with_the_node() -> None:
    world = DaemonWorld(2)
    world.settle()
    world.pods["d-1"]["spec"].pop("nodeName")
    del world.nodes["n0"]
    world.settle()
    assert world.where() == ["n1"]


def test_a_node_by_name() -> None:
    world = DaemonWorld(2)
    world.owner["spec"]["template"]["spec"]["nodeName"] = "n1"
    world.settle()
    assert world.where() == ["n1"]


def test_a_pod_fits_its_node_alone_and_keeps_what_the_template_prefers() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    world = DaemonWorld(1)
    world.owner["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": preferred, "podAffinity": {"x": []}}
    [made] = world.plan().create
    affinity = made.body["spec"]["affinity"]
    assert affinity["podAffinity"] == {"x": []}
    assert affinity["nodeAffinity"] == {
        **preferred,
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
        },
    }


def test_only_selected_nodes() -> None:
    world = DaemonWorld(2)
    world.nodes["gpu"] = world.node("gpu", accelerator="yes")
    world.owner["spec"]["template"]["spec"]["nodeSelector"] = {"accelerator": "yes"}
    world.settle()
    assert world.where() == ["gpu"]
    world.nodes["gpu"]["metadata"]["labels"] = {}
    world.settle()
    assert world.where() == []


@pytest.mark.parametrize(
    ("key", "effect", "comes", "stays"),
    [
        ("node.kubernetes.io/unschedulable", "NoSchedule", True, True),
        ("node.kubernetes.io/not-ready", "NoExecute", True, True),
        ("node.kubernetes.io/not-ready", "NoSchedule", False, True),
        ("dedicated", "NoSchedule", False, True),
        ("dedicated", "NoExecute", False, False),
        ("dedicated", "PreferNoSchedule", True, True),
        ("node.kubernetes.io/network-unavailable", "NoSchedule", False, True),
    ],
)
def test_taints(key: str, effect: str, comes: bool, stays: bool) -> None:
    taint = {"key": key, "effect": effect}
    fresh = DaemonWorld(1)
    fresh.nodes["n0"]["spec"]["taints"] = [taint]
    fresh.settle()
    assert bool(fresh.pods) is comes
    settled = DaemonWorld(1)
    settled.settle()
    settled.nodes["n0"]["spec"]["taints"] = [taint]
    settled.settle()
    assert bool(settled.pods) is stays


def test_pods_of_the_host_network_wait_for_no_network() -> None:
    world = DaemonWorld(1)
    world.owner["spec"]["template"]["spec"]["hostNetwork"] = True
    world.nodes["n0"]["spec"]["taints"] = [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}]
    world.settle()
    assert world.where() == ["n0"]


def test_a_failed_pod_is_replaced_later_and_later() -> None:
    world = DaemonWorld(1)
    waits = []
    for _ in range(5):
        world.settle()
        [name] = world.pods
        world.pods[name]["status"] = {"phase": "Failed"}
        waited = 0.0
        while (plan := world.step()).look_again:
            assert not plan.delete
            waited += plan.look_again
            world.now += plan.look_again
        assert [one.reason for one in plan.tell] == ["FailedDaemonPod"]
        waits.append(waited)
    assert waits == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_a_pod_that_ends_well_is_replaced_at_once_and_so_is_one_of_another_generation() -> None:
    world = DaemonWorld(1)
    for phase in ("Succeeded", "Succeeded", "Failed"):
        world.settle()
        [name] = world.pods
        world.pods[name]["status"] = {"phase": phase}
        assert [one.name for one in world.step().delete] == [name]
    world.settle()
    [name] = world.pods
    world.pods[name]["status"] = {"phase": "Failed"}
    assert world.plan().look_again == 1.0
    world.owner["status"] = {"observedGeneration": 2}
    assert [one.name for one in world.plan().delete] == [name]


def test_who_ended_and_is_held_takes_nobodys_place() -> None:
    world = DaemonWorld(1)
    world.settle()
    world.pods["d-1"]["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert not world.plan().create
    assert world.status()["currentNumberScheduled"] == 1  # it is there until it is gone
    world.pods["d-1"]["status"] = {"phase": "Failed"}
    assert len(world.plan().create) == 1


SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def test_surge_waits_for_no_pod_on_its_way_out() -> None:
    world = DaemonWorld(1, updateStrategy=SURGE)
    world.settle()
    world.pods["d-1"]["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert len(world.plan().create) == 1


def test_beside_a_pod_that_serves_nobody_a_new_one_comes_whatever_the_limit_and_the_old_one_goes() -> None:
    world = DaemonWorld(3, updateStrategy=SURGE)
    world.settle()
    world.pods["d-1"]["status"] = {"phase": "Running", "conditions": []}
    world.template("v2")
    assert [target(one.body) for one in world.step().create] == ["n0", "n1"]
    assert [one.name for one in world.plan().delete] == ["d-1"]
    assert "updatedNumberScheduled" not in world.status()  # the oldest pod of each node speaks for it


def test_a_pod_that_is_merely_kept_is_rolled_too() -> None:
    for strategy in ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "maxSurge": 0}}, SURGE):
        world = DaemonWorld(2, updateStrategy=strategy)
        world.settle()
        world.nodes["n0"]["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
        world.template("v2")
        assert "d-1" in [one.name for one in world.plan().delete]
        world.settle()
        assert world.where() == ["n1"]


def test_of_two_on_one_node_the_older_stays() -> None:
    world = DaemonWorld(1)
    world.settle()
    [name] = world.pods
    double = {**world.pods[name], "metadata": {**world.pods[name]["metadata"], "name": "d-9", "uid": "uid-9"}}
    double["metadata"]["creationTimestamp"] = timestamp(NOW + 1000)
    world.pods["d-9"] = double
    assert [one.name for one in world.plan().delete] == ["d-9"]


@given(
    nodes=st.integers(1, 12),
    unavailable=st.one_of(st.integers(1, 12), st.sampled_from(["10%", "50%", "100%"])),
    surge=st.booleans(),
)
def test_a_rollout_never_takes_more_than_it_may_and_ends(nodes: int, unavailable: int | str, surge: bool) -> None:
    limits = {"maxSurge": unavailable, "maxUnavailable": 0} if surge else {"maxUnavailable": unavailable, "maxSurge": 0}
    world = DaemonWorld(nodes, updateStrategy={"type": "RollingUpdate", "rollingUpdate": limits})
    world.settle()
    world.template("v2")
    allowed = max(1, Roll.of(world.owner, world.seen(), "").unavailable or 0)
    for _ in range(4 * nodes + 4):
        plan = world.step()
        if surge:
            assert world.available() == nodes
            assert len(world.pods) <= nodes + Roll.of(world.owner, world.seen(), "").surge
        else:
            assert world.available() >= nodes - allowed
        world.become_ready()
        if not plan.create and not plan.delete:
            break
    assert world.images() == {"v2"}
    assert len(world.pods) == nodes


def test_a_broken_template_stops_at_its_limit() -> None:
    world = DaemonWorld(5)
    world.settle()
    world.template("broken")
    for _ in range(10):
        world.step()  # nothing becomes ready
    assert world.available() == 4


def test_on_delete_waits_for_somebody_to_delete() -> None:
    world = DaemonWorld(2, updateStrategy={"type": "OnDelete"})
    world.settle()
    world.template("v2")
    world.settle()
    assert world.images() == {"v1"}
    del world.pods[next(iter(world.pods))]
    world.settle()
    assert world.images() == {"v1", "v2"}


def test_a_template_that_comes_back_finds_its_revision() -> None:
    world = DaemonWorld(1)
    first = world.roll.revision
    world.template("v2")
    second = world.roll.revision
    assert first != second
    world.template("v1")
    assert world.roll.revision == first
    numbers = {hash_of(one): one["revision"] for one in world.revisions}
    assert numbers == {first: 3, second: 2}
    assert template_of(world.revisions[0])["spec"]["containers"][0]["image"] == "v1"


def test_old_revisions_go_but_for_those_that_pods_follow() -> None:
    world = DaemonWorld(1, revisionHistoryLimit=1)
    hashes = []
    for image in ("v1", "v2", "v3", "v4"):
        world.template(image)
        hashes.append(world.roll.revision)
    history = history_of(world.owner, world.revisions)
    gone = [one.name for one in surplus(world.owner, history, {hashes[0]})]
    assert gone == [f"d-{hashes[1]}", f"d-{hashes[2]}"]  # the one that pods follow is the one that is kept


def test_what_the_status_counts() -> None:
    world = DaemonWorld(3)
    assert world.status()["desiredNumberScheduled"] == 3
    world.settle()
    world.nodes["n2"]["spec"]["taints"] = [{"key": "x", "effect": "NoSchedule"}]
    assert world.status() == {
        "currentNumberScheduled": 2,
        "numberMisscheduled": 1,
        "desiredNumberScheduled": 2,
        "numberReady": 2,
        "observedGeneration": 1,
        "updatedNumberScheduled": 2,
        "numberAvailable": 2,
    }
    world.owner["status"] = world.status()
    assert world.status() == {}


def test_a_pod_names_its_revision() -> None:
    world = DaemonWorld(1)
    [made] = world.plan().create
    assert made.body["metadata"]["labels"] == {"d": "d", REVISION_HASH: world.roll.revision}
