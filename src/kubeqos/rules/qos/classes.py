"""QoS-class resources (KEP-3008): who gets which class, how many of each class are needed, and whether a node has them.

Called by admission (validation, quota demand), by the scheduler (fit), by the node agent (admission, CRI messages) and
by the CRI relay (registration rules). Classes are opaque names here; what they mean is the runtime's business.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubeqos.model.names import qualified_name
from kubeqos.model.objects import ContainerView, NodeQosResources, PodSpec, QosResourceInfo, QosResourceRequest
from kubeqos.rules.fielderror import FieldError, duplicate, forbidden, invalid, not_supported, required
from kubeqos.rules.qos.podqos import max_counts

POD_QOS = "pod-qos"
"""Informational for the runtime only: never requested, never advertised (DESIGN ruling 5)."""


class Level(enum.StrEnum):
    """Whether a class is assigned to a whole pod or to each container."""

    POD = "pod"
    CONTAINER = "container"


WELL_KNOWN = {"k8s.io/rdt": Level.CONTAINER, "k8s.io/blockio": Level.CONTAINER}

ClassKey = tuple[Level, str, str]
"""(level, resource, class)"""


# -- what a node offers --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One QoS-class resource of a node. Capacity 0 is unlimited."""

    level: Level
    name: str
    mutable: bool
    classes: Mapping[str, int]
    handlers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Runtime handlers whose pods are offered some of the classes only."""

    def is_for(self, handler: str | None, cls: str) -> bool:
        """Whether pods of a runtime handler are offered a class. None is a handler that nobody knows: it gets what
        everybody gets."""
        if handler is None:
            return all(cls in offered for offered in self.handlers.values())
        return handler not in self.handlers or cls in self.handlers[handler]


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every QoS-class resource of a node by name, and why others were refused registration."""

    types: Mapping[str, ResourceType] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    def of_level(self, level: Level) -> list[ResourceType]:
        return [kind for kind in self.types.values() if kind.level is level]


def catalog(
    advertised: NodeQosResources, *, strict_names: bool = False, known: Mapping[str, Level] = WELL_KNOWN
) -> Catalog:
    """Apply the registration rules to what a runtime advertises.

    A name must be unique across both levels. With strict names (the KEP's Beta rule) unprefixed and `k8s.io/` names
    must be known, and have the level they are known for.
    """
    by_name: dict[str, list[ResourceType]] = {}
    for level, infos in (
        (Level.POD, advertised.pod_qos_resources),
        (Level.CONTAINER, advertised.container_qos_resources),
    ):
        for info in infos:
            by_name.setdefault(info.name, []).append(_resource_type(level, info))
    types: dict[str, ResourceType] = {}
    refused: list[str] = []
    for name, kinds in by_name.items():
        problem = _registration_problem(name, kinds, strict_names, known)
        if problem:
            refused.append(f"QoS resource {name}: {problem}")
        else:
            types[name] = kinds[0]
    return Catalog(types, tuple(refused))


def _resource_type(level: Level, info: QosResourceInfo) -> ResourceType:
    classes = {entry.name: entry.capacity for entry in info.classes}
    handlers = {entry.name: frozenset(entry.classes) for entry in info.runtime_handlers}
    return ResourceType(level, info.name, info.mutable, classes, handlers)


def _registration_problem(
    name: str, kinds: Sequence[ResourceType], strict: bool, known: Mapping[str, Level]
) -> str | None:
    if name == POD_QOS:
        return "the name is reserved and never advertised"
    if len({kind.level for kind in kinds}) > 1:
        return "registered both as pod-level and as container-level resource; names must be unique"
    if len(kinds) > 1:
        return "registered twice"
    if strict and is_official(name):
        if name not in known:
            return "is not a known name; unprefixed and k8s.io/ names are reserved (gate QOSResourcesStrictNames)"
        if known[name] is not kinds[0].level:
            return f"is a {known[name]}-level resource and was registered as {kinds[0].level}-level"
    return None


