"""What a pod says about where it may run: affinity, tolerations, topology spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kubeqos.model import names
from kubeqos.rules.defaulting.labelkeys import named_otherwise
from kubeqos.rules.fielderror import duplicate, forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import (
    NO_LIST,
    NO_MAP,
    Errors,
    Raw,
    check_label_key,
    check_label_selector,
    check_set_operator,
    check_supported,
    complain,
)

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_WHEN_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION = ("Honor", "Ignore")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = "must be in the range 1-100"
_NO_SELECTOR = "must not be specified when labelSelector is not set"
_BOTH = "exists in both matchLabelKeys and labelSelector"


def check_tolerations(out: Errors, path: str, tolerations: Sequence[Raw]) -> None:
    for index, toleration in enumerate(tolerations):
        key, operator = toleration.get("key", ""), toleration.get("operator", "")
        value, effect = toleration.get("value", ""), toleration.get("effect", "")
        where = f"{path}[{index}]"
        if key:
            check_label_key(out, f"{where}.key", key)
        elif operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            out.append(invalid(f"{where}.operator", operator, why))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            out.append(invalid(f"{where}.effect", effect, why))
        if operator in ("Equal", ""):
            if wrong := names.label_value(value):
                out.append(invalid(f"{where}.operator", value, ";".join(wrong)))
        elif operator == "Exists":
            if value:
                out.append(invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'"))
        else:
            out.append(not_supported(f"{where}.operator", operator, _OPERATORS))
        if effect:
            check_supported(out, f"{where}.effect", effect, EFFECTS)


def check_taints(out: Errors, path: str, taints: Sequence[Raw]) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        key, effect, where = taint.get("key", ""), taint.get("effect", ""), f"{path}[{index}]"
        check_label_key(out, f"{where}.key", key)
        if wrong := names.label_value(taint.get("value", "")):
            out.append(invalid(f"{where}.value", taint["value"], ";".join(wrong)))
        if not effect:
            out.append(required(f"{where}.effect"))
        else:
            check_supported(out, f"{where}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect, "TimeAdded": taint.get("timeAdded")}
            error = duplicate(where, shown)
            why = "taints must be unique by key and effect pair"
            out.append(type(error)(error.type, error.field, error.bad_value, why))
        seen.add((key, effect))


def check_affinity(out: Errors, path: str, affinity: Raw) -> None:
    node = affinity.get("nodeAffinity")
    if node is not None:
        _check_node_affinity(out, f"{path}.nodeAffinity", node)
    for kind in ("podAffinity", "podAntiAffinity"):
        pod = affinity.get(kind)
        if pod is None:
            continue
        for index, term in enumerate(pod.get(_REQUIRED) or NO_LIST):
            _check_pod_term(out, f"{path}.{kind}.{_REQUIRED}[{index}]", term)
        for index, weighted in enumerate(pod.get(_PREFERRED) or NO_LIST):
            where = f"{path}.{kind}.{_PREFERRED}[{index}]"
            _check_weight(out, where, weighted)
            _check_pod_term(out, f"{where}.podAffinityTerm", weighted.get("podAffinityTerm") or NO_MAP)


def _check_weight(out: Errors, path: str, weighted: Raw) -> None:
    weight = weighted.get("weight", 0)
    if not 1 <= weight <= 100:
        out.append(invalid(f"{path}.weight", weight, _WEIGHT))


def _check_node_affinity(out: Errors, path: str, affinity: Raw) -> None:
    needed = affinity.get(_REQUIRED)
    if needed is not None:
        check_node_selector(out, f"{path}.{_REQUIRED}", needed)
    for index, preferred in enumerate(affinity.get(_PREFERRED) or NO_LIST):
        where = f"{path}.{_PREFERRED}[{index}]"
        _check_weight(out, where, preferred)
        term = preferred.get("preference") or NO_MAP
        _check_node_term(out, f"{where}.preference", term, check_values=False)


def check_node_selector(out: Errors, path: str, selector: Raw) -> None:
    """A node selector whose terms must be met."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        out.append(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
    for index, term in enumerate(terms or NO_LIST):
        _check_node_term(out, f"{path}.nodeSelectorTerms[{index}]", term, check_values=True)


def _check_node_term(out: Errors, path: str, term: Raw, *, check_values: bool) -> None:
    for index, requirement in enumerate(term.get("matchExpressions") or NO_LIST):
        _check_node_requirement(out, f"{path}.matchExpressions[{index}]", requirement, check_values)
    for index, requirement in enumerate(term.get("matchFields") or NO_LIST):
        _check_node_field(out, f"{path}.matchFields[{index}]", requirement)


