"""Validation of Jobs and CronJobs."""

from __future__ import annotations

import zoneinfo
from functools import lru_cache

from kubeqos.errors import InputError
from kubeqos.model import names
from kubeqos.model.labels import selects
from kubeqos.model.text.cronschedule import CronSchedule
from kubeqos.model.text.gotext import quote
from kubeqos.rules.fielderror import OMITTED, duplicate, invalid, not_supported, required, too_long
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
)
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of
from kubeqos.rules.validation.pods.spec import check_pod_template
from kubeqos.rules.validation.stored.checks import prefixed_path

_COUNTS = (
    "parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_MAX_PARALLELISM = 100_000
_LONGEST_CRON_NAME = 52
_LONGEST_MANAGER = 63
_STATUSES = ("False", "True", "Unknown")
_FIXED = ("completions", "selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy",
          "successPolicy")  # fmt: skip


def check_job(out: Errors, raw: Raw) -> None:
    meta, spec = meta_of(raw), raw.get("spec") or NO_MAP
    check_meta(out, meta, names.dns_subdomain, namespaced=True)
    _check_generated_selector(out, spec, meta)
    _check_job(out, meta, spec)


def check_job_update(out: Errors, raw: Raw, old: Raw) -> None:
    """Its labels are compared with its selector, as they were made when it was."""
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_job(out, meta_of(raw), raw.get("spec") or NO_MAP)
    check_job_change(out, raw, old)


def _check_job(out: Errors, meta: Raw, spec: Raw) -> None:
    selector = spec.get("selector")
    if selector is None:
        out.append(required("spec.selector"))
    check_label_selector(out, "spec.selector", selector)
    labels = meta_of(spec.get("template") or NO_MAP).get("labels") or NO_MAP
    if selector is None or not selects(selector, labels):
        why = "`selector` does not match template `labels`"
        out.append(invalid("spec.template.metadata.labels", labels or None, why))
    if spec.get("completionMode") == "Indexed" and spec.get("completions"):
        host = f"{meta.get('name', '')}-{spec['completions'] - 1}"
        if names.dns_label(host):
            why = f"will not able to create pod with invalid DNS label: {host}"
            out.append(invalid("metadata.name", meta.get("name", ""), why))
    check_job_spec(out, "spec", spec)


def _check_generated_selector(out: Errors, spec: Raw, meta: Raw) -> None:
    """The labels by which a job knows its pods are its own, unless its author takes the selector into his hands."""
    if spec.get("manualSelector"):
        return
    labels = meta_of(spec.get("template") or NO_MAP).get("labels") or NO_MAP
    for wanted, keys in ((meta.get("uid", ""), _UID_LABELS), (meta.get("name", ""), _NAME_LABELS)):
        for key in keys:
            if labels.get(key) != wanted:
                why = f"must be '{wanted}'"
                out.append(invalid(f"spec.template.metadata.labels[{key}]", labels.get(key, ""), why))


def check_job_spec(out: Errors, path: str, spec: Raw) -> None:
    for field in _COUNTS:
        check_non_negative(out, f"{path}.{field}", spec.get(field))
    check_non_negative(out, f"{path}.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"))
    if (manager := spec.get("managedBy")) is not None:
        prefixed_path(out, f"{path}.managedBy", manager)
        if len(manager) > _LONGEST_MANAGER:
            out.append(too_long(f"{path}.managedBy", _LONGEST_MANAGER))
    _check_mode(out, path, spec)
    policy = spec.get("podFailurePolicy")
    for index, rule in enumerate((policy or NO_MAP).get("rules") or NO_LIST):
        _check_failure_rule(out, f"{path}.podFailurePolicy.rules[{index}]", rule, spec)
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None:
        allowed = ("Failed",) if policy is not None else ("Failed", "TerminatingOrFailed")
        check_supported(out, f"{path}.podReplacementPolicy", replacement, allowed)
    template = spec.get("template") or NO_MAP
    check_pod_template(out, f"{path}.template", template)
    restart, where = (template.get("spec") or NO_MAP).get("restartPolicy", ""), f"{path}.template.spec.restartPolicy"
    if restart in ("", "Always"):
        out.append(required(where, 'valid values: "OnFailure", "Never"'))
    elif restart not in ("OnFailure", "Never"):
        out.append(not_supported(where, restart, ("OnFailure", "Never")))
    elif policy is not None and restart != "Never":
        out.append(invalid(where, restart, 'only "Never" is supported when podFailurePolicy is specified'))


