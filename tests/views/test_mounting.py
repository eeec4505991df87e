"""Volumes in rehearsals: why a pod waits for its claims, and where one with volumes would run."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.manifests import Manifest
from kubeqos.placement.growth.decision import decide
from kubeqos.placement.growth.groups import NodeGroup
from kubeqos.scheduler.reading.nodegroups import occupants, template_of
from kubeqos.scheduler.reading.snapshot import snapshot
from kubeqos.scheduler.reading.storage import volumes_in
from kubeqos.simulation.rehearsal import Rehearsed, rehearse_pods
from kubeqos.views.fitting import pods_of
from kubeqos.views.pending import looked_at
from tests.controllers.test_volumes import claim, storage_class, volume

Raw = dict[str, Any]
NOBODY = "kubernetes.io/no-provisioner"


def node(name: str) -> Raw:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    return {"metadata": {"name": name, "labels": {"disk": name}}, "status": status}


NODES = [node("a"), node("b")]


def only(name: str) -> Raw:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [name]}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


def pod(*volumes: Raw) -> Raw:
    metadata = {"name": "p", "namespace": "default", "uid": "u-p"}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "c"}], "volumes": list(volumes)}}


MOUNTS = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}


def held(name: str) -> list[tuple[str, Raw]]:
    """A claim with its volume, which only one node reaches."""
    one = claim(volume="v")
    one["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    ref = {"namespace": "default", "name": "c", "uid": "u-c"}
    return [("PersistentVolumeClaim", one), ("PersistentVolume", volume(claimRef=ref, phase="Bound", **only(name)))]


@pytest.mark.parametrize(
    ("stored", "found"),
    [
        ([], {"waits": 'persistentvolumeclaim "c" not found'}),
        ([("PersistentVolumeClaim", claim())], {"waits": "pod has unbound immediate PersistentVolumeClaims"}),
        (held("b"), {"now": "b would take it now"}),
    ],
)
def test_why_a_pod_waits_looks_at_its_volumes(stored: list[tuple[str, Raw]], found: Raw) -> None:
    assert looked_at(pod(MOUNTS), NODES, [], None, volumes_in(stored), fix=False) == found


def test_a_volume_that_no_node_reaches_is_told_and_no_other_change_is_offered() -> None:
    found = looked_at(pod(MOUNTS), NODES, [], None, volumes_in(held("elsewhere")), fix=True)
    why = "node(s) didn't match PersistentVolume's node affinity"
    assert found["refused"] == [{"reason": why, "nodes": ["a", "b"]}]
    assert found["remedies"] == []


def fitted(manifests: list[Raw], stored: list[tuple[str, Raw]] | None) -> Rehearsed:
    volumes = None if stored is None else volumes_in(stored)
    read = [Manifest(raw, "x.yaml") for raw in manifests]
    cluster, _ = snapshot(NODES, [], {}, volumes)
    [answer] = rehearse_pods(cluster, pods_of(read, [], "default", {}, volumes))
    return answer


def test_where_a_pod_would_run_with_claims_of_the_cluster_and_of_its_own_file() -> None:
    free = ("PersistentVolume", volume(**only("b")))
    lazy = ("StorageClass", storage_class("WaitForFirstConsumer", NOBODY))
    assert fitted([pod(MOUNTS)], held("a")).node == "a"
    missing = fitted([pod(MOUNTS)], [])
    assert (missing.node, missing.because) == ("", 'persistentvolumeclaim "c" not found')
    own = {**claim(), "metadata": {"name": "c"}}
    assert fitted([own, pod(MOUNTS)], [free, lazy]).node == "b"
    assert "didn't find available persistent volumes to bind" in fitted([own, pod(MOUNTS)], [lazy]).because
    scratch = {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": claim()["spec"]}}}
    assert fitted([pod(scratch)], [free]).node == "b"


def test_without_a_cluster_the_volumes_of_the_files_count_if_there_are_any() -> None:
    assert fitted([pod(MOUNTS)], None).fits
    own = {**claim(), "metadata": {"name": "c"}}
    with_disk = {**volume(**only("a")), "kind": "PersistentVolume"}
    del with_disk["status"]
    assert fitted([own, with_disk, pod(MOUNTS)], None).node == "a"


LOCAL = ("StorageClass", {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
                          "volumeBindingMode": "WaitForFirstConsumer"})  # fmt: skip
MADE = ("StorageClass", {"metadata": {"name": "made"}, "provisioner": "example.com/maker",
                         "volumeBindingMode": "WaitForFirstConsumer"})  # fmt: skip
NOTHING_LEFT = "node(s) didn't find available persistent volumes to bind"


def waiting_claim(name: str, cls: str = "local") -> tuple[str, Raw]:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": cls, "resources": {"requests": {"storage": "1Gi"}}}
    return "PersistentVolumeClaim", {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def local_volume(name: str, on: str) -> tuple[str, Raw]:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": "1Gi"}}
    made = {"metadata": {"name": name}, "spec": {**spec, **only(on)}, "status": {"phase": "Available"}}
    return "PersistentVolume", made


def mounting(name: str, claim: str) -> Raw:
    raw = pod({"name": "v", "persistentVolumeClaim": {"claimName": claim}})
    return {**raw, "metadata": {**raw["metadata"], "name": name, "uid": name}}


def rehearsed(stored: list[tuple[str, Raw]], *pods: Raw) -> list[tuple[str, str]]:
    cluster, waiting = snapshot([node("n1"), node("n2")], pods, volumes=volumes_in(stored))
    answers = rehearse_pods(cluster, waiting)
    assert cluster.volumes_taken == {}, "a rehearsal takes nothing in earnest"
    return [(one.node, one.because) for one in answers]


def test_a_volume_that_one_pod_of_a_rehearsal_takes_is_not_there_for_the_next() -> None:
    stored = [LOCAL, local_volume("disk", "n2"), waiting_claim("a"), waiting_claim("b")]
    (first, _), (second, why) = rehearsed(stored, mounting("p1", "a"), mounting("p2", "b"))
    assert (first, second) == ("n2", "")
    assert f"2 {NOTHING_LEFT}" in why
    more = [*stored, local_volume("other", "n1")]
    assert {node for node, _ in rehearsed(more, mounting("p1", "a"), mounting("p2", "b"))} == {"n1", "n2"}


def test_pods_that_share_a_claim_go_where_the_first_of_them_has_its_volume() -> None:
    disks = [local_volume("disk-1", "n1"), local_volume("disk-2", "n2")]
    shared = rehearsed([LOCAL, *disks, waiting_claim("a")], mounting("p1", "a"), mounting("p2", "a"))
    assert len({node for node, _ in shared}) == 1
    made = rehearsed([MADE, waiting_claim("a", "made")], mounting("p1", "a"), mounting("p2", "a"))
    assert len({node for node, _ in made} - {""}) == 1, "its volume is made once"


def group(*members: str) -> NodeGroup:
    return NodeGroup("g", template_of(node("n1")), 3, members=members)


def test_growth_counts_volumes() -> None:
    """A node more does not help a pod whose volume is elsewhere, or whose volume another one takes."""
    stored = [LOCAL, local_volume("disk", "n1"), waiting_claim("a"), waiting_claim("b")]
    pods = [mounting("p1", "a"), mounting("p2", "b")]
    cluster, waiting = snapshot([node("n1")], pods, volumes=volumes_in(stored))
    found = decide(cluster, waiting, [group()], {})
    assert found.up.placed == {"default/p1": "n1"}
    assert found.up.new_nodes == {}
    assert NOTHING_LEFT in found.up.unplaced["default/p2"]


@pytest.mark.parametrize(("on", "kept"), [("n1", "default/p has no place elsewhere"), ("n2", "")])
def test_a_node_stays_while_a_pod_on_it_can_reach_its_volume_nowhere_else(on: str, kept: str) -> None:
    running = mounting("p", "c")
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}
    running["metadata"]["ownerReferences"] = [owner]
    running["spec"]["nodeName"] = "n1"
    volumes = volumes_in(held(on))
    nodes = [node("n1"), node("n2")]
    cluster, waiting = snapshot(nodes, [running], volumes=volumes)
    found = decide(cluster, waiting, [group("n1")], occupants([running], [], volumes))
    assert found.down.kept.get("n1", "") == kept
    assert [one.node for one in found.down.removals] == ([] if kept else ["n1"])
