"""What one object costs: its usage of every tracked resource, and how it stands towards quota scopes.

One table of evaluators, by resource; whatever is not in it is counted as an object. A charge is computed once per
version of an object and then compared with any number of quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kubeqos.model.objects import PodSpec, PodView, ResourceList
from kubeqos.model.quantity import Quantity
from kubeqos.rules.qos.allocated import held_spec
from kubeqos.rules.qos.classes import ClassKey, demand, raw_class_requests
from kubeqos.rules.qos.podqos import effective_limits, effective_requests, pod_level_set
from kubeqos.rules.quota.scopes import VOLUME_ATTRIBUTES_CLASS, is_terminating, pod_standing

Raw = dict[str, Any]

ONE = Quantity.from_int(1)
_NO_DEMAND: Mapping[ClassKey, int] = {}
COMPUTE = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_POD_NAMES = frozenset((
    "pods", "count/pods", *COMPUTE, "ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage",
))  # fmt: skip
_SERVICE_NAMES = frozenset(("services", "count/services", "services.nodeports", "services.loadbalancers"))
_CLAIM_NAMES = frozenset(("persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage"))
_COUNTED_BY_NAME = frozenset(("configmaps", "resourcequotas", "replicationcontrollers", "secrets"))
# Kinds that no quota counts: they are answers rather than objects, or come without anyone asking for them.
_NEVER_COUNTED = frozenset((
    "bindings", "componentstatuses", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews",
    "localsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews", "events",
))  # fmt: skip


class Charge:
    """One version of one object as quotas see it."""

    __slots__ = ("_unspecified", "amounts", "class_names", "ended", "held", "resource", "spec", "standing")

    def __init__(
        self,
        resource: str,
        amounts: ResourceList,
        *,
        standing: int = 0,
        class_names: Sequence[str] = (),
        spec: PodSpec | None = None,
        held: PodSpec | None = None,
        ended: bool = False,
    ) -> None:
        self.resource = resource
        self.amounts = {name: amount for name, amount in amounts.items() if amount}
        self.standing = standing
        self.class_names = class_names
        self.spec = spec
        self.held = held or spec
        self.ended = ended
        self._unspecified: Mapping[str, list[str]] | None = None

    def demand(self, container_level: Collection[str]) -> Mapping[ClassKey, int]:
        """QoS classes that it holds (KEP-3008); pods that have ended hold none (DESIGN ruling 3)."""
        return _NO_DEMAND if self.held is None or self.ended else demand(self.held, container_level)

    def asked(self, container_level: Collection[str]) -> Mapping[ClassKey, int]:
        """QoS classes that its spec asks for, whatever it still has of others."""
        return _NO_DEMAND if self.spec is None or self.ended else demand(self.spec, container_level)

    @property
    def unspecified(self) -> Mapping[str, list[str]]:
        """Which containers leave out which compute resources, by the names that quotas use."""
        if self._unspecified is None:
            self._unspecified = _unspecified(self.spec) if self.spec is not None else {}
        return self._unspecified


def _unspecified(spec: PodSpec) -> dict[str, list[str]]:
    """Pod-level resources speak for all containers."""
    if spec.resources is not None and pod_level_set(spec.resources):
        return {}
    missing: dict[str, list[str]] = {}
    for one in (*spec.containers, *spec.init_containers):
        resources = one.resources
        for resource in ("cpu", "memory"):
            if resource not in resources.requests:
                missing.setdefault(resource, []).append(one.name)
            if resource not in resources.limits:
                missing.setdefault("limits." + resource, []).append(one.name)
    missing |= {"requests." + resource: missing[resource] for resource in ("cpu", "memory") if resource in missing}
    return {resource: sorted(set(names)) for resource, names in missing.items()}


# -- the evaluators --------------------------------------------------------------------------------------------


def charge_pod(pod: PodView, *, expired: bool = False) -> Charge:
    """The charge of a pod. `expired`: it was to be deleted and its grace period is over, so only its record counts."""
    amounts: ResourceList = {"count/pods": ONE}
    spec = pod.spec
    ended = expired or pod.is_terminal
    actual = spec
    if not ended:
        amounts["pods"] = ONE
        actual = held_spec(pod)
        for name, amount in effective_requests(actual).items():
            for quota_name in _request_names(name):
                amounts[quota_name] = amount
        for name, amount in effective_limits(actual).items():
            if name in _LIMITED:
                amounts["limits." + name] = amount
    priority = spec.priority_class_name
    return Charge(
        "pods",
        amounts,
        standing=pod_standing(pod),
        class_names=(priority,) if priority else (),
        spec=spec,
        held=actual,
        ended=ended,
    )


def costs_the_same(old: Raw, new: Raw) -> bool:
    """Whether two versions of a pod surely have equal charges, told without working either out.

    Most writes to a pod give it a node or report how it runs, which no quota measures.
    """
    before, after = old.get("spec") or {}, new.get("spec") or {}
    if before != after and {**before, "nodeName": ""} != {**after, "nodeName": ""}:
        return False
    was, now = old.get("status") or {}, new.get("status") or {}
    if _priced_status(was) != _priced_status(now):
        return False
    return not any(True for _ in raw_class_requests(after)) or _assigned_classes(was) == _assigned_classes(now)


def _assigned_classes(status: Raw) -> list[Any]:
    return [
        status.get("qosResources"),
        status.get("resources"),
        *(
            (key, one.get("name"), one.get("qosResources"))
            for key in ("containerStatuses", "initContainerStatuses")
            for one in status.get(key) or ()
        ),
    ]


def _priced_status(status: Raw) -> tuple[Any, ...]:
    """What a charge reads of a status: whether the pod has ended, its class, and what the node has set aside."""
    set_aside = [
        (key, one.get("name"), one["resources"], one.get("allocatedResources"))
        for key in ("containerStatuses", "initContainerStatuses")
        for one in status.get(key) or ()
        if one.get("resources") is not None
    ]
    conditions = status.get("conditions") if set_aside else None
    return status.get("phase") in ("Succeeded", "Failed"), status.get("qosClass"), set_aside, conditions


_LIMITED = frozenset(("cpu", "memory", "ephemeral-storage"))


@lru_cache(maxsize=1024)
def _request_names(name: str) -> tuple[str, ...]:
    """Under which names a quota counts requests of a resource."""
    if name in _LIMITED or name.startswith("hugepages-"):
        return (name, "requests." + name)
    return ("requests." + name,) if _is_extended(name) else ()


def _is_extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")


def _charge_service(raw: Raw) -> Charge:
    spec = raw.get("spec") or {}
    amounts: ResourceList = {"services": ONE, "count/services": ONE}
    ports = spec.get("ports") or ()
    kind = spec.get("type")
    if kind == "LoadBalancer":
        amounts["services.loadbalancers"] = ONE
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
    if kind in ("NodePort", "LoadBalancer"):
        amounts["services.nodeports"] = Quantity.from_int(len(ports))
    return Charge("services", amounts)


def _charge_claim(raw: Raw) -> Charge:
    """A PersistentVolumeClaim: what it asks for, or has been given if that is more, in whole bytes."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    metadata = raw.get("metadata") or {}
    storage_class = (metadata.get("annotations") or {}).get("volume.beta.kubernetes.io/storage-class")
    if storage_class is None:
        storage_class = spec.get("storageClassName") or ""
    amounts: ResourceList = {"persistentvolumeclaims": ONE, "count/persistentvolumeclaims": ONE}
    if storage_class:
        amounts[f"{storage_class}{_STORAGE_CLASS}persistentvolumeclaims"] = ONE
    wanted = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if wanted is not None:
        storage = Quantity.parse(wanted)
        allocated = (status.get("allocatedResources") or {}).get("storage")
        if allocated is not None and storage < (given := Quantity.parse(allocated)):
            storage = given
        storage = Quantity.from_int(storage.value(), storage.format)
        amounts["requests.storage"] = storage
        if storage_class:
            amounts[f"{storage_class}{_STORAGE_CLASS}requests.storage"] = storage
    attributes = _attributes_classes(spec, status)
    return Charge(
        "persistentvolumeclaims",
        amounts,
        standing=VOLUME_ATTRIBUTES_CLASS if attributes else 0,
        class_names=attributes,
    )


