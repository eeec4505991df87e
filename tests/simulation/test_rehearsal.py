"""Rehearsed pods: decided as the scheduler would, on a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeqos.manifests import parse
from kubeqos.model.hardware.named import kep80
from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.groups import Waiting
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.scheduler.reading.snapshot import snapshot
from kubeqos.simulation.rehearsal import Rehearsed, rehearse_pods
from kubeqos.views.fitting import claims_of, pods_of
from kubeqos.views.pending import looked_at
from tests.scheduler.reading.test_claims import Node


def shape(cpu: str, priority: int = 0, **spec: Any) -> Shape:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return compile_shape(
        PodView.of({"metadata": {}, "spec": {"priority": priority, "containers": [container], **spec}})
    )


def cluster(**cpus: str) -> Cluster:
    made = Cluster()
    for name, cpu in cpus.items():
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
        made.set_node(NodeFacts(NodeView.of({"metadata": {"name": name}, "status": {"allocatable": amounts}})))
    return made


def waiting(name: str, cpu: str, priority: int = 0, **spec: Any) -> Waiting:
    return Waiting(name, name, shape(cpu, priority, **spec))


def test_pods_take_their_places_one_after_the_other() -> None:
    answers = rehearse_pods(cluster(a="2", b="1"), [waiting("x", "2"), waiting("y", "1"), waiting("z", "1")])
    assert [(one.pod, one.node) for one in answers] == [("x", "a"), ("y", "b"), ("z", "")]
    assert answers[2].because.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_the_most_important_is_decided_first_and_answers_keep_their_order() -> None:
    answers = rehearse_pods(cluster(a="1"), [waiting("low", "1"), waiting("high", "1", 5)])
    assert [(one.pod, one.node, one.fits) for one in answers] == [("low", "", False), ("high", "a", True)]


def test_victims_are_named_and_the_cluster_is_left_as_it_was() -> None:
    here = cluster(a="2")
    here.add_pod("a", PlacedPod("v1", "default/v1", shape("1")))
    here.add_pod("a", PlacedPod("v2", "default/v2", shape("1", 3)))
    (answer,) = rehearse_pods(here, [waiting("new", "1", 9)])
    assert answer == Rehearsed("new", "a", ("default/v1",), "0/1 nodes are available: 1 Insufficient cpu.")
    assert set(here.where) == {"v1", "v2"}


def test_a_pod_that_never_preempts_evicts_nobody() -> None:
    here = cluster(a="1")
    here.add_pod("a", PlacedPod("v", "default/v", shape("1")))
    (answer,) = rehearse_pods(here, [waiting("new", "1", 9, preemptionPolicy="Never")])
    assert not answer.fits
    assert answer.evicts == ()


CLAIMED = """
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClass
metadata: {name: cores}
driverName: reference.cci.kubeqos.io
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cfg}
data: {config.json: '{"cores": ["30"], "cpu attributes": [["EXCLUSIVE", "CORE-SIBLING-DENIED"]]}'}
---
apiVersion: resource.k8s.io/v1alpha1
kind: ResourceClaimTemplate
metadata: {name: denied}
spec: {spec: {resourceClassName: cores, parametersRef: {kind: ConfigMap, name: cfg}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: hpc}
spec:
  replicas: 2
  template:
    spec:
      resourceClaims: [{name: mine, resourceClaimTemplateName: denied}]
      containers:
      - name: main
        resources: {requests: {cpu: "30"}, limits: {cpu: "30"}, claims: [{name: mine}]}
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec: {containers: [{name: main, resources: {requests: {cpu: "45"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: policy, annotations: {cci.resources.alpha.kubernetes.io/pod: cci-exclusive}}
spec: {containers: [{name: main, resources: {requests: {cpu: "20"}, limits: {cpu: "20"}}}]}
"""


def test_claims_are_rehearsed_as_the_node_admits_them(tmp_path: Path) -> None:
    """30 cores without siblings keep 60 of 80 CPUs: one of two replicas fits, and no pod of 45 beside it."""
    manifests = parse(CLAIMED, "claims.yaml")
    nodes = [Node(kep80(), tmp_path).raw()]
    found, _ = snapshot(nodes, [], claims_of(manifests, "default"))
    answers = {one.pod: one for one in rehearse_pods(found, pods_of(manifests, [], "default"))}
    assert {name: one.node for name, one in answers.items()} == {
        "default/hpc-1": "n", "default/hpc-2": "", "default/large": "", "default/policy": ""}  # fmt: skip
    assert "node(s) cannot serve the pod's claims (not enough cpus available" in answers["default/hpc-2"].because
    assert "Insufficient cpu beside the cores that claims keep" in answers["default/large"].because


def test_why_knows_what_claims_wait_for(tmp_path: Path) -> None:
    manifests = parse(CLAIMED, "claims.yaml")
    template = next(one.raw for one in manifests if one.kind == "Deployment")["spec"]["template"]
    raw = {**template, "metadata": {"name": "hpc", "namespace": "default", "uid": "u"}}
    nodes = [Node(kep80(), tmp_path).raw()]
    assert looked_at(raw, nodes, [], {}, fix=True) == {
        "waits": 'waiting for claims: ResourceClaimTemplate "default/denied" does not exist'
    }
    assert looked_at(raw, nodes, [], claims_of(manifests, "default"), fix=True) == {"now": "n would take it now"}
