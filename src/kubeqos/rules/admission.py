"""Admission: from an object as a client wrote it to an object to store, or to a refusal.

Called by the API server for every write and by `kubeqos check` offline, which therefore give the same answers. The
pipeline is a flat list of steps for each (operation, resource, subresource); a step changes the new object, which
belongs to admission, or refuses. The order is Kubernetes': what completes an object comes first (defaults, priority,
classes, LimitRange defaults), then what is derived (pod-level resources, QoS class), then validation of the whole, then
the bounds of LimitRanges, and last the quotas, so that nothing is charged for an object that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from kubeqos import gates
from kubeqos.model.annotations.wellknown import RUNTIME_HANDLER_ANNOTATION
from kubeqos.model.objects import PodView
from kubeqos.model.quantity import Quantity
from kubeqos.model.text.gotext import quote
from kubeqos.rules import limits, quota
from kubeqos.rules.defaulting.defaults import add_default_tolerations, apply_defaults, prepare_create
from kubeqos.rules.defaulting.runtimeclass import apply_runtime_class, overhead_refusal, write_handler
from kubeqos.rules.fielderror import FieldError, Invalid, forbidden, worth_telling
from kubeqos.rules.priority import keep_priority, resolve_priority
from kubeqos.rules.qos.allocated import held_spec, keep_unseen, resized_spec, status_until_told
from kubeqos.rules.qos.classes import (
    Level,
    changed_annotations,
    request_errors,
    translate_annotations,
)
from kubeqos.rules.qos.classfields import class_fields, parts_of_status, status_tells_classes
from kubeqos.rules.qos.podqos import effective_requests
from kubeqos.rules.qos.restoredclasses import restored
from kubeqos.rules.quota import Charge, Deltas
from kubeqos.rules.requests import AdmissionRequest, Admitted, ClusterFacts, Operation, Raw, RequestRefused
from kubeqos.rules.services.families import node_port_errors, settle_families
from kubeqos.rules.services.updates import drop_type_dependent, keep_allocated
from kubeqos.rules.validation import validate, warnings
from kubeqos.rules.validation.meta import drop_repeated_owners


class Work:
    """One write on its way through the steps."""

    __slots__ = ("_view", "around", "deltas", "judged_as", "new", "request", "warnings")

    def __init__(self, request: AdmissionRequest, around: ClusterFacts) -> None:
        self.request = request
        self.judged_as = request.rules or request.kind
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


Step = Callable[[Work], RequestRefused | None]


def admit(request: AdmissionRequest, around: ClusterFacts) -> Admitted | RequestRefused:
    """Decide about one write. Nothing is stored or charged here: the caller commits object and deltas together."""
    work = Work(request, around)
    for step in _plan(request.operation, request.qualified, request.subresource):
        refused = step(work)
        if refused is not None:
            return refused
    return Admitted(request.new, tuple(work.warnings), work.deltas)


# -- refusals --------------------------------------------------------------------------------------------------


def refuse(
    request: AdmissionRequest, why: str, *, causes: Sequence[Raw] = (), because: tuple[str, ...] = ()
) -> RequestRefused:
    """A 403 in Kubernetes' words."""
    details: Raw = {"name": request.name, "kind": request.resource}
    if request.group:
        details["group"] = request.group
    if causes:
        details["causes"] = list(causes)
    message = f'{request.qualified} "{request.name}" is forbidden: {why}'
    return RequestRefused(403, "Forbidden", message, details, because or (why,))


def refuse_invalid(request: AdmissionRequest, errors: Sequence[FieldError]) -> RequestRefused:
    """A 422 that lists what is wrong field by field, each once."""
    told, _ = worth_telling(errors)
    found = Invalid(request.kind, request.group, request.name, errors)
    return RequestRefused(found.code, found.reason, found.message, found.details, tuple(told))


def _joined(violations: Sequence[str]) -> str:
    return violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"


# -- the steps -------------------------------------------------------------------------------------------------


