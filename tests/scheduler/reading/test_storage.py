"""Pods with volume claims as stories: which wait, in kube-scheduler's words, where others go, and what is asked for.

`tests/stock/control/test_our_scheduler.py` puts the same cases to a real kube-scheduler.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.codec import encode_json
from kubeqos.placement.storage.needs import VolumePlan
from kubeqos.scheduler.effects import Bind, BindVolumes, Effect, Evict, PodKey, Report
from kubeqos.scheduler.reading.storage import CAPACITIES, CLAIMS, CLASSES, DRIVERS, NODES, SELECTED_NODE, VOLUMES
from tests.scheduler.test_core import Story, bound
from tests.scheduler.test_core import pod as plain

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
HELPLESS = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


def node(name: str, **labels: str) -> bytes:
    amounts = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    return encode_json(
        {"metadata": {"name": name, "labels": {HOST: name, **labels}}, "status": {"allocatable": amounts}}
    )


def pod(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    volumes = [{"name": f"v{claim}", "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return plain(name, volumes=volumes, **spec)


def claim(name: str, volume: str = "", cls: str = "slow", size: str = "1Gi", **more: Any) -> tuple[str, str, Any]:
    done = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    meta = {"name": name, "namespace": "default", "uid": f"u-{name}", "annotations": {**done, **more.pop("marks", {})}}
    meta |= more.pop("meta", {})
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": cls, "volumeName": volume}
    spec |= {"resources": {"requests": {"storage": size}}, **more}
    return CLAIMS, f"default/{name}", {"metadata": meta, "spec": spec}


def volume(name: str, on: str = "", size: str = "1Gi", cls: str = "slow", **more: Any) -> tuple[str, str, Any]:
    spec: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "storageClassName": cls}
    if on:
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    meta = {"name": name, "labels": more.pop("labels", {})}
    return VOLUMES, name, {"metadata": meta, "spec": {**spec, **more}, "status": {"phase": "Available"}}


def storage_class(name: str = "slow", mode: str = "Immediate", **more: Any) -> tuple[str, str, Any]:
    raw = {"metadata": {"name": name}, "provisioner": "example.com/maker", "volumeBindingMode": mode, **more}
    return CLASSES, name, raw


LAZY = storage_class("lazy", "WaitForFirstConsumer")
LOCAL = storage_class("local", "WaitForFirstConsumer", provisioner="kubernetes.io/no-provisioner")


class Storage(Story):
    """Three nodes, and what there is of storage."""

    def __init__(self, *objects: tuple[str, str, Any]) -> None:
        super().__init__()
        self.revision = 0
        for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
            self.core.node_changed(node(name, **{ZONE: zone}), name, self.now)
        self.has(*objects)

    def has(self, *objects: tuple[str, str, Any]) -> None:
        for kind, key, raw in objects:
            self.revision += 1
            if raw is not None:
                raw["metadata"]["resourceVersion"] = str(self.revision)
            self.core.storage_changed(kind, key, encode_json(raw) if raw is not None else None, self.now)

    def tries(self, *pods: dict[str, Any]) -> list[Effect]:
        self.see(*pods)
        return self.decide()

    def told(self, one: dict[str, Any]) -> str:
        [effect] = self.tries(one)
        assert isinstance(effect, Report), effect
        return effect.message

    def goes(self, one: dict[str, Any]) -> str:
        [effect] = self.tries(one)
        assert isinstance(effect, Bind), effect
        return effect.node


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], 'persistentvolumeclaim "c" not found'),
        ([claim("c"), storage_class()], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim("c", cls="")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim("c", cls="gone")], "pod has unbound immediate PersistentVolumeClaims"),
        ([claim("c", "gone")], 'persistentvolume "gone" not found'),
        (
            [claim("c", "v", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), volume("v")],
            'persistentvolumeclaim "c" is being deleted',
        ),
    ],
)
def test_a_pod_waits_for_its_claim_and_is_told_so(objects: list[Any], reason: str) -> None:
    assert Storage(*objects).told(pod("p", "c")) == f"0/3 nodes are available: {reason}."


def test_a_lost_claim_is_told() -> None:
    kind, key, raw = claim("c", "v")
    story = Storage((kind, key, {**raw, "status": {"phase": "Lost"}}))
    lost = 'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"'
    assert story.told(pod("p", "c")) == f"0/3 nodes are available: {lost}."


def test_it_is_tried_again_when_its_claim_comes_and_is_bound() -> None:
    story = Storage(storage_class())
    story.told(pod("p", "c"))
    story.has(claim("c"))
    [report] = story.decide()
    assert "unbound immediate" in report.message  # type: ignore[union-attr]
    story.has(claim("other", "v"))
    assert story.decide() == []  # nobody waits for that
    story.has(volume("v", "n2"), claim("c", "v"))
    [effect] = story.decide()
    assert isinstance(effect, Bind)
    assert effect.node == "n2"


def test_a_bound_volume_is_reached_from_its_node_alone() -> None:
    story = Storage(claim("c", "v"), volume("v", "n3"), claim("d", "w"), volume("w", "elsewhere"))
    assert story.goes(pod("p", "c")) == "n3"
    reason = "3 node(s) didn't match PersistentVolume's node affinity"
    assert story.told(pod("q", "d")) == f"0/3 nodes are available: {reason}.{HELPLESS}"
    story.core.node_changed(node("elsewhere"), "elsewhere", story.now)
    [effect] = story.decide()
    assert isinstance(effect, Bind)
    assert effect.node == "elsewhere"


def test_a_volume_of_a_zone_is_for_nodes_of_that_zone() -> None:
    old = "failure-domain.beta.kubernetes.io/zone"
    story = Storage(
        claim("c", "v"), volume("v", labels={ZONE: "a"}), claim("d", "w"), volume("w", labels={old: "c__d"})
    )
    assert story.goes(pod("p", "c")) == "n1"
    reason = "3 node(s) had no available volume zone"
    assert story.told(pod("q", "d")) == f"0/3 nodes are available: {reason}.{HELPLESS}"


def test_the_first_consumer_chooses_the_node_for_which_a_volume_is_made() -> None:
    story = Storage(LAZY, claim("c", cls="lazy"))
    asked, told = story.tries(pod("p", "c", nodeSelector={HOST: "n2"}))
    assert asked == BindVolumes(PodKey("p", "default", "p"), "n2", VolumePlan(provisions=("default/c",)))
    assert isinstance(told, Report)
    waits = 'persistentvolumeclaim "c" waits for provisioner "example.com/maker" to make it'
    assert (told.reason, told.message) == ("WaitingForVolumes", f"waiting for volumes on node n2: {waits}")
    story.has(claim("c", cls="lazy", marks={SELECTED_NODE: "n2"}))
    story.core.storage.give_back("p")
    assert story.decide() == []  # the place is kept, and nothing is asked twice
    assert "p" in story.core.cluster.where
    story.has(volume("v", "n2", cls="lazy"), claim("c", "v", cls="lazy", marks={SELECTED_NODE: "n2"}))
    [effect] = story.decide()
    assert isinstance(effect, Bind)
    assert effect.node == "n2"


def test_a_provisioner_that_gives_up_lets_another_node_be_chosen() -> None:
    story = Storage(LAZY, claim("c", cls="lazy"))
    asked, _ = story.tries(pod("p", "c"))
    assert isinstance(asked, BindVolumes)
    story.has(claim("c", cls="lazy", marks={SELECTED_NODE: asked.node}))
    story.core.storage.give_back("p")
    story.core.node_changed(None, asked.node, story.now)
    story.has(claim("c", cls="lazy"))  # without the mark
    story.now += 60
    again, *_ = story.decide()
    assert isinstance(again, BindVolumes)
    assert again.node != asked.node


def test_a_claim_for_which_nobody_makes_volumes_takes_the_smallest_that_is_there() -> None:
    volumes = [volume("large", "n1", "8Gi", "local"), volume("small", "n1", "2Gi", "local")]
    story = Storage(LOCAL, *volumes, claim("c", cls="local"), claim("d", cls="local"), claim("e", cls="local"))
    first, _ = story.tries(pod("p", "c"))
    assert isinstance(first, BindVolumes)
    assert (first.node, first.plan.bindings) == ("n1", (("default/c", "small"),))
    second, _ = story.tries(pod("q", "d"))  # what is promised to one is not free for the other
    assert isinstance(second, BindVolumes)
    assert second.plan.bindings == (("default/d", "large"),)
    reason = "3 node(s) didn't find available persistent volumes to bind"
    assert story.told(pod("r", "e")) == f"0/3 nodes are available: {reason}.{HELPLESS}"
    story.gone("q")  # and gives back what it was promised
    story.now += 60
    story.has(volume("more", "n3", "1Gi", "local"))
    [effect, _] = story.decide()
    assert isinstance(effect, BindVolumes)
    assert (effect.node, effect.plan.bindings) == ("n3", (("default/e", "more"),))


def test_two_claims_of_one_pod_get_different_volumes_of_one_node() -> None:
    volumes = [volume("a", "n1", cls="local"), volume("b", "n2", cls="local"), volume("c", "n2", cls="local")]
    story = Storage(LOCAL, *volumes, claim("c", cls="local"), claim("d", cls="local"))
    effect, _ = story.tries(pod("p", "c", "d"))
    assert isinstance(effect, BindVolumes)
    assert effect.node == "n2"
    assert sorted(name for _, name in effect.plan.bindings) == ["b", "c"]


def test_a_volume_that_names_the_claim_comes_before_smaller_ones() -> None:
    mine = {"claimRef": {"namespace": "default", "name": "c"}}
    story = Storage(LOCAL, volume("small", "n1", cls="local"), volume("mine", "n3", "8Gi", "local", **mine))
    story.has(claim("c", cls="local"))
    effect, _ = story.tries(pod("p", "c"))
    assert isinstance(effect, BindVolumes)
    assert effect.plan.bindings == (("default/c", "mine"),)


def test_volumes_are_made_only_where_their_class_allows_it() -> None:
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]
    story = Storage(storage_class("lazy", "WaitForFirstConsumer", allowedTopologies=topology), claim("c", cls="lazy"))
    effect, _ = story.tries(pod("p", "c"))
    assert isinstance(effect, BindVolumes)
    assert effect.node == "n1"


def test_a_driver_that_counts_its_storage_is_believed() -> None:
    driver = (DRIVERS, "example.com/maker", {"metadata": {"name": "d"}, "spec": {"storageCapacity": True}})
    topology = {"matchLabels": {HOST: "n3"}}
    room = {"metadata": {"name": "r"}, "storageClassName": "lazy", "capacity": "2Gi", "nodeTopology": topology}
    story = Storage(LAZY, driver, (CAPACITIES, "x/r", room), claim("c", cls="lazy"), claim("d", cls="lazy", size="4Gi"))
    effect, _ = story.tries(pod("p", "c"))
    assert isinstance(effect, BindVolumes)
    assert effect.node == "n3"
    reason = "3 node(s) did not have enough free storage"
    assert story.told(pod("q", "d")) == f"0/3 nodes are available: {reason}.{HELPLESS}"


def test_a_claim_for_one_pod_is_used_by_one_pod_and_an_important_one_takes_it() -> None:
    story = Storage(claim("c", "v", accessModes=["ReadWriteOncePod"]), volume("v"))
    holder = pod("p", "c")
    story.see(bound(holder, story.goes(holder)))
    text = "PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    message = story.told(pod("q", "c"))
    assert message.startswith(f"0/3 nodes are available: 3 node(s) unavailable due to {text}. preemption: ")
    evict, report = story.tries(pod("r", "c", priority=10))
    assert isinstance(evict, Evict)
    assert isinstance(report, Report)
    assert evict.victim.name == "p"
    story.gone("p")
    story.now += 60
    effects = [effect for effect in story.decide() if isinstance(effect, Bind)]
    assert [effect.pod.name for effect in effects] == ["r"]


def test_a_node_takes_as_many_volumes_as_its_driver_can_attach() -> None:
    csi = {"csi": {"driver": "example.com/maker", "volumeHandle": "h"}}
    limit = {"drivers": [{"name": "example.com/maker", "allocatable": {"count": 1}}]}
    names = ("n1", "n2", "n3")
    story = Storage(*((NODES, name, {"metadata": {"name": name}, "spec": limit}) for name in names))
    story.has(*(volume(f"v{number}", **csi) for number in range(4)))
    story.has(*(claim(f"c{number}", f"v{number}") for number in range(4)))
    assert {story.goes(pod(f"p{number}", f"c{number}")) for number in range(3)} == set(names)
    assert story.told(pod("p3", "c3")).startswith("0/3 nodes are available: 3 node(s) exceed max volume count.")
    assert story.goes(pod("same", "c0"))  # a volume that is there already costs nothing
    story.gone("p1")
    story.now += 60
    [effect] = story.decide()
    assert isinstance(effect, Bind)


def test_an_ephemeral_volume_waits_for_its_claim_and_is_only_its_own() -> None:
    story = Storage()
    one = plain("p", volumes=[{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])
    waits = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"'
    assert story.told(one) == f"0/3 nodes are available: {waits}."
    story.has(volume("v", "n1"), claim("p-tmp", "v"))
    [report] = story.decide()
    assert "PVC default/p-tmp was not created for pod default/p (pod is not owner)" in report.message  # type: ignore[union-attr]
    story.has(claim("p-tmp", "v", meta={"ownerReferences": [{"kind": "Pod", "name": "p", "uid": "p"}]}))
    [effect] = story.decide()
    assert isinstance(effect, Bind)
    assert effect.node == "n1"


def test_what_cannot_be_read_is_said() -> None:
    story = Storage()
    story.core.storage_unreadable({CLASSES: "storageclasses is forbidden"})
    story.has(claim("c", "v"), volume("v"), claim("d"))
    assert story.goes(pod("p", "c"))
    reason = "this scheduler cannot read storage classes (storageclasses is forbidden)"
    assert story.told(pod("q", "d")) == f"0/3 nodes are available: {reason}."


def test_refused_requests_give_the_place_and_the_volume_back() -> None:
    story = Storage(LOCAL, volume("v", "n1", cls="local"), claim("c", cls="local"))
    asked, _ = story.tries(pod("p", "c"))
    assert isinstance(asked, BindVolumes)
    story.core.volumes_failed(asked.pod, "conflict", story.now)
    assert "p" not in story.core.cluster.where
    assert story.decide() == []  # after a pause
    story.now += 2
    again = story.decide()
    assert again[0] == asked


def test_pods_without_claims_are_one_shape_whatever_is_mounted_into_them() -> None:
    story = Storage()
    projected = [[{"name": f"kube-api-access-{number}", "projected": {"sources": []}}] for number in range(2)]
    story.see(*(plain(f"p{number}", volumes=volumes) for number, volumes in enumerate(projected)))
    assert len(story.core._shapes) == 1
    story.see(pod("p", "c"), pod("q", "d"))
    assert len(story.core._shapes) == 3
