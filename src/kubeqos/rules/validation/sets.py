"""Validation of DaemonSets and StatefulSets."""

from __future__ import annotations

from kubeqos.model import names
from kubeqos.rules.fielderror import invalid, not_supported, required
from kubeqos.rules.validation.claims import check_volume_claim_spec
from kubeqos.rules.validation.common import (
    NO_LIST,
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
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.pods.spec import check_pod_template
from kubeqos.rules.validation.workloads import check_always_running, check_int_or_percent, check_match

_RETENTIONS = ("Retain", "Delete")
_ORDERS = ("OrderedReady", "Parallel")
_STATEFUL_FIXED = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
_DAEMON_COUNTS = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
    "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
)  # fmt: skip
_STATEFUL_PARTS = ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")


def check_daemon_set(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    spec = raw.get("spec") or NO_MAP
    template = spec.get("template") or NO_MAP
    if _check_selector(out, spec, "daemonset"):
        check_match(out, spec.get("selector"), template)
    check_pod_template(out, "spec.template", template)
    check_always_running(out, template, "DaemonSet")
    for field in ("minReadySeconds", "revisionHistoryLimit"):
        check_non_negative(out, f"spec.{field}", spec.get(field))
    _check_daemon_strategy(out, "spec.updateStrategy", spec.get("updateStrategy") or NO_MAP)


def _check_selector(out: Errors, spec: Raw, owner: str) -> bool:
    """Whether the selector says anything that pods could be compared with."""
    selector = spec.get("selector")
    wrong: Errors = []
    check_label_selector(wrong, "spec.selector", selector)
    out.extend(wrong)
    if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        out.append(invalid("spec.selector", selector, f"empty selector is invalid for {owner}"))
    return not wrong


def _check_daemon_strategy(out: Errors, path: str, strategy: Raw) -> None:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind not in ("RollingUpdate", "OnDelete"):
        shown = go_struct(strategy, ("type", "rollingUpdate"))
        out.append(not_supported(path, shown, ("RollingUpdate", "OnDelete")))
    elif kind == "RollingUpdate" and rolling is None:
        out.append(required(f"{path}.rollingUpdate"))
    elif kind == "RollingUpdate" and rolling is not None:
        where = f"{path}.rollingUpdate"
        unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
        fewer = check_int_or_percent(out, f"{where}.maxUnavailable", unavailable, bounded=True)
        more = check_int_or_percent(out, f"{where}.maxSurge", surge, bounded=True)
        if fewer and more:
            out.append(invalid(f"{where}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
        elif not fewer and not more:
            out.append(required(f"{where}.maxUnavailable", "cannot be 0 when maxSurge is 0"))


def check_daemon_change(out: Errors, raw: Raw, old: Raw) -> None:
    _check_fixed(out, raw, old, ("selector",))


def _check_fixed(out: Errors, raw: Raw, old: Raw, fields: tuple[str, ...]) -> None:
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    for field in fields:
        check_immutable(out, f"spec.{field}", spec.get(field), before.get(field))


def check_stateful_set(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_label, namespaced=True)
    for index, claim in enumerate((raw.get("spec") or NO_MAP).get("volumeClaimTemplates") or NO_LIST):
        check_volume_claim_spec(out, f"spec.volumeClaimTemplates[{index}].spec", claim.get("spec") or NO_MAP)
    if service := (raw.get("spec") or NO_MAP).get("serviceName"):  # it cannot change, so it is judged once
        complain(out, "spec.serviceName", service, names.dns_label(service))
    _check_stateful_set(out, raw)


def check_stateful_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_stateful_set(out, raw)
    _check_fixed(out, raw, old, _STATEFUL_FIXED)


def _check_stateful_set(out: Errors, raw: Raw) -> None:
    spec = raw.get("spec") or NO_MAP
    _check_stateful_strategy(out, "spec", spec)
    for field, value in (spec.get("persistentVolumeClaimRetentionPolicy") or NO_MAP).items():
        check_supported(out, f"spec.persistentVolumeClaimRetentionPolicy.{field}", value, _RETENTIONS)
    for field in ("replicas", "minReadySeconds"):
        check_non_negative(out, f"spec.{field}", spec.get(field))
    check_non_negative(out, "spec.ordinals.start", (spec.get("ordinals") or NO_MAP).get("start"))
    _check_stateful_pods(out, spec)


def _check_stateful_pods(out: Errors, spec: Raw) -> None:
    """The pods as the controller will make them: with its names, and with the volumes that it claims for them."""
    selector, template = spec.get("selector"), spec.get("template") or NO_MAP
    if selector is None:
        out.append(required("spec.selector"))
    if not _check_selector(out, spec, "statefulset"):
        out.append(invalid("spec.selector", selector, ""))
    else:
        if selector is None or selector.get("matchLabels") or selector.get("matchExpressions"):
            check_match(out, selector, template)
        claimed = [meta_of(claim).get("name", "") for claim in spec.get("volumeClaimTemplates") or NO_LIST]
        pod = template.get("spec") or NO_MAP
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claimed)]
        volumes += [one for one in pod.get("volumes") or NO_LIST if one.get("name", "") not in claimed]
        made = {**pod, "subdomain": "", "hostname": "", **({"volumes": volumes} if volumes else {})}
        check_pod_template(out, "spec.template", {**template, "spec": made})
    check_always_running(out, template, "StatefulSet")


def _check_stateful_strategy(out: Errors, path: str, spec: Raw) -> None:
    order, strategy = spec.get("podManagementPolicy", ""), spec.get("updateStrategy") or NO_MAP
    if not order:
        out.append(required(f"{path}.podManagementPolicy"))
    elif order not in _ORDERS:
        out.append(invalid(f"{path}.podManagementPolicy", order, "must be 'OrderedReady' or 'Parallel'"))
    kind, rolling, where = strategy.get("type", ""), strategy.get("rollingUpdate"), f"{path}.updateStrategy"
    if not kind:
        out.append(required(where))
    elif kind not in ("RollingUpdate", "OnDelete"):
        shown = go_struct(strategy, ("type", "rollingUpdate"))
        out.append(invalid(where, shown, "must be 'RollingUpdate' or 'OnDelete'"))
    elif kind == "OnDelete" and rolling is not None:
        out.append(invalid(f"{where}.rollingUpdate", rolling, "only allowed for updateStrategy 'RollingUpdate'"))
    elif rolling is not None:
        check_non_negative(out, f"{where}.rollingUpdate.partition", rolling.get("partition"))
        most = rolling.get("maxUnavailable")
        if most is not None:
            here = f"{where}.rollingUpdate.maxUnavailable"
            if check_int_or_percent(out, here, most, bounded=True) == 0:
                out.append(invalid(here, most, "cannot be 0"))


def check_daemon_status(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    status = raw.get("status") or NO_MAP
    for field in _DAEMON_COUNTS:
        check_non_negative(out, f"status.{field}", status.get(field))


def check_stateful_status(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    status = raw.get("status") or NO_MAP
    for field in ("replicas", *_STATEFUL_PARTS, "observedGeneration", "collisionCount"):
        check_non_negative(out, f"status.{field}", status.get(field))
    for field in _STATEFUL_PARTS:
        if (part := status.get(field, 0)) > status.get("replicas", 0):
            out.append(invalid(f"status.{field}", part, "cannot be greater than status.replicas"))
    available = status.get("availableReplicas", 0)
    if available > status.get("readyReplicas", 0):
        out.append(invalid("status.availableReplicas", available, "cannot be greater than status.readyReplicas"))
