"""Admission: from an object as a client wrote it to an object to store, or to a refusal.

Called by the API server for every write and by `kubeqos check` offline, which therefore give the same answers. The
pipeline is a flat list of steps for each (operation, resource, subresource); a step changes the new object, which
belongs to admission, or refuses. The order is Kubernetes': what completes an object comes first (defaults, priority,
classes, LimitRange defaults), then what is derived (pod-level resources, QoS class), then validation of the whole, then
the bounds of LimitRanges, and last the quotas, so that nothing is charged for an object that is refused.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from kubeqos import gates
from kubeqos.gates import FeatureGates
from kubeqos.model.objects import PodView
from kubeqos.rules import limits, quota
from kubeqos.rules.classes import WELL_KNOWN, changed_annotations, translate_annotations
from kubeqos.rules.defaults import apply_defaults
from kubeqos.rules.fielderror import FieldError, Invalid, forbidden
from kubeqos.rules.limits import Limits
from kubeqos.rules.podqos import default_pod_level, default_requests, qos_class
from kubeqos.rules.priority import PriorityClasses, keep_priority, resolve_priority
from kubeqos.rules.quota import Charge, Deltas, Quota
from kubeqos.rules.validation import validate, warnings

Raw = dict[str, Any]
PVC_PROTECTION = "kubernetes.io/pvc-protection"
DEFAULT_GATES = FeatureGates.default()


class Operation(enum.StrEnum):
    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class Request:
    """A write. `new` belongs to admission from here on and is changed in place; `old` is only read."""

    operation: Operation
    resource: str
    kind: str
    group: str = ""
    namespace: str = ""
    subresource: str = ""
    old: Raw | None = None
    new: Raw | None = None

    @property
    def qualified(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def name(self) -> str:
        """The name for messages; a name that is yet to be generated is known by its prefix."""
        metadata = ((self.new if self.new is not None else self.old) or {}).get("metadata") or {}
        return str(metadata.get("name") or metadata.get("generateName") or "")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the rules need to know beside the object. Compiled parts are kept per revision by the caller."""

    namespace_phase: str | None = "Active"
    """None: the namespace does not exist."""
    limits: Sequence[Limits] = ()
    priorities: PriorityClasses = field(default_factory=PriorityClasses)
    quotas: Collection[Quota] = ()
    gates: FeatureGates = DEFAULT_GATES
    container_level: Collection[str] = frozenset(WELL_KNOWN)
    """QoS-class resources that nodes offer to containers; pod-wide requests of them are defaults for containers."""
    nodes: Collection[str] = ()
    expired: Collection[str] = ()
    """Uids of pods whose grace period is over although they still exist: they are no longer charged."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The object to store (None after a delete), what to tell the client, and what each quota is charged."""

    object: Raw | None
    warnings: tuple[str, ...] = ()
    deltas: Deltas = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer that the client gets instead."""

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    because: tuple[str, ...] = ()
    """Every reason there is; the message gives as many as Kubernetes would."""

    def status(self) -> Raw:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": dict(self.details),
            "code": self.code,
        }


class Work:
    """One write on its way through the steps."""

    __slots__ = ("_view", "around", "deltas", "new", "request", "warnings")

    def __init__(self, request: Request, around: Surroundings) -> None:
        self.request = request
        self.around = around
        self.new: Raw = request.new if request.new is not None else {}
        self.warnings: list[str] = []
        self.deltas: Deltas = {}
        self._view: PodView | None = None

    @property
    def pod(self) -> PodView:
        """The new pod as a view, read once all changes are made."""
        if self._view is None:
            self._view = PodView.of(self.new)
        return self._view


Step = Callable[[Work], Refused | None]


def admit(request: Request, around: Surroundings) -> Admitted | Refused:
    """Decide about one write. Nothing is stored or charged here: the caller commits object and deltas together."""
    work = Work(request, around)
    for step in _plan(request.operation, request.qualified, request.subresource):
        refused = step(work)
        if refused is not None:
            return refused
    return Admitted(request.new, tuple(work.warnings), work.deltas)


# -- refusals --------------------------------------------------------------------------------------------------


def refuse(request: Request, why: str, *, causes: Sequence[Raw] = (), because: tuple[str, ...] = ()) -> Refused:
    """A 403 in Kubernetes' words."""
    details: Raw = {"name": request.name, "kind": request.resource}
    if request.group:
        details["group"] = request.group
    if causes:
        details["causes"] = list(causes)
    message = f'{request.qualified} "{request.name}" is forbidden: {why}'
    return Refused(403, "Forbidden", message, details, because or (why,))


