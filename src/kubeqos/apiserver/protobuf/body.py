"""The envelope of a protobuf body: four magic bytes, then runtime.Unknown with the kind and the message."""

from __future__ import annotations

from kubeqos.apiserver.protobuf import wire
from kubeqos.apiserver.protobuf.messages import Message, numbers
from kubeqos.apiserver.protobuf.writing import message_of, tagged, text
from kubeqos.codec import JsonError, JsonObject, decode_json
from kubeqos.errors import InputError
from kubeqos.model.schema import kinds

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
MAX_BODY = 3 * 1024 * 1024


def decode_body(body: bytes) -> JsonObject:
    """The object in a body, with apiVersion and kind. Values that were not set stay empty, as Go writes them."""
    if not body.startswith(MAGIC):
        raise InputError(
            f"provided data does not appear to be a protobuf message, expected prefix {_go_bytes(MAGIC)}",
            remedy="send the object as application/json",
        )
    if len(body) > MAX_BODY:
        raise InputError(f"protobuf body: {len(body)} bytes are more than {MAX_BODY}")
    version, kind, start, end, content_type = _envelope(body)
    head: JsonObject = {"apiVersion": version, "kind": kind}
    if content_type == "application/json":
        return {**_embedded_json(body[start:end]), **head}
    message = Message(body)
    return {**head, **message.read(_type_key(version, kind), start, end, 0, {})}


def encode_body(obj: JsonObject) -> bytes:
    """An object as a whole body."""
    version, kind = obj.get("apiVersion", ""), obj["kind"]
    about = text(1, version) + text(2, kind)
    raw = message_of(obj, _type_key(version, kind))
    return MAGIC + tagged(1, wire.BYTES, about) + tagged(2, wire.BYTES, raw) + text(3, "") + text(4, "")


def has_protobuf_form(group: str, version: str, kind: str) -> bool:
    """Whether objects of a kind can be written as protobuf: not those of the proposals and of definitions."""
    return kinds().get((group, version or "v1", kind), "") in numbers()


def _envelope(body: bytes) -> tuple[str, str, int, int, str]:
    version = kind = content_type = ""
    start = end = len(body)
    for number, wire_type, value, stop in wire.fields(body, len(MAGIC), len(body)):
        if wire_type != wire.BYTES:
            continue
        if number == 1:
            for inner, inner_type, inner_value, inner_stop in wire.fields(body, value, stop):
                if inner == 1 and inner_type == wire.BYTES:
                    version = wire.text(body, inner_value, inner_stop)
                elif inner == 2 and inner_type == wire.BYTES:
                    kind = wire.text(body, inner_value, inner_stop)
        elif number == 2:
            start, end = value, stop
        elif number == 4:
            content_type = wire.text(body, value, stop)
    return version, kind, start, end, content_type


def _type_key(version: str, kind: str) -> str:
    group, _, short = version.rpartition("/")
    served = kinds()
    # Options are sent in the version of the objects they are for; metadata alone has a group of its own; what tells of
    # the oldest group has none.
    shared = kind == "DeleteOptions" or group == "meta.k8s.io" or not version
    key = served.get((group, short, kind)) or (served.get(("", "v1", kind)) if shared else None)
    if key is None:
        raise InputError(f'no kind "{kind}" is registered for version "{version}"')
    return key


def _embedded_json(raw: bytes) -> JsonObject:
    try:
        found = decode_json(raw)
    except (JsonError, RecursionError, UnicodeDecodeError) as error:
        raise InputError("protobuf body: embedded JSON cannot be read") from error
    if not isinstance(found, dict):
        raise InputError("protobuf body: embedded JSON is not an object")
    return found


def _go_bytes(data: bytes) -> str:
    return "[" + " ".join(str(byte) for byte in data) + "]"