def is_official(name: str) -> bool:
    """Whether a name lies in the part of the name space that is reserved for well-known resources."""
    return "/" not in name or name.startswith("k8s.io/")


# -- who gets what -------------------------------------------------------------------------------------------------


class Source(enum.StrEnum):
    """Who decided an effective class, strongest first (DESIGN ruling 2)."""

    CONTAINER = "container"
    POD = "pod"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True)
class Effective:
    """The class in force. `class_name` is None where the runtime's implicit default applies."""

    class_name: str | None
    source: Source

    @property
    def because(self) -> str:
        match self.source:
            case Source.CONTAINER:
                return "requested by the container"
            case Source.POD:
                return "requested for the pod"
            case _:
                return "nothing requested: the runtime's default applies"


def requested(requests: Iterable[QosResourceRequest]) -> dict[str, str]:
    """Requests as resource → class."""
    return {request.name: request.class_ for request in requests}


def requested_raw(requests: Any) -> dict[str, str]:
    """The same of a raw `qosResources` list."""
    return {one.get("name", ""): one.get("class", "") for one in requests or ()}


def raw_class_requests(spec: Mapping[str, Any]) -> Iterator[Any]:
    """All requests in a raw pod spec: those of the pod, then those of its init and app containers."""
    yield from spec.get("qosResources") or ()
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        yield from (one.get("resources") or {}).get("qosResources") or ()


def raw_classes_asked(spec: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, str]:
    """Resource → class for a container: what the pod asks for all of them, unless it asks itself (ruling 2)."""
    return requested_raw(spec.get("qosResources")) | requested_raw(
        (container.get("resources") or {}).get("qosResources")
    )


def container_classes(spec: PodSpec, container: ContainerView, container_level: Iterable[str]) -> dict[str, Effective]:
    """The effective class of each container-level resource; defaults of LimitRanges are in the spec by then."""
    own, pod_wide = requested(container.resources.qos_resources), requested(spec.qos_resources)
    effective: dict[str, Effective] = {}
    for name in container_level:
        if name in own:
            effective[name] = Effective(own[name], Source.CONTAINER)
        elif name in pod_wide:
            effective[name] = Effective(pod_wide[name], Source.POD)
        else:
            effective[name] = Effective(None, Source.RUNTIME)
    return effective


def pod_classes(spec: PodSpec, pod_level: Iterable[str]) -> dict[str, Effective]:
    """The effective class of each pod-level resource."""
    asked = requested(spec.qos_resources)
    return {
        name: Effective(asked[name], Source.POD) if name in asked else Effective(None, Source.RUNTIME)
        for name in pod_level
    }


# -- what may be asked ---------------------------------------------------------------------------------------------


def request_errors(
    requests: Any,
    path: str,
    *,
    level: Level,
    strict_names: bool = False,
    known: Mapping[str, Level] = WELL_KNOWN,
) -> list[FieldError]:
    """What is wrong with a raw `qosResources` list of a pod (`spec`) or of a container (`resources`).

    Names and classes are qualified names, a resource may be asked for once, `pod-qos` never. With strict names an
    official name must be known, and a pod-level one may not be asked for by a container.
    """
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, request in enumerate(requests or ()):
        at = f"{path}[{index}]"
        name, cls = request.get("name") or "", request.get("class") or ""
        errors += _name_errors(f"{at}.name", name) + _name_errors(f"{at}.class", cls)
        if name == POD_QOS:
            errors.append(forbidden(f"{at}.name", "pod-qos follows from the pod's resources and cannot be requested"))
        elif strict_names and name and is_official(name):
            if name not in known:
                errors.append(not_supported(f"{at}.name", name, sorted(known)))
            elif level is Level.CONTAINER and known[name] is Level.POD:
                errors.append(invalid(f"{at}.name", name, "is a pod-level resource; request it in spec.qosResources"))
        if name in seen:
            errors.append(duplicate(f"{at}.name", name))
        seen.add(name)
    return errors


def _name_errors(path: str, name: str) -> list[FieldError]:
    if not name:
        return [required(path)]
    return [invalid(path, name, complaint) for complaint in qualified_name(name)]