def _attributes_classes(spec: Raw, status: Raw) -> tuple[str, ...]:
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    named = (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target)
    return tuple(sorted({name for name in named if name}))


EVALUATORS: dict[str, Callable[[Raw], Charge]] = {
    "services": _charge_service,
    "persistentvolumeclaims": _charge_claim,
}


def charge_of(resource: str, raw: Raw, *, group: str = "") -> Charge | None:
    """The charge of any object but a pod, by its resource ("services", "deployments" of group "apps", …)."""
    if resource in _NEVER_COUNTED:
        return None
    evaluator = EVALUATORS.get(resource) if not group else None
    if evaluator is not None:
        return evaluator(raw)
    return _count(resource, group)


@lru_cache(maxsize=1024)
def _count(resource: str, group: str) -> Charge:
    """Objects that are only counted all cost the same."""
    qualified = f"{resource}.{group}" if group else resource
    amounts = {f"count/{qualified}": ONE}
    if qualified in _COUNTED_BY_NAME:
        amounts[qualified] = ONE
    return Charge(qualified, amounts)


def is_tracked(name: str) -> bool:
    """Whether some evaluator measures the resource, so that a quota's status shows usage of it."""
    if name in _POD_NAMES or name in _SERVICE_NAMES or name in _CLAIM_NAMES or name in _COUNTED_BY_NAME:
        return True
    if name.startswith("count/"):
        return name.removeprefix("count/") not in _NEVER_COUNTED
    if name.startswith(("hugepages-", "requests.hugepages-")):
        return True
    if _STORAGE_CLASS in name:
        return name.endswith(("/requests.storage", "/persistentvolumeclaims"))
    return name.startswith("requests.") and _is_extended(name.removeprefix("requests."))


def enforced_on_update(resource: str, subresource: str, old: Raw, new: Raw) -> bool:
    """Whether an update may be refused by quota; the ledger follows every update either way.

    A pod's main resource can only move between the Terminating scopes; its resize subresource changes usage.
    """
    if resource == "pods":
        return subresource == "resize" or (subresource == "" and _moves(old, new))
    return subresource == "" and resource in EVALUATORS


def _moves(old: Raw, new: Raw) -> bool:
    before = (old.get("spec") or {}).get("activeDeadlineSeconds")
    after = (new.get("spec") or {}).get("activeDeadlineSeconds")
    return is_terminating(before) != is_terminating(after)
