"""Rehearsing growth: how many nodes of which group would make pending pods run.

Used by `kubeqos simulate scale-up`. A group is a template of nodes that do not exist yet, with their classes,
so a cluster can be grown from nothing. Nodes are added one at a time, each from the group that takes the most
pods that still wait.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.placer import Placed, Placer, Unplaced
from kubeqos.placement.shape import Shape


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that could be added, all alike."""

    name: str
    template: NodeFacts
    most: int
    """How many may be added."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod without a node."""

    uid: str
    name: str
    shape: Shape
    waits: str = ""
    """What it waits for beside a node, in words: its claims are not there, or cannot be served anywhere."""


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """The outcome: nodes to add per group, where each pod would run, and why the rest would not."""

    added: dict[str, int]
    placed: dict[str, str]
    unplaced: dict[str, str]
    trail: tuple[str, ...] = field(default=())


def rehearse(cluster: Cluster, waiting: Sequence[Waiting], groups: Sequence[NodeGroup]) -> ScaleUp:
    """Grow a copy of the cluster until nothing more helps; the cluster itself is not touched."""
    trial = copy.deepcopy(cluster)
    pending = sorted(waiting, key=lambda pod: -pod.shape.priority)
    placed: dict[str, str] = {}
    added = {group.name: 0 for group in groups}
    trail: list[str] = []
    pending = _place(trial, pending, placed)
    while pending:
        best: tuple[int, NodeGroup] | None = None
        for group in groups:
            if added[group.name] < group.most:
                taken = _taken_by(trial, group, added[group.name], pending)
                if taken and (best is None or taken > best[0]):
                    best = (taken, group)
        if best is None:
            break
        taken, group = best
        added[group.name] += 1
        name = f"{group.name}-{added[group.name]}"
        trial.set_node(_named(group.template, name))
        trail.append(f"{name} takes {taken} of {len(pending)} waiting pods")
        pending = _place(trial, pending, placed)
    return ScaleUp(added, placed, _reasons(trial, pending, groups), tuple(trail))


def _place(cluster: Cluster, pending: Sequence[Waiting], placed: dict[str, str]) -> list[Waiting]:
    placer, left = Placer(cluster), []
    for pod in pending:
        answer = placer.place(pod.shape)
        if isinstance(answer, Placed):
            cluster.add_pod(answer.node, PlacedPod(pod.uid, pod.name, pod.shape))
            placed[pod.name] = answer.node
        else:
            left.append(pod)
    return left


def _taken_by(cluster: Cluster, group: NodeGroup, count: int, pending: Sequence[Waiting]) -> int:
    """How many pods that wait now would run if one node of this group came."""
    trial = copy.deepcopy(cluster)
    trial.set_node(_named(group.template, f"{group.name}-{count + 1}"))
    return len(pending) - len(_place(trial, pending, {}))


def _reasons(cluster: Cluster, pending: Sequence[Waiting], groups: Sequence[NodeGroup]) -> dict[str, str]:
    """Why growth does not help: judged against an empty node of every group."""
    empty = Cluster()
    for group in groups:
        empty.set_node(_named(group.template, group.name))
    reasons: dict[str, str] = {}
    for pod in pending:
        against_groups = Placer(empty).place(pod.shape)
        if isinstance(against_groups, Unplaced) and groups:
            reasons[pod.name] = f"no group helps: {against_groups.message}"
        else:
            answer = Placer(cluster).place(pod.shape)
            message = answer.message if isinstance(answer, Unplaced) else ""
            reasons[pod.name] = f"groups are at their limit: {message}" if groups else message
    return reasons


def _named(template: NodeFacts, name: str) -> NodeFacts:
    view = template.view
    metadata = msgspec.structs.replace(view.metadata, name=name)
    return NodeFacts(msgspec.structs.replace(view, metadata=metadata), template.drivers, template.topology)
