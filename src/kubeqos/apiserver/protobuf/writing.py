"""Objects to messages: the opposite of `messages`, by the same tables.

A field is written when the object has it: what JSON leaves out is empty in protobuf, too. Called by `body` for answers
to clients that take nothing else.
"""

from __future__ import annotations

import base64
import datetime
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from kubeqos.apiserver.protobuf import wire
from kubeqos.apiserver.protobuf.messages import SCHEMA, UNIONS, WRAPPED, Union, embedded_in, numbers_of
from kubeqos.codec import JsonObject, encode_json_as_go
from kubeqos.model.schema import Shape, TypeSchema, type_named

Writer = Callable[[Any], bytes]


def varint(value: int) -> bytes:
    """An unsigned varint; negative numbers take all 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tagged(number: int, kind: int, data: bytes) -> bytes:
    """A field with its tag, and with its length where the wire type wants one."""
    tag = varint(number << 3 | kind)
    return tag + varint(len(data)) + data if kind == wire.BYTES else tag + data


def text(number: int, value: str) -> bytes:
    return tagged(number, wire.BYTES, value.encode())


def message_of(obj: JsonObject, key: str) -> bytes:
    """An object of a type as the bytes of a message."""
    return _written(obj, key, None)


def watch_frame(event_type: str, body: bytes) -> bytes:
    """An event of a watch, whose object is a whole body, with its length in front."""
    event = text(1, event_type) + tagged(2, wire.BYTES, tagged(1, wire.BYTES, body))
    return struct.pack(">I", len(event)) + event


def _written(obj: JsonObject, key: str, owner: TypeSchema | None) -> bytes:
    plan = _plan(key, owner)
    out = []
    for number, write in plan.embedded:
        inner = write(obj)
        if inner:
            out.append(tagged(number, wire.BYTES, inner))
    for name, value in obj.items():
        found = plan.fields.get(name)
        if found is not None and value is not None:
            out.append(found(value))
    return b"".join(out)


class _Plan:
    """A type compiled: how each field is written with its number, and the structs that are embedded."""

    __slots__ = ("embedded", "fields")

    def __init__(self, key: str, owner: TypeSchema | None) -> None:
        described = owner or type_named(key)
        self.fields: dict[str, Writer] = {}
        self.embedded: list[tuple[int, Writer]] = []
        for name, number in numbers_of(key).items():
            if name.startswith("<"):
                self.embedded.append((number, _embedded(embedded_in(key, name), described)))
            elif (key, name) in UNIONS:
                self.fields[name] = _union(number, described.fields[name].shape, UNIONS[key, name])
            elif (key, name) in WRAPPED:
                self.fields[name] = _wrapped(number)
            elif name in described.fields:
                self.fields[name] = _field(number, described.fields[name].shape)


_plan = cache(_Plan)


def _embedded(key: str, owner: TypeSchema) -> Writer:
    return lambda obj: _written(obj, key, owner)


def _field(number: int, shape: Shape) -> Writer:
    if shape.kind == "list" and shape.of:
        item = _field(number, shape.of)
        empty: Any = {"string": "", "any": None}.get(shape.of.kind, {})
        return lambda values: b"".join(item(empty if value is None else value) for value in values)
    if shape.kind == "map" and shape.of:
        return _map_field(number, shape.of)
    kind, write = _value(shape)
    return lambda value: tagged(number, kind, write(value))


def _wrapped(number: int) -> Writer:
    return lambda values: tagged(number, wire.BYTES, b"".join(text(1, value) for value in values))


def _union(number: int, shape: Shape, union: Union) -> Writer:
    """A schema or something else, each in its field of a message around them."""

    def wrapped(value: Any) -> bytes:
        if isinstance(value, dict):
            # That there is a schema says that anything it describes is allowed.
            allowed = varint(union.other << 3) + varint(1) if union.of == "bool" else b""
            return allowed + tagged(union.schema, wire.BYTES, _written(value, SCHEMA, None))
        if isinstance(value, bool):
            return varint(union.other << 3) + varint(value)
        return b"".join(
            text(union.other, one)
            if isinstance(one, str)
            else tagged(union.other, wire.BYTES, _written(one, SCHEMA, None))
            for one in value
        )

    if shape.kind != "map":
        return lambda value: tagged(number, wire.BYTES, wrapped(value))
    return lambda values: b"".join(
        tagged(number, wire.BYTES, text(1, key) + tagged(2, wire.BYTES, wrapped(value)))
        for key, value in sorted(values.items())
    )


def _map_field(number: int, of: Shape) -> Writer:
    """Entries are messages with key 1 and value 2, in the order of their keys, as Go writes them."""
    if of.kind == "list":  # a named list type: a message whose field 1 repeats
        item = _field(1, of)
        write: Writer = lambda value: tagged(2, wire.BYTES, item(value))  # noqa: E731
    else:
        write = _field(2, of)

    def entries(values: JsonObject) -> bytes:
        return b"".join(
            tagged(number, wire.BYTES, text(1, key) + (b"" if value is None else write(value)))
            for key, value in sorted(values.items())
        )

    return entries


def _value(shape: Shape) -> tuple[int, Writer]:
    if shape.kind == "object":
        key = shape.ref
        return wire.BYTES, lambda value: _written(value, key, None)
    return _SCALARS[shape.kind]


def _int_or_string(value: int | str) -> bytes:
    if isinstance(value, int):
        return varint(1 << 3) + varint(0) + varint(2 << 3) + varint(value) + text(3, "")
    return varint(1 << 3) + varint(1) + varint(2 << 3) + varint(0) + text(3, value)


def _moment(value: str) -> bytes:
    moment = datetime.datetime.fromisoformat(value)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    seconds = since.days * 86400 + since.seconds
    return varint(1 << 3) + varint(seconds) + varint(2 << 3) + varint(since.microseconds * 1000)


def _raw(value: Any) -> bytes:
    """JSON inside protobuf: FieldsV1 and RawExtension, as Go writes it."""
    return tagged(1, wire.BYTES, encode_json_as_go(value))


_SCALARS: dict[str, tuple[int, Writer]] = {
    "string": (wire.BYTES, str.encode),
    "bytes": (wire.BYTES, base64.b64decode),
    "bool": (wire.VARINT, varint),
    "int32": (wire.VARINT, varint),
    "int64": (wire.VARINT, varint),
    "float": (wire.FIXED64, lambda value: struct.pack("<d", value)),
    "quantity": (wire.BYTES, lambda value: text(1, str(value))),
    "intstr": (wire.BYTES, _int_or_string),
    "time": (wire.BYTES, _moment),
    "microtime": (wire.BYTES, _moment),
    "any": (wire.BYTES, _raw),
}
