"""Request bodies to objects: JSON and YAML through the rules' decoder, protobuf through ours, refusals as a Status."""

from __future__ import annotations

from kubeqos.apiserver.present.documents import Unreadable, document
from kubeqos.apiserver.present.negotiation import PROTOBUF, media_type
from kubeqos.apiserver.present.options import field_validation
from kubeqos.apiserver.protobuf import decode_body
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.errors import InputError
from kubeqos.model import schema
from kubeqos.rules.decoding import Undecodable, decode, unrecognized
from kubeqos.web.status import ApiError, bad_request

_METADATA = schema.type_named("meta/v1.ObjectMeta")


def object_body(request: Request, kind: Kind) -> JsonObject:
    """The object that a create or update carries, checked against its type, in canonical form, as it is stored."""
    if kind.definition is not None:
        found = _defined_object(request, kind, field_validation(request))
        return found if kind.view is None else kind.view.stored(found)
    found = read_object(request, kind.kind, kind.group, kind.version, field_validation(request))
    return found if kind.view is None else kind.view.stored(found)


def _defined_object(request: Request, kind: Kind, validation: str) -> JsonObject:
    """An object of a kind that a definition added: pruned here, so that the client is told; judged by `writes`."""
    try:
        found = document(request)
    except Unreadable as error:
        raise bad_request(unrecognized(kind.kind, str(error), request.body)) from error
    if not isinstance(found, dict):
        raise bad_request(unrecognized(kind.kind, "it is not an object", request.body))
    given = (found.get("apiVersion") or kind.api_version, found.get("kind") or kind.kind)
    if given != (kind.api_version, kind.kind):
        wanted, sent = f"{kind.api_version}, Kind={kind.kind}", f"{given[0]}, Kind={given[1]}"
        raise bad_request(f"the API version and kind in the data ({sent}) do not match the expected ones ({wanted})")
    return completed_object({**found, "apiVersion": kind.api_version, "kind": kind.kind}, kind, validation, request)


def completed_object(obj: JsonObject, kind: Kind, validation: str, request: Request) -> JsonObject:
    """Without what the schema does not know; strict clients are refused, others warned."""
    assert kind.definition is not None
    metadata = obj.get("metadata") or {}
    found = schema.check({"metadata": metadata}, kind.schema)
    if problem := found.error or kind.definition.malformed(obj):
        raise bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {problem}')
    obj["metadata"] = schema.normalise(metadata, _METADATA)
    gone = [f'unknown field "{path}"' for path in kind.definition.complete(obj)]
    if gone and validation == "Strict":
        text = ", ".join(gone)
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: {text}'
        )
    if validation != "Ignore":
        request.warnings.extend(gone)
    return obj


def read_object(request: Request, name: str, group: str, version: str, validation: str) -> JsonObject:
    """A body that must hold one object of this kind (subresources carry kinds that have no table entry)."""
    body, content_type = request.body, request.content_type
    if media_type(content_type) == PROTOBUF:
        body, content_type = _as_json(body, name), "application/json"
    found = decode(body, content_type, (group, version, name), validation)  # type: ignore[arg-type]  # checked
    if isinstance(found, Undecodable):
        raise ApiError(found.code, found.reason, found.message)
    request.warnings.extend(found.warnings)
    found.raw.setdefault("metadata", {})
    return found.raw


def _as_json(body: bytes, name: str) -> bytes:
    try:
        return encode_json(decode_body(body))
    except InputError as error:
        raise bad_request(unrecognized(name, error.what, body)) from error
