"""The record of a pod as a person reads it."""

from __future__ import annotations

from typing import Any

from kubeqos.cli.inspect.why import as_text
from kubeqos.model import decisions as d
from kubeqos.views import decided
from kubeqos.views.why import departed

POD = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "app"}]},
    "status": {"phase": "Failed", "reason": "Evicted"},
}


def facts(*told: d.AnyDecision) -> dict[str, Any]:
    return decided.facts_of(d.PodDecisions(d.PodRef("shop", "web", "u1"), told))


def test_an_eviction_is_told_with_the_whole_line() -> None:
    ranking = (
        d.RankedPod(d.PodRef("shop", "web", "u1"), "BestEffort, priority 0", 1),
        d.RankedPod(d.PodRef(), "Burstable, priority 0", 2),
        d.RankedPod(d.PodRef("shop", "db", "u2"), "uses 1 of 2 memory that it requested"),
    )
    told = d.Eviction(
        node="n1",
        reason="Evicted",
        message="m",
        because="BestEffort, priority 0",
        signal="memory.available",
        threshold="100Mi",
        available="80Mi",
        ranking=ranking,
    )
    assert decided.on_node(facts(told)) == [
        "  evicted    from n1: memory.available 80Mi is below 100Mi: BestEffort, priority 0",
        "             1.    shop/web: BestEffort, priority 0",
        "             2.    a pod of another namespace: Burstable, priority 0",
        "             stays shop/db: uses 1 of 2 memory that it requested",
    ]


def test_both_sides_of_a_preemption() -> None:
    victims = (d.PodRef("shop", "a", "1"), d.PodRef("shop", "b", "2"))
    assert decided.placed(facts(d.Preemption(node="n1", victims=victims))) == ["  preempts   shop/a, shop/b on n1"]
    told = d.Preempted(node="n1", preemptor=d.PodRef("shop", "boss", "9"), because="priority 0 is below 10")
    assert decided.placed(facts(told)) == ["  preempted  by shop/boss on n1: priority 0 is below 10"]


def test_ends_of_containers_with_limit_and_use() -> None:
    killed = d.Restart(
        node="n1",
        container="c",
        reason="OOMKilled",
        exit_code=137,
        restarts=2,
        memory_limit="64Mi",
        memory_use="60Mi",
        times=3,
    )
    assert decided.on_node(facts(killed)) == [
        "  ended      c: OOMKilled, exit code 137, used 60Mi of memory, its limit is 64Mi, restart 2 (×3)"
    ]


def test_a_node_that_took_it_in_and_one_that_did_not() -> None:
    given = (d.ContainerGrant("c", "0-3", "0-3", "0", "4 CPUs of its own on NUMA 0"),)
    took = d.NodeAdmission(node="n1", admitted=True, alignment="admitted: policy restricted", containers=given)
    refused = d.NodeAdmission(node="n2", admitted=False, reason="OutOfcpu", message="not enough")
    assert decided.on_node(facts(refused, took)) == [
        "  node       n2 refused it, OutOfcpu: not enough",
        "  node       n1 took it in: policy restricted",
        "  given      c: 4 CPUs of its own on NUMA 0",
    ]


def test_hints_their_merge_and_who_chose_what() -> None:
    offers = (
        d.HintOffer("cpu", "plugin cpu", ("0", "1"), ("0-1",)),
        d.HintOffer("NIC", "plugin NIC", ("1",), more=3),
        d.HintOffer("memory", "memory", indifferent=True),
        d.HintOffer("gpu", "plugin gpu"),
    )
    merge = d.HintMerge(("app", "log"), "best-effort", "1", False, True, offers, {"cpu": "0"})
    resources = (d.GivenResource("cpu", "0-3", "plugin cpu"), d.GivenResource("NIC", "eth1", "plugin NIC"))
    given = (d.ContainerGrant("app", "0-3", resources=resources),)
    told = d.NodeAdmission(node="n1", admitted=True, alignment="policy best-effort", hints=(merge,), containers=given)
    assert decided.on_node(facts(told)) == [
        "  node       n1 took it in: policy best-effort",
        "  hints      app, log: cpu by plugin cpu: prefers NUMA 0 or NUMA 1, could be NUMA 0-1, gets NUMA 0",
        "             app, log: NIC by plugin NIC: prefers NUMA 1 or 3 wider sets",
        "             app, log: memory by memory: no preference",
        "             app, log: gpu by plugin gpu: nowhere",
        "             app, log: merged to NUMA 1, not preferred by all",
        "  given      app: cpu: 0-3, chosen by plugin cpu",
        "             app: NIC: eth1, chosen by plugin NIC",
    ]


def test_what_limit_ranges_filled_in_and_who_chose_classes() -> None:
    choices = (d.ClassChoice("rdt", "gold", "requested by the container", "c"), d.ClassChoice("net", "fast", "the pod"))
    told = d.Admission(limit_ranges=("cpu request for container c",), classes=choices)
    assert decided.admitted(facts(told)) == [
        "  defaults   cpu request for container c: by a LimitRange",
        "  chosen     c: rdt=gold, requested by the container",
        "  chosen     net=fast, the pod",
    ]


def test_a_pod_that_is_gone_is_told_as_it_was() -> None:
    record = d.PodDecisions(d.PodRef("shop", "web", "u1"), gone="2026-11-16T05:00:00Z", object=POD)
    text = as_text(departed(record, POD, [])).splitlines()
    assert text[0] == "shop/web is gone since 2026-11-16T05:00:00Z; it was Failed; its record is kept for an hour"
    assert "  status     Evicted" in text


def test_a_resize_is_told_from_both_sides() -> None:
    changed = d.ResizedContainer("c", {"requests.cpu": "1"}, {"requests.cpu": "2", "rdt": "gold"})
    told = (
        d.Resize(outcome="Asked", containers=(changed, d.ResizedContainer("", {"limits.cpu": "4"}, {}))),
        d.Resize(outcome="Deferred", node="n1", message="2 CPUs are free"),
        d.Resize(outcome="Given", node="n1"),
    )
    assert decided.on_node(facts(*told)) == [
        "  resize     asked for c: requests.cpu 1 → 2, rdt none → gold",
        "  resize     asked for the pod: limits.cpu 4 → none",
        "  resize     deferred by n1: 2 CPUs are free",
        "  resize     given by n1",
    ]


def test_a_victim_of_a_taint_or_of_the_eviction_api_is_told_why() -> None:
    told = (
        d.Disruption(reason="DeletionByTaintManager", node="n1", taints=("broken:NoExecute",), message="m"),
        d.Disruption(reason="EvictionByEvictionAPI", node="n1", asked_by="jane", budget="careful", message="m"),
        d.Disruption(reason="DeletionByPodGC", node="n1", message="node n1 is gone"),
    )
    assert decided.on_node(facts(*told)) == [
        "  evicted    from n1: it does not tolerate broken:NoExecute (any longer)",
        "  evicted    from n1: asked for through the eviction API by jane; budget careful allowed it",
        "  evicted    from n1: swept away: node n1 is gone",
    ]