def namespace_exists(work: Work) -> RequestRefused | None:
    """Nothing is created where there is no namespace, or where one is going away."""
    request, phase = work.request, work.around.namespace_phase
    name = request.namespace
    if not name or phase == "Active":
        return None
    if phase is None:
        details = {"name": name, "kind": "namespaces"}
        return RequestRefused(404, "NotFound", f'namespaces "{name}" not found', details)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {name} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {name} because it is being terminated"
    return refuse(request, why, causes=[cause])


def owners_once(work: Work) -> RequestRefused | None:
    warning = drop_repeated_owners(work.new.get("metadata") or {})
    if warning:
        work.warnings.append(warning)
    return None


def defaults(work: Work) -> RequestRefused | None:
    if not work.request.defaulted:
        apply_defaults(work.judged_as, work.new)
    return None


def pod_priority(work: Work) -> RequestRefused | None:
    wrong = resolve_priority(work.new.setdefault("spec", {}), work.around.priorities)
    return refuse(work.request, wrong) if wrong else None


def pod_keeps_priority(work: Work) -> RequestRefused | None:
    keep_priority(work.new.setdefault("spec", {}), (work.request.old or {}).get("spec") or {})
    return None


def pod_tolerations(work: Work) -> RequestRefused | None:
    add_default_tolerations(work.new["spec"])
    return None


def classes_need_gate(work: Work) -> RequestRefused | None:
    """With QOSResources off the fields are refused where they are new or change, and kept where they are stored
    (ruling 14): in pods, in templates that pods are made from, in limit ranges and quotas."""
    if work.around.gates.enabled(gates.QOS_RESOURCES):
        return None
    asked = class_fields(work.new)
    stored = class_fields(work.request.old or {}) if asked else {}
    where = [path for path, value in asked.items() if stored.get(path) != value]
    if not where:
        return None
    return refuse_invalid(
        work.request, [forbidden(path, "may not be set while feature gate QOSResources is off") for path in where]
    )


def classes_survive(work: Work) -> RequestRefused | None:
    """Classes that a client left out because it does not know them come back, or it is told (KEP-3008, Kubectl)."""
    old, new = work.request.old or {}, work.new
    spec = new.get("spec") or {}
    if work.around.origins and isinstance(spec.get("template"), dict):
        kept = restored((old.get("spec") or {}).get("template"), spec["template"], work.around.origins)
        if kept is not None:
            spec["template"] = kept.template
            work.warnings.append(kept.because)
            return None
    if (gone := ", ".join(class_fields(old))) and not class_fields(new):
        work.warnings.append(f"this update removes every QoS class: {gone} {'is' if ',' not in gone else 'are'} gone")
    return None


def status_without_classes(work: Work) -> RequestRefused | None:
    """With QOSResources off a node cannot advertise, nor tell what its pods have (KEP-3008, Version Skew Strategy)."""
    if work.around.gates.enabled(gates.QOS_RESOURCES) or status_tells_classes(work.request.old or {}):
        return None
    for part in parts_of_status(work.new):
        part.pop("qosResources", None)
    return None


def class_annotations(work: Work) -> RequestRefused | None:
    if work.around.gates.enabled(gates.TRANSLATE_METADATA):
        work.warnings += translate_annotations(work.new, official=work.around.gates.enabled(gates.STRICT_NAMES))
    return None


def class_annotations_stay(work: Work) -> RequestRefused | None:
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


def strict_class_names(work: Work) -> RequestRefused | None:
    """The KEP's Beta rule: requests of official names must be known ones (ruling 5)."""
    if not work.around.gates.enabled(gates.STRICT_NAMES):
        return None
    spec, known = work.new["spec"], work.around.class_objects.levels
    found = request_errors(
        spec.get("qosResources"), "spec.qosResources", level=Level.POD, strict_names=True, known=known
    )
    for key in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(key) or ()):
            path = f"spec.{key}[{index}].resources.qosResources"
            asked = (container.get("resources") or {}).get("qosResources")
            found += request_errors(asked, path, level=Level.CONTAINER, strict_names=True, known=known)
    return refuse_invalid(work.request, found) if found else None


