"""Scheduling figures: the decision loop, how it grows with the cluster, preemption, and what a full cluster weighs."""

from __future__ import annotations

import resource
import time

from bench.machine import describe
from kubeqos.codec import encode_json
from kubeqos.model.objects import NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.placer import Placed, Placer, Unplaced
from kubeqos.placement.preempt import Preemption, Preemptor
from kubeqos.placement.shape import Shape, compile_shape
from kubeqos.scheduler.core import Scheduler
from kubeqos.scheduler.effects import Bind

CLASSES = [{"name": "rdt", "classes": [{"name": "gold", "capacity": 3}, {"name": "bronze"}]}]


def node(number: int) -> dict[str, object]:
    """scheduler_perf's node, with classes."""
    return {
        "metadata": {"name": f"node-{number}", "labels": {"zone": f"zone-{number % 3}"}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"},
            "qosResources": {"containerQoSResources": CLASSES},
        },
    }


def pod(name: str, cpu: str = "100m", *, gold: bool = False, priority: int = 0) -> dict[str, object]:
    classes = [{"name": "rdt", "class": "gold"}] if gold else []
    resources = {"requests": {"cpu": cpu, "memory": "500Mi"}, "qosResources": classes}
    return {
        "metadata": {"name": name, "namespace": "bench", "uid": name, "labels": {"app": "bench"}},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "image": "pause", "resources": resources}],
        },
    }


def shape(cpu: str = "100m", *, gold: bool = False, priority: int = 0) -> Shape:
    return compile_shape(PodView.of(pod("p", cpu, gold=gold, priority=priority)))


def cluster(nodes: int) -> Cluster:
    made = Cluster()
    for number in range(nodes):
        made.set_node(NodeFacts(NodeView.of(node(number))))
    return made


def decisions(nodes: int, pods: int) -> tuple[float, float]:
    """Pods per second through the whole core: decode, queue, decide, charge; half of them ask for a class.

    By the clock, and by the processor time used, which other work on the machine disturbs less.
    """
    core = Scheduler()
    for number in range(nodes):
        core.node_changed(encode_json(node(number)), f"node-{number}", 0.0)
    arriving = [encode_json(pod(f"p{number}", gold=number % 2 == 1)) for number in range(pods)]
    started, busy = time.perf_counter(), time.process_time()
    bound = 0
    for start in range(0, pods, 64):
        for offset, raw in enumerate(arriving[start : start + 64]):
            core.pod_changed(raw, f"p{start + offset}", 0.0)
        bound += sum(isinstance(effect, Bind) for effect in core.step(0.0, 64))
    elapsed, busy = time.perf_counter() - started, time.process_time() - busy
    assert bound == pods, f"only {bound} of {pods} pods were placed"
    return pods / elapsed, pods / busy


def preemptions(nodes: int, wanted: int) -> float:
    """Preemptions per second on a cluster full of low-priority pods."""
    full, low, high = cluster(nodes), shape("900m"), shape("3", priority=10)
    for number in range(nodes):
        for slot in range(4):
            uid = f"{number}-{slot}"
            full.add_pod(f"node-{number}", PlacedPod(uid, uid, low, started=number))
    placer, preemptor = Placer(full), Preemptor(full)
    started, done = time.perf_counter(), 0
    while done < wanted:
        answer = placer.place(high)
        if isinstance(answer, Placed):
            raise AssertionError("the cluster was not full")
        assert isinstance(answer, Unplaced)
        plan = preemptor.preempt(high, answer.explanation)
        assert isinstance(plan, Preemption)
        for victim in plan.victims:
            full.remove_pod(victim.uid)
        full.add_pod(plan.node, PlacedPod(f"high-{done}", "high", high))
        done += 1
    return done / (time.perf_counter() - started)


def resident(nodes: int, pods: int) -> float:
    """Megabytes of this process with a cluster full of pods, in the scheduler's own books."""
    core = Scheduler()
    for number in range(nodes):
        core.node_changed(encode_json(node(number)), f"node-{number}", 0.0)
    for number in range(pods):
        raw = pod(f"p{number}", "10m")
        raw["spec"] = {"nodeName": f"node-{number % nodes}", **raw["spec"]}  # type: ignore[dict-item]
        core.pod_changed(encode_json(raw), f"p{number}", 0.0)
    assert len(core.cluster.where) == pods
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    print(describe())
    clock, processor = decisions(5000, 10000)
    print("decision loop, 5,000 nodes × 10,000 pods, half with a class, target ≥ 10000/s")
    print(f"  {clock:.0f}/s by the clock, {processor:.0f} per second of processor time")
    for nodes in (1000, 2000, 4000, 8000):
        clock, processor = decisions(nodes, 3000)
        print(f"  3,000 pods on {nodes:5d} nodes: {clock:6.0f}/s by the clock, {processor:6.0f} of processor time")
    print(f"preemptions, 5,000 nodes full of low-priority pods   {preemptions(5000, 2000):6.0f}/s   target ≥ 300")
    print(f"resident, 5,000 nodes × 50,000 pods                  {resident(5000, 50000):6.0f} MB  target ≤ 1024")


if __name__ == "__main__":
    main()