def refuse_invalid(request: Request, errors: Sequence[FieldError]) -> Refused:
    """A 422 that lists what is wrong field by field, each once."""
    errors = list({str(error): error for error in errors}.values())
    found = Invalid(request.kind, request.group, request.name, errors)
    return Refused(
        found.code, found.reason, found.message, found.details, tuple(dict.fromkeys(error.message for error in errors))
    )


def _joined(violations: Sequence[str]) -> str:
    return violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"


# -- the steps -------------------------------------------------------------------------------------------------


def namespace_exists(work: Work) -> Refused | None:
    """Nothing is created where there is no namespace, or where one is going away."""
    request, phase = work.request, work.around.namespace_phase
    name = request.namespace
    if not name or phase == "Active":
        return None
    if phase is None:
        details = {"name": name, "kind": "namespaces"}
        return Refused(404, "NotFound", f'namespaces "{name}" not found', details)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {name} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {name} because it is being terminated"
    return refuse(request, why, causes=[cause])


def static_defaults(work: Work) -> Refused | None:
    """What Kubernetes fills in whatever else is in the cluster."""
    apply_defaults(work.request.kind, work.new)
    return None


def valid_object(work: Work) -> Refused | None:
    """Every field error of the completed object, against the stored one where there is one."""
    request = work.request
    operation: Literal["create", "update"] = "create" if request.operation is Operation.CREATE else "update"
    errors = validate(request.kind, work.new, old=request.old, operation=operation, subresource=request.subresource)
    if not errors:
        work.warnings += warnings(request.kind, work.new, creating=operation == "create")
        return None
    return refuse_invalid(request, errors)


def pod_defaults(work: Work) -> Refused | None:
    default_requests(work.new.setdefault("spec", {}))
    return None


def limit_range_defaults(work: Work) -> Refused | None:
    limits.default_limit_range(work.new)
    return None


def pod_priority(work: Work) -> Refused | None:
    wrong = resolve_priority(work.new.setdefault("spec", {}), work.around.priorities)
    return refuse(work.request, wrong) if wrong else None


def pod_keeps_priority(work: Work) -> Refused | None:
    keep_priority(work.new.setdefault("spec", {}), (work.request.old or {}).get("spec") or {})
    return None


