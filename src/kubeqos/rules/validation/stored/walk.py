"""Follows an object along its schema and asks the tables about each field it meets.

A type is judged wherever it occurs. What no table mentions is held to the schema alone: a required text is not empty.
"""

from __future__ import annotations

from typing import Any

from kubeqos.model import schema
from kubeqos.rules.fielderror import required
from kubeqos.rules.validation.common import NO_MAP, Check, Errors, Raw, check_label_selector
from kubeqos.rules.validation.pods.scheduling import check_node_selector
from kubeqos.rules.validation.pods.volumes import check_host_path, check_nfs
from kubeqos.rules.validation.stored import admission, autoscaling, certificates, devices, networking, storage, system
from kubeqos.rules.validation.stored.checks import Fields, unjudged

_TABLES: tuple[dict[str, Fields], ...] = (
    admission.TYPES, autoscaling.TYPES, certificates.TYPES, devices.TYPES, networking.TYPES, storage.TYPES,
    system.TYPES,
)  # fmt: skip
TYPES: dict[str, Fields] = {key: fields for table in _TABLES for key, fields in table.items()}
"""What is said about the fields of a type, by the type's key in the schema."""
_JUDGED_ELSEWHERE = frozenset(("metadata", "status", "kind", "apiVersion"))
_ELSEWHERE = frozenset(("meta/v1.ObjectMeta", "core/v1.ObjectReference", "core/v1.PodTemplateSpec"))
"""Types that are judged elsewhere, or hold nothing that must be said."""
_WHOLE: dict[str, Check] = {
    "meta/v1.LabelSelector": check_label_selector,
    "core/v1.NodeSelector": check_node_selector,
    "core/v1.HostPathVolumeSource": check_host_path,
    "core/v1.NFSVolumeSource": check_nfs,
}
"""Types that pods have too, and what judges them there."""
_NO_FIELDS: Fields = {}


def check_fields(out: Errors, raw: Raw, kind: schema.TypeSchema) -> None:
    """Everything about an object of this kind but its metadata and its status."""
    said = TYPES.get(kind.key, _NO_FIELDS)
    for name, each in kind.fields.items():
        if name not in _JUDGED_ELSEWHERE:
            _check_field(out, name, raw.get(name), each, said)
    _ask(out, "", raw, said.get(""))


def check_status(out: Errors, raw: Raw, kind: schema.TypeSchema) -> None:
    """What a table says about the status itself. It is written by programs, so no field is missed in it."""
    status = kind.child("status")
    for name, checks in TYPES.get(status.key, _NO_FIELDS).items() if status else ():
        _ask(out, f"status.{name}", (raw.get("status") or NO_MAP).get(name), checks)


def _check_object(out: Errors, path: str, value: Raw, kind: schema.TypeSchema) -> None:
    if kind.key in _ELSEWHERE:
        return
    if (whole := _WHOLE.get(kind.key)) is not None:
        whole(out, path, value)
        return
    said = TYPES.get(kind.key, _NO_FIELDS)
    for name, each in kind.fields.items():
        _check_field(out, f"{path}.{name}", value.get(name), each, said)
    _ask(out, path, value, said.get(""))


def _check_field(out: Errors, path: str, value: Any, each: schema.Field, said: Fields) -> None:
    """A field of an object, and all that is below it."""
    shape, found = each.shape, said.get(each.name)
    if found is not None:
        _ask(out, path, value, found)
    elif shape.kind in ("string", "bytes") and each.required and not value:
        out.append(required(path))
    if (inner := shape.object_type) is None or found is unjudged:
        return
    if shape.kind == "list":
        for index, item in enumerate(value or ()):
            _check_object(out, f"{path}[{index}]", item, inner)
    elif shape.kind == "map":
        for key, item in (value or NO_MAP).items():
            _check_object(out, f"{path}[{key}]", item, inner)
    elif value is not None or each.always_written:  # what Go keeps as a plain struct is there, be it empty
        _check_object(out, path, value or NO_MAP, inner)


def _ask(out: Errors, path: str, value: Any, checks: Check | tuple[Check, ...] | None) -> None:
    if checks is None:
        return
    for check in checks if isinstance(checks, tuple) else (checks,):
        check(out, path, value)