# -- how many of each ----------------------------------------------------------------------------------------------


def demand(spec: PodSpec, container_level: Collection[str] = WELL_KNOWN) -> dict[ClassKey, int]:
    """How many assignments of each class the pod takes at the same time.

    A pod-level class counts once. A container-level class counts the containers that can run together: the larger of
    the init peak and sidecars plus app containers (DESIGN ruling 3). A pod-wide request counts for containers where its
    name is in `container_level` or is also requested by one of them, and as a pod-level class otherwise. Implicit
    defaults are never counted. Where two classes of one resource are named, as in what a pod holds while it is changed
    (`rules.qos.allocated`), each counts.
    """
    everyone = (*spec.init_containers, *spec.containers)
    if not spec.qos_resources and not any(container.resources.qos_resources for container in everyone):
        return {}
    asked_below = {request.name for container in everyone for request in container.resources.qos_resources}
    pod_wide = [(one.name, one.class_) for one in spec.qos_resources]
    defaults = [(name, cls) for name, cls in pod_wide if name in container_level or name in asked_below]
    for_containers = {name for name, _ in defaults}
    totals: dict[ClassKey, int] = {(Level.POD, name, cls): 1 for name, cls in pod_wide if name not in for_containers}

    def taken(container: ContainerView) -> dict[ClassKey, int]:
        own = [(one.name, one.class_) for one in container.resources.qos_resources]
        said = {name for name, _ in own}
        classes = own + [(name, cls) for name, cls in defaults if name not in said]
        return {(Level.CONTAINER, name, cls): 1 for name, cls in classes}

    totals.update(max_counts(spec, taken))
    return totals


# -- does it fit ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClassProblem:
    """Why a node cannot serve one of a pod's class requests."""

    resource: str
    reason: str
    resolvable: bool = False
    """Whether evicting other pods could help."""


def fit(spec: PodSpec, node: Catalog, used: Mapping[ClassKey, int], handler: str | None = "") -> list[ClassProblem]:
    """Everything that stands between the pod's class requests and this node; empty means it fits.

    `handler` is that of the pod's RuntimeClass (`rules.defaulting.runtimeclass.handler_of`).
    """
    problems = level_problems(spec, node)
    container_level = {kind.name for kind in node.of_level(Level.CONTAINER)}
    for (level, name, cls), count in demand(spec, container_level).items():
        kind = node.types.get(name)
        if kind is None:
            problems.append(ClassProblem(name, f"QoS resource {name} not available"))
        elif kind.level is level:
            problem = capacity_problem(kind, cls, count, used.get((level, name, cls), 0))
            if cls in kind.classes and not kind.is_for(handler, cls):
                problems.append(ClassProblem(name, withheld(name, cls, handler)))
            elif problem:
                problems.append(problem)
    return problems


def withheld(resource: str, cls: str, handler: str | None) -> str:
    """Why a pod of a runtime handler does not get a class that others get on the same node."""
    if handler is None:
        return f"QoS class {resource}={cls} not available to every runtime handler, and the pod's is not known"
    whose = f"runtime handler {handler}" if handler else "pods without RuntimeClass"
    return f"QoS class {resource}={cls} not available to {whose}"


def level_problems(spec: PodSpec, node: Catalog) -> list[ClassProblem]:
    """Containers that ask for what this node offers to whole pods only."""
    return [
        ClassProblem(name, f"QoS resource {name} is pod-level, requested at container level")
        for name in sorted(
            {
                request.name
                for container in (*spec.init_containers, *spec.containers)
                for request in container.resources.qos_resources
            }
        )
        if (kind := node.types.get(name)) is not None and kind.level is Level.POD
    ]


def capacity_problem(kind: ResourceType, cls: str, count: int, used: int) -> ClassProblem | None:
    """Why `count` more assignments to a class are not possible, or None."""
    if cls not in kind.classes:
        return ClassProblem(kind.name, f"QoS class {kind.name}={cls} not available")
    capacity = kind.classes[cls]
    if capacity and count > capacity:
        return ClassProblem(kind.name, f"QoS class {kind.name}={cls} too small (capacity {capacity}, needs {count})")
    if capacity and used + count > capacity:
        return ClassProblem(kind.name, f"QoS class {kind.name}={cls} exhausted ({used}/{capacity} used)", True)
    return None