def _check_mode(out: Errors, path: str, spec: Raw) -> None:
    mode, completions, most = spec.get("completionMode"), spec.get("completions"), spec.get("maxFailedIndexes")
    if mode not in (None, "Indexed", "NonIndexed"):
        out.append(not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed")))
    if mode == "Indexed":
        if completions is None:
            out.append(required(f"{path}.completions", "when completion mode is Indexed"))
        if (spec.get("parallelism") or 0) > _MAX_PARALLELISM:
            why = f"must be less than or equal to {_MAX_PARALLELISM} when completion mode is Indexed"
            out.append(invalid(f"{path}.parallelism", spec["parallelism"], why))
        if (most or 0) > _MAX_PARALLELISM:
            out.append(invalid(f"{path}.maxFailedIndexes", most, f"must be less than or equal to {_MAX_PARALLELISM}"))
        if most is not None and completions is not None and most > completions:
            out.append(invalid(f"{path}.maxFailedIndexes", most, "must be less than or equal to completions"))
        _check_success_policy(out, f"{path}.successPolicy", spec)
    elif spec.get("successPolicy") is not None:
        out.append(invalid(f"{path}.successPolicy", spec["successPolicy"], "requires indexed completion mode"))
    if mode in (None, "NonIndexed"):
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                out.append(invalid(f"{path}.{field}", spec[field], "requires indexed completion mode"))
    if most is not None and spec.get("backoffLimitPerIndex") is None:
        out.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))


def _check_success_policy(out: Errors, path: str, spec: Raw) -> None:
    policy, completions = spec.get("successPolicy"), spec.get("completions") or 0
    if policy is None:
        return
    rules = policy.get("rules") or NO_LIST
    if not rules:
        out.append(
            required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")
        )
    for index, rule in enumerate(rules):
        where, count, text = f"{path}.rules[{index}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and text is None:
            out.append(required(where, "at least one of succeededCount or succeededIndexes must be specified"))
        indexes = 0
        if text is not None:
            try:
                indexes = count_indexes(text, completions)
            except InputError as error:
                why = f"error parsing succeededIndexes: {error.what}"
                out.append(invalid(f"{where}.succeededIndexes", text, why))
        if count is None:
            continue
        check_non_negative(out, f"{where}.succeededCount", count)
        bounds = [(completions, "the number of specified completions")]
        if text is not None:
            bounds.append((indexes, "the number of indexes in the specified succeededIndexes field"))
        for bound, of_what in bounds:
            if count > bound:
                why = f"must be less than or equal to {bound} ({of_what})"
                out.append(invalid(f"{where}.succeededCount", count, why))


