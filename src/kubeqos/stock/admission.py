"""What becomes of a pod that is created in a stock cluster: its defaults, what it may ask for, how it is counted.

The engines are those of the embedded home: the pod is read as one with fields and its limits as LimitRanges
(`convert`), `rules` decides, and the answer is written back as annotations. What a stock scheduler needs to count is
added: an extended resource for each class that nodes have a capacity of, a node affinity for the others. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kubeqos.codec import copied
from kubeqos.errors import InputError
from kubeqos.model.objects import PodView
from kubeqos.rules.limits import Limits, apply_defaults, check_pod
from kubeqos.rules.qos.classes import Level, demand, is_official
from kubeqos.rules.qos.classobjects import ClassObjects
from kubeqos.stock.asking import CONTAINER_KEY, POD_KEY, Asked, asks_for_cores, read
from kubeqos.stock.convert import to_fields, to_stock
from kubeqos.stock.names import (
    COUNTED_DOMAIN,
    OFFERED_DOMAIN,
    PLUGIN,
    REQUIRED_PLUGINS,
    extended_resource,
    is_managed,
    node_label,
)

Raw = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KnownClass:
    """A QOSClass object: one class that the cluster knows."""

    resource: str
    name: str
    counted: bool = False

    @staticmethod
    def of(raw: Raw) -> KnownClass:
        spec = raw.get("spec") or {}
        return KnownClass(spec.get("resource", ""), spec.get("class", ""), bool(spec.get("counted")))


class Classes:
    """Every class that the cluster knows, by resource and name, and what QOSResources say of all of a resource.

    `strict` (the gate QOSResourcesStrictNames): an official name counts only where it is well known or an administrator
    has described it; that nodes offer it is not enough.
    """

    def __init__(self, objects: Sequence[Raw], resources: Sequence[Raw] = (), *, strict: bool = False) -> None:
        self._known = {(one.resource, one.name): one for one in map(KnownClass.of, objects)}
        self._strict = strict
        self._added = ClassObjects.of([one for one in objects if not is_managed(one)], resources).levels
        self._descriptions = {
            str(spec.get("resource")): str(spec["description"])
            for spec in (one.get("spec") or {} for one in resources)
            if spec.get("description")
        }
        self.objects = ClassObjects.of(objects, resources)
        self.container_level = frozenset(
            resource for resource, _ in self._known if self.objects.levels.get(resource) is not Level.POD
        )

    def find(self, resource: str, name: str) -> KnownClass | None:
        return self._known.get((resource, name)) if self.has_name(resource) else None

    def has_name(self, resource: str) -> bool:
        """Whether there may be a resource of this name at all."""
        return not self._strict or not is_official(resource) or resource in self._added

    def unknown(self, resource: str, name: str, where: str) -> NotAdmitted:
        """That there is no such class, and which there are."""
        if not self.has_name(resource):
            return NotAdmitted(
                f"{resource} is no resource that this cluster knows (gate QOSResourcesStrictNames)",
                where=where,
                remedy=f"describe it by a QOSResource, or use one of {', '.join(sorted(self._added))}",
            )
        others = ", ".join(sorted(cls for known, cls in self._known if known == resource)) or "none of this resource"
        told = f" ({self._descriptions[resource]})" if resource in self._descriptions else ""
        return NotAdmitted(f"there is no class {resource}={name}", where=where, remedy=f"known: {others}{told}")


class NotAdmitted(InputError):
    """A pod that asks for what it cannot have."""


def admitted(pod: Raw, namespace: str, classes: Classes, limits: Sequence[Raw]) -> Raw:
    """The pod as it is to be stored; one that asks for nothing, in a namespace without defaults, is left as it is."""
    ranges = [Limits.of(raw) for raw in sorted(to_fields(limits), key=lambda raw: raw["metadata"].get("name", ""))]
    [native] = to_fields([_uncounted(pod)])
    before = copied(native)
    apply_defaults(native, ranges)
    if not _asked(native):
        if _asks_for_counted(pod):
            raise NotAdmitted(
                f"resources under {COUNTED_DOMAIN} are counted for classes and cannot be asked for by themselves",
                remedy=f"ask for the class, by the annotation {POD_KEY} or {CONTAINER_KEY}NAME",
            )
        given = pod if native == before else to_stock([native])[0]
        return _requiring(given) if asks_for_cores((pod.get("metadata") or {}).get("annotations") or {}) else given
    view = PodView.of(native)
    _check(_asked(native), namespace, classes)
    if violations := check_pod(view.spec, ranges, classes.container_level):
        raise NotAdmitted(violations[0])
    [stored] = to_stock([native])
    _count(stored, classes)
    return _requiring(stored)


def class_demand(pod: Raw, classes: Classes) -> Mapping[tuple[Level, str, str], int]:
    """How many of each class a pod takes: what quotas and nodes count."""
    [native] = to_fields([_uncounted(pod)])
    return demand(PodView.of(native).spec, classes.container_level)


def _asked(native: Raw) -> Asked:
    [stock] = to_stock([native])
    everyone = [*(stock["spec"].get("initContainers") or ()), *(stock["spec"].get("containers") or ())]
    annotations = (stock.get("metadata") or {}).get("annotations") or {}
    return read(annotations, {container.get("name", "") for container in everyone})


def _check(asked: Asked, namespace: str, classes: Classes) -> None:
    """Refuse what is not known, not for this namespace, or not for containers."""
    for where, wanted in (
        (POD_KEY, asked.pod),
        *((CONTAINER_KEY + name, its) for name, its in asked.containers.items()),
    ):
        for resource, name in wanted.items():
            known = classes.find(resource, name)
            if known is None:
                raise classes.unknown(resource, name, where)
            if withheld := classes.objects.withheld(namespace, resource, name):
                raise NotAdmitted(withheld, where=where)
            if resource not in classes.container_level and where != POD_KEY:
                raise NotAdmitted(
                    f"{resource} is given to whole pods", where=where, remedy=f"ask for it by the annotation {POD_KEY}"
                )


# -- what a stock scheduler counts ---------------------------------------------------------------------------------


def _count(pod: Raw, classes: Classes) -> None:
    """Add, for each class, the extended resource that counts it, or the label that its nodes have.

    A class of the pod is asked for by its first container alone, so that it counts once. What init containers and
    app containers need at the same time is worked out by the scheduler as for every other resource.
    """
    spec = pod["spec"]
    asked = read(pod["metadata"]["annotations"], {each["name"] for each in _everyone(spec)})
    offered: set[str] = set()
    for place, container in enumerate(_everyone(spec)):
        defaults = {name: cls for name, cls in asked.pod.items() if name in classes.container_level}
        wanted = defaults | dict(asked.containers.get(container["name"], {}))
        if place == len(spec.get("initContainers") or ()):
            wanted |= {name: cls for name, cls in asked.pod.items() if name not in classes.container_level}
        for resource, name in wanted.items():
            known = classes.find(resource, name)
            if known is not None and known.counted:
                _request_one(container, extended_resource(resource, name))
            else:
                offered.add(node_label(resource, name))
    if offered:
        _need_labels(spec, sorted(offered))


def _requiring(pod: Raw) -> Raw:
    """The pod of one who asks: where the runtime's validator is on, it does not start on a node whose agent is away."""
    metadata = pod["metadata"]
    annotations = {REQUIRED_PLUGINS: f'["{PLUGIN}"]', **metadata["annotations"]}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def _everyone(spec: Raw) -> list[Raw]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _request_one(container: Raw, name: str) -> None:
    resources = container.setdefault("resources", {})
    # An extended resource is never overcommitted: Kubernetes wants request and limit to be the same.
    for side in ("requests", "limits"):
        resources[side] = {**(resources.get(side) or {}), name: "1"}


