"""Objects within objects of defined kinds (`x-kubernetes-embedded-resource`): their metadata is as everybody's.

Called by the API server beside `rules.customresources`, which knows of the other fields. The schema of a definition
says nothing about the metadata of an object: it is pruned and judged by the type that every object's metadata has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeqos.model import names, schema
from kubeqos.rules.fielderror import FieldError, invalid, required
from kubeqos.rules.validation.common import Errors, check_non_negative, complain
from kubeqos.rules.validation.meta import check_common

Raw = dict[str, Any]
_METADATA = schema.type_named("meta/v1.ObjectMeta")
_UNKNOWN = 'unknown field "'


def embedded_in(value: Any, described: Raw, path: str = "") -> Iterator[tuple[str, Raw]]:
    """Every object within a value that is a resource by its schema, and where it is; the outer ones first."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from embedded_in(item, described.get("items") or {}, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    if described.get("x-kubernetes-embedded-resource"):
        yield path, value
    known, others = described.get("properties") or {}, described.get("additionalProperties")
    for name, item in value.items():
        if name in known:
            yield from embedded_in(item, known[name], f"{path}.{name}" if path else name)
        elif isinstance(others, dict):
            yield from embedded_in(item, others, f"{path}[{name}]")


def malformed(obj: Raw, described: Raw) -> FieldError | None:
    """What cannot be read as the marks or the metadata of an object, if anything: no schema can forgive it."""
    for path, inner in embedded_in(obj, described):
        for mark in ("apiVersion", "kind"):
            if mark in inner and not isinstance(inner[mark], str):
                return invalid(f"{path}.{mark}", inner[mark], "must be a string")
        if why := _unreadable(inner):
            return invalid(f"{path}.metadata", inner["metadata"], why)
    return None


def _unreadable(inner: Raw) -> str:
    metadata = inner.get("metadata")
    if metadata is None:
        return ""
    if not isinstance(metadata, dict):
        return f"json: cannot unmarshal {_json_name(metadata)} into Go value of type v1.ObjectMeta"
    return schema.check(metadata, _METADATA).error or ""


def _json_name(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "number"


def prune_metadata(obj: Raw, described: Raw) -> list[str]:
    """Take out of embedded metadata what no metadata has, in place; the paths of what was taken."""
    gone: list[str] = []
    for path, inner in embedded_in(obj, described):
        if "metadata" not in inner or _unreadable(inner):
            continue
        metadata = inner["metadata"] or {}
        unknown = schema.check(metadata, _METADATA).strict
        gone += [f"{path}.metadata.{text[len(_UNKNOWN) : -1]}" for text in unknown]
        inner["metadata"] = schema.normalise(metadata, _METADATA)
        if not inner["metadata"].get("creationTimestamp"):
            inner["metadata"].pop("creationTimestamp", None)
    return gone


def problems(obj: Raw, described: Raw) -> list[FieldError]:
    """Everything that is wrong with the marks and the metadata of embedded objects."""
    out: Errors = []
    for path, inner in embedded_in(obj, described):
        for mark in ("apiVersion", "kind"):
            _check_mark(out, f"{path}.{mark}", mark, inner)
        if why := _unreadable(inner):
            out.append(invalid(f"{path}.metadata", inner["metadata"], why))
        elif metadata := inner.get("metadata"):
            _check_metadata(out, f"{path}.metadata", metadata)
    return out


def _check_mark(out: Errors, path: str, mark: str, inner: Raw) -> None:
    value = inner.get(mark)
    if mark not in inner:
        out.append(required(path))
    elif not isinstance(value, str):
        out.append(invalid(path, value, "must be a string"))
    elif not value:
        out.append(invalid(path, value, "must not be empty"))
    elif mark == "apiVersion":
        if value.count("/") > 1:
            out.append(invalid(path, value, f"unexpected GroupVersion string: {value}"))
    elif wrong := names.dns_1035_label(value.lower()):
        out.append(invalid(path, value, f"may have mixed case, but should otherwise match: {','.join(wrong)}"))


def _check_metadata(out: Errors, path: str, metadata: Raw) -> None:
    for field, rule in (("name", names.path_segment), ("namespace", names.dns_label)):
        if value := metadata.get(field):
            complain(out, f"{path}.{field}", value, rule(value))
    check_non_negative(out, f"{path}.generation", metadata.get("generation"))
    check_common(out, metadata, path)
    for finalizer in metadata.get("finalizers") or ():
        complain(out, f"{path}.finalizers", finalizer, names.qualified_name(finalizer))
