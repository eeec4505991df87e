"""Validation of events: leniently in the older form (`v1`), strictly in the newer one (`events.k8s.io/v1`).

Both are judged as they are stored, in the older form: what is said about the newer one names the older one's fields, as
in Kubernetes, but for the reporter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeqos.model import names
from kubeqos.rules.fielderror import invalid, required
from kubeqos.rules.validation.common import NO_MAP, Errors, Raw, check_immutable, complain
from kubeqos.rules.validation.meta import check_meta, check_meta_update, meta_of

_MAX_FIELD, _MAX_NOTE = 128, 1024
_TYPES = ("Normal", "Warning")
_LEFT_BEHIND: Mapping[str, Any] = {"firstTimestamp": None, "lastTimestamp": None, "count": 0, "source": NO_MAP}
"""Fields of the older form that nobody may set by the newer one, and what they are when they are not set."""
_FINAL: Mapping[str, Any] = {
    "involvedObject": NO_MAP, "reason": "", "message": "", **_LEFT_BEHIND, "type": "", "eventTime": None, "action": "",
    "related": None, "reportingInstance": "",
}  # fmt: skip
"""What an update by the newer form may not change, and what it is when it is not set. Only `series` may."""
_OLDER_REPORTER, _NEWER_REPORTER = "reportingComponent", "reportingController"


def check_event(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    _check_any(out, raw, _OLDER_REPORTER)


def check_newer_event(out: Errors, raw: Raw) -> None:
    check_meta(out, meta_of(raw), names.dns_subdomain, namespaced=True)
    _check_any(out, raw, _NEWER_REPORTER)
    _check_series(out, raw.get("series"))
    if not raw.get("eventTime"):
        out.append(required("eventTime"))
    kind = raw.get("type") or ""
    if kind not in _TYPES:
        out.append(invalid("type", "", f"has invalid value: {kind}"))
    for field, unset in _LEFT_BEHIND.items():
        if (raw.get(field) or unset) != unset:
            out.append(invalid(field, "", "needs to be unset"))


def check_newer_event_update(out: Errors, raw: Raw, old: Raw) -> None:
    check_meta_update(out, meta_of(raw), meta_of(old))
    _check_any(out, raw, _NEWER_REPORTER)
    if raw.get("series") != old.get("series"):
        _check_series(out, raw.get("series"))
    for field, unset in _FINAL.items():
        check_immutable(out, field, raw.get(field, unset), old.get(field, unset))
    now, was = (one.get(_OLDER_REPORTER, "") for one in (raw, old))
    check_immutable(out, _NEWER_REPORTER, now, was)


def _check_any(out: Errors, raw: Raw, reporter: str) -> None:
    """What holds for events of both forms."""
    namespace = meta_of(raw).get("namespace", "")
    about = (raw.get("involvedObject") or NO_MAP).get("namespace", "")
    timed = bool(raw.get("eventTime"))  # only events of the newer form have it, and they are held to more
    homes = ("", "default", "kube-system") if timed else ("", "default")
    if (about and about != namespace and not timed) or (not about and namespace not in homes):
        out.append(invalid("involvedObject.namespace", about, "does not match event.namespace"))
    if timed:
        _check_timed(out, raw, reporter)


def _check_timed(out: Errors, raw: Raw, reporter: str) -> None:
    who = raw.get(_OLDER_REPORTER, "")
    if not who:
        out.append(required(reporter))
    complain(out, reporter, who, names.qualified_name(who))
    for field in ("reportingInstance", "action", "reason", "message"):
        value, most = raw.get(field, ""), _MAX_NOTE if field == "message" else _MAX_FIELD
        if not value and field != "message":
            out.append(required(field))
        if len(value.encode()) > most:
            out.append(invalid(field, "", f"can have at most {most} characters"))


def _check_series(out: Errors, series: Raw | None) -> None:
    if series is None:
        return
    if (series.get("count") or 0) < 2:
        out.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        out.append(required("series.lastObservedTime"))
