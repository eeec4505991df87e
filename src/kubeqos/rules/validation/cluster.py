"""Validation of namespaces, nodes, priority classes, leases, service accounts and RBAC objects."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeqos.model import names
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_found, not_supported, required
from kubeqos.rules.priority import SYSTEM_CLASSES
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_choice,
    check_immutable,
    check_label_selector,
    check_non_negative,
    complain,
)
from kubeqos.rules.validation.meta import check_kube_finalizer, check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.pods.scheduling import check_taints
from kubeqos.rules.validation.quota import check_class_capacities
from kubeqos.rules.validation.resources import amounts, check_amount

MAX_USER_PRIORITY = 1_000_000_000
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
_POD_SECURITY = "pod-security.kubernetes.io/"
_POD_SECURITY_LEVELS = ("privileged", "baseline", "restricted")
_is_security_version = re.compile(r"latest|v1\.(0|[1-9][0-9]*)").fullmatch
_CIDR_CHANGE = 'node updates may not change podCIDR except from "" to valid'
_RBAC_GROUP = "rbac.authorization.k8s.io"


def check_namespace(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_label, namespaced=False)
    _check_pod_security(out, raw)
    for finalizer in (raw.get("spec") or NO_MAP).get("finalizers") or NO_LIST:
        complain(out, "spec.finalizers", finalizer, names.qualified_name(finalizer))
        check_kube_finalizer(out, "spec.finalizers", finalizer)


def check_namespace_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_pod_security(out, raw)


def check_namespace_finalize(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    for index, finalizer in enumerate((raw.get("spec") or NO_MAP).get("finalizers") or NO_LIST):
        complain(out, f"spec.finalizers[{index}]", finalizer, names.qualified_name(finalizer))
        check_kube_finalizer(out, f"spec.finalizers[{index}]", finalizer)


def check_namespace_status_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    phase = (raw.get("status") or NO_MAP).get("phase", "")
    going = meta_of(old).get("deletionTimestamp") or meta_of(raw).get("deletionTimestamp")
    wanted = "Terminating" if going else "Active"
    if phase != wanted:
        state = "not empty" if going else "empty"
        out.append(invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` is {state}"))


def _check_pod_security(out: Errors, raw: Raw) -> None:
    """Labels by which a namespace chooses its pod security level."""
    labels = meta_of(raw).get("labels") or NO_MAP
    for mode in ("enforce", "audit", "warn"):
        key = f"{_POD_SECURITY}{mode}"
        level = labels.get(key)
        if level is not None and level not in _POD_SECURITY_LEVELS:
            why = f"must be one of {', '.join(_POD_SECURITY_LEVELS)}"
            out.append(invalid(f"metadata.labels[{key}]", level, why))
        version = labels.get(f"{key}-version")
        if version is not None and not _is_security_version(version):
            out.append(invalid(f"metadata.labels[{key}-version]", version, 'must be "latest" or "v1.x"'))


def check_node(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=False)
    _check_node_body(out, raw)
    _check_ranges(out, (raw.get("spec") or NO_MAP).get("podCIDRs") or NO_LIST)


def _check_ranges(out: Errors, ranges: Sequence[str]) -> None:
    for index, value in enumerate(ranges):
        complain(out, f"spec.podCIDRs[{index}]", value, names.cidr(value))
    if len(ranges) > 1:
        families = {one.version for one in map(names.parse_cidr, ranges) if one}
        if len(families) != 2 or len(ranges) > 2:
            out.append(invalid("spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"))


def _check_node_body(out: Errors, raw: Raw) -> None:
    spec, status = raw.get("spec") or NO_MAP, raw.get("status") or NO_MAP
    check_taints(out, "metadata.taints", spec.get("taints") or NO_LIST)
    for field in ("capacity", "allocatable"):
        for name, amount in amounts(status.get(field)).items():
            check_amount(out, f"status.{field}.{name}", name, amount)
    _check_catalog(out, "status.qosResources", status.get("qosResources") or NO_MAP)


def _check_catalog(out: Errors, path: str, catalog: Raw) -> None:
    """The classes that a node advertises: a name belongs to one level only (KEP-3008, NodeStatus)."""
    seen = set[str]()
    for level in ("podQoSResources", "containerQoSResources"):
        for index, resource in enumerate(catalog.get(level) or NO_LIST):
            where, name = f"{path}.{level}[{index}]", resource.get("name", "")
            if not name:
                out.append(required(f"{where}.name"))
            elif name in seen:
                out.append(duplicate(f"{where}.name", name))
            else:
                complain(out, f"{where}.name", name, names.qualified_name(name))
            seen.add(name)
            check_class_capacities(out, f"{where}.classes", resource.get("classes") or NO_LIST)
            known = {one.get("name") for one in resource.get("classes") or NO_LIST}
            for number, handler in enumerate(resource.get("runtimeHandlers") or NO_LIST):
                for place, cls in enumerate(handler.get("classes") or NO_LIST):
                    if cls not in known:
                        at = f"{where}.runtimeHandlers[{number}].classes[{place}]"
                        out.append(not_found(at, cls))


def check_node_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_node_body(out, raw)
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    seen = set[tuple[str, str]]()
    for index, address in enumerate((raw.get("status") or NO_MAP).get("addresses") or NO_LIST):
        key = (address.get("type", ""), address.get("address", ""))
        if key in seen:
            shown = {"Type": key[0], "Address": key[1]}
            out.append(duplicate(f"status.addresses[{index}]", shown))
        seen.add(key)
    ranges, old_ranges = spec.get("podCIDRs") or NO_LIST, before.get("podCIDRs") or NO_LIST
    if old_ranges and list(ranges) != list(old_ranges):
        out.append(forbidden("spec.podCIDRs", _CIDR_CHANGE))
    _check_ranges(out, ranges)
    provider = before.get("providerID")
    if provider and provider != spec.get("providerID"):
        why = "field cannot be modified once set" if spec.get("providerID") else "field cannot be cleared once set"
        out.append(invalid("spec.providerID", None, why))
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        out.append(forbidden("spec.externalID", "may not be updated"))


def check_priority_class(out: Errors, raw: Raw) -> None:
    meta = meta_of(raw)
    check_meta(out, meta, names.dns_subdomain, namespaced=False)
    name, value = meta.get("name", ""), raw.get("value", 0)
    if name.startswith("system-"):
        if problem := _system_priority_problem(name, value, bool(raw.get("globalDefault"))):
            why = "priority class names with 'system-' prefix are reserved for system use only. error: "
            out.append(forbidden("metadata.name", f"{why}{problem}"))
    elif value > MAX_USER_PRIORITY:
        why = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        out.append(forbidden("value", why))
    policy = raw.get("preemptionPolicy")
    if policy is not None:
        check_choice(out, "preemptionPolicy", policy, _PREEMPTION_POLICIES)


def _system_priority_problem(name: str, value: int, is_default: bool) -> str | None:
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if value != known:
        return f"value of {name} PriorityClass must be {known}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else None


def check_priority_class_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    if raw.get("value", 0) != old.get("value", 0):
        out.append(forbidden("value", "may not be changed in an update."))
    default = "PreemptLowerPriority"
    check_immutable(out, "preemptionPolicy", raw.get("preemptionPolicy", default), old.get("preemptionPolicy", default))


def check_lease(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        out.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    check_non_negative(out, "spec.leaseTransitions", spec.get("leaseTransitions"))


def check_role(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.path_segment, namespaced=True)
    _check_rules(out, raw, namespaced=True)


def check_cluster_role(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.path_segment, namespaced=False)
    _check_rules(out, raw, namespaced=False)
    aggregation = raw.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors") or NO_LIST
        if not selectors:
            why = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            out.append(required("aggregationRule.clusterRoleSelectors", why))
        for index, selector in enumerate(selectors):
            where, known = f"aggregationRule.clusterRoleSelectors[{index}]", len(out)
            check_label_selector(out, where, selector)
            if len(out) > known:
                out.append(invalid(where, selector, "invalid label selector."))


def _check_rules(out: Errors, raw: Raw, *, namespaced: bool) -> None:
    for index, rule in enumerate(raw.get("rules") or NO_LIST):
        where, urls = f"rules[{index}]", rule.get("nonResourceURLs")
        if not rule.get("verbs"):
            out.append(required(f"{where}.verbs"))
        if urls:
            if namespaced:
                why = "namespaced rules cannot apply to non-resource URLs"
                out.append(invalid(f"{where}.nonResourceURLs", urls, why))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                why = "rules cannot apply to both regular resources and non-resource URLs"
                out.append(invalid(f"{where}.nonResourceURLs", urls, why))
            continue
        if not rule.get("apiGroups"):
            out.append(required(f"{where}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            out.append(required(f"{where}.resources", "resource rules must supply at least one resource"))


def check_role_binding(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.path_segment, namespaced=True)
    _check_binding(out, raw, ("Role", "ClusterRole"), namespaced=True)


def check_cluster_role_binding(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.path_segment, namespaced=False)
    _check_binding(out, raw, ("ClusterRole",), namespaced=False)


def _check_binding(out: Errors, raw: Raw, kinds: tuple[str, ...], *, namespaced: bool) -> None:
    role = raw.get("roleRef") or NO_MAP
    group, kind, name = role.get("apiGroup", ""), role.get("kind", ""), role.get("name", "")
    if group != _RBAC_GROUP:
        out.append(not_supported("roleRef.apiGroup", group, (_RBAC_GROUP,)))
    if kind not in kinds:
        out.append(not_supported("roleRef.kind", kind, kinds))
    if not name:
        out.append(required("roleRef.name"))
    else:
        complain(out, "roleRef.name", name, names.path_segment(name))
    for index, subject in enumerate(raw.get("subjects") or NO_LIST):
        _check_subject(out, f"subjects[{index}]", subject, namespaced=namespaced)


def _check_subject(out: Errors, path: str, subject: Raw, *, namespaced: bool) -> None:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        out.append(required(f"{path}.name"))
    if kind == "ServiceAccount":
        if name:
            complain(out, f"{path}.name", name, names.dns_subdomain(name))
        if group:
            out.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            out.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != _RBAC_GROUP:
            out.append(not_supported(f"{path}.apiGroup", group, (_RBAC_GROUP,)))
    else:
        out.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))


def check_binding_change(out: Errors, raw: Raw, old: Raw) -> None:
    """A binding keeps its role for life: who may bind was decided when it was made."""
    role = raw.get("roleRef") or NO_MAP
    if role != (old.get("roleRef") or NO_MAP):
        shown = {"APIGroup": role.get("apiGroup", ""), "Kind": role.get("kind", ""), "Name": role.get("name", "")}
        out.append(invalid("roleRef", shown, names.IMMUTABLE))