def class_namespaces(work: Work) -> RequestRefused | None:
    known = work.around.class_objects
    wrong = known.refusal(work.request.namespace, work.new["spec"]) if known.namespaces else ""
    return refuse(work.request, wrong) if wrong else None


def limit_defaults(work: Work) -> RequestRefused | None:
    if work.around.limits:
        classes = work.around.gates.enabled(gates.QOS_RESOURCES)
        limits.apply_defaults(work.new, work.around.limits, classes=classes)
    return None


def prepare(work: Work) -> RequestRefused | None:
    """What a create derives from the completed object: pod-level resources, status with the QoS class, finalizers."""
    now = work.new.setdefault("metadata", {}).get("creationTimestamp") or ""
    prepare_create(work.judged_as, work.new, now)
    return None


def validity(work: Work) -> RequestRefused | None:
    request = work.request
    operation: Literal["create", "update"] = "create" if request.operation is Operation.CREATE else "update"
    errors = validate(work.judged_as, work.new, old=request.old, operation=operation, subresource=request.subresource)
    if errors:
        return refuse_invalid(request, errors)
    if not request.subresource:
        work.warnings += warnings(work.judged_as, work.new, old=request.old)
    return None


def limit_bounds(work: Work) -> RequestRefused | None:
    if not work.around.limits or _is_going(work.request.old):
        return None
    held = before = None
    if work.request.old is not None:
        held, before = held_spec(work.pod), held_spec(PodView.of(work.request.old))
    violations = limits.check_pod(
        work.pod.spec, work.around.limits, work.around.container_level, held=held, before=before
    )
    return refuse(work.request, _joined(violations), because=tuple(violations)) if violations else None


def claim_bounds(work: Work) -> RequestRefused | None:
    if not work.around.limits or _is_going(work.request.old):
        return None
    violations = limits.check_claim(work.new, work.around.limits)
    return refuse(work.request, _joined(violations), because=tuple(violations)) if violations else None


def _is_going(old: Raw | None) -> bool:
    return bool(old and (old.get("metadata") or {}).get("deletionTimestamp"))


def limit_range_name(work: Work) -> RequestRefused | None:
    """A LimitRange without a name is called by its uid."""
    metadata = work.new.setdefault("metadata", {})
    if not metadata.get("name") and not metadata.get("generateName") and metadata.get("uid"):
        metadata["name"] = metadata["uid"]
    return None


def runtime_class(work: Work) -> RequestRefused | None:
    """Whoever asks for a RuntimeClass that is not there must not silently get the ordinary runtime."""
    known, name = work.around.runtime_classes, (work.new.get("spec") or {}).get("runtimeClassName")
    if known is None:
        return None
    if name is not None and name not in known:
        return refuse(work.request, f"pod rejected: RuntimeClass {quote(name)} not found")
    told = name is not None or RUNTIME_HANDLER_ANNOTATION in _annotations(work.new)
    if told and work.around.gates.enabled(gates.QOS_RESOURCES):
        write_handler(work.new.setdefault("metadata", {}), known[name].get("handler", "") if name else None)
    wrong = apply_runtime_class(work.new["spec"], known[name]) if name else None
    return refuse(work.request, wrong) if wrong else None


def runtime_handler_stays(work: Work) -> RequestRefused | None:
    """Which handler runs a pod is for nobody to change, and a client that does not know it takes it not away."""
    had, has = (_annotations(raw).get(RUNTIME_HANDLER_ANNOTATION) for raw in (work.request.old or {}, work.new))
    if had != has and work.around.gates.enabled(gates.QOS_RESOURCES):
        write_handler(work.new.setdefault("metadata", {}), had)
    return None