_UNHEALTHY_NODE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def pod_tolerations(work: Work) -> Refused | None:
    """Pods stay five minutes on a node that fails, unless they say otherwise."""
    spec = work.new.setdefault("spec", {})
    have = spec.get("tolerations") or []
    missing = [key for key in _UNHEALTHY_NODE if not any(_tolerates(one, key) for one in have)]
    if missing:
        spec["tolerations"] = [
            *have,
            *({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in missing),
        ]
    return None


def _tolerates(toleration: Raw, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def classes_need_gate(work: Work) -> Refused | None:
    """With QOSResources off the fields are refused where they are new, and kept where they are stored (ruling 14)."""
    if work.around.gates.enabled(gates.QOS_RESOURCES):
        return None
    where = _class_fields(work.new)
    if not where or (work.request.old is not None and _class_fields(work.request.old)):
        return None
    return refuse_invalid(
        work.request, [forbidden(path, "may not be set while feature gate QOSResources is off") for path in where]
    )


def _class_fields(raw: Raw) -> list[str]:
    spec = raw.get("spec") or {}
    found = ["spec.qosResources"] if spec.get("qosResources") else []
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or ()):
            if (container.get("resources") or {}).get("qosResources"):
                found.append(f"spec.{key}[{index}].resources.qosResources")
    for index, item in enumerate(spec.get("limits") or ()):
        if item.get("qosResources"):
            found.append(f"spec.limits[{index}].qosResources")
    return found


def class_annotations(work: Work) -> Refused | None:
    if work.around.gates.enabled(gates.TRANSLATE_METADATA):
        work.warnings += translate_annotations(work.new)
    return None


def class_annotations_stay(work: Work) -> Refused | None:
    if not work.around.gates.enabled(gates.TRANSLATE_METADATA):
        return None
    old, new = (_annotations(raw) for raw in (work.request.old or {}, work.new))
    changed = changed_annotations(old, new)
    if not changed:
        return None
    why = "class annotations may not change after the pod was created"
    return refuse_invalid(work.request, [forbidden(f"metadata.annotations[{key}]", why) for key in changed])


def _annotations(raw: Raw) -> Mapping[str, str]:
    return (raw.get("metadata") or {}).get("annotations") or {}


def limit_defaults(work: Work) -> Refused | None:
    if work.around.limits:
        classes = work.around.gates.enabled(gates.QOS_RESOURCES)
        limits.apply_defaults(work.new, work.around.limits, classes=classes)
    return None


def derive_pod(work: Work) -> Refused | None:
    """What follows from the completed spec: pod-level resources, and the QoS class, which is decided only once."""
    default_pod_level(work.new["spec"])
    status = work.new.get("status") or {}
    work.new["status"] = {"phase": "Pending", **status, "qosClass": qos_class(work.pod).qos_class.value}
    return None


def limit_bounds(work: Work) -> Refused | None:
    if not work.around.limits or _is_going(work.request.old):
        return None
    violations = limits.check_pod(work.pod.spec, work.around.limits, work.around.container_level)
    return refuse(work.request, _joined(violations), because=tuple(violations)) if violations else None


def claim_bounds(work: Work) -> Refused | None:
    if not work.around.limits or _is_going(work.request.old):
        return None
    violations = limits.check_claim(work.new, work.around.limits)
    return refuse(work.request, _joined(violations), because=tuple(violations)) if violations else None


def _is_going(old: Raw | None) -> bool:
    return bool(old and (old.get("metadata") or {}).get("deletionTimestamp"))


def claim_protection(work: Work) -> Refused | None:
    """A claim stays until nobody uses it: the claims controller takes the finalizer away."""
    metadata = work.new.setdefault("metadata", {})
    finalizers = metadata.get("finalizers") or []
    if PVC_PROTECTION not in finalizers:
        metadata["finalizers"] = [*finalizers, PVC_PROTECTION]
    return None


def resize_needs_node(work: Work) -> Refused | None:
    node = (work.new.get("spec") or {}).get("nodeName")
    if node and node not in work.around.nodes:
        return refuse(work.request, f'node "{node}" not found')
    return None


def one_global_default(work: Work) -> Refused | None:
    default = work.around.priorities.default
    if work.new.get("globalDefault") and default and default != work.request.name:
        why = f"PriorityClass {default} is already marked as default. Only one default can exist"
        return refuse(work.request, why)
    return None


def quotas(work: Work) -> Refused | None:
    """The ledger's decision. Every write is followed; only some may be refused."""
    request, around = work.request, work.around
    if not around.quotas:
        return None
    enforce = request.operation is Operation.CREATE
    if request.operation is Operation.UPDATE:
        enforce = quota.enforced_on_update(request.qualified, request.subresource, request.old or {}, work.new)
    decision = quota.decide(
        around.quotas,
        _charge(request, request.old, around),
        None if request.new is None else _charge(request, work.new, around, work),
        enforce=enforce,
        container_level=around.container_level,
    )
    if isinstance(decision, quota.Denied):
        return refuse(request, decision.message, because=tuple(reason.message for reason in decision.reasons))
    work.deltas = decision.deltas
    return None


def _charge(request: Request, raw: Raw | None, around: Surroundings, work: Work | None = None) -> Charge | None:
    if raw is None:
        return None
    if request.qualified == "pods":
        view = work.pod if work else PodView.of(raw)
        return quota.charge_pod(view, expired=view.metadata.uid in around.expired)
    return quota.charge_of(request.resource, raw, group=request.group)


# -- who goes through what -------------------------------------------------------------------------------------

_STEPS: Mapping[tuple[Operation, str, str], tuple[Step, ...]] = {
    (Operation.CREATE, "pods", ""): (
        pod_defaults, pod_priority, pod_tolerations, class_annotations, classes_need_gate, limit_defaults, derive_pod,
        valid_object, limit_bounds,
    ),
    (Operation.UPDATE, "pods", ""): (
        pod_keeps_priority, pod_tolerations, classes_need_gate, class_annotations_stay,
    ),
    (Operation.UPDATE, "pods", "resize"): (
        pod_keeps_priority, limit_defaults, resize_needs_node, valid_object, limit_bounds,
    ),
    (Operation.CREATE, "persistentvolumeclaims", ""): (claim_protection, valid_object, claim_bounds),
    (Operation.UPDATE, "persistentvolumeclaims", ""): (valid_object, claim_bounds),
    (Operation.CREATE, "limitranges", ""): (limit_range_defaults, classes_need_gate),
    (Operation.UPDATE, "limitranges", ""): (limit_range_defaults, classes_need_gate),
    (Operation.CREATE, "resourcequotas", ""): (classes_need_gate,),
    (Operation.UPDATE, "resourcequotas", ""): (classes_need_gate,),
    (Operation.CREATE, "priorityclasses.scheduling.k8s.io", ""): (one_global_default,),
    (Operation.UPDATE, "priorityclasses.scheduling.k8s.io", ""): (one_global_default,),
}  # fmt: skip


@lru_cache(maxsize=1024)
def _plan(operation: Operation, resource: str, subresource: str) -> tuple[Step, ...]:
    own = _STEPS.get((operation, resource, subresource), ())
    if operation is Operation.DELETE:
        return (quotas,)
    first: tuple[Step, ...] = (namespace_exists,) if operation is Operation.CREATE else ()
    last = () if valid_object in own else (valid_object,)
    return (*first, static_defaults, *own, *last, quotas)
