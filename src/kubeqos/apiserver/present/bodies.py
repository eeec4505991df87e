"""Request bodies to objects: JSON and YAML through the rules' decoder, protobuf through ours, refusals as a Status."""

from __future__ import annotations

from kubeqos.apiserver.present.negotiation import PROTOBUF, media_type
from kubeqos.apiserver.present.options import field_validation
from kubeqos.apiserver.protobuf import decode_body
from kubeqos.apiserver.registry.kinds import Kind
from kubeqos.apiserver.requests import Request
from kubeqos.codec import JsonObject, encode_json
from kubeqos.errors import InputError
from kubeqos.rules.decoding import Undecodable, decode, unrecognized
from kubeqos.web.status import ApiError, bad_request


def object_body(request: Request, kind: Kind) -> JsonObject:
    """The object that a create or update carries, checked against its type, in canonical form, as it is stored."""
    found = read_object(request, kind.kind, kind.group, kind.version, field_validation(request))
    return found if kind.view is None else kind.view.stored(found)


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
