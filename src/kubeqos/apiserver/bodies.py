"""Request bodies to objects: decoding, the kind they claim to be, and strict field validation."""

from __future__ import annotations

from kubeqos.apiserver.documents import Unreadable, document
from kubeqos.apiserver.kinds import KINDS, Kind
from kubeqos.apiserver.negotiate import PROTOBUF, media_type
from kubeqos.apiserver.options import field_validation
from kubeqos.apiserver.protobuf import decode_body
from kubeqos.apiserver.requests import Request
from kubeqos.apiserver.status import ApiError, bad_request
from kubeqos.codec import JsonObject
from kubeqos.errors import InputError
from kubeqos.model import schema
from kubeqos.model.schema import TypeSchema

_SCHEME = 'scheme "pkg/api/legacyscheme/scheme.go:30"'
_GO_STRUCT = (
    'Go value of type struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string'
    ' "json:\\"kind,omitempty\\"" }'
)
_GO_NAMES = {list: "array", str: "string", int: "number", float: "number", bool: "bool"}


def object_body(request: Request, kind: Kind, options_kind: str) -> JsonObject:
    """The object that a create or update carries, checked against its type, in canonical form."""
    return read_object(request, kind.kind, kind.group, kind.version, field_validation(request, options_kind))


def read_object(request: Request, name: str, group: str, version: str, validation: str) -> JsonObject:
    """A body that must hold one object of this kind (subresources carry kinds that have no table entry)."""
    api_version = f"{group}/{version}" if group else version
    raw, body = _document(request, name)
    found_kind, found_version = raw.get("kind", name), raw.get("apiVersion", api_version)
    if not isinstance(found_kind, str) or not isinstance(found_version, str):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {name}): kind and apiVersion are strings"
        )
    if (found_kind or name, found_version or api_version) != (name, api_version):
        raise _wrong_kind(found_kind or name, found_version or api_version, name)
    metadata = raw.get("metadata")
    if metadata is None:
        metadata = {}
    raw = {"kind": name, "apiVersion": api_version, "metadata": metadata, **_rest(raw)}
    return checked(raw, schema.kind(group, version, name), validation, request.warnings, body)


def checked(
    raw: JsonObject, type_schema: TypeSchema, validation: str, warnings: list[str], body: bytes | None = None
) -> JsonObject:
    """Refuse what does not fit the type; warn about or refuse unknown and duplicate fields; canonical form."""
    findings = schema.check(raw, type_schema, body if validation != "Ignore" else None)
    kind, version = raw["kind"], str(raw["apiVersion"]).rpartition("/")[2]
    prefix = f'{kind} in version "{version}" cannot be handled as a {kind}: '
    if findings.error:
        raise bad_request(prefix + findings.error)
    if findings.strict:
        if validation == "Strict":
            raise bad_request(f"{prefix}strict decoding error: {', '.join(findings.strict)}")
        if validation == "Warn":
            warnings.extend(findings.strict)
    return schema.normalise(raw, type_schema)


def _rest(raw: JsonObject) -> JsonObject:
    return {k: v for k, v in raw.items() if k not in ("kind", "apiVersion", "metadata")}


def _document(request: Request, name: str) -> tuple[JsonObject, bytes | None]:
    if media_type(request.content_type) == PROTOBUF:
        try:
            return decode_body(request.body), None
        except InputError as error:
            raise bad_request(f"the object provided is unrecognized (must be of type {name}): {error.what}") from error
    prefix = (
        f"the object provided is unrecognized (must be of type {name}): couldn't get version/kind; json parse error: "
    )
    try:
        raw = document(request)
    except Unreadable as error:
        raise bad_request(f"{prefix}{error} ({_summary(request.body)})") from error
    if raw is None:
        return {}, None
    if not isinstance(raw, dict):
        problem = f"json: cannot unmarshal {_GO_NAMES.get(type(raw), 'value')} into {_GO_STRUCT}"
        raise bad_request(f"{prefix}{problem} ({_summary(request.body)})")
    if media_type(request.content_type) not in ("", "application/json"):
        return raw, None
    return raw, request.body


def _summary(body: bytes, limit: int = 30) -> str:
    """The beginning of a body, as text when it looks like JSON and in hexadecimal otherwise."""
    if not body:
        return "<empty>"
    shown = body[:limit].decode("utf-8", "replace") if body[:1] == b"{" else body[:limit].hex()
    return shown + (" ..." if len(body) > limit else "")


def _wrong_kind(found: str, api_version: str, wanted: str) -> ApiError:
    group, _, version = api_version.rpartition("/")
    known = next((k for k in KINDS if (k.kind, k.api_version) == (found, api_version)), None)
    if known is None:
        why = f'no kind "{found}" is registered for version "{api_version}" in {_SCHEME}'
    else:
        internal = group.partition(".")[0] or "core"
        why = f"converting ({version}.{found}) to ({internal}.{wanted}): unknown conversion"
    return bad_request(f'{found} in version "{version}" cannot be handled as a {wanted}: {why}')
