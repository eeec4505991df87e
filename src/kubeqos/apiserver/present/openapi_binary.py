"""The OpenAPI v2 document as protobuf, for clients that ask for it in no other form (client-go's discovery).

The numbers are those of the published message `openapi.v2.Document`. What has no field of its own, such as
`x-kubernetes-group-version-kind`, travels as YAML in a vendor extension; JSON is YAML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kubeqos.apiserver.protobuf import wire
from kubeqos.apiserver.protobuf.writing import tagged, text, varint
from kubeqos.codec import JsonObject, encode_json

MEDIA = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
BINARY = MEDIA.replace("@", ".")
"""As what it is sent: media types have no at sign."""
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "options": 6, "head": 7, "patch": 8}


def encode_document(document: JsonObject) -> bytes:
    """The whole document."""
    about = document["info"]
    paths = b"".join(_named(2, name, _path_item(item)) for name, item in document["paths"].items())
    definitions = b"".join(_named(1, name, _schema(found)) for name, found in document["definitions"].items())
    return b"".join(
        (
            text(1, document["swagger"]),
            _message(2, text(1, about["title"]) + text(2, about["version"])),
            _message(8, paths),
            _message(9, definitions),
        )
    )


def _message(number: int, data: bytes) -> bytes:
    return tagged(number, wire.BYTES, data)


def _named(number: int, name: str, value: bytes) -> bytes:
    return _message(number, text(1, name) + _message(2, value))


def _flag(number: int, value: bool) -> bytes:
    return tagged(number, wire.VARINT, varint(int(value)))


def _any(value: Any) -> bytes:
    return tagged(2, wire.BYTES, encode_json(value) + b"\n")


def _texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(text(number, value) for value in values)


def _extensions(number: int, found: JsonObject) -> bytes:
    return b"".join(_named(number, name, _any(value)) for name, value in found.items() if name.startswith("x-"))


def _path_item(item: JsonObject) -> bytes:
    operations = (_message(_METHODS[name], _operation(found)) for name, found in item.items() if name in _METHODS)
    return b"".join((*operations, _parameters(9, item.get("parameters") or ())))


def _operation(found: JsonObject) -> bytes:
    responses = b"".join(_named(1, code, _message(1, _response(answer))) for code, answer in found["responses"].items())
    return b"".join(
        (
            _texts(1, found["tags"]),
            text(5, found["operationId"]),
            _texts(6, found.get("produces") or ()),
            _texts(7, found.get("consumes") or ()),
            _parameters(8, found["parameters"]),
            _message(9, responses),
            _extensions(13, found),
        )
    )


def _response(answer: JsonObject) -> bytes:
    schema = answer.get("schema")
    return text(1, answer["description"]) + (_message(2, _message(1, _schema(schema))) if schema else b"")


def _parameters(number: int, found: Iterable[JsonObject]) -> bytes:
    return b"".join(_message(number, _message(1, _parameter(one))) for one in found)


def _parameter(one: JsonObject) -> bytes:
    if one["in"] == "body":
        body = text(2, one["name"]) + text(3, "body") + _flag(4, one["required"]) + _message(5, _schema(one["schema"]))
        return _message(1, body)
    # The numbers of a parameter in the path are those of one in the query, but for its type.
    place, type_number = (4, 5) if one["in"] == "path" else (3, 6)
    data = b"".join(
        (
            _flag(1, one.get("required", False)),
            text(2, one["in"]),
            text(3, one.get("description", "")),
            text(4, one["name"]),
            text(type_number, one["type"]),
        )
    )
    return _message(2, _message(place, data))


def _properties(found: JsonObject) -> bytes:
    return b"".join(_named(1, name, _schema(inner)) for name, inner in found.items())


def _additional(found: JsonObject | bool) -> bytes:
    return _flag(2, found) if isinstance(found, bool) else _message(1, _schema(found))


_SCHEMA: Mapping[str, tuple[int, Callable[[Any], bytes]]] = {
    "$ref": (1, str.encode),
    "format": (2, str.encode),
    "description": (4, str.encode),
    "default": (5, _any),
    "additionalProperties": (21, _additional),
    "type": (22, lambda name: text(1, name)),
    "items": (23, lambda inner: _message(1, _schema(inner))),
    "properties": (25, _properties),
}


def _schema(found: JsonObject) -> bytes:
    parts = []
    for name, value in found.items():
        if name == "required":
            parts.append(_texts(19, value))
        elif known := _SCHEMA.get(name):
            number, encode = known
            parts.append(_message(number, encode(value)))
    return b"".join((*parts, _extensions(31, found)))
