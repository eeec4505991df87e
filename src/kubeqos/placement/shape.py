"""Shapes: what placement needs to know of a pod, compiled once and shared by all pods that are alike.

Pods of one template differ only in name and uid, so they have the same shape and share their filtering work.
The scheduler keeps shapes by what pods ask for (`scheduler.reading.shapes`); `compile_shape` is called once per
distinct pod.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from kubeqos.model.annotations.podmarks import MAIN_CONTAINER_KEY, Marks, is_left_alone, marks_of_pod, only_marks
from kubeqos.model.objects import (
    NodeSelectorTerm,
    PodAffinityTerm,
    PodSpec,
    PodView,
    PreferredNodeTerm,
    Toleration,
    TopologySpread,
    WeightedPodAffinityTerm,
)
from kubeqos.model.quantity import Quantity
from kubeqos.placement.storage.needs import VolumeNeed
from kubeqos.rules.defaulting.runtimeclass import handler_of
from kubeqos.rules.qos.classes import ClassKey, Level, demand
from kubeqos.rules.qos.podqos import QosClass, aggregate, effective_class, effective_requests
from kubeqos.rules.storage import mounted_claims
from kubeqos.topology.claims.serving import ComputeNeed

# What a container without a request counts for in scoring, so that a node full of such pods does not look empty.
_SCORING_DEFAULTS = (("cpu", Quantity.from_milli(100)), ("memory", Quantity.from_int(200 << 20)))
_ZERO = Quantity.ZERO

Group = tuple[str, frozenset[tuple[str, str]]]
Owner = tuple[str, str]
"""Kind and name of the controller of a pod, in the pod's namespace."""


@dataclass(frozen=True, slots=True)
class ClassNeed:
    """What a pod needs of one QoS-class resource, depending on the level at which a node offers it.

    A request for the whole pod is a pod-level class on nodes that offer it to pods, and the default of the pod's
    containers on nodes that offer it to containers (KEP-3008, PodSpec).
    """

    resource: str
    pod_classes: tuple[str, ...]
    """One, or two while a pod is changed in place (`rules.qos.allocated`)."""
    container_classes: Mapping[str, int]
    asked_by_containers: bool
    handler: str | None = ""
    """Of the pod's RuntimeClass; None where it is not known."""


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node itself; an empty address means all of them."""

    address: str
    protocol: str
    port: int

    def clashes(self, other: HostPort) -> bool:
        """Whether both cannot be held at once."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.address == other.address or "0.0.0.0" in (self.address, other.address))
        )


@dataclass(frozen=True, slots=True)
class Draw:
    """What a pod asks of a resource, as plugins are asked for it: the scheduler's integers."""

    together: int
    """All containers that run at the same time; init containers are gone before the others run."""
    pod: int
    """The pod as a whole, its init peak included."""
    main: int


@dataclass(frozen=True, slots=True)
class Unit:
    """What wants to be on one NUMA node: of a container, or of a whole pod. Init containers pass theirs on."""

    amounts: Mapping[str, int]
    stays: bool = True


