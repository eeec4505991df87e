"""What a pod holds while it is changed in place (KEP-1287, KEP-3008): for the quota that counts it, for the scheduler
and the node that must not give away twice what is set aside, for whoever shows use.

One definition: per container the larger of what its spec asks and what its status says it has. Of amounts that is the
larger amount. Of classes, which have no order, it is both: a container that is to go from gold to silver may be in
either until its node says which, and one whose change the node refused stays where it was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from kubeqos.model.objects import ContainerStatus, ContainerView, PodSpec, PodView, QosResourceRequest, Resources
from kubeqos.model.text.gotext import quote
from kubeqos.rules.fielderror import FieldError, forbidden
from kubeqos.rules.qos.classes import ClassKey, demand, raw_classes_asked, requested, requested_raw
from kubeqos.rules.qos.podqos import max_into

_Classes = list[QosResourceRequest]
Raw = dict[str, Any]


def held_classes(pod: PodView, container_level: Collection[str]) -> dict[ClassKey, int]:
    """How many assignments of each class the pod holds; one that has ended holds none (DESIGN ruling 3)."""
    return {} if pod.is_terminal else demand(held_spec(pod), container_level)


def held_spec(pod: PodView) -> PodSpec:
    """The spec with what the node has set aside so far: during a resize the larger of both counts.

    A container that holds two classes of one resource names that resource twice here, as no spec of a user may.
    """
    spec, status = pod.spec, pod.status
    granted = status.resources.qos_resources if status.resources is not None else []
    of_pod = [*granted, *status.qos_resources]
    if not status.container_statuses and not status.init_container_statuses and not of_pod:
        return spec
    infeasible = any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in status.conditions)
    statuses = {one.name: one for one in status.container_statuses}
    init = {one.name: one for one in status.init_container_statuses}
    pod_wide = requested(spec.qos_resources)

    def held(container: ContainerView, has: ContainerStatus | None, *, amounts: bool = True) -> ContainerView:
        if has is None:
            return container
        resources = _larger(container.resources, has, infeasible) if amounts else container.resources
        classes = _with_assigned(container.resources.qos_resources, has, pod_wide)
        if classes is not container.resources.qos_resources:
            resources = msgspec.structs.replace(resources, qos_resources=classes)
        return msgspec.structs.replace(container, resources=resources)

    return msgspec.structs.replace(
        spec,
        containers=[held(one, statuses.get(one.name)) for one in spec.containers],
        init_containers=[held(one, init.get(one.name), amounts=one.is_sidecar) for one in spec.init_containers],
        qos_resources=_both(spec.qos_resources, of_pod, {*pod_wide, *(one.name for one in granted)}),
    )


def with_classes_of(spec: PodSpec, other: PodSpec) -> PodSpec:
    """A spec that holds the classes of another one beside its own: a pod between two versions of it."""
    wide, other_wide = requested(spec.qos_resources), requested(other.qos_resources)
    had = {one.name: one for one in (*other.init_containers, *other.containers)}

    def both(container: ContainerView) -> ContainerView:
        before = had.get(container.name)
        if before is None:
            return container
        own, old = container.resources.qos_resources, before.resources.qos_resources
        named = {one.name for one in (*own, *old)}
        inherited = (_requests(one, named) for one in (wide, other_wide))
        mine, theirs = (_unsaid(said, more) for said, more in zip((own, old), inherited, strict=True))
        classes = _both(mine, theirs, named)
        return msgspec.structs.replace(
            container, resources=msgspec.structs.replace(container.resources, qos_resources=classes)
        )

    return msgspec.structs.replace(
        spec,
        containers=[both(one) for one in spec.containers],
        init_containers=[both(one) for one in spec.init_containers],
        qos_resources=_both(spec.qos_resources, other.qos_resources, {*wide, *other_wide}),
    )


def _requests(classes: dict[str, str], names: Collection[str]) -> _Classes:
    return [QosResourceRequest(name=name, class_=cls) for name, cls in classes.items() if name in names]


def _unsaid(own: _Classes, more: _Classes) -> _Classes:
    said = {one.name for one in own}
    return [*own, *(one for one in more if one.name not in said)]


def assigned_classes(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a raw status of a container, or of a pod, says of its classes: those that the node set aside, those that the
    runtime reports."""
    return [*((status.get("resources") or {}).get("qosResources") or ()), *(status.get("qosResources") or ())]


def keep_class(status: dict[str, Any], name: str, cls: str) -> None:
    """Let a raw status of a container, or of a pod, say that this class is set aside too."""
    if not any(one.get("name") == name and one.get("class") == cls for one in assigned_classes(status)):
        resources = status["resources"] = dict(status.get("resources") or {})
        resources["qosResources"] = [*(resources.get("qosResources") or ()), {"name": name, "class": cls}]


