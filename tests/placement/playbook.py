"""Stories of placement in three words: given these nodes, with these pods running, then this node or these reasons.

    world = given(node("a", cpu="2"), node("b", cpu="4")).running(pod("web", cpu="3"), on="b")
    assert world.goes_to(pod("new", cpu="2")) == "a"
    assert world.reasons(pod("big", cpu="8")) == {"a": ["Insufficient cpu"], "b": ["Insufficient cpu"]}

Every question is put to a placer that has been asked before, and to one that has not, by columns and one row at a
time: they must say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubeqos.model.annotations.topologysummary import NO_SUMMARY, TopologySummary
from kubeqos.model.objects import LabelSelectorView, NodeView, PodView
from kubeqos.placement.cluster import Cluster
from kubeqos.placement.fit import Explanation
from kubeqos.placement.nodes import NodeFacts, PlacedPod
from kubeqos.placement.placer import Placed, Placer, Unplaced
from kubeqos.placement.preempt import DisruptionBudget, NoPreemption, Preemptor
from kubeqos.placement.score import DEFAULT_WEIGHTS, Weights
from kubeqos.placement.shape import Shape, compile_shape

Raw = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ROLE = "kubernetes.io/pod-role"


def classes(**offered: Mapping[str, int]) -> list[Raw]:
    """`classes(rdt={"gold": 2, "bronze": 0})`: capacity 0 is unlimited."""
    return [
        {"name": name, "classes": [{"name": cls, "capacity": capacity} for cls, capacity in each.items()]}
        for name, each in offered.items()
    ]


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "10",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    container_classes: Sequence[Raw] = (),
    pod_classes: Sequence[Raw] = (),
    images: Mapping[str, int] | None = None,
    drivers: Sequence[str] = (),
    topology: TopologySummary = NO_SUMMARY,
    **amounts: str,
) -> NodeFacts:
    """A node; a taint is written as `key=value:Effect`, a further resource as `gpu="2"`."""
    extended = {f"example.com/{key}": amount for key, amount in amounts.items()}
    raw = {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"unschedulable": unschedulable, "taints": [taint(each) for each in taints]},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **extended},
            "images": [{"names": [image], "sizeBytes": size} for image, size in (images or {}).items()],
            "qosResources": {"containerQoSResources": container_classes, "podQoSResources": pod_classes},
        },
    }
    return NodeFacts(NodeView.of(raw), frozenset(drivers), topology)


def taint(text: str) -> Raw:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def container(name: str = "c", *, limits: bool = False, uses: Mapping[str, str] | None = None, **requests: str) -> Raw:
    """`uses` names classes; `gpu="1"` is a further resource; with `limits` they equal the requests."""
    asked = {key if key in ("cpu", "memory") else f"example.com/{key}": value for key, value in requests.items()}
    resources: Raw = {"requests": asked, "qosResources": [{"name": k, "class": v} for k, v in (uses or {}).items()]}
    if limits:
        resources["limits"] = dict(asked)
    return {"name": name, "resources": resources}


def pod(
    name: str = "new",
    *containers: Raw,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    role: str = "",
    annotations: Mapping[str, str] | None = None,
    uses: Mapping[str, str] | None = None,
    pod_uses: Mapping[str, str] | None = None,
    limits: bool = False,
    ports: Sequence[Raw] = (),
    image: str = "",
    spec: Mapping[str, Any] | None = None,
    **requests: str,
) -> Raw:
    """A pod of one container, unless containers are given."""
    only = {**container("c", limits=limits, uses=uses, **requests), "ports": list(ports), "image": image}
    marks = {**({ROLE: role} if role else {}), **(annotations or {})}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {}), "annotations": marks},
        "spec": {
            "containers": list(containers) or [only],
            "qosResources": [{"name": k, "class": v} for k, v in (pod_uses or {}).items()],
            **(spec or {}),
        },
    }


def priority(raw: Raw, value: int) -> Raw:
    return {**raw, "spec": {**raw["spec"], "priority": value}}


def matching(**labels: str) -> Raw:
    return {"matchLabels": labels}


def near(key: str, selector: Raw, **more: Any) -> Raw:
    """An affinity term."""
    return {"topologyKey": key, "labelSelector": selector, **more}


def affinity(*terms: Raw) -> Raw:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def anti_affinity(*terms: Raw) -> Raw:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def spread(key: str, selector: Raw, *, skew: int = 1, soft: bool = False, **more: Any) -> Raw:
    when = "ScheduleAnyway" if soft else "DoNotSchedule"
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector, **more}


def budget(allowed: int, namespace: str = "default", **labels: str) -> DisruptionBudget:
    return DisruptionBudget(namespace, LabelSelectorView(match_labels=labels), allowed)


class World:
    """A cluster and everybody who decides on it."""

    def __init__(self, *nodes: NodeFacts, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.cluster = Cluster(1)
        for each in nodes:
            self.cluster.set_node(each)
        self.namespaces = dict(namespaces or {})
        self.weights = DEFAULT_WEIGHTS
        self._shapes: dict[str, Shape] = {}
        self._asked: dict[Weights, list[Placer]] = {}

    # -- what is the case ------------------------------------------------------------------------------------------

    def weighing(self, **weights: int | bool) -> World:
        """Only these scores count."""
        nothing = dict.fromkeys(
            ("resources", "balance", "classes", "images", "node_affinity", "taints", "spread", "pod_affinity"), 0
        )
        self.weights = Weights(**{**nothing, **weights})  # type: ignore[arg-type]
        return self

    def running(self, *raws: Raw, on: str, started: float = 0.0, preemptible: bool = True) -> World:
        for raw in raws:
            name = raw["metadata"]["name"]
            self.cluster.add_pod(on, PlacedPod(name, name, self.shape(raw), started, preemptible))
        return self

    def gone(self, *names: str) -> World:
        for name in names:
            self.cluster.remove_pod(name)
        return self

    def now(self, facts: NodeFacts) -> World:
        """A node is new, or says something else of itself."""
        self.cluster.set_node(facts)
        return self

    def shape(self, raw: Raw, **more: Any) -> Shape:
        """One shape for all pods that differ in name alone, as the scheduler keeps them: placers remember shapes."""
        key = repr(({**raw["metadata"], "name": ""}, raw["spec"], more))
        return self._shapes.setdefault(key, self._compiled(raw, **more))

    def _compiled(self, raw: Raw, **more: Any) -> Shape:
        return compile_shape(PodView.of(raw), **more)

    # -- what follows ----------------------------------------------------------------------------------------------

    def place(self, raw: Raw, **more: Any) -> Placed | Unplaced:
        """What every placer says, whatever it knows already and however it looks."""
        shape = self.shape(raw, **more)
        asked = self._asked.setdefault(
            self.weights, [self._placer(), self._placer(few_rows=0), self._placer(few_rows=10**6)]
        )
        answers = [placer.place(shape) for placer in (*asked, self._placer())]
        told = [each if isinstance(each, Placed) else (each.message, each.explanation.waits_for) for each in answers]
        assert all(each == told[0] for each in told), told
        return answers[0]

    def _placer(self, **more: int) -> Placer:
        return Placer(self.cluster, self.weights, self.namespaces, **more)

    def goes_to(self, raw: Raw, **more: Any) -> str:
        """The node, or "" when no node takes it."""
        answer = self.place(raw, **more)
        return answer.node if isinstance(answer, Placed) else ""

    def points(self, raw: Raw) -> int:
        answer = self.place(raw)
        assert isinstance(answer, Placed), answer.message
        return answer.points

    def fills(self, raw: Raw, count: int) -> list[str]:
        """Where so many of these go, one after the other; "" when there is no room any more."""
        went = []
        for number in range(count):
            node = self.goes_to(raw)
            went.append(node)
            if node:
                name = f"{raw['metadata']['name']}-{number}"
                self.cluster.add_pod(node, PlacedPod(name, name, self.shape(raw)))
        return went

    def explain(self, raw: Raw, **more: Any) -> Explanation:
        return Explanation(self.cluster, self.shape(raw, **more), self.namespaces)

    def reasons(self, raw: Raw, **more: Any) -> dict[str, list[str]]:
        """Node → why it does not take the pod; nodes that do are not there."""
        return {name: list(found.reasons) for name, found in sorted(self.explain(raw, **more).by_node().items())}

    def filters(self, raw: Raw, **more: Any) -> dict[str, str]:
        return {name: found.filter for name, found in self.explain(raw, **more).by_node().items()}

    def message(self, raw: Raw, **more: Any) -> str:
        answer = self.place(raw, **more)
        assert isinstance(answer, Unplaced), answer
        return answer.message

    def waits_for(self, raw: Raw, **more: Any) -> set[object]:
        return set(self.explain(raw, **more).waits_for)

    def preempts(self, raw: Raw, *budgets: DisruptionBudget) -> tuple[str, list[str]] | str:
        """The node and whom to evict there, or why that does not help."""
        preemptor = Preemptor(self.cluster, self.namespaces)
        preemptor.budgets = budgets
        shape = self.shape(raw)
        plan = preemptor.preempt(shape, self.explain(raw))
        assert preemptor.preempt(shape, self.explain(raw)) == plan, "asked again, it says something else"
        if isinstance(plan, NoPreemption):
            return plan.message
        return plan.node, [victim.name for victim in plan.victims]


def given(*nodes: NodeFacts, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> World:
    return World(*nodes, namespaces=namespaces)