def runtime_overhead(work: Work) -> RequestRefused | None:
    """What the pod says about its overhead must be what its RuntimeClass says."""
    known, spec = work.around.runtime_classes, work.new.get("spec") or {}
    if known is None or not spec.get("overhead"):
        return None
    wrong = overhead_refusal(spec["overhead"], known.get(spec.get("runtimeClassName") or "") or {})
    return refuse(work.request, wrong) if wrong else None


def service_type(work: Work) -> RequestRefused | None:
    old = work.request.old or {}
    keep_allocated(work.new, old)
    refused = service_families(work)
    drop_type_dependent(work.new, old)
    return refused


def service_families(work: Work) -> RequestRefused | None:
    errors = settle_families(work.new, work.request.old) or node_port_errors(work.new)
    return refuse_invalid(work.request, errors) if errors else None


def resize_only(work: Work) -> RequestRefused | None:
    """A resize changes resources and nothing else: whatever more the client sent is dropped, its metadata too."""
    old = work.request.old or {}
    spec = resized_spec(work.new.get("spec") or {}, old.get("spec") or {})
    work.new.clear()
    work.new.update(old, spec=spec)
    return None


def resize_fits_node(work: Work) -> RequestRefused | None:
    """What no pod on the node could ever have is refused at once (Kubernetes' PodResizeValidator)."""
    spec = work.new.get("spec") or {}
    node = spec.get("nodeName")
    if not node or spec == (work.request.old or {}).get("spec"):
        return None
    room = work.around.nodes.get(node)
    if room is None:
        return refuse(work.request, f'node "{node}" not found')
    if room.os not in ("", "linux"):
        why = f'pod resize is only supported on linux nodes, node "{node}" is "{room.os}"'
        return refuse(work.request, why, causes=[{"reason": "UnsupportedPlatform"}])
    wanted = effective_requests(PodView.of(work.new).spec)
    short = []
    for name, has, unit in (("cpu", room.cpu, Quantity.milli), ("memory", room.memory, Quantity.value)):
        asked, there = wanted.get(name, Quantity.ZERO), Quantity.parse(has)
        if asked > there:
            short.append(f"{name}, requested: {unit(asked)}, allocatable: {unit(there)}")
    if short:
        why = f"node didn't have enough allocatable resources: {'; '.join(short)}"
        return refuse(work.request, why, causes=[{"reason": "NodeCapacity"}])
    return None


def count_until_told(work: Work) -> RequestRefused | None:
    """A pod whose class changes holds the one that it asked for before, until its node reports otherwise."""
    old, spec = work.request.old or {}, work.new["spec"]
    if not spec.get("nodeName"):
        return None
    status, errors = status_until_told(old, spec)
    fixed = work.around.class_objects.changes_fixed(spec, old.get("spec") or {})
    errors = [*(forbidden(*one) for one in fixed), *errors]
    if errors:
        return refuse_invalid(work.request, errors)
    if status:
        work.new["status"] = status
    return None


def keep_classes_unseen(work: Work) -> RequestRefused | None:
    """A node that has not seen the present spec cannot say that the pod holds less of it."""
    status, old = work.new.get("status") or {}, (work.request.old or {}).get("status") or {}
    seen, generation = status.get("observedGeneration"), (work.new.get("metadata") or {}).get("generation")
    if seen is None or generation is None or seen >= generation:
        return None
    keep_unseen(status, old)
    return None


def one_global_default(work: Work) -> RequestRefused | None:
    default = work.around.priorities.default
    if work.new.get("globalDefault") and default and default != work.request.name:
        why = f"PriorityClass {default} is already marked as default. Only one default can exist"
        return refuse(work.request, why)
    return None


def quotas(work: Work) -> RequestRefused | None:
    """The ledger's decision. Every write is followed; only some may be refused."""
    request, around = work.request, work.around
    if not around.quotas:
        return None
    enforce = request.operation is Operation.CREATE
    if request.operation is Operation.UPDATE:
        old = request.old or {}
        enforce = quota.enforced_on_update(request.qualified, request.subresource, old, work.new)
        if not enforce and request.qualified == "pods" and quota.costs_the_same(old, work.new):
            return None
    decision = quota.decide(
        around.quotas,
        _charge(request, request.old, around),
        None if request.new is None else _charge(request, work.new, around, work),
        enforce=enforce,
        container_level=around.container_level,
    )
    if isinstance(decision, quota.OverQuota):
        return refuse(request, decision.message, because=tuple(reason.message for reason in decision.reasons))
    work.deltas = decision.deltas
    return None


