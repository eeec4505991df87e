"""From a patched document to an object of its kind, or to the refusal that Kubernetes gives.

The three patches are decoded in two ways. A merge or JSON patch gives a JSON document, which is decoded like a body:
by the kind it names now. A strategic merge patch gives Go values, which are converted field by field and complain in
other words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from kubeqos.apiserver.patch.errors import bad_request, go_print, invalid
from kubeqos.apiserver.patch.jsonpatch import json_patch
from kubeqos.apiserver.patch.merge import merge_patch
from kubeqos.apiserver.patch.strategic import strategic_merge
from kubeqos.codec import JsonObject, encode_json
from kubeqos.errors import InputError
from kubeqos.model import schema as tables
from kubeqos.model.schema import Findings, Shape, TypeSchema, check, normalise
from kubeqos.rules.decoding import with_reset

Style = Literal["strategic", "merge", "json"]
FieldValidation = Literal["Strict", "Warn", "Ignore"]
_SCHEME = 'in scheme "pkg/api/legacyscheme/scheme.go:30"'
_DOCUMENT_STYLES: dict[str, Callable[[JsonObject, Any], JsonObject]] = {"merge": merge_patch, "json": json_patch}


class Patched(msgspec.Struct):
    """The object in canonical form, and what to warn the client about."""

    object: JsonObject
    warnings: list[str] = []


def apply_patch(
    style: Style, base: JsonObject, patch: Any, schema: TypeSchema, validation: FieldValidation = "Warn"
) -> Patched:
    """Patch an object and decode the result."""
    try:
        return _apply_patch(style, base, patch, schema, validation)
    except RecursionError as error:
        raise bad_request("the patch is nested deeper than any object can be") from error


def _apply_patch(
    style: Style, base: JsonObject, patch: Any, schema: TypeSchema, validation: FieldValidation
) -> Patched:
    if style == "strategic":
        # The patch is merged into the Go object, so its kind cannot be lost.
        head = {"apiVersion": base.get("apiVersion"), "kind": base.get("kind")}
        document = head | strategic_merge(base, patch, schema)
        found = check(document, schema)
        problem = found.error and (conversion_error(document, schema.shape) or found.error)
    else:
        document = _DOCUMENT_STYLES[style](base, patch)
        if isinstance(document, dict) and not document.get("apiVersion"):
            raise bad_request("Object 'apiVersion' is missing in the patched object")
        if isinstance(document, dict) and not document.get("kind"):
            document["kind"] = base.get("kind")  # a document that names no kind is of the kind that is patched
        found, problem = _decode_document(document, schema)
    if problem is None and found.strict and validation == "Strict":
        problem = "strict decoding error: " + ", ".join(found.strict)
    if problem:
        raise invalid(go_print(patch) if style == "strategic" else encode_json(document).decode(), problem)
    return Patched(normalise(with_reset(document), schema), found.strict if validation != "Ignore" else [])


def _decode_document(document: JsonObject, schema: TypeSchema) -> tuple[Findings, str | None]:
    version, kind = document.get("apiVersion", ""), document.get("kind", "")
    group, _, short = str(version).rpartition("/")
    try:
        named = tables.kind(group, short, str(kind))
    except InputError as error:
        return Findings(), f"{error.what} {_SCHEME}"
    found = check(document, named)
    if found.error is None and named is not schema:
        internal = schema.package.partition("/")[0]
        return found, f"converting ({named.go_name}) to ({internal}.{schema.name}): unknown conversion"
    return found, found.error


_SCALARS = {str: "string", bool: "bool", int: "int64", float: "float64"}
_GO_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}
_PARSED = ("quantity", "time", "microtime", "intstr")


def conversion_error(value: Any, shape: Shape) -> str | None:
    """What Go's converter from untyped values says about the first value that does not fit."""
    given = type(value)
    if value is None or shape.kind in ("any", "free"):
        return None
    if shape.kind == "object":
        inner = shape.object_type
        if given is not dict or inner is None:
            return f"cannot restore struct from: {_GO_KINDS[given]}"
        known = ((item, inner.fields[name].shape) for name, item in value.items() if name in inner.fields)
        return next((problem for item, of in known if (problem := conversion_error(item, of))), None)
    if shape.kind in ("list", "map") and shape.of:
        wanted = list if shape.kind == "list" else dict
        if given is not wanted:
            return f"cannot restore {'slice' if wanted is list else 'map'} from {_GO_KINDS[given]}"
        items = value if wanted is list else value.values()
        return next((problem for item in items if (problem := conversion_error(item, shape.of))), None)
    return _parsed_error(value, shape) if shape.kind in (*_PARSED, "bytes") else _scalar_error(value, shape)


def _parsed_error(value: Any, shape: Shape) -> str | None:
    """Values with a parser of their own are decoded as in a body."""
    holder = TypeSchema("core/v1.Value", False, [f"value {shape.kind}"])
    return check({"value": value}, holder).error


def _scalar_error(value: Any, shape: Shape) -> str | None:
    given = _SCALARS.get(type(value))
    wanted = {"float": "float64"}.get(shape.kind, shape.kind)
    if given == wanted or (given == "int64" and wanted in ("int32", "float64")):
        return None
    if given == "float64" and wanted in ("int32", "int64"):
        return None if value.is_integer() else f"cannot convert float64 to {wanted}"
    if given == "int64" and wanted == "string":
        return f"cannot convert int64 to {'v1.' + shape.alias if shape.alias else 'string'}"
    return f"unrecognized type: {wanted}"