def _check_node_requirement(out: Errors, path: str, requirement: Raw, check_values: bool) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or NO_LIST
    if operator in ("Gt", "Lt"):
        if len(values) != 1:
            out.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    elif not check_set_operator(out, path, operator, values):
        out.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    check_label_key(out, f"{path}.key", requirement.get("key", ""))
    if check_values:
        for index, value in enumerate(values):
            complain(out, f"{path}.values[{index}]", value, names.label_value(value))


def _check_node_field(out: Errors, path: str, requirement: Raw) -> None:
    operator, values = requirement.get("operator", ""), requirement.get("values") or NO_LIST
    if operator not in ("In", "NotIn"):
        out.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        out.append(required(f"{path}.values", why))
    if requirement.get("key", "") != "metadata.name":
        out.append(invalid(f"{path}.key", requirement.get("key", ""), "not a valid field selector key"))
        return
    for index, value in enumerate(values):
        complain(out, f"{path}.values[{index}]", value, names.dns_subdomain(value))


def _check_pod_term(out: Errors, path: str, term: Raw) -> None:
    selector = term.get("labelSelector")
    check_label_selector(out, f"{path}.labelSelector", selector)
    check_label_selector(out, f"{path}.namespaceSelector", term.get("namespaceSelector"))
    for name in term.get("namespaces") or NO_LIST:
        complain(out, f"{path}.namespace", name, names.dns_label(name))
    _check_label_keys(out, path, term, selector)
    key = term.get("topologyKey", "")
    if not key:
        out.append(required(f"{path}.topologyKey", "can not be empty"))
    check_label_key(out, f"{path}.topologyKey", key)


def _check_label_keys(out: Errors, path: str, term: Raw, selector: Raw | None) -> None:
    """matchLabelKeys and mismatchLabelKeys of a pod affinity term."""
    match, mismatch = term.get("matchLabelKeys") or NO_LIST, term.get("mismatchLabelKeys") or NO_LIST
    for field, keys in (("matchLabelKeys", match), ("mismatchLabelKeys", mismatch)):
        if keys and selector is None:
            out.append(forbidden(f"{path}.{field}", _NO_SELECTOR))
            continue
        for index, key in enumerate(keys):
            check_label_key(out, f"{path}.{field}[{index}]", key)
    if selector is not None and match:
        used, places = set(selector.get("matchLabels") or NO_MAP), {key: index for index, key in enumerate(match)}
        for expression in selector.get("matchExpressions") or NO_LIST:
            key = expression.get("key", "")
            if key in places and key in used:
                out.append(invalid(f"{path}[{places[key]}]", key, _BOTH))
            used.add(key)
    unlike = set(mismatch)
    for index, key in enumerate(match):
        if key in unlike:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            out.append(invalid(f"{path}.matchLabelKeys[{index}]", key, why))


def check_spread(out: Errors, path: str, constraints: Sequence[Raw]) -> None:
    left = Counter((one.get("topologyKey", ""), one.get("whenUnsatisfiable", "")) for one in constraints)
    for index, constraint in enumerate(constraints):
        where = f"{path}[{index}]"
        skew, key = constraint.get("maxSkew", 0), constraint.get("topologyKey", "")
        action = constraint.get("whenUnsatisfiable", "")
        if skew <= 0:
            out.append(invalid(f"{where}.maxSkew", skew, names.NOT_POSITIVE))
        if not key:
            out.append(required(f"{where}.topologyKey", "can not be empty"))
        check_supported(out, f"{where}.whenUnsatisfiable", action, _WHEN_UNSATISFIABLE)
        left[key, action] -= 1
        if left[key, action]:
            out.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        _check_min_domains(out, f"{where}.minDomains", constraint.get("minDomains"), action)
        for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(field) is not None:
                check_supported(out, f"{where}.{field}", constraint[field], _INCLUSION)
        _check_spread_keys(out, f"{where}.matchLabelKeys", constraint)
        check_label_selector(out, f"{where}.labelSelector", constraint.get("labelSelector"))


def _check_min_domains(out: Errors, path: str, domains: int | None, action: str) -> None:
    if domains is None:
        return
    if domains <= 0:
        out.append(invalid(path, domains, names.NOT_POSITIVE))
    if action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        out.append(invalid(path, domains, why))


def _check_spread_keys(out: Errors, path: str, constraint: Raw) -> None:
    keys, selector = constraint.get("matchLabelKeys"), constraint.get("labelSelector")
    if not keys:
        return
    used: set[str] = set()
    if selector is None:
        out.append(forbidden(path, _NO_SELECTOR))
    else:
        used = named_otherwise(keys, selector)
    for index, key in enumerate(keys):
        check_label_key(out, f"{path}[{index}]", key)
        if key in used:
            out.append(invalid(f"{path}[{index}]", key, _BOTH))
