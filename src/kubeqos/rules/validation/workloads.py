"""Validation of the kinds that make pods from a template, and of PodTemplate itself."""

from __future__ import annotations

import re

from kubeqos.model import names
from kubeqos.model.labels import selects
from kubeqos.rules.fielderror import forbidden, invalid, not_supported, required
from kubeqos.rules.validation.common import (
    NO_MAP,
    Errors,
    Raw,
    check_immutable,
    check_label_selector,
    check_non_negative,
    check_supported,
    complain,
    go_struct,
)
from kubeqos.rules.validation.meta import check_any_meta_update, check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.pods.spec import check_pod_template

MISMATCH = "`selector` does not match template `labels`"
_is_percent = re.compile("[0-9]+%").fullmatch
_PERCENT_WRONG = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)


def check_pod_template_object(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    check_pod_template(out, "template", raw.get("template") or NO_MAP)


def check_replication_controller(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    check_non_negative(out, "spec.minReadySeconds", spec.get("minReadySeconds"))
    selector = spec.get("selector")
    if not selector:
        out.append(required("spec.selector"))
    check_non_negative(out, "spec.replicas", spec.get("replicas"))
    template = spec.get("template")
    if template is None:
        out.append(required("spec.template"))
        return
    _check_template(out, template, {"matchLabels": selector or NO_MAP}, "ReplicationController")


def check_replica_set(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    check_non_negative(out, "spec.replicas", spec.get("replicas"))
    check_non_negative(out, "spec.minReadySeconds", spec.get("minReadySeconds"))
    _check_selected_template(out, spec)


def check_deployment(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    for field in ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"):
        check_non_negative(out, f"spec.{field}", spec.get(field))
    _check_selected_template(out, spec)
    _check_strategy(out, "spec.strategy", spec.get("strategy") or NO_MAP)
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        out.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))


def _check_selected_template(out: Errors, spec: Raw) -> None:
    """Selector and template of a ReplicaSet or Deployment. Behind a selector that makes no sense nothing is judged."""
    selector, template = spec.get("selector"), spec.get("template") or NO_MAP
    wrong: Errors = []
    if selector is None:
        out.append(required("spec.selector"))
    else:
        check_label_selector(wrong, "spec.selector", selector)
        out.extend(wrong)
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            out.append(invalid("spec.selector", selector, "empty selector is invalid for deployment"))
    if wrong:
        out.append(invalid("spec.selector", selector, "invalid label selector"))
    else:
        _check_template(out, template, selector, "ReplicaSet")


def _check_template(out: Errors, template: Raw, selector: Raw | None, owner: str) -> None:
    check_match(out, selector, template)
    check_pod_template(out, "spec.template", template)
    check_always_running(out, template, owner)


def check_match(out: Errors, selector: Raw | None, template: Raw) -> None:
    """No selector at all selects nothing; an empty one selects everything."""
    labels = meta_of(template).get("labels") or NO_MAP
    if selector is None or not selects(selector, labels):
        out.append(invalid("spec.template.metadata.labels", labels or None, MISMATCH))


def check_always_running(out: Errors, template: Raw, owner: str) -> None:
    """Pods that a controller keeps running are started again whatever they end with, and have no end of their own."""
    pod = template.get("spec") or NO_MAP
    policy = pod.get("restartPolicy", "")
    if policy != "Always":
        out.append(not_supported("spec.template.spec.restartPolicy", policy, ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        why = f"activeDeadlineSeconds in {owner} is not Supported"
        out.append(forbidden("spec.template.spec.activeDeadlineSeconds", why))


def _check_strategy(out: Errors, path: str, strategy: Raw) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            why = "may not be specified when strategy `type` is 'Recreate'"
            out.append(forbidden(f"{path}.rollingUpdate", why))
    elif kind != "RollingUpdate":
        shown = go_struct(strategy, ("type", "rollingUpdate"))
        out.append(not_supported(path, shown, ("Recreate", "RollingUpdate")))
    elif rolling is None:
        out.append(required(f"{path}.rollingUpdate", "this should be defaulted and never be nil"))
    else:
        _check_rolling_update(out, f"{path}.rollingUpdate", rolling)


def _check_rolling_update(out: Errors, path: str, rolling: Raw) -> None:
    unavailable = check_int_or_percent(out, f"{path}.maxUnavailable", rolling.get("maxUnavailable", 0), bounded=True)
    surge = check_int_or_percent(out, f"{path}.maxSurge", rolling.get("maxSurge", 0), bounded=False)
    if unavailable == surge == 0:
        why = "may not be 0 when `maxSurge` is 0"
        out.append(invalid(f"{path}.maxUnavailable", rolling.get("maxUnavailable", 0), why))


def check_int_or_percent(out: Errors, path: str, value: int | str, *, bounded: bool) -> int | None:
    """A count or a percentage, of at most 100 % where `bounded`; its number if it is one."""
    if isinstance(value, int):
        check_non_negative(out, path, value)
        return value
    if not _is_percent(value):
        complain(out, path, value, (_PERCENT_WRONG,))
        return None
    percent = int(value[:-1])
    if bounded and percent > 100:
        out.append(invalid(path, value, "must not be greater than 100%"))
    return percent


def check_disruption_budget(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    _check_budget(out, raw)


def check_disruption_budget_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_any_meta_update(out, meta_of(raw), meta_of(old))
    _check_budget(out, raw)


def check_disruption_budget_status(out: Errors, raw: Raw, old: Raw) -> None:
    check_any_meta_update(out, meta_of(raw), meta_of(old))
    status = raw.get("status") or NO_MAP
    for field in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
        check_non_negative(out, f"status.{field}", status.get(field))


def _check_budget(out: Errors, raw: Raw) -> None:
    spec = raw.get("spec") or NO_MAP
    bounds = [field for field in ("minAvailable", "maxUnavailable") if spec.get(field) is not None]
    if len(bounds) == 2:
        shown = go_struct(spec, ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy"))
        out.append(invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for field in bounds:
        check_int_or_percent(out, f"spec.{field}", spec[field], bounded=True)
    check_label_selector(out, "spec.selector", spec.get("selector"))
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None:
        check_supported(out, "spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))


def check_selector_change(out: Errors, raw: Raw, old: Raw) -> None:
    """The selector of a Deployment or ReplicaSet is fixed for its life."""
    new = (raw.get("spec") or NO_MAP).get("selector")
    check_immutable(out, "spec.selector", new, (old.get("spec") or NO_MAP).get("selector"))


_COUNTS = (
    "replicas", "fullyLabeledReplicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas",
    "observedGeneration", "collisionCount",
)  # fmt: skip


def check_deployment_status(out: Errors, raw: Raw, old: Raw) -> None:
    _check_counts(out, raw, old, ("updatedReplicas", "readyReplicas", "availableReplicas"))


def check_replicas_status(out: Errors, raw: Raw, old: Raw) -> None:
    _check_counts(out, raw, old, ("fullyLabeledReplicas", "readyReplicas", "availableReplicas"))


def _check_counts(out: Errors, raw: Raw, old: Raw, parts: tuple[str, ...]) -> None:
    """A part is not larger than the whole."""
    check_meta_update(out, meta_of(raw), meta_of(old))
    status, before = raw.get("status") or NO_MAP, old.get("status") or NO_MAP
    for field in _COUNTS:
        check_non_negative(out, f"status.{field}", status.get(field))
    for field in parts:
        if (part := status.get(field, 0)) > status.get("replicas", 0):
            out.append(invalid(f"status.{field}", part, "cannot be greater than status.replicas"))
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        out.append(invalid("status.availableReplicas", available, "cannot be greater than readyReplicas"))
    collisions, known = status.get("collisionCount"), before.get("collisionCount")
    if known is not None and (collisions is None or collisions < known):
        out.append(invalid("status.collisionCount", collisions, "cannot be decremented"))
