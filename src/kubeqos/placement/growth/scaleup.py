"""Growth: how many nodes of which group make pods run that wait. Pure.

A group is a template of nodes that need not exist yet, with their classes, so a cluster can be grown from nothing.
Nodes are added one at a time, each from the group where a pod that still waits gets its place for the least; of groups
that cost the same, from the one that takes the most of them.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from kubeqos.placement.cluster import Cluster
from kubeqos.placement.growth.groups import NodeGroup, Waiting, named, settle
from kubeqos.placement.placer import Placed, Placer, Unplaced


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """The outcome: nodes to add per group, where each pod would run, and why the rest would not."""

    added: dict[str, int]
    placed: dict[str, str]
    unplaced: dict[str, str]
    trail: tuple[str, ...] = field(default=())
    new_nodes: dict[str, str] = field(default_factory=dict)
    """Names of the nodes to add, and of which group each is."""


def rehearse(cluster: Cluster, waiting: Sequence[Waiting], groups: Sequence[NodeGroup]) -> ScaleUp:
    """Grow a copy of the cluster until nothing more helps; the cluster itself is not touched."""
    trial = copy.deepcopy(cluster)
    pending = sorted((pod for pod in waiting if not pod.waits), key=lambda pod: -pod.shape.priority)
    placed: dict[str, str] = {}
    added = {group.name: 0 for group in groups}
    nodes: dict[str, str] = {}
    trail: list[str] = []
    pending = place_all(trial, pending, placed)
    while pending:
        best = _best(trial, pending, [one for one in groups if len(one.members) + added[one.name] < one.most])
        if best is None:
            break
        group, taken = best
        added[group.name] += 1
        name = free_name(trial, group)
        nodes[name] = group.name
        trial.set_node(named(group.template, name))
        trail.append(f"{name} takes {taken} of {len(pending)} waiting pods")
        pending = place_all(trial, pending, placed)
    unplaced = {pod.name: pod.waits for pod in waiting if pod.waits} | _reasons(trial, pending, groups)
    return ScaleUp(added, placed, unplaced, tuple(trail), nodes)


def _best(cluster: Cluster, pending: Sequence[Waiting], groups: Sequence[NodeGroup]) -> tuple[NodeGroup, int] | None:
    """The group of which one more node serves a pod for the least, and how many pods that node takes."""
    found: tuple[float, int, NodeGroup] | None = None
    for group in groups:
        taken = _taken_by(cluster, group, pending)
        if taken and (found is None or (group.cost / taken, -taken) < (found[0], -found[1])):
            found = group.cost / taken, taken, group
    return None if found is None else (found[2], found[1])


def free_name(cluster: Cluster, group: NodeGroup) -> str:
    """What the next node of a group is called."""
    taken = {*cluster.row_of, *group.members}
    return next(name for number in itertools.count(1) if (name := f"{group.name}-{number}") not in taken)


def place_all(cluster: Cluster, pending: Sequence[Waiting], placed: dict[str, str]) -> list[Waiting]:
    """Put pods where the scheduler would; returns those that find no place."""
    placer, left = Placer(cluster), []
    for pod in pending:
        answer = placer.place(pod.shape)
        if isinstance(answer, Placed):
            settle(cluster, pod, answer.node)
            placed[pod.name] = answer.node
        else:
            left.append(pod)
    return left


def _taken_by(cluster: Cluster, group: NodeGroup, pending: Sequence[Waiting]) -> int:
    """How many pods that wait now would run if one node of this group came."""
    trial = copy.deepcopy(cluster)
    trial.set_node(named(group.template, free_name(cluster, group)))
    return len(pending) - len(place_all(trial, pending, {}))


def _reasons(cluster: Cluster, pending: Sequence[Waiting], groups: Sequence[NodeGroup]) -> dict[str, str]:
    """Why growth does not help: judged against an empty node of every group."""
    empty = Cluster()
    empty.volumes_taken, empty.volumes_made = cluster.volumes_taken, cluster.volumes_made
    for group in groups:
        empty.set_node(named(group.template, group.name))
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
