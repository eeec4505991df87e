"""Volumes in rehearsals: why a pod waits for its claims, and where one with volumes would run."""

from __future__ import annotations

from typing import Any

import pytest

from kubeqos.manifests import Manifest
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
