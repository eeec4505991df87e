"""The answers of the dashboard's endpoints, as types. `/dashboard/api/v1/schema` is made from them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

VERSION = "v1"


class Data(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all answers."""


# ---- Machines


class Core(Data, frozen=True, kw_only=True):
    """A physical core: its id and its threads (CPU ids)."""

    id: int
    cpus: list[int]
    kind: str = "performance"


class Cache(Data, frozen=True, kw_only=True):
    """A last-level cache and the cores behind it."""

    id: int
    cores: list[Core]


class Pages(Data, frozen=True, kw_only=True):
    """Huge pages of one size that are set aside."""

    size_bytes: int
    count: int


class DeviceData(Data, frozen=True, kw_only=True):
    """A device; `numa` is null where the firmware does not tell."""

    name: str
    kind: str
    numa: int | None = None


class Numa(Data, frozen=True, kw_only=True):
    """A NUMA node: memory, what of it can still be handed out, caches, devices, distances to every NUMA node."""

    id: int
    memory_bytes: int
    free_bytes: int | None
    hugepages: list[Pages]
    caches: list[Cache]
    devices: list[DeviceData]
    distances: dict[int, int]


class Socket(Data, frozen=True, kw_only=True):
    """A socket and its NUMA nodes. Memory without CPUs is in socket -1."""

    id: int
    numa: list[Numa]


class Layout(Data, frozen=True, kw_only=True):
    """The machine: what changes with a reboot only."""

    name: str
    cpus: int
    sockets: list[Socket]
    offline: str
    isolated: str
    loose_devices: list[DeviceData]


class Owner(Data, frozen=True, kw_only=True):
    """Who has CPUs: a container of its own (`exclusive`), containers that share (`shared`), a pool, or nobody."""

    name: str
    how: str
    """exclusive, shared, pool, sharing (some of these with others), reserved, isolated or offline"""
    cpus: str
    count: int
    really: str = ""
    """Where the kernel or the runtime lets the container run; empty where that is not known."""
    drift: str = ""
    """CPUs that it uses and should not, or should and cannot. A sibling that is left idle for it is neither."""
    mems: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""


class Fragments(Data, frozen=True, kw_only=True):
    """How scattered the CPUs are that nobody has to himself."""

    free: int
    in_whole_cores: int
    largest_cache: int
    largest_numa: int
    score: float
    text: str


class MoveRow(Data, frozen=True, kw_only=True):
    """A container with CPUs of its own that would get others."""

    container: str
    namespace: str
    pod: str
    cpus: int
    from_cpus: str
    to_cpus: str
    from_numa: str
    to_numa: str


class Measure(Data, frozen=True, kw_only=True):
    """How scattered the free CPUs are in one respect, before the moves and after them."""

    what: str
    now: float
    then: float


class Stays(Data, frozen=True, kw_only=True):
    """A container that may not move, or a kind of resource that nobody moves, and why."""

    what: str
    because: str


class DefragData(Data, frozen=True, kw_only=True):
    """Who would move so that a node's free CPUs lie closer together. Nothing was changed."""

    moves: list[MoveRow]
    measures: list[Measure]
    staying: list[Stays]
    owners: list[Owner]
    """Who would have which CPUs then."""
    cannot_apply: str
    """Why the node cannot carry it out while containers run; empty if it can."""
    commands: dict[str, str]


# ---- Rows of tables


class ClassRow(Data, frozen=True, kw_only=True):
    """A QoS class on a node, or summed over nodes. Capacity 0 is unlimited."""

    resource: str
    cls: str = msgspec.field(name="class")
    level: str
    capacity: int
    used: int
    nodes: int = 1
    mutable: bool = False


class ConditionRow(Data, frozen=True, kw_only=True):
    """A condition of a node, and whether it is as it should be."""

    type: str
    status: str
    healthy: bool
    reason: str
    message: str


class PodRow(Data, frozen=True, kw_only=True):
    """A pod in a table."""

    namespace: str
    name: str
    phase: str
    qos_class: str
    node: str
    cpu: str
    memory: str
    classes: dict[str, str]
    reason: str


