"""Stateful sets: given these pods, then this one comes or goes next. Time stands still."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubeqos.client.resources import PERSISTENT_VOLUME_CLAIMS, PODS
from kubeqos.controllers.actions import Action, Create, Delete, Patch
from kubeqos.controllers.workloads.ownership import ownership
from kubeqos.controllers.workloads.revisions import History, history_of
from kubeqos.controllers.workloads.statefulsets import (
    POD_INDEX,
    POD_NAME,
    desired,
    is_member,
    members,
    ordinal_of,
    revision_name,
    sets_of_claim,
    standing,
)
from kubeqos.model.timestamps import timestamp
from tests.controllers.world import NOW, merge

Object = dict[str, Any]
CLAIM = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}


class StatefulWorld:
    """One stateful set, its pods and its claims; what is decided is done at once."""

    def __init__(self, replicas: int = 3, **spec: Any) -> None:
        body = {"replicas": replicas, "selector": {"matchLabels": {"s": "s"}}, "serviceName": "svc", **spec}
        metadata = {"name": "s", "namespace": "ns", "uid": "uid-s", "generation": 1}
        self.owner: Object = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": body}
        self.template("v1")
        self.pods: dict[str, Object] = {}
        self.claims: dict[str, Object] = {}
        self.revisions: list[Object] = []
        self.log: list[str] = []
        self.made = 0

    def template(self, image: str) -> None:
        self.owner["spec"]["template"] = {
            "metadata": {"labels": {"s": "s"}},
            "spec": {"containers": [{"name": "c", "image": image}]},
        }

    def history(self) -> History:
        found = history_of(self.owner, self.revisions)
        for action in found.actions:
            self.perform(action)
        return history_of(self.owner, self.revisions)

    def perform(self, action: Action) -> None:
        match action:
            case Create(resource=resource, body=body):
                self.made += 1
                name = body["metadata"]["name"]
                made = merge(body, {"metadata": {"uid": f"uid-{self.made}"}})
                if resource is PODS:
                    self.log.append(f"+{name}")
                    self.pods[name] = {**made, "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Pending"}}
                elif resource is PERSISTENT_VOLUME_CLAIMS:
                    self.claims[name] = made
                else:
                    self.revisions.append(made)
            case Delete(name=name):
                self.log.append(f"-{name}")
                self.pods.pop(name)
            case Patch(resource=resource, name=name, patch=patch):
                if resource is PERSISTENT_VOLUME_CLAIMS:
                    self.claims[name] = merge(self.claims[name], patch)
                else:
                    self.revisions = [
                        merge(one, patch) if one["metadata"]["name"] == name else one for one in self.revisions
                    ]

    def step(self) -> list[Action]:
        history = self.history()
        actions = desired(self.owner, members(self.owner, self.pods.values()), history, self.claims, NOW)
        for action in actions:
            self.perform(action)
        write = standing(self.owner, members(self.owner, self.pods.values()), history, NOW).write
        if write is not None:
            self.owner = merge(self.owner, write.patch)
        return [*actions, *([write] if write else [])]

    def become_ready(self) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(NOW)}
        for pod in self.pods.values():
            if pod["status"]["phase"] == "Pending":
                pod["status"] = {"phase": "Running", "conditions": [ready]}

    def settle(self) -> list[str]:
        self.log.clear()
        for _ in range(80):
            self.become_ready()
            if not self.step():
                return list(self.log)
        raise AssertionError(f"the controller never comes to rest: {self.log}")

    def images(self) -> dict[str, str]:
        return {name: pod["spec"]["containers"][0]["image"] for name, pod in sorted(self.pods.items())}


def test_one_after_the_other_up_and_down() -> None:
    world = StatefulWorld(3)
    world.step()
    assert list(world.pods) == ["s-0"]
    world.step()
    assert list(world.pods) == ["s-0"]  # it is not ready yet
    assert world.settle() == ["+s-1", "+s-2"]
    world.owner["spec"]["replicas"] = 1
    assert world.settle() == ["-s-2", "-s-1"]


def test_parallel_makes_and_ends_all_at_once() -> None:
    world = StatefulWorld(3, podManagementPolicy="Parallel")
    world.step()
    assert sorted(world.pods) == ["s-0", "s-1", "s-2"]
    world.become_ready()
    world.owner["spec"]["replicas"] = 0
    world.step()
    assert not world.pods


def test_ordinals_may_start_elsewhere() -> None:
    world = StatefulWorld(2, ordinals={"start": 5})
    assert world.settle() == ["+s-5", "+s-6"]
    world.owner["spec"]["ordinals"] = {"start": 6}
    world.settle()
    assert sorted(world.pods) == ["s-6", "s-7"]


def test_a_pod_has_a_name_an_index_a_host_and_its_own_claim() -> None:
    world = StatefulWorld(1, volumeClaimTemplates=[CLAIM])
    world.owner["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}, {"name": "x"}]
    world.settle()
    pod = world.pods["s-0"]
    labels = pod["metadata"]["labels"]
    assert (labels[POD_NAME], labels[POD_INDEX]) == ("s-0", "0")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("s-0", "svc")
    own = {"name": "data", "persistentVolumeClaim": {"claimName": "data-s-0", "readOnly": False}}
    assert pod["spec"]["volumes"] == [own, {"name": "x"}]
    assert world.claims["data-s-0"]["metadata"]["labels"] == {"s": "s"}


def test_claims_stay_unless_the_policy_says_otherwise() -> None:
    world = StatefulWorld(2, volumeClaimTemplates=[CLAIM])
    world.settle()
    world.owner["spec"]["replicas"] = 1
    world.settle()
    assert sorted(world.claims) == ["data-s-0", "data-s-1"]
    assert not any(claim["metadata"].get("ownerReferences") for claim in world.claims.values())
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    gone = StatefulWorld(2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)
    gone.settle()
    uid = gone.pods["s-1"]["metadata"]["uid"]
    gone.owner["spec"]["replicas"] = 1
    gone.settle()
    owners = {name: [one["uid"] for one in claim["metadata"]["ownerReferences"]] for name, claim in gone.claims.items()}
    assert owners == {"data-s-0": ["uid-s"], "data-s-1": [uid]}


def test_a_claim_names_who_it_goes_with_as_its_controller_and_is_left_to_others() -> None:
    world = StatefulWorld(1, volumeClaimTemplates=[CLAIM])
    world.owner["spec"]["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    world.settle()
    [reference] = world.claims["data-s-0"]["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"], reference["blockOwnerDeletion"]) == ("uid-s", True, True)
    other = {"apiVersion": "v1", "kind": "Thing", "name": "x", "uid": "x", "controller": True}
    stale = {**reference, "uid": "of a set that had the name"}
    plain = {key: value for key, value in reference.items() if key != "controller"}
    for before, after in (([other], [other]), ([stale], [stale]), ([plain], [reference]), ([other, plain], [other])):
        world.claims["data-s-0"]["metadata"]["ownerReferences"] = before
        world.settle()
        assert world.claims["data-s-0"]["metadata"]["ownerReferences"] == after


def test_a_pod_waits_for_a_claim_that_goes() -> None:
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    world = StatefulWorld(2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)
    world.settle()
    world.owner["spec"]["replicas"] = 1
    world.settle()
    world.owner["spec"]["replicas"] = 2
    assert world.settle() == []  # it goes with a pod that is gone
    assert sets_of_claim([world.owner], "data-s-1") == [world.owner]
    assert sets_of_claim([world.owner], "data-t-1") == []
    del world.claims["data-s-1"]
    assert world.settle() == ["+s-1"]
    del world.pods["s-1"]
    world.claims["data-s-1"]["metadata"]["deletionTimestamp"] = timestamp(NOW)
    assert world.settle() == []


def test_claims_are_made_again_for_pods_that_wait_for_them_alone() -> None:
    world = StatefulWorld(1, volumeClaimTemplates=[CLAIM])
    world.step()
    world.claims.clear()
    world.step()
    assert list(world.claims) == ["data-s-0"]
    world.settle()
    world.claims.clear()
    world.settle()
    assert not world.claims


def test_a_revision_keeps_its_hash_where_kubernetes_looks_for_it() -> None:
    world = StatefulWorld(1)
    world.settle()
    [revision] = world.revisions
    labels = revision["metadata"]["labels"]
    assert revision["metadata"]["name"] == f"s-{labels['controller.kubernetes.io/hash']}"
    assert set(labels) == {"s", "controller.kubernetes.io/hash"}


def test_of_pods_that_wait_for_nobody_those_that_serve_nobody_are_replaced_first_and_cost_nothing() -> None:
    # 60% of three is one: it is rounded down.
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": "60%"}}
    world = StatefulWorld(3, podManagementPolicy="Parallel", updateStrategy=strategy)
    world.settle()
    world.pods["s-0"]["status"] = {"phase": "Running"}
    world.template("v2")
    world.log.clear()
    world.step()
    assert world.log == ["-s-0"]
    assert world.settle() == ["+s-0", "-s-2", "+s-2", "-s-1", "+s-1"]


def test_what_the_status_counts() -> None:
    world = StatefulWorld(2, updateStrategy={"type": "OnDelete"})
    world.settle()
    world.template("v2")
    world.settle()
    assert world.owner["status"]["collisionCount"] == 0
    assert world.owner["status"]["currentRevision"] != world.owner["status"]["updateRevision"]
    world.pods.clear()
    world.settle()
    assert world.owner["status"]["currentRevision"] == world.owner["status"]["updateRevision"]
    held = world.pods["s-1"]
    held["metadata"]["deletionTimestamp"], held["status"]["phase"] = timestamp(NOW), "Failed"
    world.step()
    assert (world.owner["status"]["replicas"], world.owner["status"]["readyReplicas"]) == (2, 1)


def test_a_pod_gets_its_name_back_and_strangers_are_left_alone() -> None:
    world = StatefulWorld(1)
    world.settle()
    del world.pods["s-0"]["metadata"]["labels"][POD_NAME]
    [patch] = [one for one in world.step() if isinstance(one, Patch) and one.resource is PODS]
    assert patch.patch == {"metadata": {"labels": {POD_NAME: "s-0", POD_INDEX: "0"}}}
    strangers = [{"metadata": {"name": name, "labels": {"s": "s"}, "uid": name}} for name in ("s-1", "s-x", "t-0")]
    adopted = ownership(world.owner, PODS, strangers, is_member).adopt
    assert [one.name for one in adopted] == ["s-1"]


def test_a_new_template_rolls_down_one_at_a_time() -> None:
    world = StatefulWorld(3)
    world.settle()
    world.template("v2")
    assert world.settle() == ["-s-2", "+s-2", "-s-1", "+s-1", "-s-0", "+s-0"]
    status = world.owner["status"]
    assert status["currentRevision"] == status["updateRevision"]
    assert (status["currentReplicas"], status["updatedReplicas"]) == (3, 3)


def test_a_partition_keeps_the_lower_ones_on_their_revision() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    world = StatefulWorld(3, updateStrategy=strategy)
    world.settle()
    world.template("v2")
    world.settle()
    assert world.images() == {"s-0": "v1", "s-1": "v1", "s-2": "v2"}
    world.perform(Delete(PODS, "ns", "s-0", "", ""))  # a node dies: the pod comes back as it was
    world.settle()
    assert world.images() == {"s-0": "v1", "s-1": "v1", "s-2": "v2"}


def test_on_delete_waits_for_somebody_to_delete() -> None:
    world = StatefulWorld(2, updateStrategy={"type": "OnDelete"})
    world.settle()
    world.template("v2")
    assert world.settle() == []
    del world.pods["s-0"]
    world.settle()
    assert world.images() == {"s-0": "v2", "s-1": "v1"}


def test_a_broken_template_takes_one_pod_and_no_more() -> None:
    world = StatefulWorld(3)
    world.settle()
    world.template("broken")
    for _ in range(10):
        world.step()  # nothing becomes ready
    assert world.images() == {"s-0": "v1", "s-1": "v1", "s-2": "broken"}


def test_a_failed_pod_is_made_again_under_its_name() -> None:
    world = StatefulWorld(2)
    world.settle()
    world.pods["s-0"]["status"] = {"phase": "Failed"}
    assert world.settle() == ["-s-0", "+s-0"]


def test_names_that_only_look_like_ours() -> None:
    owner = StatefulWorld().owner
    assert [ordinal_of(owner, name) for name in ("s-0", "s-10", "s-01", "s--1", "s-a", "xs-1", "s-1-1")] == [
        0, 10, None, None, None, None, None,
    ]  # fmt: skip


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    parallel=st.booleans(),
    updates=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_it_always_comes_to_rest_with_the_ordinals_it_should_have(
    sizes: list[int], parallel: bool, updates: list[bool]
) -> None:
    world = StatefulWorld(sizes[0], podManagementPolicy="Parallel" if parallel else "OrderedReady")
    world.settle()
    for turn, size in enumerate(sizes):
        world.owner["spec"]["replicas"] = size
        if updates[turn]:
            world.template(f"v{turn + 2}")
        world.step()  # the next change may come in the middle of this one
    world.settle()
    assert sorted(world.pods) == [f"s-{i}" for i in range(sizes[-1])]
    assert {revision_name(pod) for pod in world.pods.values()} <= {world.history().update_name}
