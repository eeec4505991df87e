"""From the bytes of a request to an object in canonical form, or to the refusal that Kubernetes would send.

One entry, `decode`: syntax, kind and version, types, unknown and duplicate fields. What comes out fits its type, has no
unknown fields and prints every quantity and time in its canonical form; defaults and validation come after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from kubeqos.codec import (
    JsonError,
    JsonNumber,
    YamlError,
    decode_json,
    decode_json_exact,
    decode_json_items,
    decode_json_members,
    decode_yaml,
)
from kubeqos.model import schema
from kubeqos.model.quantity import FORMAT_WRONG, NUMBER_WRONG, SUFFIX_WRONG
from kubeqos.model.schema import Shape, TypeSchema
from kubeqos.model.text.gojson import syntax_problem
from kubeqos.rules.fielderror import FieldError, Invalid, invalid, not_supported, too_long

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
FieldValidation = Literal["", "Ignore", "Strict", "Warn"]
FIELD_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
MAX_DEPTH = 200
MAX_MANAGER_BYTES = 128

_SCHEME = 'scheme "pkg/api/legacyscheme/scheme.go:30"'
_GO_TYPES = {list: "array", str: "string", int: "number", float: "number", bool: "bool", dict: "object"}
_HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_SUMMARY_BYTES = 30
_has_fraction = re.compile(rb"[\[,:]\s*-?[0-9]+[.eE]").search
_HEX = b"[0-9a-fA-F]"
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB]%b{2}\\u[dD][c-fC-F]%b{2}|(?P<lone>u[dD][89a-fA-F]%b{2})|.)" % (_HEX, _HEX, _HEX), re.DOTALL
)
"""Any escape of JSON: a surrogate pair, half of one, or another."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """An object in canonical form, and what the client should be warned about."""

    raw: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why a body is not an object of the expected kind."""

    code: int
    reason: str
    message: str


def decode(
    body: bytes,
    content_type: str,
    expected: tuple[str, str, str],
    field_validation: FieldValidation = "",
) -> Decoded | Undecodable:
    """Read a body that should hold an object of `expected` = (group, version, kind)."""
    group, version, kind = expected
    sent, body = body, _as_unicode(body)
    found = read_document(body, content_type)
    if isinstance(found, _Unreadable):
        if found.code == 415:
            return Undecodable(415, "UnsupportedMediaType", found.why)
        return _bad(unrecognized(kind, f"couldn't get version/kind; json parse error: {found.why}", sent))
    if why := _head_problem(found):
        return _bad(unrecognized(kind, why, sent))
    if problem := _kind_problem(found, group, version, kind):
        return problem
    api_version = f"{group}/{version}" if group else version
    raw = {**found, "kind": kind, "apiVersion": api_version}  # a body may leave both out
    is_json = media_type(content_type) in ("", JSON)
    shape = schema.kind(group, version, kind)
    findings = schema.check(found, shape, body if is_json and field_validation != "Ignore" else None)
    error = findings.error
    # Kubernetes reads a quantity from its token: one written with escapes is wrong although its text may be right.
    if error in (None, SUFFIX_WRONG, NUMBER_WRONG) and is_json and b"\\" in body and escapes_quantity(body, shape):
        error = FORMAT_WRONG
    prefix = f'{kind} in version "{version}" cannot be handled as a {kind}: '
    if error is not None:
        return _bad(prefix + error)
    if findings.strict and field_validation == "Strict":
        return _bad(f"{prefix}strict decoding error: {', '.join(findings.strict)}")
    raw = with_reset(raw)
    raw = _plain(schema.normalise(raw, shape)) if _has_fraction(body) else schema.normalise(raw, shape)
    return Decoded(raw, [] if field_validation == "Ignore" else findings.strict)


def with_reset(raw: dict[str, Any]) -> dict[str, Any]:
    """Whoever sends no managedFields leaves them alone; an empty list resets them, as one empty entry does."""
    metadata = raw.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        return {**raw, "metadata": {**metadata, "managedFields": [{}]}}
    return raw


def unrecognized(kind: str, why: str, body: bytes) -> str:
    """What is said of a body whose kind cannot even be told."""
    return f"the object provided is unrecognized (must be of type {kind}): {why} ({_summary(body)})"


def _bad(message: str) -> Undecodable:
    return Undecodable(400, "BadRequest", message)