def _need_labels(spec: Raw, labels: Sequence[str]) -> None:
    """Only nodes with all these labels will do, in addition to what the pod asks of its node already."""
    affinity = spec["affinity"] = copied(spec.get("affinity") or {})
    node = affinity.setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    wanted = [{"key": label, "operator": "Exists"} for label in labels]
    terms = required.get("nodeSelectorTerms") or [{}]  # terms are alternatives, so each of them needs the labels
    required["nodeSelectorTerms"] = [{**term, "matchExpressions": _added(term, wanted)} for term in terms]


def _added(term: Raw, wanted: Sequence[Raw]) -> list[Raw]:
    have = [each for each in term.get("matchExpressions") or () if not each.get("key", "").startswith(OFFERED_DOMAIN)]
    return [*have, *wanted]


def _uncounted(pod: Raw) -> Raw:
    """The pod without what an earlier pass has added: webhooks are called again when others change a pod."""
    bare: Raw = copied(pod)
    for container in _everyone(bare.get("spec") or {}):
        for side in ("requests", "limits"):
            kept = {name: amount for name, amount in ((container.get("resources") or {}).get(side) or {}).items()
                    if not name.startswith(COUNTED_DOMAIN)}  # fmt: skip
            if side in (container.get("resources") or {}):
                container["resources"][side] = kept
    return bare


def _asks_for_counted(pod: Raw) -> bool:
    return any(
        name.startswith(COUNTED_DOMAIN)
        for container in _everyone(pod.get("spec") or {})
        for side in ("requests", "limits")
        for name in (container.get("resources") or {}).get(side) or ()
    )
