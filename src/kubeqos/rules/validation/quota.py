"""Validation of ResourceQuota and LimitRange, with the class limits that KEP-3008 adds to both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeqos.model import names
from kubeqos.model.quantity import Quantity
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, required
from kubeqos.rules.qos.classes import POD_QOS
from kubeqos.rules.validation.common import NO_LIST, NO_MAP, Errors, Raw, check_non_negative, complain
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.resources import (
    amounts,
    check_amount,
    container_resource_name,
    is_overcommit_allowed,
    is_standard_quota_name,
    quota_resource_name,
    resource_name,
)

_POD_SCOPED = frozenset(
    ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"),
)
SCOPES: dict[str, frozenset[str]] = {
    "Terminating": _POD_SCOPED,
    "NotTerminating": _POD_SCOPED,
    "BestEffort": frozenset(("pods",)),
    "NotBestEffort": _POD_SCOPED,
    "PriorityClass": _POD_SCOPED,
    "CrossNamespacePodAffinity": _POD_SCOPED,
    "VolumeAttributesClass": frozenset(("persistentvolumeclaims", "requests.storage")),
}
"""Every scope, with the standard resources that it can be combined with."""
_CONFLICTS = (frozenset(("BestEffort", "NotBestEffort")), frozenset(("Terminating", "NotTerminating")))
_ONLY_EXISTS = frozenset(SCOPES) - {"PriorityClass", "VolumeAttributesClass"}
_MUST_EXIST = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_MISSPELT = {"memory.limit": "limits.memory", "cpu.limit": "limits.cpu"}
"""Names that the quota-scoping proposal uses in its example, and those that Kubernetes gave them."""
_LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_MAX_INT64 = (1 << 63) - 1
_MAX_MILLI_VALUE = _MAX_INT64 // 1000


def check_quota(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    _check_quota_spec(out, raw.get("spec") or NO_MAP)
    _check_quota_status(out, raw)


def check_quota_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    spec, old_spec = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    _check_quota_spec(out, spec)
    scopes = spec.get("scopes")
    if set(scopes or NO_LIST) != set(old_spec.get("scopes") or NO_LIST):
        out.append(invalid("spec.scopes", scopes, names.IMMUTABLE))


def check_quota_status_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_quota_status(out, raw)


def _check_quota_status(out: Errors, raw: Raw) -> None:
    status = raw.get("status") or NO_MAP
    for field in ("hard", "used"):
        _check_hard(out, f"status.{field}", status.get(field))


def _check_quota_spec(out: Errors, spec: Raw) -> None:
    _check_hard(out, "spec.hard", spec.get("hard"))
    counted = sorted(name for name in spec.get("hard") or NO_MAP if is_standard_quota_name(name))
    scopes, selector = spec.get("scopes"), spec.get("scopeSelector")
    if scopes:
        _check_scopes(out, scopes, counted)
    if selector is not None:
        _check_scope_selector(out, selector.get("matchExpressions") or NO_LIST, counted, scopes)
    classes = spec.get("qosResources")
    if classes is not None:
        for level in ("pod", "container"):
            _check_class_quota(out, f"spec.qosResources.{level}", classes.get(level) or NO_LIST)


def _check_hard(out: Errors, path: str, hard: Mapping[str, str] | None) -> None:
    for name, amount in amounts(hard).items():
        where = f"{path}[{name}]"
        for wrong in quota_resource_name(name):
            hint = f": use {_MISSPELT[name]}" if name in _MISSPELT and wrong.endswith("for quota") else ""
            out.append(invalid(where, name, f"{wrong}{hint}"))
        check_amount(out, where, name, amount)


def _check_scopes(out: Errors, scopes: Sequence[str], counted: Sequence[str]) -> None:
    for scope in scopes:
        if scope not in SCOPES:
            out.append(invalid("spec.scopes", scopes, "unsupported scope"))
            continue
        for name in counted:
            if name not in SCOPES[scope]:
                out.append(invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    for pair in _CONFLICTS:
        if pair <= set(scopes):
            out.append(invalid("spec.scopes", scopes, "conflicting scopes"))


def _check_scope_selector(
    out: Errors, expressions: Sequence[Raw], counted: Sequence[str], scopes: Sequence[str] | None
) -> None:
    """The selector form of scopes. Kubernetes leaves the index out of these paths."""
    path, shown = "spec.scopeSelector.matchExpressions", _as_go(expressions)
    for expression in expressions:
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        if scope not in SCOPES:
            out.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
        for name in counted:
            if name not in SCOPES.get(scope, counted):
                out.append(invalid(path, shown, "unsupported scope applied to resource"))
        if scope in _ONLY_EXISTS and operator != "Exists":
            out.append(invalid(f"{path}.operator", operator, _MUST_EXIST))
        _check_scope_values(out, path, operator, expression.get("values") or NO_LIST)
    for pair in _CONFLICTS:
        if pair <= {expression.get("scopeName", "") for expression in expressions}:
            out.append(invalid(path, scopes, "conflicting scopes"))


def _check_scope_values(out: Errors, path: str, operator: str, values: Sequence[str]) -> None:
    if operator in ("In", "NotIn"):
        if not values:
            why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            out.append(required(f"{path}.values", why))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            out.append(invalid(f"{path}.values", values, why))
    else:
        out.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))


def _as_go(expressions: Sequence[Raw]) -> Raw:
    shown = [
        {"ScopeName": one.get("scopeName", ""), "Operator": one.get("operator", ""), "Values": one.get("values")}
        for one in expressions
    ]
    return {"MatchExpressions": shown}


def _check_class_quota(out: Errors, path: str, resources: Sequence[Raw]) -> None:
    """An allow-list of classes per QoS-class resource (KEP-3008, ResourceQuota)."""
    seen: set[str] = set()
    for index, resource in enumerate(resources):
        where, name = f"{path}[{index}]", resource.get("name", "")
        _check_unique_name(out, f"{where}.name", name, seen)
        check_class_capacities(out, f"{where}.classes", resource.get("classes") or NO_LIST)


def check_class_capacities(out: Errors, path: str, classes: Sequence[Raw]) -> None:
    """Classes of one resource, each with how many of it there may be."""
    seen: set[str] = set()
    for index, entry in enumerate(classes):
        where = f"{path}[{index}]"
        _check_unique_name(out, f"{where}.name", entry.get("name", ""), seen)
        check_non_negative(out, f"{where}.capacity", entry.get("capacity"))


def _check_unique_name(out: Errors, path: str, name: str, seen: set[str]) -> None:
    if not name:
        out.append(required(path))
    elif name in seen:
        out.append(duplicate(path, name))
    else:
        complain(out, path, name, names.qualified_name(name))
    seen.add(name)


def check_limit_range(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    seen: set[str] = set()
    for index, item in enumerate((raw.get("spec") or NO_MAP).get("limits") or NO_LIST):
        where, kind = f"spec.limits[{index}]", item.get("type", "")
        _check_limit_type(out, f"{where}.type", kind)
        if kind in seen:
            out.append(duplicate(f"{where}.type", kind))
        seen.add(kind)
        _check_limit_item(out, where, kind, item)
        classes = item.get("qosResources") or NO_LIST
        if classes and kind not in ("Pod", "Container"):
            why = "may only be specified when `type` is 'Pod' or 'Container'"
            out.append(forbidden(f"{where}.qosResources", why))
        _check_class_limits(out, f"{where}.qosResources", classes)


def _check_limit_type(out: Errors, path: str, kind: str) -> None:
    if wrong := names.qualified_name(kind):
        complain(out, path, kind, wrong)
    elif "/" not in kind and kind not in _LIMIT_TYPES:
        out.append(invalid(path, kind, "must be a standard limit type or fully qualified"))


def _check_limit_item(out: Errors, path: str, kind: str, item: Raw) -> None:
    fields = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
    rule = container_resource_name if kind in ("Pod", "Container") else resource_name
    given: dict[str, dict[str, Quantity]] = {}
    for field in fields:
        if kind == "Pod" and field in ("default", "defaultRequest"):
            if item.get(field):
                out.append(forbidden(f"{path}.{field}", "may not be specified when `type` is 'Pod'"))
            given[field] = {}
            continue
        given[field] = amounts(item.get(field))
        for name in given[field]:
            complain(out, f"{path}.{field}[{name}]", name, rule(name))
    if kind == "PersistentVolumeClaim" and "storage" not in given["min"] and "storage" not in given["max"]:
        why = "either minimum or maximum storage value is required, but neither was provided"
        out.append(required(f"{path}.limits", why))
    for name in sorted({name for field in fields for name in given[field]}):
        _check_bounds(out, path, name, *(given[field].get(name) for field in fields))


def _check_bounds(
    out: Errors,
    path: str,
    name: str,
    most: Quantity | None,
    least: Quantity | None,
    default: Quantity | None,
    request: Quantity | None,
    ratio: Quantity | None,
) -> None:
    """min ≤ defaultRequest ≤ default ≤ max. The value shown for a bad default is the bound, as in Kubernetes."""
    comparisons = (
        (least, most, "min", least, "min value {} is greater than max value {}"),
        (least, request, "defaultRequest", request, "min value {} is greater than default request value {}"),
        (request, most, "defaultRequest", request, "default request value {} is greater than max value {}"),
        (
            request,
            default,
            "defaultRequest",
            request,
            "default request value {} is greater than default limit value {}",
        ),
        (least, default, "default", least, "min value {} is greater than default value {}"),
        (default, most, "default", most, "default value {} is greater than max value {}"),
    )
    for small, large, field, shown, why in comparisons:
        if small is not None and large is not None and small > large:
            out.append(invalid(f"{path}.{field}[{name}]", shown, why.format(small, large)))
    if ratio is not None:
        _check_ratio(out, f"{path}.maxLimitRequestRatio[{name}]", ratio, least, most)
    if default is not None and request is not None and default != request and not is_overcommit_allowed(name):
        why = f"default value {default} must equal to defaultRequest value {request} in {name}"
        out.append(invalid(f"{path}.defaultRequest[{name}]", request, why))


def _check_ratio(out: Errors, path: str, ratio: Quantity, least: Quantity | None, most: Quantity | None) -> None:
    if ratio < Quantity.from_int(1):
        out.append(invalid(path, ratio, f"ratio {ratio} is less than 1"))
    if least is None or most is None:
        return
    three = (ratio, least, most)
    fine = all(one.value() < _MAX_MILLI_VALUE for one in three)
    given, low, high = (one.milli() if fine else min(one.value(), _MAX_INT64) for one in three)
    bound = _divide(float(high), float(low))
    if (given / 1000 if fine else float(given)) > bound:
        out.append(invalid(path, ratio, f"ratio {ratio} is greater than max/min = {bound:f}"))


def _divide(high: float, low: float) -> float:
    """Division as floating point hardware does it: by zero is infinite, or not a number."""
    if low == 0:
        return float("nan") if high == 0 else float("inf") if high > 0 else float("-inf")
    return high / low


def _check_class_limits(out: Errors, path: str, limits: Sequence[Raw]) -> None:
    """The default class of a QoS-class resource and how many of each class one pod may use (KEP-3008, LimitRange)."""
    seen: set[str] = set()
    for index, limit in enumerate(limits):
        where = f"{path}[{index}]"
        _check_unique_name(out, f"{where}.name", limit.get("name", ""), seen)
        default = limit.get("default")
        if limit.get("name") == POD_QOS:
            why = "pod-qos follows from the pod's resources: it has no default and no limit"
            out.append(forbidden(f"{where}.name", why))
        if default:
            complain(out, f"{where}.default", default, names.qualified_name(default))
        check_class_capacities(out, f"{where}.max", limit.get("max") or NO_LIST)
