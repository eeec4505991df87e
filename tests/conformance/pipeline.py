"""A write without a server: the pure rules in the order in which the API server calls them.

Conformance tests send recorded requests through this. The cluster holds the namespace `default`, and no LimitRange,
quota or priority class of its own, as the recorded one did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubeqos.rules.decoding import Undecodable, check_write_options, decode
from kubeqos.rules.defaulting.defaults import add_default_tolerations, apply_defaults, prepare_create
from kubeqos.rules.fielderror import Invalid
from kubeqos.rules.priority import PriorityClasses, resolve_priority
from kubeqos.rules.validation import validate, warnings

KINDS = {
    "pods": "Pod",
    "resourcequotas": "ResourceQuota",
    "limitranges": "LimitRange",
    "namespaces": "Namespace",
    "configmaps": "ConfigMap",
    "priorityclasses": "PriorityClass",
}
NAMESPACES = ("default",)
MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"


@dataclass
class Answer:
    """What the server would send: a status, or the object as it would be stored."""

    code: int
    reason: str | None = None
    message: str | None = None
    details: dict[str, Any] | None = None
    warnings: list[str] = field(default_factory=list)
    obj: dict[str, Any] | None = None

    @property
    def causes(self) -> list[list[str]]:
        return causes(self.details)


def causes(details: dict[str, Any] | None) -> list[list[str]]:
    """The causes of a Status as (field, reason, message), in a fixed order."""
    listed = (details or {}).get("causes") or ()
    return sorted([one.get("field", ""), one["reason"], one["message"]] for one in listed)


def refused(invalid: Invalid, warned: list[str]) -> Answer:
    return Answer(invalid.code, invalid.reason, invalid.message, invalid.details, warned)


def post(target: str, body: bytes, content_type: str = "application/json") -> Answer:
    """Create what `body` says at a path such as `/api/v1/namespaces/default/pods?dryRun=All`."""
    url = urlsplit(target)
    query = parse_qs(url.query, keep_blank_values=True)
    group, version, namespace, plural = _parse_path(url.path)
    kind = KINDS[plural]
    strictness: Any = query.get("fieldValidation", [""])[0]
    wrong = check_write_options(
        "CreateOptions",
        dry_run=query.get("dryRun"),
        field_manager=query.get("fieldManager", [""])[0],
        field_validation=strictness,
    )
    if wrong:
        return refused(wrong, [])
    decoded = decode(body, content_type, (group, version, kind), strictness)
    if isinstance(decoded, Undecodable):
        return Answer(decoded.code, decoded.reason, decoded.message)
    answer = create(kind, group, decoded.raw, namespace)
    answer.warnings[:0] = decoded.warnings
    return answer


def create(kind: str, group: str, raw: dict[str, Any], namespace: str) -> Answer:
    """Default, admit, prepare and validate one decoded object."""
    meta = raw.setdefault("metadata", {})
    if namespace:
        if meta.setdefault("namespace", namespace) != namespace:
            return Answer(400, "BadRequest", MISMATCH)
        if namespace not in NAMESPACES:
            return Answer(404, "NotFound", f'namespaces "{namespace}" not found')
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = f"{meta['generateName']}abcde"
    apply_defaults(kind, raw)
    if kind == "Pod":
        problem = resolve_priority(raw["spec"], PriorityClasses())
        if problem:
            return Answer(403, "Forbidden", f'pods "{meta.get("name", "")}" is forbidden: {problem}')
        add_default_tolerations(raw["spec"])
    prepare_create(kind, raw, "2026-01-01T00:00:00Z")
    errors = validate(kind, raw)
    if errors:
        return refused(Invalid(kind, group, meta.get("name", ""), errors), [])
    return Answer(201, warnings=warnings(kind, raw), obj=raw)


def _parse_path(path: str) -> tuple[str, str, str, str]:
    parts = path.strip("/").split("/")
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    if len(rest) == 3:
        return group, version, rest[1], rest[2]
    return group, version, "", rest[0]