# -- the annotation form -------------------------------------------------------------------------------------------

ANNOTATED = ("rdt", "blockio")
_POD_WIDE = {".resources.kubernetes.io": "default", ".resources.beta.kubernetes.io": "pod"}
"""Both domains that say classes, the KEP's own before the one that runtimes read, and the word for a whole pod."""
_CONTAINER = "container."


def _annotated(key: str) -> tuple[str, str] | None:
    """The resource of which an annotation names the class, and the container that is to have it; "" for all of them."""
    owner, _, name = key.partition("/")
    resource, dot, domain = owner.partition(".")
    pod_wide = _POD_WIDE.get(f"{dot}{domain}")
    if pod_wide is None or resource not in ANNOTATED:
        return None
    if name == pod_wide:
        return resource, ""
    return (resource, name.removeprefix(_CONTAINER)) if name.startswith(_CONTAINER) else None


def is_class_annotation(key: str) -> bool:
    """Whether an annotation speaks of classes: in the KEP's form, or in the one that containerd and CRI-O read."""
    return _annotated(key) is not None


@dataclass(frozen=True, slots=True)
class Translated:
    """Class requests found in annotations: pod-wide ones and those of single containers."""

    pod: Mapping[str, str]
    containers: Mapping[str, Mapping[str, str]]
    unknown_containers: tuple[str, ...] = ()


def from_annotations(
    annotations: Mapping[str, str], containers: Collection[str], *, official: bool = False
) -> Translated:
    """Read the annotation form; containers that do not exist are reported, not ignored.

    `official` gives resources their well-known names, which are the only ones with strict names (`k8s.io/rdt`).
    """
    pod: dict[str, str] = {}
    by_container: dict[str, dict[str, str]] = {}
    unknown: list[str] = []
    # Of two annotations for the same the KEP's own counts, which is read last.
    for key, value in sorted(annotations.items(), key=lambda one: ".beta." not in one[0]):
        found = _annotated(key)
        if found is None:
            continue
        resource, container = found
        resource = f"k8s.io/{resource}" if official else resource
        if not container:
            pod[resource] = value
        elif container in containers:
            by_container.setdefault(container, {})[resource] = value
        else:
            unknown.append(key)
    return Translated(pod, by_container, tuple(unknown))


def has_class_annotations(raw_pod: Mapping[str, Any]) -> bool:
    """Whether a pod asks for classes in the older form."""
    return any(map(is_class_annotation, (raw_pod.get("metadata") or {}).get("annotations") or ()))


def translate_annotations(raw_pod: dict[str, Any], *, official: bool = False) -> list[str]:
    """Write annotated classes into the raw spec where nothing is requested yet; returns warnings.

    Explicit fields win, since they are the newer form.
    """
    if not has_class_annotations(raw_pod):
        return []
    annotations, spec = raw_pod["metadata"]["annotations"], raw_pod["spec"]
    everyone = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    found = from_annotations(annotations, {one.get("name", "") for one in everyone}, official=official)
    _add_missing(spec, found.pod)
    for container in everyone:
        classes = found.containers.get(container.get("name", ""))
        if classes:
            _add_missing(container.setdefault("resources", {}), classes)
    return [f"metadata.annotations[{key}]: there is no such container" for key in found.unknown_containers]


def _add_missing(holder: dict[str, Any], classes: Mapping[str, str]) -> None:
    requests = holder.setdefault("qosResources", [])
    present = {request.get("name") for request in requests}
    requests.extend({"name": name, "class": cls} for name, cls in classes.items() if name not in present)


def changed_annotations(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Class annotations that an update would change; the KEP forbids that after creation."""
    keys = {key for key in (*old, *new) if is_class_annotation(key)}
    return sorted(key for key in keys if old.get(key) != new.get(key))