class NodeRow(Data, frozen=True, kw_only=True):
    """A node in a table and in the heat map."""

    name: str
    ready: bool
    profile: str
    problems: list[str]
    cpus: float
    cpu_requested: float
    memory_bytes: int
    memory_requested: int
    pods: int
    exclusive: int
    """CPUs that a container has to itself; -1 where the node publishes no machine."""
    classes: dict[str, list[int]]
    """`resource=class` → used, capacity"""


class Bar(Data, frozen=True, kw_only=True):
    """One thing that a quota limits; `share` is null where there is no limit."""

    resource: str
    used: str
    hard: str
    share: float | None


class QuotaRow(Data, frozen=True, kw_only=True):
    """A quota with its scopes."""

    namespace: str
    name: str
    scopes: list[str]
    bars: list[Bar]


class Happening(Data, frozen=True, kw_only=True):
    """Something that happened to an object, as its event tells it."""

    time: float
    """Seconds since the epoch."""
    reason: str
    warning: bool
    count: int
    kind: str
    namespace: str
    name: str
    message: str
    by: str
    uid: str = ""
    """Of the object: one that is gone may have had the same name."""


class PendingGroup(Data, frozen=True, kw_only=True):
    """Pods that wait for the same reason, with the nearest miss of the first of them."""

    reason: str
    pods: list[str]
    nearest: list[str]
    left_out: str = ""


# ---- Views


class ClusterData(Data, frozen=True, kw_only=True):
    """The cluster. Tables are by key, so that a change is one row."""

    nodes: dict[str, NodeRow]
    classes: list[ClassRow]
    quotas: dict[str, QuotaRow]
    pending: list[PendingGroup]
    happenings: list[Happening]
    counts: dict[str, int]
    left_out: list[str]
    commands: dict[str, str]


class NodeData(Data, frozen=True, kw_only=True):
    """A node."""

    name: str
    profile: str
    drivers: list[str]
    conditions: list[ConditionRow]
    layout: Layout | None
    owners: list[Owner]
    pools: dict[str, str]
    """Pool → its CPUs, those of its exclusive containers included."""
    fragments: Fragments | None
    classes: list[ClassRow]
    pods: dict[str, PodRow]
    happenings: list[Happening]
    left_out: list[str]
    commands: dict[str, str]


class Assigned(Data, frozen=True, kw_only=True):
    """A class that the pod or a container of it has, and who decided that."""

    container: str
    resource: str
    asked: str
    assigned: str
    source: str


class HeldCpus(Data, frozen=True, kw_only=True):
    """Where a container runs."""

    container: str
    cpus: str
    exclusive: bool
    mems: str
    partition: str = ""
    """What the kernel made of its own CPUs: a partition, or why not."""
    idle: str = ""
    """Siblings of its own CPUs, on which nobody runs."""


class PodData(Data, frozen=True, kw_only=True):
    """A pod."""

    namespace: str
    name: str
    uid: str
    phase: str
    node: str
    qos_class: str
    because: str
    placement: str
    status: str
    requests: dict[str, str]
    classes: list[Assigned]
    cpus: list[HeldCpus]
    memory: dict[str, Any]
    containers: list[dict[str, Any]]
    happenings: list[Happening]
    story: list[str]
    """What its node did for it, one line for each step."""
    decisions: list[dict[str, Any]]
    """What was decided about it, oldest first (docs/decisions.md), where the API server keeps records."""
    refused: list[dict[str, Any]]
    nearest: list[str]
    fixes: list[dict[str, str]]
    now: str
    left_out: list[str]
    commands: dict[str, str]


class PodsData(Data, frozen=True, kw_only=True):
    """Pods, as many as a page can show."""

    pods: dict[str, PodRow]
    total: int
    commands: dict[str, str]


