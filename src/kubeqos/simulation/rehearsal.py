"""Rehearsing pods: would they fit, where, and who would have to leave. Pure.

Used by `kubeqos simulate fit`. Pods are decided one after the other, the most important first, as the scheduler would;
each takes its place on a copy of the cluster before the next is decided.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.groups import Waiting, settle
from kubeqos.placement.placer import Placed, Placer
from kubeqos.placement.preempt import NoPreemption, Preemptor
from kubeqos.placement.score import DEFAULT_WEIGHTS


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """One pod's answer: its node and whom it would evict there, or why it fits nowhere."""

    pod: str
    node: str = ""
    evicts: tuple[str, ...] = ()
    because: str = ""

    @property
    def fits(self) -> bool:
        """Whether it would run, be it at the cost of others."""
        return bool(self.node)


def rehearse_pods(cluster: Cluster, pods: Sequence[Waiting]) -> list[Rehearsed]:
    """Decide for all pods; the answers come in the order of the pods given. The cluster itself is not touched."""
    trial = copy.deepcopy(cluster)
    placer, preemptor = Placer(trial, DEFAULT_WEIGHTS), Preemptor(trial)
    answers: dict[str, Rehearsed] = {}
    for pod in sorted(pods, key=lambda each: -each.shape.priority):
        answers[pod.uid] = _decide(trial, pod, placer, preemptor)
    return [answers[pod.uid] for pod in pods]


def _decide(cluster: Cluster, pod: Waiting, placer: Placer, preemptor: Preemptor) -> Rehearsed:
    if pod.waits:
        return Rehearsed(pod.name, because=pod.waits)
    answer = placer.place(pod.shape)
    if isinstance(answer, Placed):
        because = placer.because(pod.shape, answer)
        settle(cluster, pod, answer.node)
        return Rehearsed(pod.name, answer.node, because=because)
    because = answer.message  # of the cluster as it is, before anybody is evicted
    plan = preemptor.preempt(pod.shape, answer.explanation)
    if isinstance(plan, NoPreemption):
        return Rehearsed(pod.name, because=f"{because} preemption: {plan.message}")
    for victim in plan.victims:
        cluster.remove_pod(victim.uid)
    settle(cluster, pod, plan.node)
    return Rehearsed(pod.name, plan.node, tuple(victim.name for victim in plan.victims), because)