def keep_unseen(status: Raw, old: Raw) -> None:
    """Let a status of a node that has not seen the present spec count what the stored one says is set aside."""

    def granted(one: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
        return (one.get("resources") or {}).get("qosResources") or ()

    for kept in granted(old):
        keep_class(status, kept.get("name", ""), kept.get("class", ""))
    for key in ("initContainerStatuses", "containerStatuses"):
        known = {one.get("name"): one for one in old.get(key) or ()}
        for one in status.get(key) or ():
            for kept in granted(known.get(one.get("name"), {})):
                keep_class(one, kept.get("name", ""), kept.get("class", ""))


def _larger(wanted: Resources, status: ContainerStatus, infeasible: bool) -> Resources:
    """Amounts: an infeasible wish is none, since the node never grants it."""
    if status.resources is None:
        return wanted
    requests = {} if infeasible else dict(wanted.requests)
    max_into(requests, status.resources.requests)
    max_into(requests, status.allocated_resources)
    limits = {} if infeasible else dict(wanted.limits)
    max_into(limits, status.resources.limits)
    return msgspec.structs.replace(wanted, requests=requests, limits=limits)


def _with_assigned(asked: _Classes, status: ContainerStatus, pod_wide: dict[str, str]) -> _Classes:
    """A container's classes: those it asks for, those its node set aside for it, those its runtime says it has.

    What a runtime reports of a resource that nobody asked for is its own default, which is never counted (ruling 2).
    """
    granted = status.resources.qos_resources if status.resources is not None else []
    if not asked and not pod_wide and not granted:
        return asked
    own = requested(asked)
    names = {*own, *pod_wide, *(one.name for one in granted)}
    found = _both(asked, [*granted, *status.qos_resources], names)
    if found is not asked:
        # Own entries stand before the pod's, so the class that comes from there has to be named beside the other.
        extra = {one.name for one in found[len(asked) :]} - own.keys()
        found = [*found, *(QosResourceRequest(name=n, class_=pod_wide[n]) for n in sorted(extra) if n in pod_wide)]
    return found


def _both(asked: _Classes, assigned: _Classes, names: Collection[str]) -> _Classes:
    """What is asked, then what else is assigned of these resources."""
    if not assigned:
        return asked
    known = {(one.name, one.class_) for one in asked}
    more = {
        (one.name, one.class_): one
        for one in assigned
        if one.class_ and one.name in names and (one.name, one.class_) not in known
    }
    return [*asked, *more.values()] if more else asked


def resized_spec(wanted: Raw, before: Raw) -> Raw:
    """The spec of a pod with the resources that a resize asks for, and nothing else of what it says."""
    spec = {**before, "resources": wanted.get("resources")}
    if wanted.get("qosResources"):
        spec["qosResources"] = wanted["qosResources"]  # a client that does not know them takes none away (ruling 23)
    for key in ("containers", "initContainers"):
        pairs = [wanted.get(key) or [], before.get(key) or []]
        names = [[container.get("name") for container in containers] for containers in pairs]
        if names[0] != names[1]:
            spec[key] = pairs[0]  # validation says what is wrong with it
        elif pairs[0]:
            spec[key] = [_resized(new, base) for new, base in zip(*pairs, strict=True)]
    return {field: value for field, value in spec.items() if value is not None}


def _resized(new: Raw, old: Raw) -> Raw:
    changed = {**old, "resources": new.get("resources"), "resizePolicy": new.get("resizePolicy")}
    return {field: value for field, value in changed.items() if value is not None}


def status_until_told(old: Raw, spec: Raw) -> tuple[Raw, list[FieldError]]:
    """The status of a bound pod that is resized to `spec`, with the classes that it asked for before kept in it.

    The node may be giving it those right now. So they are kept beside what the status says, and a pod of which the node
    has not said anything yet cannot be changed: nobody could tell what it holds.
    """
    status = deepcopy(old.get("status") or {})
    text = "has yet to report the class of {} that the container has; try again when the pod runs"
    node = f"node {quote(spec['nodeName'])}"
    unsaid = _kept_until_told(spec, old.get("spec") or {}, status)
    return status, [forbidden(path, f"{node} {text.format(name)}") for path, name in unsaid]


def _kept_until_told(spec: Raw, before: Raw, status: Raw) -> Iterator[tuple[str, str]]:
    """Let a raw status count the classes that a spec asked for before it changes, until the node reports otherwise.

    Yields (path, resource) of what cannot be changed yet: the node has not said which class there is now.
    """
    wide, had_wide = (requested_raw(one.get("qosResources")) for one in (spec, before))
    of_pod = {one.get("name") for one in assigned_classes(status)}
    for key, told in (("initContainers", "initContainerStatuses"), ("containers", "containerStatuses")):
        reported = {one.get("name"): one for one in status.get(told) or ()}
        pairs = zip(spec.get(key) or (), before.get(key) or (), strict=True)
        for index, (container, base) in enumerate(pairs):
            asks, had = raw_classes_asked(spec, container), raw_classes_asked(before, base)
            has = reported.get(container["name"], {})
            known = {one.get("name") for one in assigned_classes(has)}
            own = requested_raw((base.get("resources") or {}).get("qosResources"))
            for name in (name for name in had if asks.get(name) != had[name]):
                if name in known:
                    keep_class(has, name, had[name])
                elif name in own or name not in of_pod:
                    yield f"spec.{key}[{index}].resources.qosResources", name
    for name in (name for name in had_wide if wide.get(name) != had_wide[name]):
        if name in of_pod:
            keep_class(status, name, had_wide[name])