def _charge(
    request: AdmissionRequest, raw: Raw | None, around: ClusterFacts, work: Work | None = None
) -> Charge | None:
    if raw is None:
        return None
    if request.qualified == "pods":
        view = work.pod if work else PodView.of(raw)
        return quota.charge_pod(view, expired=view.metadata.uid in around.expired)
    return quota.charge_of(request.resource, raw, group=request.group)


# -- who goes through what -------------------------------------------------------------------------------------

TEMPLATED = (
    "podtemplates", "replicationcontrollers", "deployments.apps", "replicasets.apps", "statefulsets.apps",
    "daemonsets.apps", "jobs.batch", "cronjobs.batch",
)  # fmt: skip
"""Resources that pods are made from."""
_MUTATING: Mapping[tuple[Operation, str, str], tuple[Step, ...]] = {
    (Operation.CREATE, "pods", ""): (
        pod_priority, pod_tolerations, runtime_class, class_annotations, classes_need_gate, limit_defaults,
    ),
    (Operation.UPDATE, "pods", ""): (pod_keeps_priority, pod_tolerations, runtime_handler_stays, classes_need_gate),
    (Operation.UPDATE, "pods", "resize"): (limit_defaults, resize_only, classes_need_gate),
    (Operation.UPDATE, "pods", "status"): (status_without_classes, keep_classes_unseen),
    (Operation.UPDATE, "nodes", "status"): (status_without_classes,),
    (Operation.CREATE, "limitranges", ""): (limit_range_name, classes_need_gate),
    (Operation.UPDATE, "limitranges", ""): (classes_survive, classes_need_gate),
    (Operation.CREATE, "services", ""): (service_families,),
    (Operation.UPDATE, "services", ""): (service_type,),
    **{(Operation.CREATE, resource, ""): (classes_need_gate,) for resource in ("resourcequotas", *TEMPLATED)},
    **{
        (Operation.UPDATE, resource, ""): (classes_survive, classes_need_gate)
        for resource in ("resourcequotas", *TEMPLATED)
    },
    (Operation.CREATE, "jobs.batch", ""): (classes_survive, classes_need_gate),
}  # fmt: skip
_VALIDATING: Mapping[tuple[Operation, str, str], tuple[Step, ...]] = {
    (Operation.CREATE, "pods", ""): (runtime_overhead, strict_class_names, class_namespaces, limit_bounds),
    (Operation.UPDATE, "pods", ""): (class_annotations_stay,),
    (Operation.UPDATE, "pods", "resize"): (resize_fits_node, class_namespaces, count_until_told, limit_bounds),
    (Operation.CREATE, "persistentvolumeclaims", ""): (claim_bounds,),
    (Operation.UPDATE, "persistentvolumeclaims", ""): (claim_bounds,),
    (Operation.CREATE, "priorityclasses.scheduling.k8s.io", ""): (one_global_default,),
    (Operation.UPDATE, "priorityclasses.scheduling.k8s.io", ""): (one_global_default,),
}


@lru_cache(maxsize=1024)
def _plan(operation: Operation, resource: str, subresource: str) -> tuple[Step, ...]:
    """The steps of one sort of write, in order."""
    key = (operation, resource, subresource)
    mutating, validating = _MUTATING.get(key, ()), _VALIDATING.get(key, ())
    if operation is Operation.DELETE:
        return (quotas,)
    if operation is Operation.CREATE:
        return (namespace_exists, owners_once, defaults, *mutating, prepare, validity, *validating, quotas)
    return (owners_once, defaults, *mutating, validity, *validating, quotas)