NO_UNIT = Unit({})


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """The scheduling side of a pod. Compared by identity: one object per distinct pod."""

    namespace: str
    labels: Mapping[str, str]
    priority: int
    may_preempt: bool
    requests: Mapping[str, int]
    """Milli CPUs for cpu, whole units for all else; zero amounts included."""
    scoring_cpu_milli: int
    scoring_memory: int
    best_effort: bool
    class_needs: tuple[ClassNeed, ...]
    class_keys: tuple[ClassKey, ...]
    """Every class that it may take, whatever the level at which a node offers it."""
    node_name: str
    node_selector: Mapping[str, str]
    required_terms: tuple[NodeSelectorTerm, ...] | None
    preferred_terms: tuple[PreferredNodeTerm, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    spread: tuple[TopologySpread, ...]
    """The pod's own constraints."""
    soft_spread: tuple[TopologySpread, ...]
    """Those by which nodes are only scored: the pod's own, or the defaults for who has none."""
    spread_by_default: bool
    owner: Owner | None
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    preferred_affinity: tuple[WeightedPodAffinityTerm, ...]
    preferred_anti_affinity: tuple[WeightedPodAffinityTerm, ...]
    claim_drivers: tuple[str, ...]
    compute: ComputeNeed | None
    """What it asks of compute drivers, by claims or by a policy."""
    exclusive_cpus: tuple[int, ...]
    """Whole CPUs each container of a Guaranteed pod wants for itself, largest first."""
    aligned: tuple[Unit, ...]
    """What each container of a Guaranteed pod wants on one NUMA node, in the order in which they start."""
    aligned_pod: Unit
    draws: Mapping[str, Draw]
    marks: Marks
    left_alone: bool
    """Resource plugins have nothing to do with it."""
    has_init: bool
    """It has containers that run before its others and then go."""
    asks: Hashable
    """Everything that a node decides on when it lets a pod in: equal for pods that it would treat alike."""
    images: tuple[str, ...]
    ignored: frozenset[str]
    group: Group
    """Namespace and labels: what affinity and spreading of other pods can see of it."""
    volume_claims: tuple[str, ...]
    """The PersistentVolumeClaims that it names, `namespace/name`; those that are made for it alone do not count."""
    volumes: VolumeNeed | None
    """What those need of a node, once that is known (`with_volumes`)."""

    @property
    def looks_at_other_nodes(self) -> bool:
        """Whether its fit on one node depends on the pods of others, so that nothing can be kept between decisions."""
        return bool(
            self.spread
            or self.affinity
            or self.anti_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
            or (self.volumes is not None and self.volumes.once)
        )


def compile_shape(
    pod: PodView,
    *,
    classes: bool = True,
    claim_drivers: Collection[str] = (),
    compute: ComputeNeed | None = None,
    ignored_resources: Collection[str] = (),
    ignored_groups: Collection[str] = (),
) -> Shape:
    """The shape of a pod. `classes` is the gate QOSResources; its claims ask `claim_drivers` for `compute`."""
    spec = pod.spec
    scoring_cpu, scoring_memory = scoring_amounts(spec)
    requests = pod_amounts(spec)
    affinity = spec.affinity
    node_affinity = affinity.node_affinity if affinity else None
    pod_affinity = affinity.pod_affinity if affinity else None
    pod_anti = affinity.pod_anti_affinity if affinity else None
    qos = effective_class(pod)
    needs = class_needs(spec, handler_of(pod)) if classes else ()
    # Only Guaranteed pods get CPUs and memory of their own (Kubernetes' static policies): others need no alignment.
    guaranteed = qos is QosClass.GUARANTEED
    return Shape(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        priority=spec.priority or 0,
        may_preempt=spec.preemption_policy != "Never",
        requests=requests,
        scoring_cpu_milli=scoring_cpu,
        scoring_memory=scoring_memory,
        best_effort=qos is QosClass.BEST_EFFORT,
        class_needs=needs,
        class_keys=tuple(_class_keys(needs)),
        node_name=spec.node_name,
        node_selector=spec.node_selector,
        required_terms=(
            tuple(node_affinity.required.node_selector_terms) if node_affinity and node_affinity.required else None
        ),
        preferred_terms=tuple(node_affinity.preferred) if node_affinity else (),
        tolerations=tuple(spec.tolerations),
        host_ports=host_ports(spec),
        spread=tuple(spec.topology_spread_constraints),
        soft_spread=tuple(
            each for each in spec.topology_spread_constraints if each.when_unsatisfiable == "ScheduleAnyway"
        ),
        spread_by_default=False,
        owner=(owner.kind, owner.name) if (owner := pod.metadata.controller()) is not None else None,
        affinity=tuple(pod_affinity.required) if pod_affinity else (),
        anti_affinity=tuple(pod_anti.required) if pod_anti else (),
        preferred_affinity=tuple(pod_affinity.preferred) if pod_affinity else (),
        preferred_anti_affinity=tuple(pod_anti.preferred) if pod_anti else (),
        claim_drivers=tuple(sorted(claim_drivers)),
        compute=compute,
        exclusive_cpus=_exclusive_cpus(spec) if guaranteed else (),
        aligned=aligned_units(spec) if guaranteed else (),
        aligned_pod=aligned_pod(spec) if guaranteed else NO_UNIT,
        draws=draws(pod),
        marks=marks_of_pod(pod.metadata),
        left_alone=is_left_alone(pod.metadata),
        has_init=any(not one.is_sidecar for one in spec.init_containers),
        asks=_asks(pod, qos, (tuple(sorted(claim_drivers)), compute), classes),
        images=tuple(container.image for container in (*spec.init_containers, *spec.containers) if container.image),
        ignored=_ignored(requests, ignored_resources, ignored_groups),
        group=(pod.metadata.namespace, frozenset(pod.metadata.labels.items())),
        volume_claims=tuple(f"{pod.metadata.namespace}/{one.claim}" for one in mounted_claims(pod) if not one.own),
        volumes=None,
    )


def pod_amounts(spec: PodSpec) -> dict[str, int]:
    """Effective requests in the scheduler's integers, rounded up."""
    return {
        name: amount.milli() if name == "cpu" else amount.value() for name, amount in effective_requests(spec).items()
    }


def scoring_amounts(spec: PodSpec) -> tuple[int, int]:
    """Milli CPUs and memory bytes with which a pod counts in scoring; the defaults stand in for unset requests.

    In a pod with pod-level requests they stand in only for what nothing in the pod speaks of.
    """
    pod_level = spec.resources is not None and spec.resources.requests
    known = effective_requests(spec) if pod_level else {}
    amounts = []
    for name, default in _SCORING_DEFAULTS:
        total = known.get(name)
        if total is None:
            total = aggregate(spec, "requests", {name: default}).get(name, _ZERO) + spec.overhead.get(name, _ZERO)
        amounts.append(total)
    return amounts[0].milli(), amounts[1].value()


def class_needs(spec: PodSpec, handler: str | None = "") -> tuple[ClassNeed, ...]:
    """What the pod needs of each QoS-class resource it names."""
    pod_wide: dict[str, tuple[str, ...]] = {}
    for one in spec.qos_resources:
        pod_wide[one.name] = (*pod_wide.get(one.name, ()), one.class_)
    asked_below = {
        request.name
        for container in (*spec.init_containers, *spec.containers)
        for request in container.resources.qos_resources
    }
    names = sorted({*pod_wide, *asked_below})
    if not names:
        return ()
    counts = demand(spec, frozenset(names))
    return tuple(
        ClassNeed(
            name,
            pod_wide.get(name, ()),
            {
                cls: count
                for (level, resource, cls), count in counts.items()
                if resource == name and level is Level.CONTAINER
            },
            name in asked_below,
            handler,
        )
        for name in names
    )


def _class_keys(needs: tuple[ClassNeed, ...]) -> Iterator[ClassKey]:
    for need in needs:
        for cls in need.container_classes:
            yield Level.CONTAINER, need.resource, cls
        for cls in need.pod_classes:
            yield Level.POD, need.resource, cls


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Ports of the host that the pod's containers want; with the host's network every port is one."""
    return tuple(
        HostPort(port.host_ip or "0.0.0.0", port.protocol, port.host_port)
        for container in (*spec.init_containers, *spec.containers)
        for port in container.ports
        if port.host_port > 0
    )


def _exclusive_cpus(spec: PodSpec) -> tuple[int, ...]:
    """Whole-CPU requests, which a static CPU manager serves with CPUs of their own."""
    wanted = (c.resources.requests.get("cpu", _ZERO).milli() for c in (*spec.init_containers, *spec.containers))
    return tuple(sorted((milli // 1000 for milli in wanted if milli and milli % 1000 == 0), reverse=True))


def aligned_units(spec: PodSpec) -> tuple[Unit, ...]:
    """Whole CPUs, memory and huge pages of each container: what static managers give by NUMA node."""
    first = [Unit(_alignable(one.resources.requests), one.is_sidecar) for one in spec.init_containers]
    then = [Unit(_alignable(one.resources.requests)) for one in spec.containers]
    return tuple(unit for unit in (*first, *then) if unit.amounts)


def aligned_pod(spec: PodSpec) -> Unit:
    """The same for a node that aligns whole pods: the CPUs of all containers, if one of them wants CPUs of its own."""
    totals = effective_requests(spec)
    amounts = _alignable({name: amount for name, amount in totals.items() if name != "cpu"})
    if _exclusive_cpus(spec):
        amounts["cpu"] = totals.get("cpu", _ZERO).value()
    return Unit(amounts)


def _alignable(requests: Mapping[str, Quantity]) -> dict[str, int]:
    return {
        name: amount.value()
        for name, amount in requests.items()
        if not amount.is_zero and (name == "memory" or name.startswith("hugepages-") or _is_whole_cpus(name, amount))
    }


def _is_whole_cpus(name: str, amount: Quantity) -> bool:
    return name == "cpu" and amount.is_integer


def draws(pod: PodView) -> dict[str, Draw]:
    """What plugins are asked for, resource by resource."""
    spec = pod.spec
    lasting = [one for one in spec.init_containers if one.is_sidecar] + list(spec.containers)
    named = pod.metadata.annotations.get(MAIN_CONTAINER_KEY)
    main = next((one for one in spec.containers if one.name == named), spec.containers[0] if spec.containers else None)
    whole = effective_requests(spec, overhead=False)
    found = {}
    for name in {name for one in lasting for name in one.resources.requests}:
        unit: Callable[[Quantity], int] = Quantity.milli if name == "cpu" else Quantity.value
        asked = [unit(one.resources.requests.get(name, _ZERO)) for one in lasting]
        own = unit(main.resources.requests.get(name, _ZERO)) if main is not None else 0
        found[name] = Draw(sum(asked), unit(whole.get(name, _ZERO)), own)
    return found


def with_claims(shape: Shape, drivers: Collection[str], compute: ComputeNeed | None) -> Shape:
    """The same shape, for a pod whose claims turned out to need these drivers, and this of them."""
    known = tuple(sorted(drivers))
    if shape.claim_drivers == known and shape.compute == compute:
        return shape
    *others, _ = cast(tuple[Hashable, ...], shape.asks)
    return replace(shape, claim_drivers=known, compute=compute, asks=(*others, (known, compute)))


def with_volumes(shape: Shape, need: VolumeNeed) -> Shape:
    """The same shape, for a pod whose volume claims turned out to need this."""
    return replace(shape, volumes=need)


def _asks(pod: PodView, qos: QosClass, claims: Hashable, classes: bool) -> Hashable:
    meta, spec = pod.metadata, pod.spec
    containers = tuple(
        (
            one.name,
            tuple(sorted((name, str(amount)) for name, amount in one.resources.requests.items())),
            tuple((each.name, each.class_) for each in one.resources.qos_resources) if classes else (),
        )
        for one in (*spec.init_containers, *spec.containers)
    )
    marked = tuple(sorted({**only_marks(meta.labels), **only_marks(meta.annotations)}.items()))
    pod_wide = tuple((each.name, each.class_) for each in spec.qos_resources) if classes else ()
    return (qos, containers, pod_wide, handler_of(pod) if classes else "", marked, claims)


def _ignored(requests: Mapping[str, int], names: Collection[str], groups: Collection[str]) -> frozenset[str]:
    """Extended resources that the configuration tells the scheduler to leave to others."""
    return frozenset(name for name in requests if "/" in name and (name in names or name.partition("/")[0] in groups))