def count_indexes(text: str, completions: int) -> int:
    """How many indexes a text such as `0,3-5` names, each below the number of completions and after the one before."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            raise InputError(f"{quote(part)} has more than two ends")
        numbers = []
        for end in ends:
            if not end.isdecimal():
                raise InputError(f"cannot convert string to integer for index: {quote(end)}")
            if int(end) >= completions:
                raise InputError(f"too large index: {quote(end)}")
            numbers.append(int(end))
        if numbers[0] <= last or (len(numbers) == 2 and numbers[0] >= numbers[1]):
            raise InputError(f"non-increasing order, previous: {last}, current: {numbers[0]}")
        total, last = total + numbers[-1] - numbers[0] + 1, numbers[-1]
    return total


def _check_failure_rule(out: Errors, path: str, rule: Raw, spec: Raw) -> None:
    action, codes, conditions = rule.get("action", ""), rule.get("onExitCodes"), rule.get("onPodConditions")
    if not action:
        out.append(required(f"{path}.action", f"valid values: {_go_list(_ACTIONS)}"))
    elif action not in _ACTIONS:
        out.append(not_supported(f"{path}.action", action, _ACTIONS))
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        out.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    if codes is not None and conditions:
        out.append(invalid(path, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"))
    elif codes is None and not conditions:
        out.append(invalid(path, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required"))
    for index, pattern in enumerate(conditions or NO_LIST):
        where, kind, status = f"{path}.onPodConditions[{index}]", pattern.get("type", ""), pattern.get("status", "")
        complain(out, f"{where}.type", kind, names.qualified_name(kind))
        if not status:
            out.append(required(f"{where}.status", f"valid values: {_go_list(_STATUSES)}"))
        else:
            check_supported(out, f"{where}.status", status, _STATUSES)
    if codes is not None:
        _check_exit_codes(out, f"{path}.onExitCodes", codes, spec)


def _check_exit_codes(out: Errors, path: str, codes: Raw, spec: Raw) -> None:
    operator, values, name = codes.get("operator", ""), codes.get("values") or NO_LIST, codes.get("containerName")
    if not operator:
        out.append(required(f"{path}.operator", f"valid values: {_go_list(('In', 'NotIn'))}"))
    elif operator not in ("In", "NotIn"):
        out.append(not_supported(f"{path}.operator", operator, ("In", "NotIn")))
    pod = (spec.get("template") or NO_MAP).get("spec") or NO_MAP
    known = [one.get("name") for kind in ("containers", "initContainers") for one in pod.get(kind) or NO_LIST]
    if name is not None and name not in known:
        why = "must be one of the container or initContainer names in the pod template"
        out.append(invalid(f"{path}.containerName", name, why))
    if not values:
        out.append(invalid(f"{path}.values", values, "at least one value is required"))
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            out.append(invalid(f"{path}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in values[:index]:
            out.append(duplicate(f"{path}.values[{index}]", value))
    if list(values) != sorted(values):
        out.append(invalid(f"{path}.values", values, "must be ordered"))


def _go_list(words: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"


def check_job_change(out: Errors, raw: Raw, old: Raw) -> None:
    """What a job is cannot change while it runs; a suspended one that never began may get another template."""
    spec, before = raw.get("spec") or NO_MAP, old.get("spec") or NO_MAP
    for field in _FIXED:
        if field == "completions" and spec.get("completionMode") == "Indexed":
            _check_completions(out, spec, before)
        else:
            check_immutable(out, f"spec.{field}", spec.get(field), before.get(field))
    never_began = before.get("suspend") and not (old.get("status") or NO_MAP).get("startTime")
    if not never_began:
        check_immutable(out, "spec.template", spec.get("template"), before.get("template"))


def _check_completions(out: Errors, spec: Raw, before: Raw) -> None:
    """The completions of an indexed job change with its parallelism, or not at all; that they are there is judged."""
    wanted = spec.get("completions")
    if wanted is not None and wanted not in (before.get("completions"), spec.get("parallelism")):
        why = "can only be modified in tandem with spec.parallelism"
        out.append(invalid("spec.completions", wanted, why))


def check_cron_job(out: Errors, raw: Raw) -> None:
    meta, spec = meta_of(raw), raw.get("spec") or NO_MAP
    check_meta(out, meta, names.dns_subdomain, namespaced=True)
    if len(meta.get("name", "")) > _LONGEST_CRON_NAME:
        out.append(invalid("metadata.name", meta["name"], f"must be no more than {_LONGEST_CRON_NAME} characters"))
    _check_schedule(out, spec)
    for field in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        check_non_negative(out, f"spec.{field}", spec.get(field))
    policy = spec.get("concurrencyPolicy", "")
    if not policy:
        out.append(required("spec.concurrencyPolicy"))
    else:
        check_supported(out, "spec.concurrencyPolicy", policy, ("Allow", "Forbid", "Replace"))
    job = (spec.get("jobTemplate") or NO_MAP).get("spec") or NO_MAP
    if job.get("selector") is not None:
        out.append(invalid("spec.jobTemplate.spec.selector", job["selector"], "`selector` will be auto-generated"))
    if job.get("manualSelector"):
        out.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    check_job_spec(out, "spec.jobTemplate.spec", job)


def _check_schedule(out: Errors, spec: Raw) -> None:
    schedule, zone = spec.get("schedule", ""), spec.get("timeZone")
    if not schedule:
        out.append(required("spec.schedule"))
    elif "TZ" in schedule:
        both = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        alone = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        out.append(invalid("spec.schedule", schedule, both if zone is not None else alone))
    else:
        try:
            CronSchedule.parse(schedule)
        except InputError as error:
            out.append(invalid("spec.schedule", schedule, error.what))
    if zone is None:
        return
    if not zone:
        out.append(invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string"))
    elif zone.lower() == "local":
        why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        out.append(invalid("spec.timeZone", zone, why))
    elif not _is_zone(zone):
        out.append(invalid("spec.timeZone", zone, f"unknown time zone {zone}"))


@lru_cache(maxsize=128)
def _is_zone(name: str) -> bool:
    """Whether the database of time zones, which comes with the program as its schemas do, has the name."""
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