def media_type(content_type: str) -> str:
    """The type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


# -- bytes to a tree -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Unreadable:
    why: str
    code: int = 400


def read_document(body: bytes, content_type: str) -> dict[str, Any] | _Unreadable:
    """The JSON object that a body holds. `null` is an object without fields, as it is for Go."""
    media = media_type(content_type)
    if media not in ("", JSON, YAML):
        why = "the body of the request was in an unknown format - accepted media types include"
        return _Unreadable(f"{why}: {JSON}, {YAML}, {PROTOBUF}", 415)
    value = _read_yaml(body) if media == YAML else _read_json(body)
    if value is None:
        return {}
    if isinstance(value, dict | _Unreadable):
        return value
    return _Unreadable(f"json: cannot unmarshal {_go_type(value)} into Go value of type {_HEAD}")


def _read_json(body: bytes) -> Any:
    try:
        value = decode_json_exact(body) if _has_fraction(body) else decode_json(body)
    except (JsonError, UnicodeDecodeError) as error:
        problem = syntax_problem(body)
        if problem is None and not body.lstrip().startswith((b"{", b"[", b'"')):
            problem = f"json: cannot unmarshal number into Go value of type {_HEAD}"  # well-formed, and too large
        return _Unreadable(problem or str(error))
    except RecursionError:
        return _Unreadable("exceeded max depth")
    # Cheap first: a text with few brackets cannot be deep.
    if body.count(b"{") + body.count(b"[") >= MAX_DEPTH and not _is_shallow(value):
        return _Unreadable("exceeded max depth")
    return value


def _as_unicode(body: bytes) -> bytes:
    """The body as Go reads it: what is not Unicode, or half of a surrogate pair, becomes U+FFFD."""
    if not body.isascii():
        body = body.decode("utf-8", "replace").encode()
    if b"\\u" not in body:
        return body
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found["lone"] else found[0], body)


def _read_yaml(body: bytes) -> Any:
    try:
        value = decode_yaml(body)
    except (YamlError, RecursionError) as error:
        return _Unreadable(f"error converting YAML to JSON: yaml: {error}")
    return value if _is_shallow(value) else _Unreadable("exceeded max depth")


def _is_shallow(value: Any) -> bool:
    """Whether no part is nested deeper than any API type could be."""
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper.extend(item.values())
            elif isinstance(item, list):
                deeper.extend(item)
        if not deeper:
            return True
        level = deeper
    return False


def escapes_quantity(body: bytes, shape: TypeSchema) -> bool:
    """Whether the text of a quantity is written with escapes, which Kubernetes does not undo before it reads one."""
    members = decode_json_members(body) or {}
    return any(
        b"\\" in token and name in shape.fields and _escapes_inside(token, shape.fields[name].shape)
        for name, token in members.items()
    )


def _escapes_inside(token: bytes, shape: Shape) -> bool:
    if shape.kind == "quantity":
        return True
    if shape.kind == "object" and (inner := shape.object_type):
        return escapes_quantity(token, inner)
    item = shape.of
    if item is None:
        return False
    tokens = decode_json_items(token) if shape.kind == "list" else (decode_json_members(token) or {}).values()
    return any(b"\\" in one and _escapes_inside(one, item) for one in tokens or ())


def _plain(value: Any) -> Any:
    """The tree with ordinary numbers, after quantities were read from the text of theirs."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, JsonNumber) else value


def _summary(body: bytes) -> str:
    """The beginning of a body: as text where it could be an object, in hexadecimal otherwise."""
    if not body:
        return "<empty>"
    start = body[:_SUMMARY_BYTES]
    shown = start.decode("utf-8", "replace") if body[:1] == b"{" else start.hex()
    return f"{shown} ..." if len(body) > _SUMMARY_BYTES else shown


def _go_type(value: Any) -> str:
    return "number" if isinstance(value, float) else _GO_TYPES[type(value)]


# -- which kind it claims to be ------------------------------------------------------------------------------------


def _head_problem(raw: dict[str, Any]) -> str | None:
    """Why the kind and version of a document cannot be told."""
    for name in ("apiVersion", "kind"):
        value = raw.get(name)
        if value is not None and not isinstance(value, str):
            problem = f"json: cannot unmarshal {_go_type(value)} into Go struct field .{name} of type string"
            return f"couldn't get version/kind; json parse error: {problem}"
    version = raw.get("apiVersion") or ""
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else None


def _kind_problem(raw: dict[str, Any], group: str, version: str, kind: str) -> Undecodable | None:
    api_version = f"{group}/{version}" if group else version
    given_kind, given_version = raw.get("kind") or kind, raw.get("apiVersion") or api_version
    if (given_kind, given_version) == (kind, api_version):
        return None
    given_group, _, short = given_version.rpartition("/")
    if (given_group, short, given_kind) in schema.kinds():
        home = group.partition(".")[0] or "core"
        why = f"converting ({short}.{given_kind}) to ({home}.{kind}): unknown conversion"
    else:
        why = f'no kind "{given_kind}" is registered for version "{given_version}" in {_SCHEME}'
    return _bad(f'{given_kind} in version "{short}" cannot be handled as a {kind}: {why}')


# -- options of a write --------------------------------------------------------------------------------------------


def check_write_options(
    options_kind: str,
    *,
    dry_run: Iterable[str] | None = None,
    field_manager: str = "",
    field_validation: str = "",
) -> Invalid | None:
    """What is wrong with the query of a create, update or patch; `options_kind` is CreateOptions or its like."""
    errors: list[FieldError] = []
    asked = list(dry_run or ())
    if any(value != "All" for value in asked):
        errors.append(not_supported("dryRun", asked, ("All",)))
    if len(field_manager.encode()) > MAX_MANAGER_BYTES:
        errors.append(too_long("fieldManager", MAX_MANAGER_BYTES))
    position = 0
    for char in field_manager:
        if not char.isprintable():
            why = f"invalid character U+{ord(char):04X} (at position {position})"
            errors.append(invalid("fieldManager", field_manager, why))
        position += len(char.encode("utf-8", "replace"))
    if field_validation not in FIELD_VALIDATIONS:
        errors.append(not_supported("fieldValidation", field_validation, FIELD_VALIDATIONS))
    return Invalid(options_kind, "meta.k8s.io", "", errors) if errors else None