class TimelineData(Data, frozen=True, kw_only=True):
    """How far back the past is known, how much changed when, and what happened."""

    first: float
    last: float
    changes: list[tuple[float, int]]
    """Start of each minute, and how many objects changed in it."""
    happenings: list[Happening]
    left_out: list[str]


class SessionData(Data, frozen=True, kw_only=True):
    """Who is logged in, until when, and what of the cluster they may see."""

    user: str
    expires: float
    cluster: str
    version: str
    sees: dict[str, str]
    """nodes, pods, quotas, events → `all`, `none`, or the namespaces."""


class FitData(Data, frozen=True, kw_only=True):
    """Where one pod of a manifest would go."""

    pod: str
    fits: bool
    node: str
    evicts: list[str]
    because: str


class WhatIfData(Data, frozen=True, kw_only=True):
    """Where the pods of a manifest would go. Nothing was changed."""

    answers: list[FitData]
    commands: dict[str, str]


class CurveData(Data, frozen=True, kw_only=True):
    """A chart: a line of (seconds, value) for each name; a value holds until the next."""

    title: str
    unit: str
    top: float
    duration: float
    series: dict[str, list[tuple[float, float]]]


class PlayedWorkload(Data, frozen=True, kw_only=True):
    """What became of a workload's pods under a policy, and where they went."""

    policy: str
    cells: list[str]
    """As `kubeqos simulate run` has them, in the order of the answer's columns."""
    nodes: dict[str, int]


class PlayedReason(Data, frozen=True, kw_only=True):
    """Why so many pods waited, were refused or had to leave."""

    policy: str
    pods: int
    because: str


class ComparisonData(Data, frozen=True, kw_only=True):
    """One scenario under one policy or more."""

    policies: list[str]
    rows: list[list[str]]
    columns: list[str]
    """Of the workloads' cells."""
    workloads: list[PlayedWorkload]
    reasons: list[PlayedReason]
    charts: list[CurveData]
    commands: dict[str, str]


class ScenarioData(Data, frozen=True, kw_only=True):
    """The cluster as a scenario, as `kubeqos import` makes it, and what such a one cannot hold."""

    scenario: str
    not_carried: list[str]
    commands: dict[str, str]


class Problem(Data, frozen=True, kw_only=True):
    """Why something was not answered, and what to do."""

    error: str
    where: str = ""
    remedy: str = ""


class WhatIfQuestion(Data, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Manifests of pods or workloads, as YAML or JSON."""

    manifest: str
    namespace: str = "default"


class CompareQuestion(Data, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario and two scheduler configurations or more, by name, each as YAML; an empty one is the default."""

    scenario: str
    policies: dict[str, str]


class LoginQuestion(Data, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code of a one-time link."""

    code: str


ANSWERS: dict[str, type[Data]] = {
    "GET session": SessionData,
    "GET cluster": ClusterData,
    "GET nodes/{node}": NodeData,
    "GET nodes/{node}/owners": CurveData,
    "GET nodes/{node}/defrag": DefragData,
    "GET pods": PodsData,
    "GET pods/{namespace}/{pod}": PodData,
    "GET timeline": TimelineData,
    "GET scenario": ScenarioData,
    "POST whatif": WhatIfData,
    "POST compare": ComparisonData,
}
"""Endpoints below `/dashboard/api/v1/` and what they answer."""

QUESTIONS: dict[str, type[Data]] = {
    "POST login": LoginQuestion,
    "POST whatif": WhatIfQuestion,
    "POST compare": CompareQuestion,
}


def schema() -> dict[str, Any]:
    """A JSON schema of every question and answer."""
    wanted = [*ANSWERS.values(), *QUESTIONS.values(), Problem]
    references, components = msgspec.json.schema_components(wanted, ref_template="#/$defs/{name}")
    of = dict(zip(wanted, references, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"kubeqos dashboard {VERSION}",
        "answers": {path: of[kind] for path, kind in ANSWERS.items()},
        "questions": {path: of[kind] for path, kind in QUESTIONS.items()},
        "problem": of[Problem],
        "$defs": components,
    }
